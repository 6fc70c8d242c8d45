// Modules and functions. Launching has its own entry, made per device (bind_platforms.cc).
#include "addon.h"

namespace xhip {
namespace {

// moduleLoad(device, code) => module
Napi::Value moduleLoad(const Napi::CallbackInfo& info) {
  View code = view(info, 1);
  return Napi::Number::New(info.Env(), deviceArg(info).loadModule(code.data, code.bytes));
}

Napi::Value moduleUnload(const Napi::CallbackInfo& info) {
  deviceArg(info).unloadModule(u32(info, 1));
  return Napi::Value();
}

// getFunction(device, module, name) => function
Napi::Value getFunction(const Napi::CallbackInfo& info) {
  return Napi::Number::New(info.Env(), deviceArg(info).getFunction(u32(info, 1), text(info, 2)));
}

}  // namespace

void exportModules(Napi::Env env, Napi::Object exports) {
  exports.Set("moduleLoad", Napi::Function::New<guarded<moduleLoad>>(env));
  exports.Set("moduleUnload", Napi::Function::New<guarded<moduleUnload>>(env));
  exports.Set("getFunction", Napi::Function::New<guarded<getFunction>>(env));
}

}  // namespace xhip
