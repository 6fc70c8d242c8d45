// Names and sentences of the host platform's status numbers, and the per-thread detail of the latest failure.
// The detail lives in plain thread-local arrays: a thread-local object with a destructor would pin the addon.
#include "status.h"

#include <cstdarg>
#include <cstdio>

namespace xhip::host {
namespace {

struct Entry {
  Status status;
  const char* name;
  const char* sentence;
};

const Entry kEntries[] = {
    {kSuccess, "hostSuccess", "no error"},
    {kInvalidValue, "hostErrorInvalidValue", "an argument is out of range"},
    {kOutOfMemory, "hostErrorOutOfMemory", "the machine has not enough memory"},
    {kInvalidConfiguration, "hostErrorInvalidConfiguration", "the launch has an impossible grid or block"},
    {kNoDevice, "hostErrorNoDevice", "this CPU cannot run the host platform"},
    {kInvalidDevice, "hostErrorInvalidDevice", "the host platform has one device, ordinal 0"},
    {kInvalidImage, "hostErrorInvalidImage", "the code object is not a loadable image for this CPU"},
    {kInvalidContext, "hostErrorInvalidContext", "this is not the open context of the host platform"},
    {kSharedObjectInitFailed, "hostErrorSharedObjectInitFailed", "the dynamic linker refused the code object"},
    {kInvalidHandle, "hostErrorInvalidHandle", "the handle is null, foreign or already destroyed"},
    {kIllegalState, "hostErrorIllegalState", "the object is not in a state that allows this call"},
    {kNotFound, "hostErrorNotFound", "the module has no function of that name"},
    {kNotReady, "hostErrorNotReady", "the queued work has not finished yet"},
    {kLaunchOutOfResources, "hostErrorLaunchOutOfResources", "the launch asks for more than a worker has"},
    {kContextIsDestroyed, "hostErrorContextIsDestroyed", "the context is not open"},
    {kLaunchFailure, "hostErrorLaunchFailure", "a kernel threw an exception"},
    {kStreamCaptureUnsupported, "hostErrorStreamCaptureUnsupported", "the call is not allowed while a stream captures"},
    {kStreamCaptureInvalidated, "hostErrorStreamCaptureInvalidated", "an earlier error made the capture invalid"},
    {kStreamCaptureMerge, "hostErrorStreamCaptureMerge", "the call would join two captures"},
    {kStreamCaptureUnmatched, "hostErrorStreamCaptureUnmatched", "the capture was begun on another stream"},
    {kStreamCaptureUnjoined, "hostErrorStreamCaptureUnjoined", "a forked stream was not joined before the capture's end"},
    {kStreamCaptureIsolation, "hostErrorStreamCaptureIsolation", "a capture cannot depend on work outside it"},
    {kCapturedEvent, "hostErrorCapturedEvent", "the event was last recorded in a capture"},
    {kUnknown, "hostErrorUnknown", "an unexpected error"},
};

const Entry& entryOf(Status status) {
  for (const Entry& entry : kEntries) {
    if (entry.status == status) return entry;
  }
  return kEntries[sizeof(kEntries) / sizeof(kEntries[0]) - 1];
}

thread_local Status lastStatus = kSuccess;
thread_local char lastDetail[512];
thread_local char description[640];

}  // namespace

const char* statusName(Status status) { return entryOf(status).name; }

const char* describe(Status status) {
  const char* sentence = entryOf(status).sentence;
  if (status == kSuccess || status != lastStatus || lastDetail[0] == 0) return sentence;
  std::snprintf(description, sizeof description, "%s: %s", sentence, lastDetail);
  return description;
}

Status fail(Status status, const char* format, ...) {
  va_list values;
  va_start(values, format);
  std::vsnprintf(lastDetail, sizeof lastDetail, format, values);
  va_end(values);
  lastStatus = status;
  return status;
}

}  // namespace xhip::host
