// The host platform's driver table. It opens and closes the one device, keeps calls and closing apart, and turns an
// exception into a status; everything else is device*.cc. A call that is in flight when the context is closed (a
// thread of the event loop's pool that waits for a stream, say) ends before the device goes away.
#include <atomic>
#include <exception>
#include <mutex>
#include <new>
#include <thread>

#include "device.h"

namespace xhip {
namespace host {
namespace {

class HostDriver final : public Driver {
 public:
  ~HostDriver() override {
    std::lock_guard<std::mutex> lock(openMutex_);
    closeDevice();
  }

  std::string libraryPath() const override { return ""; }
  std::string version() const override { return "1.0"; }
  const char* errorName(Status status) const override { return statusName(status); }
  const char* errorString(Status status) const override { return describe(status); }

  Status init() override {
    std::lock_guard<std::mutex> lock(openMutex_);
    return readOnce();
  }

  Status deviceCount(int* count) override {
    if (!count) return fail(kInvalidValue, "deviceCount: no place for the result");
    *count = 0;
    std::lock_guard<std::mutex> lock(openMutex_);
    if (const Status status = usable()) return status;
    *count = 1;
    return kSuccess;
  }

  Status deviceProperties(int ordinal, DeviceProperties* out) override {
    if (!out) return fail(kInvalidValue, "deviceProperties: no place for the result");
    std::lock_guard<std::mutex> lock(openMutex_);
    if (const Status status = usable()) return status;
    if (ordinal != 0) return fail(kInvalidDevice, "ordinal %d", ordinal);
    DeviceProperties properties;
    properties.name = cpu_.name;
    properties.arch = cpu_.arch;
    properties.archFull = cpu_.arch + cpu_.features;
    properties.warpSize = 1;
    properties.multiprocessorCount = static_cast<int>(cpu_.threads);
    properties.maxThreadsPerBlock = 1024;
    properties.maxThreadsPerMultiprocessor = 1024;
    properties.sharedMemoryPerBlock = kMaxSharedBytes;
    properties.clockRateKHz = cpu_.clockRateKHz;
    properties.l2CacheBytes = cpu_.l2CacheBytes;
    properties.integrated = true;
    properties.totalMemory = readMemory().totalBytes;
    *out = std::move(properties);
    return kSuccess;
  }

  Status openContext(int ordinal, Context* out) override {
    if (!out) return fail(kInvalidValue, "openContext: no place for the result");
    *out = nullptr;
    std::lock_guard<std::mutex> lock(openMutex_);
    if (const Status status = usable()) return status;
    if (ordinal != 0) return fail(kInvalidDevice, "ordinal %d", ordinal);
    if (opened_ == 0) {
      const Status status = guarded([&] { return Device::open(&owned_, cpu_); });
      if (status != kSuccess) return status;
      device_.store(owned_.get());
    }
    ++opened_;
    *out = context();
    return kSuccess;
  }

  // The context counts how often it was opened and closes with the last.
  Status closeContext(Context context) override {
    std::lock_guard<std::mutex> lock(openMutex_);
    if (const Status status = checkContext(context)) return status;
    if (--opened_ == 0) closeDevice();
    return kSuccess;
  }

  Status makeCurrent(Context context) override {
    // Every thread may use the one device; there is nothing to switch.
    if (!device_.load()) return fail(kContextIsDestroyed, "open it first");
    return context == this->context() ? kSuccess : fail(kInvalidContext, "makeCurrent: a foreign context");
  }

  Status deviceSynchronize() override {
    return call([](Device& d) { return d.synchronize(); });
  }
  Status memInfo(size_t* freeBytes, size_t* totalBytes) override {
    return call([&](Device& d) { return d.memInfo(freeBytes, totalBytes); });
  }
  Status malloc(DevicePtr* out, size_t bytes) override {
    return call([&](Device& d) { return d.malloc(out, bytes); });
  }
  Status free(DevicePtr address) override {
    return call([&](Device& d) { return d.free(address); });
  }
  Status hostMalloc(void** out, size_t bytes) override {
    return call([&](Device& d) { return d.hostMalloc(out, bytes); });
  }
  Status hostFree(void* address) override {
    return call([&](Device& d) { return d.hostFree(address); });
  }
  Status memcpyHtoDAsync(DevicePtr dst, const void* src, size_t bytes, xhip::Stream stream) override {
    return call([&](Device& d) { return d.upload(dst, src, bytes, stream); });
  }
  bool hostAddresses() const override { return true; }
  Status memcpyDtoHAsync(void* dst, DevicePtr src, size_t bytes, xhip::Stream stream) override {
    return call([&](Device& d) { return d.download(dst, src, bytes, stream); });
  }
  Status memcpyDtoDAsync(DevicePtr dst, DevicePtr src, size_t bytes, xhip::Stream stream) override {
    return call([&](Device& d) { return d.copy(dst, src, bytes, stream); });
  }
  Status memsetD8Async(DevicePtr dst, uint8_t value, size_t bytes, xhip::Stream stream) override {
    return call([&](Device& d) { return d.fill(dst, value, bytes, stream); });
  }
  Status streamCreate(xhip::Stream* out) override {
    return call([&](Device& d) { return d.streamCreate(out); });
  }
  Status streamDestroy(xhip::Stream stream) override {
    return call([&](Device& d) { return d.streamDestroy(stream); });
  }
  Status streamSynchronize(xhip::Stream stream) override {
    return call([&](Device& d) { return d.streamSynchronize(stream); });
  }
  Status streamWaitEvent(xhip::Stream stream, xhip::Event event) override {
    return call([&](Device& d) { return d.streamWaitEvent(stream, event); });
  }
  Status streamBeginCapture(xhip::Stream stream) override {
    return call([&](Device& d) { return d.beginCapture(stream); });
  }
  Status streamEndCapture(xhip::Stream stream, xhip::Graph* out) override {
    return call([&](Device& d) { return d.endCapture(stream, out); });
  }
  Status eventCreate(xhip::Event* out) override {
    return call([&](Device& d) { return d.eventCreate(out); });
  }
  Status eventDestroy(xhip::Event event) override {
    return call([&](Device& d) { return d.eventDestroy(event); });
  }
  Status eventRecord(xhip::Event event, xhip::Stream stream) override {
    return call([&](Device& d) { return d.eventRecord(event, stream); });
  }
  Status eventSynchronize(xhip::Event event) override {
    return call([&](Device& d) { return d.eventSynchronize(event); });
  }
  Status eventQuery(xhip::Event event, bool* done) override {
    return call([&](Device& d) { return d.eventQuery(event, done); });
  }
  Status eventElapsedMs(float* out, xhip::Event start, xhip::Event end) override {
    return call([&](Device& d) { return d.eventElapsedMs(out, start, end); });
  }
  Status moduleLoad(xhip::Module* out, const void* image, size_t bytes) override {
    return call([&](Device& d) { return d.moduleLoad(out, image, bytes); });
  }
  Status moduleUnload(xhip::Module module) override {
    return call([&](Device& d) { return d.moduleUnload(module); });
  }
  Status moduleGetFunction(xhip::Function* out, xhip::Module module, const char* name) override {
    return call([&](Device& d) { return d.moduleGetFunction(out, module, name); });
  }
  Status functionSetMaxSharedBytes(xhip::Function function, int bytes) override {
    return call([&](Device& d) { return d.functionSetMaxSharedBytes(function, bytes); });
  }
  Status launch(xhip::Function function, const LaunchConfig& config, const void* args, size_t argBytes, xhip::Stream stream) override {
    return call([&](Device& d) { return d.launch(function, config, args, argBytes, stream); });
  }
  Status enqueueTask(HostTask run, const void* payload, size_t bytes, uint64_t blocks, xhip::Stream stream) override {
    return call([&](Device& d) { return d.enqueueTask(run, payload, bytes, blocks, stream); });
  }
  Status graphInstantiate(xhip::GraphExec* out, xhip::Graph graph) override {
    return call([&](Device& d) { return d.graphInstantiate(out, graph); });
  }
  Status graphExecUpdate(xhip::GraphExec exec, xhip::Graph graph, bool* updated) override {
    return call([&](Device& d) { return d.graphExecUpdate(exec, graph, updated); });
  }
  Status graphLaunch(xhip::GraphExec exec, xhip::Stream stream) override {
    return call([&](Device& d) { return d.graphLaunch(exec, stream); });
  }
  Status graphDestroy(xhip::Graph graph) override {
    return call([&](Device& d) { return d.graphDestroy(graph); });
  }
  Status graphExecDestroy(xhip::GraphExec exec) override {
    return call([&](Device& d) { return d.graphExecDestroy(exec); });
  }

 private:
  template <class Function>
  static Status guarded(Function function) {
    try {
      return function();
    } catch (const std::bad_alloc&) {
      return fail(kOutOfMemory, "no memory for the driver's own records");
    } catch (const std::exception& error) {
      return fail(kUnknown, "%s", error.what());
    }
  }

  // A call counts itself in before it looks for the device; closing hides the device before it looks at the count.
  template <class Function>
  Status call(Function function) {
    calls_.fetch_add(1);
    Device* device = device_.load();
    const Status status = device ? guarded([&] { return function(*device); }) : fail(kContextIsDestroyed, "open it first");
    calls_.fetch_sub(1);
    return status;
  }

  // The rest is called under openMutex_.
  Status readOnce() {
    if (read_) return kSuccess;
    const Status status = guarded([&] { return readCpu(&cpu_); });
    read_ = status == kSuccess;
    return status;
  }

  Status usable() {
    if (const Status status = readOnce()) return status;
    if (!cpu_.arch.empty()) return kSuccess;
    return fail(kNoDevice, "%s is below x86-64-v2 (SSE4.2, POPCNT), or X_HOST_ARCH says so", cpu_.name.c_str());
  }

  void closeDevice() {
    device_.store(nullptr);
    while (calls_.load() != 0) std::this_thread::sleep_for(std::chrono::microseconds(50));
    owned_.reset();
    opened_ = 0;
  }

  Context context() { return &cpu_; }
  Status checkContext(Context context) {
    if (opened_ == 0) return fail(kContextIsDestroyed, "it is already closed");
    return context == this->context() ? kSuccess : fail(kInvalidContext, "a foreign context");
  }

  std::mutex openMutex_;
  bool read_ = false;
  CpuInfo cpu_;
  int opened_ = 0;
  std::unique_ptr<Device> owned_;
  std::atomic<Device*> device_{nullptr};
  std::atomic<int> calls_{0};
};

}  // namespace
}  // namespace host

std::unique_ptr<Driver> makeHostDriver() { return std::make_unique<host::HostDriver>(); }

}  // namespace xhip
