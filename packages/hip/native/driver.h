// The driver table: the one interface through which the addon reaches a GPU runtime. libamdhip64 (rocm_driver.cc),
// libcuda (cuda_driver.cc) and the in-process host platform (host/) each fill one. Semantics are HIP's driver API;
// where CUDA differs, its file adapts. Nothing here links a vendor library.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace xhip {

using Status = int;  // 0 is success on every platform; other values are the platform's own error numbers.
using DevicePtr = uint64_t;
using Context = void*;  // What makes an ordinal current (CUcontext; the ordinal itself on HIP and host).
using Stream = void*;   // Never the null stream: every stream is created explicitly.
using Event = void*;
using Module = void*;
using Function = void*;
using Graph = void*;
using GraphExec = void*;

struct DeviceProperties {
  std::string name;
  std::string arch;      // gfx1100, sm_90, x86-64-v3: the key that code objects are looked up by.
  std::string archFull;  // As the driver spells it, e.g. gfx90a:sramecc+:xnack-, x86-64-v4-vnni:bf16:amx.
  std::string pciBusId;
  int warpSize = 0;
  int multiprocessorCount = 0;
  int maxThreadsPerBlock = 0;
  int maxThreadsPerMultiprocessor = 0;
  int sharedMemoryPerBlock = 0;
  int clockRateKHz = 0;
  int memoryClockRateKHz = 0;
  int memoryBusWidthBits = 0;
  int l2CacheBytes = 0;
  bool integrated = false;
  uint64_t totalMemory = 0;
};

struct LaunchConfig {
  uint32_t grid[3];
  uint32_t block[3];
  uint32_t sharedBytes;
  bool early = false;  // the kernel waits by itself for what was launched before it (Driver::beginsEarly)
};

// A piece of host work in stream order, for blocks [begin, end) of however many it was enqueued with.
using HostTask = void (*)(const void* payload, uint64_t begin, uint64_t end);

constexpr Status kNotSupported = 801;  // in HIP, CUDA and on the host

// How another process names a peer's memory.
struct PeerHandle {
  char bytes[64];
};

// One platform. Every method may be called from any thread; `makeCurrent` is called by the binding before the
// others on a thread. A method that a platform lacks returns its "not supported" status, never crashes.
class Driver {
 public:
  virtual ~Driver() = default;

  // Library path that was loaded (empty for host) and the driver's and runtime's version, for reports.
  virtual std::string libraryPath() const = 0;
  virtual std::string version() const = 0;
  virtual const char* errorName(Status) const = 0;    // "hipErrorNoDevice"
  virtual const char* errorString(Status) const = 0;  // the driver's sentence for it
  // What is known beyond the status about the calling thread's last failed call (a JIT log, dlopen's sentence), or
  // empty. Reading it clears it.
  virtual std::string failureDetail() { return {}; }

  virtual Status init() = 0;
  virtual Status deviceCount(int* count) = 0;
  virtual Status deviceProperties(int ordinal, DeviceProperties* out) = 0;
  virtual Status openContext(int ordinal, Context* out) = 0;
  virtual Status closeContext(Context) = 0;
  virtual Status makeCurrent(Context) = 0;
  virtual Status deviceSynchronize() = 0;

  virtual Status memInfo(size_t* freeBytes, size_t* totalBytes) = 0;
  virtual Status malloc(DevicePtr* out, size_t bytes) = 0;
  virtual Status free(DevicePtr) = 0;
  virtual Status hostMalloc(void** out, size_t bytes) = 0;  // page-locked where the platform has it
  virtual Status hostFree(void*) = 0;
  // Page-locks memory of the caller's, which memcpyPinnedAsync may copy from until it is unlocked again, by an idle device.
  virtual Status hostRegister(void* memory, size_t bytes) {
    (void)memory, (void)bytes;
    return kNotSupported;
  }
  virtual Status hostUnregister(void* memory) {
    (void)memory;
    return kNotSupported;
  }

  // Stream-ordered. Host memory handed to HtoD may be pageable and may be reused as soon as the call returns;
  // host memory handed to DtoH comes from hostMalloc and is valid once the stream has passed the copy.
  virtual Status memcpyHtoDAsync(DevicePtr dst, const void* src, size_t bytes, Stream) = 0;
  // From memory of hostMalloc or hostRegister, which stays as it is until the stream has passed the copy.
  virtual Status memcpyPinnedAsync(DevicePtr dst, const void* src, size_t bytes, Stream stream) {
    return memcpyHtoDAsync(dst, src, bytes, stream);
  }
  // Whether addresses of the device are the host's.
  virtual bool hostAddresses() const { return false; }
  virtual Status memcpyDtoHAsync(void* dst, DevicePtr src, size_t bytes, Stream) = 0;
  virtual Status memcpyDtoDAsync(DevicePtr dst, DevicePtr src, size_t bytes, Stream) = 0;
  virtual Status memsetD8Async(DevicePtr dst, uint8_t value, size_t bytes, Stream) = 0;

  // Between devices. Whether the current device `from` can reach memory of `to` by itself, which it may from then on; and
  // copies, on a stream of the current device.
  virtual Status reachPeer(Context from, Context to, bool* reached) {
    (void)from, (void)to;
    return *reached = false, 0;
  }
  virtual Status memcpyPeerAsync(DevicePtr dst, Context dstContext, DevicePtr src, Context srcContext, size_t bytes, Stream) {
    (void)dst, (void)dstContext, (void)src, (void)srcContext, (void)bytes;
    return kNotSupported;
  }
  // Memory of the current device that kernels of others may write to while its own read it, page by page; `free` gives it back.
  // A handle of it opens it in another process, on that one's current device.
  virtual Status peerMalloc(DevicePtr* out, size_t bytes) {
    (void)out, (void)bytes;
    return kNotSupported;
  }
  virtual Status peerExport(DevicePtr pointer, PeerHandle* out) {
    (void)pointer, (void)out;
    return kNotSupported;
  }
  virtual Status peerOpen(DevicePtr* out, const PeerHandle& handle) {
    (void)out, (void)handle;
    return kNotSupported;
  }
  virtual Status peerClose(DevicePtr pointer) {
    (void)pointer;
    return kNotSupported;
  }

  virtual Status streamCreate(Stream* out) = 0;
  virtual Status streamDestroy(Stream) = 0;
  virtual Status streamSynchronize(Stream) = 0;
  virtual Status streamWaitEvent(Stream, Event) = 0;
  virtual Status streamBeginCapture(Stream) = 0;  // relaxed/thread-local mode: other streams stay usable
  virtual Status streamEndCapture(Stream, Graph* out) = 0;

  virtual Status eventCreate(Event* out) = 0;  // with timing
  virtual Status eventDestroy(Event) = 0;
  virtual Status eventRecord(Event, Stream) = 0;
  virtual Status eventSynchronize(Event) = 0;
  virtual Status eventQuery(Event, bool* done) = 0;
  virtual Status eventElapsedMs(float* out, Event start, Event end) = 0;

  virtual Status moduleLoad(Module* out, const void* image, size_t bytes) = 0;
  virtual Status moduleUnload(Module) = 0;
  virtual Status moduleGetFunction(Function* out, Module, const char* name) = 0;
  // Dynamic shared memory above the default limit must be allowed per function on CUDA.
  virtual Status functionSetMaxSharedBytes(Function, int bytes) = 0;
  // Whether the kernel `name` waits by itself for earlier ones, so that it may begin before these have ended.
  virtual bool beginsEarly(Module, const std::string& name) {
    (void)name;
    return false;
  }

  // Whether such a kernel may begin early in a captured graph, too.
  virtual bool capturesEarly() { return false; }

  // `args` is the packed kernel-argument block: every argument at its natural alignment, in order.
  virtual Status launch(Function, const LaunchConfig&, const void* args, size_t argBytes, Stream) = 0;

  // Enqueues a task with a copy of its payload, its blocks shared out over the host's threads. The host platform only:
  // the libraries of the others enqueue by themselves.
  virtual Status enqueueTask(HostTask, const void* payload, size_t bytes, uint64_t blocks, Stream) {
    (void)payload, (void)bytes, (void)blocks;
    return kNotSupported;
  }

  virtual Status graphInstantiate(GraphExec* out, Graph) = 0;
  virtual Status graphExecUpdate(GraphExec, Graph, bool* updated) = 0;
  virtual Status graphLaunch(GraphExec, Stream) = 0;
  virtual Status graphDestroy(Graph) = 0;
  virtual Status graphExecDestroy(GraphExec) = 0;
};

// Why a platform cannot be used; shown to the user as it is.
struct LoadFailure {
  std::string code;     // LIBRARY_NOT_FOUND, SYMBOL_MISSING, DRIVER_ERROR, NO_DEVICE, NO_PERMISSION
  std::string name;     // the driver's error name, if it got that far
  std::string message;  // what happened
  std::string remedy;   // what to do
};

struct LoadResult {
  std::unique_ptr<Driver> driver;     // null when the library or one of its symbols is missing
  std::vector<std::string> searched;  // every path and name tried, in order
  LoadFailure failure;                // set when driver is null
};

LoadResult loadRocmDriver();
LoadResult loadCudaDriver();
std::unique_ptr<Driver> makeHostDriver();

}  // namespace xhip
