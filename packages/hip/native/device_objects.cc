// Streams, events, modules, functions, graphs and launches of a device (device.h).
#include <cstring>

#include "device.h"

namespace xhip {

uint32_t Device::createStream() {
  enter();
  Stream stream = nullptr;
  check(Call::StreamCreate, counting_.streamCreate(&stream));
  return streams.add(stream);
}

void Device::destroyStream(uint32_t id) {
  enter();
  Stream handle = stream(id);
  if (counting_.capturing(handle)) {
    Graph graph = nullptr;
    if (counting_.streamEndCapture(handle, &graph) == 0) (void)counting_.graphDestroy(graph);
  }
  // A stream is destroyed idle: not every runtime lets queued work finish afterwards.
  Status status = counting_.streamSynchronize(handle);
  streams.remove(id);
  (void)counting_.streamDestroy(handle);
  check(Call::StreamSynchronize, status);
}

uint32_t Device::createEvent() {
  enter();
  EventEntry entry;
  check(Call::EventCreate, counting_.eventCreate(&entry.handle));
  return events.add(entry);
}

void Device::destroyEvent(uint32_t id) {
  enter();
  EventEntry& entry = event(id);
  if (entry.waiters > 0) {
    entry.doomed = true;
    return;
  }
  (void)counting_.eventDestroy(entry.handle);
  events.remove(id);
}

void Device::finishWait(uint32_t eventId) {
  EventEntry* entry = events.find(eventId);
  if (!entry || --entry->waiters > 0 || !entry->doomed) return;
  (void)counting_.eventDestroy(entry->handle);
  events.remove(eventId);
}

Event Device::takeEvent() {
  if (!spareEvents_.empty()) {
    Event event = spareEvents_.back();
    spareEvents_.pop_back();
    return event;
  }
  Event event = nullptr;
  check(Call::EventCreate, counting_.eventCreate(&event));
  return event;
}

bool Device::reaches(Device& source) {
  enter();
  bool reached = false;
  if (source.platform_ != platform_ || &source == this || source.closed()) return false;
  check(Call::PeerAccess, counting_.reachPeer(context_, source.context_, &reached));
  return reached;
}

void Device::copyFrom(Device& source, DevicePtr dst, DevicePtr src, size_t bytes, Stream to, Stream from) {
  source.enter();
  LentEvent ready(source);
  source.check(Call::EventRecord, source.counting_.eventRecord(ready.event, from));
  enter();
  LentEvent copied(*this);
  check(Call::StreamWaitEvent, counting_.streamWaitEvent(to, ready.event));
  check(Call::MemcpyPeer, counting_.memcpyPeerAsync(dst, context_, src, source.context_, bytes, to),
        std::to_string(bytes) + " bytes from device " + std::to_string(source.ordinal_));
  check(Call::EventRecord, counting_.eventRecord(copied.event, to));
  source.enter();
  source.check(Call::StreamWaitEvent, source.counting_.streamWaitEvent(from, copied.event));
}

uint32_t Device::loadModule(const void* image, size_t bytes) {
  enter();
  Module module = nullptr;
  check(Call::ModuleLoad, counting_.moduleLoad(&module, image, bytes),
        std::to_string(bytes) + " bytes for " + properties_.archFull);
  return modules.add(module);
}

void Device::unloadModule(uint32_t id) {
  enter();
  Module handle = module(id);
  const Status waited = waitToDispose("a module's disposal");
  std::vector<uint32_t> gone;
  functions.each([&](uint32_t function, FunctionEntry& entry) {
    if (entry.module == id) gone.push_back(function);
  });
  for (uint32_t function : gone) functions.remove(function);
  modules.remove(id);
  const Status status = counting_.moduleUnload(handle);
  check(Call::DeviceSynchronize, waited);
  check(Call::ModuleUnload, status);
}

uint32_t Device::getFunction(uint32_t moduleId, const std::string& name) {
  enter();
  FunctionEntry entry;
  entry.module = moduleId;
  entry.name = name;
  entry.early = counting_.beginsEarly(module(moduleId), name);
  // CUDA lets a kernel have 48 KiB of dynamic shared memory until it is asked for more.
  entry.maxSharedBytes = platform_ == Platform::Cuda ? 48 * 1024 : UINT32_MAX;
  check(Call::ModuleGetFunction, counting_.moduleGetFunction(&entry.handle, module(moduleId), name.c_str()),
        "function '" + name + "'");
  return functions.add(std::move(entry));
}

void Device::destroyGraph(uint32_t id) {
  enter();
  Graph handle = graph(id);
  graphs.remove(id);
  check(Call::GraphDestroy, counting_.graphDestroy(handle));
}

void Device::destroyGraphExec(uint32_t id) {
  enter();
  GraphExec handle = graphExec(id);
  const Status waited = waitToDispose("a graph instance's disposal");
  graphExecs.remove(id);
  const Status status = counting_.graphExecDestroy(handle);
  check(Call::DeviceSynchronize, waited);
  check(Call::GraphExecDestroy, status);
}

void Device::unpin(uint32_t id) {
  enter();
  uint8_t* const data = pinnedMemory(id).data;
  const Status waited = waitToDispose("the unlocking of memory");
  pinnedMemories.remove(id);
  const Status status = counting_.hostUnregister(data);
  check(Call::DeviceSynchronize, waited);
  check(Call::HostUnregister, status);
}

void Device::waitForAll(const char* what) { check(Call::DeviceSynchronize, waitToDispose(what)); }

Status Device::waitToDispose(const char* what) {
  enter();
  if (counting_.anyCapturing()) {
    invalidArgument(platformText(), std::string(what) + " must wait for the device, which is impossible while a stream is "
                                                        "being captured. Call endCapture() first");
  }
  return counting_.deviceSynchronize();
}

void Device::launch(const uint8_t* record) {
  enter();
  uint32_t words[kWordArgBytes + 1];
  std::memcpy(words, record, sizeof words);
  FunctionEntry* function = functions.find(words[kWordFunction]);
  if (!function) stale("function's module");
  Stream target = stream(words[kWordStream]);
  size_t argBytes = words[kWordArgBytes];
  if (argBytes > kLaunchArgsBytes) {
    invalidArgument(platformText(), "a launch has at most " + std::to_string(kLaunchArgsBytes) + " bytes of arguments");
  }
  LaunchConfig config;
  std::memcpy(config.grid, words + kWordGrid, sizeof config.grid);
  std::memcpy(config.block, words + kWordBlock, sizeof config.block);
  config.sharedBytes = words[kWordShared];
  config.early = function->early && (!counting_.capturing(target) || counting_.capturesEarly());
  Status status = 0;
  Call call = Call::Launch;
  if (config.sharedBytes > function->maxSharedBytes) {
    call = Call::FuncSetShared;
    status = counting_.functionSetMaxSharedBytes(function->handle, int(config.sharedBytes));
    if (status == 0) function->maxSharedBytes = config.sharedBytes;
  }
  if (status == 0) {
    call = Call::Launch;
    status = counting_.launch(function->handle, config, record + kLaunchArgsOffset, argBytes, target);
  }
  if (status == 0) return;
  auto triple = [](const uint32_t* v) {
    return "[" + std::to_string(v[0]) + ", " + std::to_string(v[1]) + ", " + std::to_string(v[2]) + "]";
  };
  std::string context = "kernel '" + function->name + "' with grid " + triple(config.grid) + ", block " +
                        triple(config.block) + " and " + std::to_string(config.sharedBytes) + " shared bytes on " +
                        properties_.archFull;
  if (counting_.blocking()) context += " (X_LAUNCH_BLOCKING=1: this launch itself failed)";
  throw HipFailure{describe(call, status, context)};
}

}  // namespace xhip
