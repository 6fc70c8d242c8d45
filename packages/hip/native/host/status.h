// Status numbers of the host platform. They are HIP's numbers wherever HIP has one, so that one table of meanings
// serves every platform; `fail` keeps a sentence about this very failure for the calling thread, because a number
// alone cannot say what the dynamic linker or the allocator found wrong.
#pragma once

#include "../driver.h"

namespace xhip::host {

enum : Status {
  kSuccess = 0,
  kInvalidValue = 1,
  kOutOfMemory = 2,
  kInvalidConfiguration = 9,
  kNoDevice = 100,
  kInvalidDevice = 101,
  kInvalidImage = 200,
  kInvalidContext = 201,
  kSharedObjectInitFailed = 303,
  kInvalidHandle = 400,
  kIllegalState = 401,
  kNotFound = 500,
  kNotReady = 600,
  kLaunchOutOfResources = 701,
  kContextIsDestroyed = 709,
  kLaunchFailure = 719,
  kStreamCaptureUnsupported = 900,
  kStreamCaptureInvalidated = 901,
  kStreamCaptureMerge = 902,
  kStreamCaptureUnmatched = 903,
  kStreamCaptureUnjoined = 904,
  kStreamCaptureIsolation = 905,
  kCapturedEvent = 907,
  kUnknown = 999,
};

// "hostErrorInvalidValue"; "hostErrorUnknown" for a number that this platform never returns.
const char* statusName(Status status);

// One sentence, followed by the detail of this thread's latest failure when that failure had the same status.
// The text is valid until the thread's next call of `describe` or `fail`.
const char* describe(Status status);

// Remembers the detail (printf style) for this thread and returns `status`.
#if defined(__GNUC__)
__attribute__((format(printf, 2, 3)))
#endif
Status fail(Status status, const char* format, ...);

}  // namespace xhip::host
