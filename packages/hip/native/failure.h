// The one C++ exception of the addon. Code under the binding throws it; the binding's wrapper turns it into a HipError of
// the calling environment, so that nothing crosses the C boundary.
#pragma once

#include <string>

namespace xhip {

struct FailureInfo {
  std::string code;
  std::string message;
  std::string platform;    // empty when no platform is involved
  std::string call;        // hipMalloc, cuLaunchKernel, ...; empty when no driver call failed
  std::string driverName;  // hipErrorOutOfMemory, ...
  int status = 0;
  // Set for OUT_OF_MEMORY.
  double requestedBytes = -1;
  double freeBytes = -1;
  double totalBytes = -1;
};

struct HipFailure {
  FailureInfo info;
};

[[noreturn]] inline void invalidArgument(const std::string& platform, const std::string& message) {
  FailureInfo info;
  info.code = "INVALID_ARGUMENT";
  info.platform = platform;
  info.message = message;
  throw HipFailure{std::move(info)};
}

}  // namespace xhip
