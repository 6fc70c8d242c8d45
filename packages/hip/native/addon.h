// State of the addon in one environment (the main thread or a worker): drivers, open devices and the factory for error
// objects. It hangs on the environment as instance data and is destroyed with it; nothing here is shared between threads.
#pragma once

#define NAPI_VERSION 9
#include <napi.h>

#include <memory>
#include <new>
#include <vector>

#include "calls.h"
#include "device.h"
#include "driver.h"
#include "failure.h"
#include "faulty_driver.h"

namespace xhip {

// One platform as this environment sees it.
struct PlatformState {
  std::unique_ptr<Driver> driver;
  FaultyDriver* faulty = nullptr;  // the same, where tests have asked for it
  std::vector<std::string> searched;
  LoadFailure failure;      // why there is no driver or no device
  int deviceCount = 0;
  Context current = nullptr;  // what this thread last made current
};

class Addon {
 public:
  // Loads the platform's library if that has not succeeded before, and asks it for its devices.
  PlatformState& probe(Platform platform);
  // The platform's table with one in front of it that fails on request, for tests: devices opened from now on use it.
  FaultyDriver& faulty(Platform platform);
  Device& device(uint32_t id);
  uint32_t add(std::unique_ptr<Device> device, Napi::ObjectReference launchBuffer);
  // Whether a live allocation on this platform, of any device of this environment, holds the range.
  bool owns(Platform platform, DevicePtr pointer, size_t bytes) const;

  Napi::FunctionReference makeError;

 private:
  // Loads the platform's library; false, with the reason in the state, where there is none.
  bool load(Platform platform);

  // Order matters: devices are closed before their drivers go.
  PlatformState platforms_[kPlatformCount];
  std::vector<Napi::ObjectReference> launchBuffers_;  // keep each device's launch buffer alive
  std::vector<std::unique_ptr<Device>> devices_;  // closed ones stay: JavaScript may still hold their launch function
};

Addon& addonOf(napi_env env);

// A HipError of this environment, or null when the environment can no longer make one (it is being torn down).
napi_value makeErrorValue(napi_env env, const FailureInfo& info);

// Runs `body`, turning what it throws into a pending JavaScript exception.
template <class F>
auto contained(napi_env env, F body) -> decltype(body()) {
  FailureInfo info;
  try {
    return body();
  } catch (const HipFailure& failure) {
    info = failure.info;
  } catch (const std::bad_alloc&) {
    info.code = "OUT_OF_MEMORY";
    info.message = "the process ran out of host memory";
  }
  napi_value error = makeErrorValue(env, info);
  if (error) napi_throw(env, error);
  return {};
}

using Body = Napi::Value (*)(const Napi::CallbackInfo&);
template <Body body>
Napi::Value guarded(const Napi::CallbackInfo& info) {
  return contained(info.Env(), [&] { return body(info); });
}

// Arguments. They come from our own TypeScript, which has checked them; a wrong type is still an error, never a crash.
uint32_t u32(const Napi::CallbackInfo& info, size_t index);
uint64_t u64(const Napi::CallbackInfo& info, size_t index);  // a non-negative safe integer
std::string text(const Napi::CallbackInfo& info, size_t index);
Platform platformArg(const Napi::CallbackInfo& info, size_t index);
struct View {
  uint8_t* data = nullptr;
  size_t bytes = 0;
};
View view(const Napi::CallbackInfo& info, size_t index);
bool viewOf(napi_env env, napi_value value, View* out);
// The device named by the first argument.
Device& deviceArg(const Napi::CallbackInfo& info);

void exportPlatforms(Napi::Env env, Napi::Object exports);
void exportMemory(Napi::Env env, Napi::Object exports);
void exportStreams(Napi::Env env, Napi::Object exports);
void exportModules(Napi::Env env, Napi::Object exports);
void exportWaits(Napi::Env env, Napi::Object exports);
void exportLibraries(Napi::Env env, Napi::Object exports);
void exportCollectives(Napi::Env env, Napi::Object exports);
void exportPeers(Napi::Env env, Napi::Object exports);
void exportFileReads(Napi::Env env, Napi::Object exports);
void exportFaults(Napi::Env env, Napi::Object exports);

// Refuses a range that lies in no live allocation of this environment on the same platform (a peer device counts).
void requireRange(Addon& addon, Device& device, DevicePtr pointer, size_t bytes, const char* what);

}  // namespace xhip
