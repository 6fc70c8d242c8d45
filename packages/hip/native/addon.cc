// Module entry, instance data, arguments and error objects (addon.h).
#include "addon.h"

#include <cmath>
#include <mutex>

#include "report.h"

namespace xhip {
namespace {

// Loading and initialising a runtime from two threads at once is asking for trouble in any of them.
std::mutex gLoadMutex;

}  // namespace

Addon& addonOf(napi_env env) {
  void* data = nullptr;
  napi_get_instance_data(env, &data);
  return *static_cast<Addon*>(data);
}

bool Addon::load(Platform platform) {
  PlatformState& state = platforms_[uint32_t(platform)];
  if (state.driver) return true;
  if (platform == Platform::Host) {
    state.driver = makeHostDriver();
  } else {
    LoadResult result = platform == Platform::Rocm ? loadRocmDriver() : loadCudaDriver();
    state.driver = std::move(result.driver);
    state.searched = std::move(result.searched);
    state.failure = std::move(result.failure);
  }
  return state.driver != nullptr;
}

FaultyDriver& Addon::faulty(Platform platform) {
  PlatformState& state = platforms_[uint32_t(platform)];
  if (state.faulty) return *state.faulty;
  for (const auto& device : devices_) {
    if (device->platform() == platform && !device->closed()) {
      invalidArgument(platformName(platform), "faults of a platform with an open device. Ask for them before it is opened");
    }
  }
  std::lock_guard<std::mutex> lock(gLoadMutex);
  if (!load(platform)) invalidArgument(platformName(platform), state.failure.message);
  auto wrapped = std::make_unique<FaultyDriver>(std::move(state.driver));
  state.faulty = wrapped.get();
  state.driver = std::move(wrapped);
  state.deviceCount = 0;
  return *state.faulty;
}

PlatformState& Addon::probe(Platform platform) {
  PlatformState& state = platforms_[uint32_t(platform)];
  if (state.driver && state.deviceCount > 0) return state;
  std::lock_guard<std::mutex> lock(gLoadMutex);
  if (!load(platform)) return state;
  Call call = Call::Init;
  Status status = state.driver->init();
  // HIP without a GPU fails its init with hipErrorInvalidDevice; the device count says it better.
  if (status == 0 || platform == Platform::Rocm) {
    call = Call::DeviceCount;
    status = state.driver->deviceCount(&state.deviceCount);
  }
  if (status != 0) state.deviceCount = 0;
  state.failure = state.deviceCount > 0 ? LoadFailure() : explainNoDevice(platform, *state.driver, call, status);
  return state;
}

bool Addon::owns(Platform platform, DevicePtr pointer, size_t bytes) const {
  for (const auto& device : devices_) {
    if (device->platform() == platform && device->owns(pointer, bytes)) return true;
  }
  return false;
}

uint32_t Addon::add(std::unique_ptr<Device> device, Napi::ObjectReference launchBuffer) {
  launchBuffers_.push_back(std::move(launchBuffer));
  devices_.push_back(std::move(device));
  return uint32_t(devices_.size() - 1);
}

Device& Addon::device(uint32_t id) {
  if (id >= devices_.size()) invalidArgument("", "no such device handle: " + std::to_string(id));
  return *devices_[id];
}

napi_value makeErrorValue(napi_env env, const FailureInfo& info) {
  napi_value factory = nullptr;
  napi_value global = nullptr;
  Addon& addon = addonOf(env);
  if (addon.makeError.IsEmpty()) return nullptr;
  if (napi_get_reference_value(env, addon.makeError, &factory) != napi_ok || !factory) return nullptr;
  if (napi_get_global(env, &global) != napi_ok) return nullptr;
  napi_value args[9];
  const std::string* texts[] = {&info.code, &info.message, &info.platform, &info.call, &info.driverName};
  for (size_t i = 0; i < 5; i++) {
    if (napi_create_string_utf8(env, texts[i]->c_str(), texts[i]->size(), &args[i]) != napi_ok) return nullptr;
  }
  double numbers[] = {double(info.status), info.requestedBytes, info.freeBytes, info.totalBytes};
  for (size_t i = 0; i < 4; i++) {
    if (napi_create_double(env, numbers[i], &args[5 + i]) != napi_ok) return nullptr;
  }
  napi_value error = nullptr;
  if (napi_call_function(env, global, factory, 9, args, &error) != napi_ok) return nullptr;
  return error;
}

uint32_t u32(const Napi::CallbackInfo& info, size_t index) {
  uint32_t value = 0;
  if (index >= info.Length() || napi_get_value_uint32(info.Env(), info[index], &value) != napi_ok) {
    invalidArgument("", "argument " + std::to_string(index) + " must be an unsigned integer");
  }
  return value;
}

uint64_t u64(const Napi::CallbackInfo& info, size_t index) {
  double value = -1;
  bool ok = index < info.Length() && napi_get_value_double(info.Env(), info[index], &value) == napi_ok;
  if (!ok || !(value >= 0) || value > 9007199254740991.0 || std::floor(value) != value) {
    invalidArgument("", "argument " + std::to_string(index) + " must be a non-negative safe integer");
  }
  return uint64_t(value);
}

std::string text(const Napi::CallbackInfo& info, size_t index) {
  if (index >= info.Length() || !info[index].IsString()) {
    invalidArgument("", "argument " + std::to_string(index) + " must be a string");
  }
  return info[index].As<Napi::String>().Utf8Value();
}

Platform platformArg(const Napi::CallbackInfo& info, size_t index) {
  uint32_t value = u32(info, index);
  if (value >= kPlatformCount) invalidArgument("", "there is no platform " + std::to_string(value));
  return Platform(value);
}

bool viewOf(napi_env env, napi_value value, View* out) {
  bool is = false;
  void* data = nullptr;
  size_t length = 0;
  if (napi_is_typedarray(env, value, &is) == napi_ok && is) {
    napi_typedarray_type type;
    if (napi_get_typedarray_info(env, value, &type, &length, &data, nullptr, nullptr) != napi_ok) return false;
    static const size_t sizes[] = {1, 1, 1, 2, 2, 4, 4, 4, 8, 8, 8};
    if (size_t(type) >= sizeof sizes / sizeof sizes[0]) return false;
    length *= sizes[type];
  } else if (napi_is_dataview(env, value, &is) == napi_ok && is) {
    if (napi_get_dataview_info(env, value, &length, &data, nullptr, nullptr) != napi_ok) return false;
  } else if (napi_is_arraybuffer(env, value, &is) == napi_ok && is) {
    if (napi_get_arraybuffer_info(env, value, &data, &length) != napi_ok) return false;
  } else {
    return false;
  }
  out->data = static_cast<uint8_t*>(data);
  out->bytes = length;
  return true;
}

View view(const Napi::CallbackInfo& info, size_t index) {
  View result;
  if (index >= info.Length() || !viewOf(info.Env(), info[index], &result)) {
    invalidArgument("", "argument " + std::to_string(index) + " must be an ArrayBuffer, a typed array or a DataView");
  }
  return result;
}

Device& deviceArg(const Napi::CallbackInfo& info) { return addonOf(info.Env()).device(u32(info, 0)); }

namespace {

// setErrorFactory(make): make(code, message, platform, call, driverName, status, requested, free, total) => HipError
Napi::Value setErrorFactory(const Napi::CallbackInfo& info) {
  if (info.Length() < 1 || !info[0].IsFunction()) invalidArgument("", "the error factory must be a function");
  addonOf(info.Env()).makeError = Napi::Persistent(info[0].As<Napi::Function>());
  return info.Env().Undefined();
}

}  // namespace

static Napi::Object initialise(Napi::Env env, Napi::Object exports) {
  env.SetInstanceData(new Addon());
  exports.Set("setErrorFactory", Napi::Function::New<guarded<setErrorFactory>>(env));
  exportPlatforms(env, exports);
  exportMemory(env, exports);
  exportStreams(env, exports);
  exportModules(env, exports);
  exportWaits(env, exports);
  exportLibraries(env, exports);
  exportCollectives(env, exports);
  exportPeers(env, exports);
  exportFileReads(env, exports);
  exportFaults(env, exports);
  return exports;
}

}  // namespace xhip

static Napi::Object initialiseHip(Napi::Env env, Napi::Object exports) { return xhip::initialise(env, exports); }
NODE_API_MODULE(NODE_GYP_MODULE_NAME, initialiseHip)
