// Memory that the kernels of a group's other devices write to, for JavaScript.
#include <cstring>

#include "addon.h"
#include "peer_memory.h"

namespace xhip {
namespace {

PeerMemory& memoryArg(const Napi::CallbackInfo& info, Device& device) {
  std::unique_ptr<PeerMemory>* found = device.peerMemories.find(u32(info, 1));
  if (!found) invalidArgument(device.platformText(), "this memory of a group was given back");
  return **found;
}

// peerMemory(device, bytes) => { id, address, control, name: Uint8Array }; waits for the default stream
Napi::Value peerMemory(const Napi::CallbackInfo& info) {
  Napi::Env env = info.Env();
  Device& device = deviceArg(info);
  device.enter();
  auto memory = std::make_unique<PeerMemory>(device, size_t(u64(info, 1)));
  const PeerName name = memory->name();
  Napi::Uint8Array bytes = Napi::Uint8Array::New(env, sizeof name);
  std::memcpy(bytes.Data(), &name, sizeof name);
  Napi::Object out = Napi::Object::New(env);
  out.Set("address", double(memory->address()));
  out.Set("control", double(memory->control()));
  out.Set("name", bytes);
  out.Set("id", device.peerMemories.add(std::move(memory)));
  return out;
}

// peerReach(device, memory, name) => address
Napi::Value peerReach(const Napi::CallbackInfo& info) {
  Device& device = deviceArg(info);
  device.enter();
  PeerMemory& memory = memoryArg(info, device);
  const View bytes = view(info, 2);
  PeerName name;
  if (bytes.bytes != sizeof name) invalidArgument(device.platformText(), "the name of a rank's memory has another length");
  std::memcpy(&name, bytes.data, sizeof name);
  return Napi::Number::New(info.Env(), double(memory.reach(name)));
}

// peerWrite(device, memory, offset, view): into the own memory, by the default stream
Napi::Value peerWrite(const Napi::CallbackInfo& info) {
  Device& device = deviceArg(info);
  device.enter();
  PeerMemory& memory = memoryArg(info, device);
  const View bytes = view(info, 3);
  device.check(Call::MemcpyHtoD,
               device.table().memcpyHtoDAsync(memory.address() + u64(info, 2), bytes.data, bytes.bytes, device.stream(0)));
  return info.Env().Undefined();
}

// peerMissing(device, memory) => the rank that did not come, or -1
Napi::Value peerMissing(const Napi::CallbackInfo& info) {
  return Napi::Number::New(info.Env(), memoryArg(info, deviceArg(info)).missing());
}

// peerAbort(device, memory)
Napi::Value peerAbort(const Napi::CallbackInfo& info) {
  memoryArg(info, deviceArg(info)).abort();
  return info.Env().Undefined();
}

// peerFree(device, memory): waits for what was enqueued
Napi::Value peerFree(const Napi::CallbackInfo& info) {
  Device& device = deviceArg(info);
  device.enter();
  (void)memoryArg(info, device);
  const Status waited = device.waitToDispose("giving a group's memory back");
  (void)device.peerMemories.remove(u32(info, 1));
  device.check(Call::DeviceSynchronize, waited);
  return info.Env().Undefined();
}

}  // namespace

void exportPeers(Napi::Env env, Napi::Object exports) {
  exports.Set("peerMemory", Napi::Function::New<guarded<peerMemory>>(env));
  exports.Set("peerReach", Napi::Function::New<guarded<peerReach>>(env));
  exports.Set("peerWrite", Napi::Function::New<guarded<peerWrite>>(env));
  exports.Set("peerMissing", Napi::Function::New<guarded<peerMissing>>(env));
  exports.Set("peerAbort", Napi::Function::New<guarded<peerAbort>>(env));
  exports.Set("peerFree", Napi::Function::New<guarded<peerFree>>(env));
}

}  // namespace xhip
