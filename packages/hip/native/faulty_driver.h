// A table that fails when a test asks it to, in front of a platform's own. It counts the calls of every entry point, so that a
// test can go over all that a clean run makes, lets one of them fail, all of an entry point from one on (out of memory), or
// all calls from one on (a device that is gone), and knows what is live. Nothing in front of it tells it from a driver.
//
// Which half of a call is left out is what drivers do: calls that make or enqueue something fail without having done it;
// calls that give something back or wait do so and then report, as HIP and CUDA report errors of earlier work.
//
// Called from any thread. Only Addon::faulty (addon.h) makes one; no environment variable or option does.
#pragma once

#include <algorithm>
#include <atomic>
#include <iterator>
#include <map>
#include <memory>
#include <mutex>

#include "driver.h"

namespace xhip {

// Entry points in the table's order.
#define X_FAULT_ENTRIES(X)                                                                                          \
  X(init) X(deviceCount) X(deviceProperties) X(openContext) X(closeContext) X(makeCurrent) X(deviceSynchronize)     \
  X(memInfo) X(malloc) X(free) X(hostMalloc) X(hostFree) X(hostRegister) X(hostUnregister)                          \
  X(memcpyHtoDAsync) X(memcpyDtoHAsync) X(memcpyDtoDAsync) X(memsetD8Async) X(reachPeer) X(memcpyPeerAsync)         \
  X(streamCreate) X(streamDestroy) X(streamSynchronize) X(streamWaitEvent) X(streamBeginCapture) X(streamEndCapture) \
  X(eventCreate) X(eventDestroy) X(eventRecord) X(eventSynchronize) X(eventQuery) X(eventElapsedMs)                 \
  X(moduleLoad) X(moduleUnload) X(moduleGetFunction) X(functionSetMaxSharedBytes) X(launch) X(enqueueTask)          \
  X(graphInstantiate) X(graphExecUpdate) X(graphLaunch) X(graphDestroy) X(graphExecDestroy)

enum class Entry : uint32_t {
#define X_ENTRY(name) name,
  X_FAULT_ENTRIES(X_ENTRY)
#undef X_ENTRY
};
constexpr const char* kEntryNames[] = {
#define X_NAME(name) #name,
    X_FAULT_ENTRIES(X_NAME)
#undef X_NAME
};
constexpr uint32_t kEntryCount = std::size(kEntryNames);

// What of the platform is live.
enum class Live : uint32_t { contexts, allocations, bytes, pinned, streams, events, modules, graphs, graphExecs };
constexpr const char* kLiveNames[] = {"contexts", "allocations", "bytes", "pinned", "streams", "events", "modules", "graphs", "graphExecs"};
constexpr uint32_t kLiveCount = std::size(kLiveNames);

struct Fault {
  enum Reach : uint32_t { kOnce, kEntry, kAll };
  uint32_t entry = kEntryCount;  // kEntryCount: none is planned
  uint64_t nth = 0;              // from 1
  Status status = 0;
  Reach reach = kOnce;           // that call; that and all later ones of the entry point; that and all later ones of any
};

class FaultyDriver final : public Driver {
 public:
  explicit FaultyDriver(std::unique_ptr<Driver> inner) : inner_(std::move(inner)) {}

  // Begins to count anew.
  void plan(const Fault& fault) {
    std::lock_guard<std::mutex> lock(mutex_);
    fault_ = fault;
    hits_ = 0;
    std::fill(std::begin(counts_), std::end(counts_), 0);
  }
  uint64_t count(uint32_t entry) const { return counts_[entry]; }
  uint64_t hits() const { return hits_; }
  int64_t live(uint32_t what) const { return live_[what]; }

  std::string libraryPath() const override { return inner_->libraryPath(); }
  std::string version() const override { return inner_->version(); }
  const char* errorName(Status s) const override { return inner_->errorName(s); }
  const char* errorString(Status s) const override { return inner_->errorString(s); }
  std::string failureDetail() override { return inner_->failureDetail(); }
  bool beginsEarly(Module m, const std::string& name) override { return inner_->beginsEarly(m, name); }
  bool capturesEarly() override { return inner_->capturesEarly(); }

  Status init() override { return before(Entry::init, [&] { return inner_->init(); }); }
  Status deviceCount(int* count) override {
    *count = 0;
    return before(Entry::deviceCount, [&] { return inner_->deviceCount(count); });
  }
  Status deviceProperties(int ordinal, DeviceProperties* out) override {
    return before(Entry::deviceProperties, [&] { return inner_->deviceProperties(ordinal, out); });
  }
  Status openContext(int ordinal, Context* out) override {
    return made(Entry::openContext, Live::contexts, [&] { return inner_->openContext(ordinal, out); });
  }
  Status closeContext(Context c) override {
    return gone(Entry::closeContext, Live::contexts, [&] { return inner_->closeContext(c); });
  }
  Status makeCurrent(Context c) override { return before(Entry::makeCurrent, [&] { return inner_->makeCurrent(c); }); }
  Status deviceSynchronize() override { return after(Entry::deviceSynchronize, [&] { return inner_->deviceSynchronize(); }); }

  Status memInfo(size_t* freeBytes, size_t* totalBytes) override {
    return before(Entry::memInfo, [&] { return inner_->memInfo(freeBytes, totalBytes); });
  }
  Status malloc(DevicePtr* out, size_t bytes) override {
    Status status = made(Entry::malloc, Live::allocations, [&] { return inner_->malloc(out, bytes); });
    if (status == 0) resized(*out, bytes);
    return status;
  }
  Status free(DevicePtr p) override {
    return gone(Entry::free, Live::allocations, [&] {
      Status status = inner_->free(p);
      if (status == 0) resized(p, 0);
      return status;
    });
  }
  Status hostMalloc(void** out, size_t bytes) override {
    return made(Entry::hostMalloc, Live::pinned, [&] { return inner_->hostMalloc(out, bytes); });
  }
  Status hostFree(void* p) override {
    return gone(Entry::hostFree, Live::pinned, [&] { return inner_->hostFree(p); });
  }
  Status hostRegister(void* p, size_t bytes) override {
    return made(Entry::hostRegister, Live::pinned, [&] { return inner_->hostRegister(p, bytes); });
  }
  Status hostUnregister(void* p) override {
    return gone(Entry::hostUnregister, Live::pinned, [&] { return inner_->hostUnregister(p); });
  }

  Status memcpyHtoDAsync(DevicePtr dst, const void* src, size_t n, Stream s) override {
    return before(Entry::memcpyHtoDAsync, [&] { return inner_->memcpyHtoDAsync(dst, src, n, s); });
  }
  Status memcpyPinnedAsync(DevicePtr dst, const void* src, size_t n, Stream s) override {
    return before(Entry::memcpyHtoDAsync, [&] { return inner_->memcpyPinnedAsync(dst, src, n, s); });
  }
  bool hostAddresses() const override { return inner_->hostAddresses(); }
  Status memcpyDtoHAsync(void* dst, DevicePtr src, size_t n, Stream s) override {
    return before(Entry::memcpyDtoHAsync, [&] { return inner_->memcpyDtoHAsync(dst, src, n, s); });
  }
  Status memcpyDtoDAsync(DevicePtr dst, DevicePtr src, size_t n, Stream s) override {
    return before(Entry::memcpyDtoDAsync, [&] { return inner_->memcpyDtoDAsync(dst, src, n, s); });
  }
  Status memsetD8Async(DevicePtr dst, uint8_t value, size_t n, Stream s) override {
    return before(Entry::memsetD8Async, [&] { return inner_->memsetD8Async(dst, value, n, s); });
  }
  Status reachPeer(Context from, Context to, bool* reached) override {
    return before(Entry::reachPeer, [&] { return inner_->reachPeer(from, to, reached); });
  }
  Status memcpyPeerAsync(DevicePtr dst, Context to, DevicePtr src, Context from, size_t n, Stream s) override {
    return before(Entry::memcpyPeerAsync, [&] { return inner_->memcpyPeerAsync(dst, to, src, from, n, s); });
  }

  Status streamCreate(Stream* out) override {
    return made(Entry::streamCreate, Live::streams, [&] { return inner_->streamCreate(out); });
  }
  Status streamDestroy(Stream s) override {
    return gone(Entry::streamDestroy, Live::streams, [&] { return inner_->streamDestroy(s); });
  }
  Status streamSynchronize(Stream s) override {
    return after(Entry::streamSynchronize, [&] { return inner_->streamSynchronize(s); });
  }
  Status streamWaitEvent(Stream s, Event e) override {
    return before(Entry::streamWaitEvent, [&] { return inner_->streamWaitEvent(s, e); });
  }
  Status streamBeginCapture(Stream s) override {
    return before(Entry::streamBeginCapture, [&] { return inner_->streamBeginCapture(s); });
  }
  // The capture ends, and there is no graph.
  Status streamEndCapture(Stream s, Graph* out) override {
    *out = nullptr;
    const Status fault = hit(Entry::streamEndCapture);
    const Status status = inner_->streamEndCapture(s, out);
    if (fault == 0) return counted(Live::graphs, status);
    if (status == 0) (void)inner_->graphDestroy(*out);
    *out = nullptr;
    return fault;
  }

  Status eventCreate(Event* out) override {
    return made(Entry::eventCreate, Live::events, [&] { return inner_->eventCreate(out); });
  }
  Status eventDestroy(Event e) override {
    return gone(Entry::eventDestroy, Live::events, [&] { return inner_->eventDestroy(e); });
  }
  Status eventRecord(Event e, Stream s) override {
    return before(Entry::eventRecord, [&] { return inner_->eventRecord(e, s); });
  }
  Status eventSynchronize(Event e) override {
    return after(Entry::eventSynchronize, [&] { return inner_->eventSynchronize(e); });
  }
  Status eventQuery(Event e, bool* done) override {
    return before(Entry::eventQuery, [&] { return inner_->eventQuery(e, done); });
  }
  Status eventElapsedMs(float* out, Event start, Event end) override {
    return before(Entry::eventElapsedMs, [&] { return inner_->eventElapsedMs(out, start, end); });
  }

  Status moduleLoad(Module* out, const void* image, size_t bytes) override {
    return made(Entry::moduleLoad, Live::modules, [&] { return inner_->moduleLoad(out, image, bytes); });
  }
  Status moduleUnload(Module m) override {
    return gone(Entry::moduleUnload, Live::modules, [&] { return inner_->moduleUnload(m); });
  }
  Status moduleGetFunction(Function* out, Module m, const char* name) override {
    return before(Entry::moduleGetFunction, [&] { return inner_->moduleGetFunction(out, m, name); });
  }
  Status functionSetMaxSharedBytes(Function f, int bytes) override {
    return before(Entry::functionSetMaxSharedBytes, [&] { return inner_->functionSetMaxSharedBytes(f, bytes); });
  }
  Status launch(Function f, const LaunchConfig& config, const void* args, size_t argBytes, Stream s) override {
    return before(Entry::launch, [&] { return inner_->launch(f, config, args, argBytes, s); });
  }
  Status enqueueTask(HostTask run, const void* payload, size_t bytes, uint64_t blocks, Stream s) override {
    return before(Entry::enqueueTask, [&] { return inner_->enqueueTask(run, payload, bytes, blocks, s); });
  }

  Status graphInstantiate(GraphExec* out, Graph g) override {
    return made(Entry::graphInstantiate, Live::graphExecs, [&] { return inner_->graphInstantiate(out, g); });
  }
  Status graphExecUpdate(GraphExec x, Graph g, bool* updated) override {
    return before(Entry::graphExecUpdate, [&] { return inner_->graphExecUpdate(x, g, updated); });
  }
  Status graphLaunch(GraphExec x, Stream s) override {
    return before(Entry::graphLaunch, [&] { return inner_->graphLaunch(x, s); });
  }
  Status graphDestroy(Graph g) override {
    return gone(Entry::graphDestroy, Live::graphs, [&] { return inner_->graphDestroy(g); });
  }
  Status graphExecDestroy(GraphExec x) override {
    return gone(Entry::graphExecDestroy, Live::graphExecs, [&] { return inner_->graphExecDestroy(x); });
  }

 private:
  // Counts the call. Returns what it is to fail with, or 0.
  Status hit(Entry entry) {
    std::lock_guard<std::mutex> lock(mutex_);
    const uint64_t nth = ++counts_[uint32_t(entry)];
    const bool own = uint32_t(entry) == fault_.entry;
    const bool begins = own && nth == fault_.nth;
    const bool begun = hits_ > 0 && (fault_.reach == Fault::kAll || (own && fault_.reach == Fault::kEntry));
    if (!begins && !begun) return 0;
    hits_++;
    return fault_.status;
  }
  template <class F>
  Status before(Entry entry, F call) {
    const Status fault = hit(entry);
    return fault != 0 ? fault : call();
  }
  template <class F>
  Status after(Entry entry, F call) {
    const Status fault = hit(entry);
    const Status status = call();
    return fault != 0 ? fault : status;
  }
  template <class F>
  Status made(Entry entry, Live what, F call) {
    const Status fault = hit(entry);
    return fault != 0 ? fault : counted(what, call());
  }
  template <class F>
  Status gone(Entry entry, Live what, F call) {
    return after(entry, [&] {
      const Status status = call();
      if (status == 0) live_[uint32_t(what)]--;
      return status;
    });
  }
  Status counted(Live what, Status status) {
    if (status == 0) live_[uint32_t(what)]++;
    return status;
  }
  void resized(DevicePtr pointer, size_t bytes) {
    std::lock_guard<std::mutex> lock(mutex_);
    size_t& known = sizes_[pointer];
    live_[uint32_t(Live::bytes)] += int64_t(bytes) - int64_t(known);
    known = bytes;
    if (bytes == 0) sizes_.erase(pointer);
  }

  const std::unique_ptr<Driver> inner_;
  std::mutex mutex_;
  Fault fault_;
  std::atomic<uint64_t> hits_{0};
  std::atomic<uint64_t> counts_[kEntryCount] = {};
  std::atomic<int64_t> live_[kLiveCount] = {};
  std::map<DevicePtr, size_t> sizes_;
};

}  // namespace xhip
