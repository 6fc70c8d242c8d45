// Reports, opening and closing devices, run-time compilation.
#include <cstring>

#include "addon.h"
#include "dynlib.h"
#include "rtc.h"

namespace xhip {
namespace {

Napi::Array stringArray(Napi::Env env, const std::vector<std::string>& texts) {
  Napi::Array array = Napi::Array::New(env, texts.size());
  for (size_t i = 0; i < texts.size(); i++) array.Set(uint32_t(i), Napi::String::New(env, texts[i]));
  return array;
}

// report(platform) => { deviceCount, library, version, searched, code, name, message, remedy }
Napi::Value report(const Napi::CallbackInfo& info) {
  Napi::Env env = info.Env();
  PlatformState& state = addonOf(env).probe(platformArg(info, 0));
  Napi::Object out = Napi::Object::New(env);
  out.Set("deviceCount", state.deviceCount);
  out.Set("library", state.driver ? state.driver->libraryPath() : "");
  out.Set("version", state.driver ? state.driver->version() : "");
  out.Set("searched", stringArray(env, state.searched));
  out.Set("code", state.failure.code);
  out.Set("name", state.failure.name);
  out.Set("message", state.failure.message);
  out.Set("remedy", state.failure.remedy);
  return out;
}

Napi::Object propertiesObject(Napi::Env env, const DeviceProperties& p) {
  Napi::Object out = Napi::Object::New(env);
  out.Set("name", p.name);
  out.Set("arch", p.arch);
  out.Set("archFull", p.archFull);
  out.Set("pciBusId", p.pciBusId);
  out.Set("warpSize", p.warpSize);
  out.Set("multiprocessorCount", p.multiprocessorCount);
  out.Set("maxThreadsPerBlock", p.maxThreadsPerBlock);
  out.Set("maxThreadsPerMultiprocessor", p.maxThreadsPerMultiprocessor);
  out.Set("sharedMemoryPerBlock", p.sharedMemoryPerBlock);
  out.Set("clockRateKHz", p.clockRateKHz);
  out.Set("memoryClockRateKHz", p.memoryClockRateKHz);
  out.Set("memoryBusWidthBits", p.memoryBusWidthBits);
  out.Set("l2CacheBytes", p.l2CacheBytes);
  out.Set("integrated", p.integrated);
  out.Set("totalMemory", double(p.totalMemory));
  return out;
}

// The hot path: no arguments, one device per function, everything in the launch buffer.
napi_value launch(napi_env env, napi_callback_info callback) {
  void* data = nullptr;
  napi_get_cb_info(env, callback, nullptr, nullptr, nullptr, &data);
  Device* device = static_cast<Device*>(data);
  return contained(env, [&]() -> napi_value {
    device->launch(device->launchBuffer);
    return nullptr;
  });
}

// A shared buffer, because nobody can transfer it away: its memory stays where it is as long as it is referenced, which
// spares every launch a look at whether that still holds.
Napi::Object launchBuffer(Napi::Env env) {
  Napi::Function constructor = env.Global().Get("SharedArrayBuffer").As<Napi::Function>();
  return constructor.New({Napi::Number::New(env, double(kLaunchBufferBytes))});
}

// Node-API tells the address of a view only.
uint8_t* launchBytes(Napi::Env env, Napi::Object buffer) {
  Napi::Object bytes = env.Global().Get("Uint8Array").As<Napi::Function>().New({buffer});
  View view;
  if (!viewOf(env, bytes, &view) || view.bytes != kLaunchBufferBytes) invalidArgument("", "the launch buffer could not be made");
  return view.data;
}

// open(platform, ordinal) => { id, properties, launchBuffer, launch }
Napi::Value open(const Napi::CallbackInfo& info) {
  Napi::Env env = info.Env();
  Addon& addon = addonOf(env);
  Platform platform = platformArg(info, 0);
  uint32_t ordinal = u32(info, 1);
  PlatformState& state = addon.probe(platform);
  if (state.deviceCount == 0) {
    FailureInfo failure;
    failure.code = state.failure.code;
    failure.platform = platformName(platform);
    failure.driverName = state.failure.name;
    failure.message = state.failure.message + ". " + state.failure.remedy;
    throw HipFailure{std::move(failure)};
  }
  if (ordinal >= uint32_t(state.deviceCount)) {
    FailureInfo failure;
    failure.code = "NO_DEVICE";
    failure.platform = platformName(platform);
    failure.message = std::string(platformName(platform)) + " has " + std::to_string(state.deviceCount) +
                      " device(s), so there is no ordinal " + std::to_string(ordinal) + ". Use a smaller ordinal";
    throw HipFailure{std::move(failure)};
  }
  std::string blocking = environment("X_LAUNCH_BLOCKING");
  auto device = std::make_unique<Device>(platform, int(ordinal), *state.driver, &state.current,
                                         !blocking.empty() && blocking != "0");
  device->open();
  Napi::Object buffer = launchBuffer(env);
  device->launchBuffer = launchBytes(env, buffer);
  napi_value function = nullptr;
  if (napi_create_function(env, "launch", NAPI_AUTO_LENGTH, launch, device.get(), &function) != napi_ok) {
    invalidArgument(platformName(platform), "the launch function could not be created");
  }
  Napi::Object out = Napi::Object::New(env);
  out.Set("properties", propertiesObject(env, device->properties()));
  out.Set("launchBuffer", buffer);
  out.Set("launch", Napi::Value(env, function));
  out.Set("id", addon.add(std::move(device), Napi::Persistent(buffer)));
  return out;
}

// close(device): at once, or after the last asynchronous wait.
Napi::Value close(const Napi::CallbackInfo& info) {
  Device& device = deviceArg(info);
  if (device.pending > 0) {
    device.closing = true;
  } else {
    device.close();
  }
  return info.Env().Undefined();
}

// counters(device) => counts in the order of counterNames
Napi::Value counters(const Napi::CallbackInfo& info) {
  Device& device = deviceArg(info);
  Napi::Object out = Napi::Object::New(info.Env());
  for (uint32_t i = 0; i < kCounterCount; i++) {
    out.Set(kCounterNames[i], double(device.counting().count(Counter(i))));
  }
  return out;
}

// compiler(platform) => { available, library, version, searched, reason }
Napi::Value compiler(const Napi::CallbackInfo& info) {
  Napi::Env env = info.Env();
  CompilerInfo found = findCompiler(platformArg(info, 0));
  Napi::Object out = Napi::Object::New(env);
  out.Set("available", found.available);
  out.Set("library", found.library);
  out.Set("version", found.version);
  out.Set("searched", stringArray(env, found.searched));
  out.Set("reason", found.reason);
  return out;
}

// compile(platform, source, name, options) => Uint8Array
Napi::Value compile(const Napi::CallbackInfo& info) {
  Napi::Env env = info.Env();
  std::vector<std::string> options;
  if (info.Length() > 3 && info[3].IsArray()) {
    Napi::Array list = info[3].As<Napi::Array>();
    for (uint32_t i = 0; i < list.Length(); i++) {
      Napi::Value item = list.Get(i);
      if (!item.IsString()) invalidArgument("", "compiler options must be strings");
      options.push_back(item.As<Napi::String>().Utf8Value());
    }
  }
  CompileResult result = compileProgram(platformArg(info, 0), text(info, 1), text(info, 2), options);
  Napi::Uint8Array code = Napi::Uint8Array::New(env, result.code.size());
  if (!result.code.empty()) std::memcpy(code.Data(), result.code.data(), result.code.size());
  return code;
}

}  // namespace

void exportPlatforms(Napi::Env env, Napi::Object exports) {
  exports.Set("report", Napi::Function::New<guarded<report>>(env));
  exports.Set("open", Napi::Function::New<guarded<open>>(env));
  exports.Set("close", Napi::Function::New<guarded<close>>(env));
  exports.Set("counters", Napi::Function::New<guarded<counters>>(env));
  exports.Set("compiler", Napi::Function::New<guarded<compiler>>(env));
  exports.Set("compile", Napi::Function::New<guarded<compile>>(env));
  exports.Set("launchArgsOffset", double(kLaunchArgsOffset));
  exports.Set("launchArgsBytes", double(kLaunchArgsBytes));
}

}  // namespace xhip
