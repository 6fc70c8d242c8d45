// Device memory: allocation, copies, fills. Every range is checked against the live allocations, because on the host
// platform a wrong address would be a wild write, and on a GPU it would poison the context.
#include "addon.h"

namespace xhip {

void requireRange(Addon& addon, Device& device, DevicePtr pointer, size_t bytes, const char* what) {
  if (device.owns(pointer, bytes) || addon.owns(device.platform(), pointer, bytes)) return;
  invalidArgument(device.platformText(), std::string(what) + ": " + std::to_string(bytes) + " bytes at address " +
                                             std::to_string(pointer) +
                                             " are not inside one live allocation. Check the offset and the length, and that "
                                             "the buffer was not freed");
}

namespace {

// memoryInfo(device) => [free, total]
Napi::Value memoryInfo(const Napi::CallbackInfo& info) {
  Device& device = deviceArg(info);
  device.enter();
  size_t freeBytes = 0;
  size_t totalBytes = 0;
  device.check(Call::MemInfo, device.table().memInfo(&freeBytes, &totalBytes));
  Napi::Array out = Napi::Array::New(info.Env(), 2);
  out.Set(0u, double(freeBytes));
  out.Set(1u, double(totalBytes));
  return out;
}

// alloc(device, bytes) => address
Napi::Value alloc(const Napi::CallbackInfo& info) {
  return Napi::Number::New(info.Env(), double(deviceArg(info).alloc(u64(info, 1))));
}

// free(device, address)
Napi::Value free(const Napi::CallbackInfo& info) {
  deviceArg(info).free(u64(info, 1));
  return Napi::Value();
}

// htod(device, dst, view, stream)
Napi::Value htod(const Napi::CallbackInfo& info) {
  Device& device = deviceArg(info);
  device.enter();
  DevicePtr dst = u64(info, 1);
  View source = view(info, 2);
  Stream stream = device.idleStream(u32(info, 3), "a host-to-device copy");
  if (source.bytes == 0) return Napi::Value();
  requireRange(addonOf(info.Env()), device, dst, source.bytes, "memcpyHtoD destination");
  device.check(Call::MemcpyHtoD, device.table().memcpyHtoDAsync(dst, source.data, source.bytes, stream),
               std::to_string(source.bytes) + " bytes");
  return Napi::Value();
}

// pin(device, view) => number, or undefined where the platform refuses
Napi::Value pin(const Napi::CallbackInfo& info) {
  Device& device = deviceArg(info);
  device.enter();
  const View memory = view(info, 1);
  if (memory.bytes == 0) return info.Env().Undefined();
  if (device.table().hostRegister(memory.data, memory.bytes) != 0) {
    (void)device.table().failureDetail();
    return info.Env().Undefined();
  }
  return Napi::Number::New(info.Env(), device.pinnedMemories.add({memory.data, memory.bytes}));
}

Napi::Value unpin(const Napi::CallbackInfo& info) {
  deviceArg(info).unpin(u32(info, 1));
  return Napi::Value();
}

// htodPinned(device, pinned, from, dst, bytes, stream)
Napi::Value htodPinned(const Napi::CallbackInfo& info) {
  Device& device = deviceArg(info);
  device.enter();
  const PinnedMemory& memory = device.pinnedMemory(u32(info, 1));
  const uint64_t from = u64(info, 2);
  const DevicePtr dst = u64(info, 3);
  const size_t bytes = u64(info, 4);
  Stream stream = device.idleStream(u32(info, 5), "a host-to-device copy");
  if (bytes == 0) return Napi::Value();
  if (from > memory.bytes || bytes > memory.bytes - from) {
    invalidArgument(device.platformText(), "copy of " + std::to_string(bytes) + " bytes at " + std::to_string(from) + " from " +
                                               std::to_string(memory.bytes) + " bytes of page-locked memory. Check the offset and the length");
  }
  requireRange(addonOf(info.Env()), device, dst, bytes, "memcpyHtoD destination");
  device.check(Call::MemcpyHtoD, device.table().memcpyPinnedAsync(dst, memory.data + from, bytes, stream),
               std::to_string(bytes) + " bytes of page-locked memory");
  return Napi::Value();
}

// dtod(device, dst, src, bytes, stream)
Napi::Value dtod(const Napi::CallbackInfo& info) {
  Device& device = deviceArg(info);
  device.enter();
  DevicePtr dst = u64(info, 1);
  DevicePtr src = u64(info, 2);
  size_t bytes = u64(info, 3);
  Stream stream = device.stream(u32(info, 4));
  if (bytes == 0) return Napi::Value();
  requireRange(addonOf(info.Env()), device, dst, bytes, "memcpyDtoD destination");
  requireRange(addonOf(info.Env()), device, src, bytes, "memcpyDtoD source");
  device.check(Call::MemcpyDtoD, device.table().memcpyDtoDAsync(dst, src, bytes, stream),
               std::to_string(bytes) + " bytes");
  return Napi::Value();
}

// memset(device, dst, byte, bytes, stream)
Napi::Value memset(const Napi::CallbackInfo& info) {
  Device& device = deviceArg(info);
  device.enter();
  DevicePtr dst = u64(info, 1);
  uint32_t byte = u32(info, 2);
  size_t bytes = u64(info, 3);
  Stream stream = device.stream(u32(info, 4));
  if (bytes == 0) return Napi::Value();
  requireRange(addonOf(info.Env()), device, dst, bytes, "memset destination");
  device.check(Call::Memset, device.table().memsetD8Async(dst, uint8_t(byte), bytes, stream),
               std::to_string(bytes) + " bytes");
  return Napi::Value();
}

// reaches(device, source) => whether copyFrom works
Napi::Value reaches(const Napi::CallbackInfo& info) {
  Device& source = addonOf(info.Env()).device(u32(info, 1));
  return Napi::Boolean::New(info.Env(), deviceArg(info).reaches(source));
}

// copyFrom(device, dst, stream, source, src, sourceStream, bytes)
Napi::Value copyFrom(const Napi::CallbackInfo& info) {
  Device& device = deviceArg(info);
  Device& source = addonOf(info.Env()).device(u32(info, 3));
  DevicePtr dst = u64(info, 1);
  DevicePtr src = u64(info, 4);
  size_t bytes = u64(info, 6);
  source.enter();
  Stream from = source.idleStream(u32(info, 5), "a copy to another device");
  device.enter();
  Stream to = device.idleStream(u32(info, 2), "a copy from another device");
  requireRange(addonOf(info.Env()), device, dst, bytes, "copyFrom destination");
  requireRange(addonOf(info.Env()), source, src, bytes, "copyFrom source");
  if (bytes > 0) device.copyFrom(source, dst, src, bytes, to, from);
  return Napi::Value();
}

}  // namespace

void exportMemory(Napi::Env env, Napi::Object exports) {
  exports.Set("memoryInfo", Napi::Function::New<guarded<memoryInfo>>(env));
  exports.Set("alloc", Napi::Function::New<guarded<alloc>>(env));
  exports.Set("free", Napi::Function::New<guarded<free>>(env));
  exports.Set("htod", Napi::Function::New<guarded<htod>>(env));
  exports.Set("pin", Napi::Function::New<guarded<pin>>(env));
  exports.Set("unpin", Napi::Function::New<guarded<unpin>>(env));
  exports.Set("htodPinned", Napi::Function::New<guarded<htodPinned>>(env));
  exports.Set("dtod", Napi::Function::New<guarded<dtod>>(env));
  exports.Set("reaches", Napi::Function::New<guarded<reaches>>(env));
  exports.Set("copyFrom", Napi::Function::New<guarded<copyFrom>>(env));
  exports.Set("memset", Napi::Function::New<guarded<memset>>(env));
}

}  // namespace xhip
