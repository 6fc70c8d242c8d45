// What a device really uses as its table: it forwards to the platform's driver, counts the calls that tests and
// benchmarks ask about, and with X_LAUNCH_BLOCKING=1 waits after each launch, copy and event, so that a fault comes back
// from the call that caused it. One per device; used on the environment's thread, except where noted and for what
// file_reader.h does.
#pragma once

#include <array>
#include <atomic>
#include <mutex>
#include <set>

#include "driver.h"

namespace xhip {

enum class Counter : uint32_t {
  ModuleLoad, ModuleUnload, GetFunction, Launch, Malloc, Free, HtoD, DtoH, DtoD, Memset, GraphLaunch,
  Library,
};
constexpr uint32_t kCounterCount = 12;
constexpr const char* kCounterNames[kCounterCount] = {
    "moduleLoad", "moduleUnload", "getFunction", "launch", "malloc", "free", "htod", "dtoh", "dtod", "memset", "graphLaunch",
    "library",
};

class CountingDriver final : public Driver {
 public:
  CountingDriver(Driver& inner, bool blocking) : inner_(inner), blocking_(blocking) {}

  uint64_t count(Counter which) const { return counts_[uint32_t(which)].load(std::memory_order_relaxed); }
  bool blocking() const { return blocking_; }
  // Any thread.
  bool capturing(Stream stream) const {
    if (!anyCapturing()) return false;
    std::lock_guard<std::mutex> lock(mutex_);
    return capturing_.count(stream) != 0;
  }
  bool anyCapturing() const { return captures_.load(std::memory_order_relaxed) != 0; }

  std::string libraryPath() const override { return inner_.libraryPath(); }
  std::string version() const override { return inner_.version(); }
  const char* errorName(Status s) const override { return inner_.errorName(s); }
  const char* errorString(Status s) const override { return inner_.errorString(s); }
  std::string failureDetail() override { return inner_.failureDetail(); }
  Status init() override { return inner_.init(); }
  Status deviceCount(int* count) override { return inner_.deviceCount(count); }
  Status deviceProperties(int ordinal, DeviceProperties* out) override { return inner_.deviceProperties(ordinal, out); }
  Status openContext(int ordinal, Context* out) override { return inner_.openContext(ordinal, out); }
  Status closeContext(Context c) override { return inner_.closeContext(c); }
  Status makeCurrent(Context c) override { return inner_.makeCurrent(c); }
  Status deviceSynchronize() override { return inner_.deviceSynchronize(); }
  Status memInfo(size_t* freeBytes, size_t* totalBytes) override { return inner_.memInfo(freeBytes, totalBytes); }

  Status malloc(DevicePtr* out, size_t bytes) override { return tick(Counter::Malloc), inner_.malloc(out, bytes); }
  Status free(DevicePtr p) override { return tick(Counter::Free), inner_.free(p); }
  Status hostMalloc(void** out, size_t bytes) override { return inner_.hostMalloc(out, bytes); }
  Status hostFree(void* p) override { return inner_.hostFree(p); }
  Status hostRegister(void* p, size_t bytes) override { return inner_.hostRegister(p, bytes); }
  Status hostUnregister(void* p) override { return inner_.hostUnregister(p); }
  Status memcpyHtoDAsync(DevicePtr dst, const void* src, size_t n, Stream s) override {
    return tick(Counter::HtoD), settle(inner_.memcpyHtoDAsync(dst, src, n, s), s);
  }
  Status memcpyPinnedAsync(DevicePtr dst, const void* src, size_t n, Stream s) override {
    return tick(Counter::HtoD), settle(inner_.memcpyPinnedAsync(dst, src, n, s), s);
  }
  bool hostAddresses() const override { return inner_.hostAddresses(); }
  Status memcpyDtoHAsync(void* dst, DevicePtr src, size_t n, Stream s) override {
    return tick(Counter::DtoH), settle(inner_.memcpyDtoHAsync(dst, src, n, s), s);
  }
  Status memcpyDtoDAsync(DevicePtr dst, DevicePtr src, size_t n, Stream s) override {
    return tick(Counter::DtoD), settle(inner_.memcpyDtoDAsync(dst, src, n, s), s);
  }
  Status memsetD8Async(DevicePtr dst, uint8_t value, size_t n, Stream s) override {
    return tick(Counter::Memset), settle(inner_.memsetD8Async(dst, value, n, s), s);
  }

  Status reachPeer(Context from, Context to, bool* reached) override { return inner_.reachPeer(from, to, reached); }
  Status memcpyPeerAsync(DevicePtr dst, Context to, DevicePtr src, Context from, size_t n, Stream s) override {
    return tick(Counter::DtoD), settle(inner_.memcpyPeerAsync(dst, to, src, from, n, s), s);
  }

  Status streamCreate(Stream* out) override { return inner_.streamCreate(out); }
  Status streamDestroy(Stream s) override { return inner_.streamDestroy(s); }
  Status streamSynchronize(Stream s) override { return inner_.streamSynchronize(s); }
  Status streamWaitEvent(Stream s, Event e) override { return settle(inner_.streamWaitEvent(s, e), s); }
  Status streamBeginCapture(Stream s) override {
    Status status = inner_.streamBeginCapture(s);
    if (status != 0) return status;
    std::lock_guard<std::mutex> lock(mutex_);
    capturing_.insert(s);
    captures_ = capturing_.size();
    return status;
  }
  Status streamEndCapture(Stream s, Graph* out) override {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      capturing_.erase(s);
      captures_ = capturing_.size();
    }
    return inner_.streamEndCapture(s, out);
  }

  Status eventCreate(Event* out) override { return inner_.eventCreate(out); }
  Status eventDestroy(Event e) override { return inner_.eventDestroy(e); }
  Status eventRecord(Event e, Stream s) override { return settle(inner_.eventRecord(e, s), s); }
  Status eventSynchronize(Event e) override { return inner_.eventSynchronize(e); }  // any thread
  Status eventQuery(Event e, bool* done) override { return inner_.eventQuery(e, done); }
  Status eventElapsedMs(float* out, Event start, Event end) override { return inner_.eventElapsedMs(out, start, end); }

  Status moduleLoad(Module* out, const void* image, size_t bytes) override {
    return tick(Counter::ModuleLoad), inner_.moduleLoad(out, image, bytes);
  }
  Status moduleUnload(Module m) override { return tick(Counter::ModuleUnload), inner_.moduleUnload(m); }
  bool beginsEarly(Module m, const std::string& name) override { return inner_.beginsEarly(m, name); }
  bool capturesEarly() override { return inner_.capturesEarly(); }
  Status moduleGetFunction(Function* out, Module m, const char* name) override {
    return tick(Counter::GetFunction), inner_.moduleGetFunction(out, m, name);
  }
  Status functionSetMaxSharedBytes(Function f, int n) override { return inner_.functionSetMaxSharedBytes(f, n); }
  Status launch(Function f, const LaunchConfig& config, const void* args, size_t argBytes, Stream s) override {
    return tick(Counter::Launch), settle(inner_.launch(f, config, args, argBytes, s), s);
  }

  Status enqueueTask(HostTask run, const void* payload, size_t bytes, uint64_t blocks, Stream s) override {
    return libraryCalled(inner_.enqueueTask(run, payload, bytes, blocks, s), s);
  }
  // Counts a vendor library's call that enqueued its work on the stream itself, and waits for it when blocking.
  Status libraryCalled(Status status, Stream s) { return tick(Counter::Library), settle(status, s); }

  Status graphInstantiate(GraphExec* out, Graph g) override { return inner_.graphInstantiate(out, g); }
  Status graphExecUpdate(GraphExec x, Graph g, bool* updated) override { return inner_.graphExecUpdate(x, g, updated); }
  Status graphLaunch(GraphExec x, Stream s) override {
    return tick(Counter::GraphLaunch), settle(inner_.graphLaunch(x, s), s);
  }
  Status graphDestroy(Graph g) override { return inner_.graphDestroy(g); }
  Status graphExecDestroy(GraphExec x) override { return inner_.graphExecDestroy(x); }

 private:
  void tick(Counter which) { counts_[uint32_t(which)].fetch_add(1, std::memory_order_relaxed); }
  // A stream that is being captured runs nothing, so there is nothing to wait for.
  Status settle(Status status, Stream s) {
    return !blocking_ || status != 0 || capturing(s) ? status : inner_.streamSynchronize(s);
  }

  Driver& inner_;
  const bool blocking_;
  mutable std::mutex mutex_;
  std::set<Stream> capturing_;  // under the mutex
  std::atomic<size_t> captures_{0};
  std::array<std::atomic<uint64_t>, kCounterCount> counts_{};
};

}  // namespace xhip
