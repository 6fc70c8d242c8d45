// Behind device.h: opening and closing, memory, and the error texts.
#include "device.h"

#include "peer_memory.h"
#include "report.h"

namespace xhip {

Status StagingPool::acquire(Driver& driver, size_t bytes, Buffer* out) {
  size_t rounded = kMinBytes;
  while (rounded < bytes) rounded *= 2;
  if (rounded > kCapBytes) rounded = bytes;  // would not be kept anyway
  auto found = idle_.find(rounded);
  if (found != idle_.end()) {
    *out = {found->second, rounded};
    idle_.erase(found);
    idleBytes_ -= rounded;
    return 0;
  }
  out->bytes = rounded;
  Status status = driver.hostMalloc(&out->host, rounded);
  if (status != 0 && idleBytes_ > 0) {
    clear(driver);
    status = driver.hostMalloc(&out->host, rounded);
  }
  return status;
}

void StagingPool::giveBack(Driver& driver, Buffer buffer) {
  if (idleBytes_ + buffer.bytes > kCapBytes) {
    (void)driver.hostFree(buffer.host);
    return;
  }
  idle_.emplace(buffer.bytes, buffer.host);
  idleBytes_ += buffer.bytes;
}

void StagingPool::clear(Driver& driver) {
  for (const auto& entry : idle_) (void)driver.hostFree(entry.second);
  idle_.clear();
  idleBytes_ = 0;
}

Device::Device(Platform platform, int ordinal, Driver& driver, Context* current, bool blocking)
    : platform_(platform), ordinal_(ordinal), counting_(driver, blocking), current_(current) {}

void Device::open() {
  Context context = nullptr;
  Status status = counting_.openContext(ordinal_, &context);
  if (status != 0) check(Call::OpenContext, status, "opening device " + std::to_string(ordinal_));
  context_ = context;
  *current_ = context;
  check(Call::DeviceProperties, counting_.deviceProperties(ordinal_, &properties_));
  createStream();  // becomes number 0, the default stream
}

void Device::close() {
  if (!context_) return;
  (void)counting_.makeCurrent(context_);
  streams.each([this](uint32_t, Stream& stream) {
    Graph graph = nullptr;
    if (counting_.capturing(stream) && counting_.streamEndCapture(stream, &graph) == 0) (void)counting_.graphDestroy(graph);
  });
  // A rank that closes without leaving its group must not wait for the others.
  communicators.each([](uint32_t, std::unique_ptr<Communicator>& communicator) { communicator->abort(); });
  peerMemories.each([](uint32_t, std::unique_ptr<PeerMemory>& memory) { memory->abort(); });
  (void)counting_.deviceSynchronize();
  communicators.clear();
  peerMemories.clear();
  for (auto& library : libraries) library.reset();
  fileReaders.clear();
  graphExecs.each([this](uint32_t, GraphExec& exec) { (void)counting_.graphExecDestroy(exec); });
  graphs.each([this](uint32_t, Graph& graph) { (void)counting_.graphDestroy(graph); });
  events.each([this](uint32_t, EventEntry& event) { (void)counting_.eventDestroy(event.handle); });
  for (Event event : spareEvents_) (void)counting_.eventDestroy(event);
  streams.each([this](uint32_t, Stream& stream) { (void)counting_.streamDestroy(stream); });
  modules.each([this](uint32_t, Module& module) { (void)counting_.moduleUnload(module); });
  for (const auto& entry : allocations_) (void)counting_.free(entry.first);
  pinnedMemories.each([this](uint32_t, PinnedMemory& memory) { (void)counting_.hostUnregister(memory.data); });
  staging.clear(counting_);
  pinnedMemories.clear();
  graphExecs.clear();
  graphs.clear();
  events.clear();
  spareEvents_.clear();
  streams.clear();
  functions.clear();
  modules.clear();
  allocations_.clear();
  (void)counting_.closeContext(context_);
  // Another device of the platform must make itself current again.
  *current_ = nullptr;
  context_ = nullptr;
}

void Device::enter() {
  if (!context_ || closing) {
    FailureInfo info;
    info.code = "DISPOSED";
    info.platform = platformText();
    info.message = std::string("the ") + platformText() + " device " + std::to_string(ordinal_) +
                   " was disposed. Open it again with openDevice()";
    throw HipFailure{std::move(info)};
  }
  if (*current_ == context_) return;
  Status status = counting_.makeCurrent(context_);
  if (status != 0) check(Call::MakeCurrent, status);
  *current_ = context_;
}

FailureInfo Device::describe(Call call, Status status, const std::string& context) {
  FailureInfo info;
  info.platform = platformText();
  info.call = callName(platform_, call);
  info.status = status;
  const char* name = counting_.errorName(status);
  const char* text = counting_.errorString(status);
  info.driverName = name ? name : "";
  info.code = "DRIVER_ERROR";
  if (status == kStatusOutOfMemory) info.code = "OUT_OF_MEMORY";
  if (call == Call::ModuleGetFunction && status == kStatusNotFound) info.code = "FUNCTION_NOT_FOUND";
  if (call == Call::OpenContext && (status == kStatusInvalidDevice || status == kStatusNoDevice)) info.code = "NO_DEVICE";
  info.message = info.call + " failed with " + info.driverName + " (" + std::to_string(status) + ")";
  if (text && info.driverName != text) info.message += std::string(": ") + text;
  if (!context.empty()) info.message += "; " + context;
  std::string detail = counting_.failureDetail();
  if (!detail.empty()) info.message += "; " + detail;
  std::string remedy = remedyFor(platform_, call, status, counting_.blocking());
  if (!remedy.empty()) info.message += ". " + remedy;
  return info;
}

void Device::check(Call call, Status status, const std::string& context) {
  if (status != 0) throw HipFailure{describe(call, status, context)};
}

void Device::stale(const char* what) {
  FailureInfo info;
  info.code = "DISPOSED";
  info.platform = platformText();
  info.message = std::string("the ") + what + " was disposed or belongs to another device. Create a new one on this device";
  throw HipFailure{std::move(info)};
}

DevicePtr Device::alloc(size_t bytes) {
  enter();
  DevicePtr pointer = 0;
  Status status = counting_.malloc(&pointer, bytes);
  if (status == 0) {
    allocations_.emplace(pointer, bytes);
    return pointer;
  }
  size_t freeBytes = 0;
  size_t totalBytes = 0;
  bool known = counting_.memInfo(&freeBytes, &totalBytes) == 0;
  std::string context = std::to_string(bytes) + " bytes requested";
  if (known) context += ", " + std::to_string(freeBytes) + " free of " + std::to_string(totalBytes);
  FailureInfo info = describe(Call::Malloc, status, context);
  info.requestedBytes = double(bytes);
  if (known) {
    info.freeBytes = double(freeBytes);
    info.totalBytes = double(totalBytes);
  }
  throw HipFailure{std::move(info)};
}

void Device::free(DevicePtr pointer) {
  enter();
  auto found = allocations_.find(pointer);
  if (found == allocations_.end()) {
    invalidArgument(platformText(), "free of address " + std::to_string(pointer) +
                                        ", which alloc() of this device did not return or which was freed already. Free "
                                        "each allocation once");
  }
  // What is being read into it would go to whoever has the memory next.
  for (const auto& entry : fileReads) {
    if (entry.first->target - pointer < found->second) entry.second->cancel(*entry.first);
  }
  // First: a driver that reports an earlier failure here has freed it, and may give the address to another allocation.
  allocations_.erase(found);
  check(Call::Free, counting_.free(pointer));
}

bool Device::owns(DevicePtr pointer, size_t bytes) const {
  auto after = allocations_.upper_bound(pointer);
  if (after != allocations_.begin()) {
    auto entry = std::prev(after);
    uint64_t offset = pointer - entry->first;
    if (offset <= entry->second && bytes <= entry->second - offset) return true;
  }
  bool covered = false;
  peerMemories.each([&](uint32_t, const std::unique_ptr<PeerMemory>& memory) { covered = covered || memory->covers(pointer, bytes); });
  return covered;
}

Stream Device::stream(uint32_t id) {
  Stream* found = streams.find(id);
  if (!found) stale("stream");
  return *found;
}

Stream Device::idleStream(uint32_t id, const char* what) {
  Stream found = stream(id);
  if (counting_.capturing(found)) {
    invalidArgument(platformText(), std::string(what) + " on a stream that is being captured: it cannot become part of a "
                                                        "graph. Do it before beginCapture() or after endCapture()");
  }
  return found;
}

EventEntry& Device::event(uint32_t id) {
  EventEntry* found = events.find(id);
  if (!found || found->doomed) stale("event");
  return *found;
}

Module Device::module(uint32_t id) {
  Module* found = modules.find(id);
  if (!found) stale("module");
  return *found;
}

Graph Device::graph(uint32_t id) {
  Graph* found = graphs.find(id);
  if (!found) stale("graph");
  return *found;
}

PinnedMemory& Device::pinnedMemory(uint32_t id) {
  PinnedMemory* found = pinnedMemories.find(id);
  if (!found) stale("page-locked memory");
  return *found;
}

GraphExec Device::graphExec(uint32_t id) {
  GraphExec* found = graphExecs.find(id);
  if (!found) stale("graph instance");
  return *found;
}

}  // namespace xhip
