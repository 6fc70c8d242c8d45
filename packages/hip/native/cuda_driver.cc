// The driver table over libcuda: the same kernels on NVIDIA GPUs, compiled to PTX. It uses the primary context, so it lives
// beside other CUDA users of the process. Needs CUDA 11.4 or later (cuGraphInstantiateWithFlags).
#include <cstring>
#include <utility>

#include "code_image.h"
#include "cuda_api.h"
#include "driver.h"
#include "dynlib.h"
#include "library_paths.h"

namespace xhip {
namespace {

using cuda::Api;
using cuda::kSuccess;

thread_local std::string tDetail;

struct OpenContext {
  void* context = nullptr;
  int device = 0;
};

class CudaDriver final : public Driver {
 public:
  CudaDriver(const Api& api, std::string path) : api_(api), path_(std::move(path)) {}

  std::string libraryPath() const override { return path_; }
  std::string version() const override {
    int packed = 0;
    if (api_.cuDriverGetVersion(&packed) != kSuccess || packed <= 0) return "";
    return std::to_string(packed / 1000) + "." + std::to_string(packed % 1000 / 10);
  }
  const char* errorName(Status status) const override {
    const char* name = nullptr;
    return api_.cuGetErrorName(status, &name) == kSuccess && name ? name : "CUDA_ERROR_UNRECOGNIZED";
  }
  const char* errorString(Status status) const override {
    const char* text = nullptr;
    return api_.cuGetErrorString(status, &text) == kSuccess && text ? text : "an error number that this driver does not know";
  }
  std::string failureDetail() override { return std::exchange(tDetail, std::string()); }

  Status init() override { return api_.cuInit(0); }
  Status deviceCount(int* count) override { return api_.cuDeviceGetCount(count); }
  Status deviceProperties(int ordinal, DeviceProperties* out) override;

  Status openContext(int ordinal, Context* out) override {
    auto open = std::make_unique<OpenContext>();
    Status status = api_.cuDeviceGet(&open->device, ordinal);
    if (status == kSuccess) status = api_.cuDevicePrimaryCtxRetain(&open->context, open->device);
    if (status != kSuccess) return status;
    status = api_.cuCtxSetCurrent(open->context);
    if (status != kSuccess) {
      (void)api_.cuDevicePrimaryCtxRelease_v2(open->device);
      return status;
    }
    *out = open.release();
    return kSuccess;
  }
  Status closeContext(Context context) override {
    std::unique_ptr<OpenContext> open(static_cast<OpenContext*>(context));
    return api_.cuDevicePrimaryCtxRelease_v2(open->device);
  }
  Status makeCurrent(Context context) override {
    return api_.cuCtxSetCurrent(static_cast<OpenContext*>(context)->context);
  }
  Status deviceSynchronize() override { return api_.cuCtxSynchronize(); }

  Status memInfo(size_t* freeBytes, size_t* totalBytes) override { return api_.cuMemGetInfo_v2(freeBytes, totalBytes); }
  Status malloc(DevicePtr* out, size_t bytes) override { return api_.cuMemAlloc_v2(out, bytes); }
  Status free(DevicePtr pointer) override { return api_.cuMemFree_v2(pointer); }
  Status hostMalloc(void** out, size_t bytes) override { return api_.cuMemHostAlloc(out, bytes, 0); }
  Status hostFree(void* pointer) override { return api_.cuMemFreeHost(pointer); }
  Status hostRegister(void* memory, size_t bytes) override {
    return api_.cuMemHostRegister_v2 && api_.cuMemHostUnregister ? api_.cuMemHostRegister_v2(memory, bytes, 0) : kNotSupported;
  }
  Status hostUnregister(void* memory) override { return api_.cuMemHostUnregister(memory); }

  // CUDA stages pageable memory itself before this returns, and returns at once where it is page-locked.
  Status memcpyHtoDAsync(DevicePtr dst, const void* src, size_t bytes, Stream stream) override {
    return api_.cuMemcpyHtoDAsync_v2(dst, src, bytes, stream);
  }
  Status memcpyDtoHAsync(void* dst, DevicePtr src, size_t bytes, Stream stream) override {
    return api_.cuMemcpyDtoHAsync_v2(dst, src, bytes, stream);
  }
  Status memcpyDtoDAsync(DevicePtr dst, DevicePtr src, size_t bytes, Stream stream) override {
    return api_.cuMemcpyDtoDAsync_v2(dst, src, bytes, stream);
  }
  Status memsetD8Async(DevicePtr dst, uint8_t value, size_t bytes, Stream stream) override {
    return api_.cuMemsetD8Async(dst, value, bytes, stream);
  }

  Status reachPeer(Context from, Context to, bool* reached) override {
    *reached = false;
    if (!api_.cuDeviceCanAccessPeer || !api_.cuCtxEnablePeerAccess || !api_.cuMemcpyPeerAsync) return kSuccess;
    const auto* peer = static_cast<OpenContext*>(to);
    int can = 0;
    Status status = api_.cuDeviceCanAccessPeer(&can, static_cast<OpenContext*>(from)->device, peer->device);
    if (status != kSuccess || !can) return status;
    status = api_.cuCtxEnablePeerAccess(peer->context, 0);
    *reached = status == kSuccess || status == cuda::kPeerAccessAlreadyEnabled;
    return kSuccess;
  }
  Status memcpyPeerAsync(DevicePtr dst, Context to, DevicePtr src, Context from, size_t bytes, Stream stream) override {
    return api_.cuMemcpyPeerAsync(dst, static_cast<OpenContext*>(to)->context, src,
                                  static_cast<OpenContext*>(from)->context, bytes, stream);
  }
  // Memory that a handle opens is whole pages of the driver's.
  Status peerMalloc(DevicePtr* out, size_t bytes) override {
    constexpr size_t kPage = size_t(2) << 20;
    return api_.cuMemAlloc_v2(out, (bytes + kPage - 1) / kPage * kPage);
  }
  Status peerExport(DevicePtr pointer, PeerHandle* out) override {
    return api_.cuIpcGetMemHandle ? api_.cuIpcGetMemHandle(out, pointer) : kNotSupported;
  }
  Status peerOpen(DevicePtr* out, const PeerHandle& handle) override {
    if (!api_.cuIpcOpenMemHandle_v2 || !api_.cuIpcCloseMemHandle) return kNotSupported;
    return api_.cuIpcOpenMemHandle_v2(out, handle, cuda::kIpcLazyEnablePeerAccess);
  }
  Status peerClose(DevicePtr pointer) override { return api_.cuIpcCloseMemHandle(pointer); }

  Status streamCreate(Stream* out) override { return api_.cuStreamCreate(out, cuda::kStreamNonBlocking); }
  Status streamDestroy(Stream stream) override { return api_.cuStreamDestroy_v2(stream); }
  Status streamSynchronize(Stream stream) override { return api_.cuStreamSynchronize(stream); }
  Status streamWaitEvent(Stream stream, Event event) override { return api_.cuStreamWaitEvent(stream, event, 0); }
  Status streamBeginCapture(Stream stream) override {
    return api_.cuStreamBeginCapture_v2(stream, cuda::kCaptureModeRelaxed);
  }
  Status streamEndCapture(Stream stream, Graph* out) override { return api_.cuStreamEndCapture(stream, out); }

  Status eventCreate(Event* out) override { return api_.cuEventCreate(out, 0); }
  Status eventDestroy(Event event) override { return api_.cuEventDestroy_v2(event); }
  Status eventRecord(Event event, Stream stream) override { return api_.cuEventRecord(event, stream); }
  Status eventSynchronize(Event event) override { return api_.cuEventSynchronize(event); }
  Status eventQuery(Event event, bool* done) override {
    Status status = api_.cuEventQuery(event);
    *done = status == kSuccess;
    return status == cuda::kNotReady ? kSuccess : status;
  }
  Status eventElapsedMs(float* out, Event start, Event end) override {
    return api_.cuEventElapsedTime(out, start, end);
  }

  Status moduleLoad(Module* out, const void* image, size_t bytes) override;
  Status moduleUnload(Module module) override { return api_.cuModuleUnload(module); }
  Status moduleGetFunction(Function* out, Module module, const char* name) override {
    return api_.cuModuleGetFunction(out, module, name);
  }
  // Such a kernel has a constant beside it (kernels/include/x/early.h). Drivers before CUDA 11.8 have no such launches.
  bool beginsEarly(Module module, const std::string& name) override {
    uint64_t address;
    size_t bytes;
    return api_.cuLaunchKernelEx &&
           api_.cuModuleGetGlobal_v2(&address, &bytes, module, ("x_early_" + name).c_str()) == kSuccess;
  }
  // Graphs have such edges since CUDA 12.3.
  bool capturesEarly() override {
    static const bool does = [this] {
      int packed = 0;
      return api_.cuDriverGetVersion(&packed) == kSuccess && packed >= 12030;
    }();
    return does;
  }
  Status functionSetMaxSharedBytes(Function function, int bytes) override {
    return api_.cuFuncSetAttribute(function, cuda::kFunctionMaxDynamicSharedBytes, bytes);
  }

  Status launch(Function function, const LaunchConfig& config, const void* args, size_t argBytes,
                Stream stream) override {
    void* extra[] = {cuda::launchParamBufferPointer(), const_cast<void*>(args), cuda::launchParamBufferSize(), &argBytes,
                     cuda::launchParamEnd()};
    if (config.early) {
      cuda::LaunchAttribute early = {cuda::kProgrammaticStreamSerialization, 0, {1}};
      const cuda::LaunchSettings settings = {{config.grid[0], config.grid[1], config.grid[2]},
                                             {config.block[0], config.block[1], config.block[2]},
                                             config.sharedBytes,
                                             stream,
                                             &early,
                                             1};
      return api_.cuLaunchKernelEx(&settings, function, nullptr, extra);
    }
    return api_.cuLaunchKernel(function, config.grid[0], config.grid[1], config.grid[2], config.block[0],
                               config.block[1], config.block[2], config.sharedBytes, stream, nullptr, extra);
  }

  Status graphInstantiate(GraphExec* out, Graph graph) override {
    return api_.cuGraphInstantiateWithFlags(out, graph, 0);
  }
  Status graphExecUpdate(GraphExec exec, Graph graph, bool* updated) override {
    Status status;
    int result = 0;
    if (api_.cuGraphExecUpdate_v2) {  // CUDA 12
      cuda::GraphUpdateInfo info = {0, nullptr, nullptr};
      status = api_.cuGraphExecUpdate_v2(exec, graph, &info);
      result = info.result;
    } else {
      void* errorNode = nullptr;
      status = api_.cuGraphExecUpdate(exec, graph, &errorNode, &result);
    }
    *updated = status == kSuccess && result == 0;
    // A graph of another shape is an answer, not a failure: the caller instantiates anew.
    return status == cuda::kGraphExecUpdateFailure || result != 0 ? kSuccess : status;
  }
  Status graphLaunch(GraphExec exec, Stream stream) override { return api_.cuGraphLaunch(exec, stream); }
  Status graphDestroy(Graph graph) override { return api_.cuGraphDestroy(graph); }
  Status graphExecDestroy(GraphExec exec) override { return api_.cuGraphExecDestroy(exec); }

 private:
  int attribute(cuda::Attribute which, int device) const {
    int value = 0;
    return api_.cuDeviceGetAttribute(&value, which, device) == kSuccess ? value : 0;
  }

  Api api_;
  std::string path_;
};

Status CudaDriver::deviceProperties(int ordinal, DeviceProperties* out) {
  int device = 0;
  char text[256] = {0};
  Status status = api_.cuDeviceGet(&device, ordinal);
  if (status == kSuccess) status = api_.cuDeviceGetName(text, sizeof text, device);
  if (status != kSuccess) return status;
  out->name = text;
  std::memset(text, 0, sizeof text);
  if (api_.cuDeviceGetPCIBusId(text, sizeof text, device) == kSuccess) out->pciBusId = text;
  out->arch = "sm_" + std::to_string(attribute(cuda::kComputeCapabilityMajor, device)) +
              std::to_string(attribute(cuda::kComputeCapabilityMinor, device));
  out->archFull = out->arch;
  out->warpSize = attribute(cuda::kWarpSize, device);
  out->multiprocessorCount = attribute(cuda::kMultiprocessorCount, device);
  out->maxThreadsPerBlock = attribute(cuda::kMaxThreadsPerBlock, device);
  out->maxThreadsPerMultiprocessor = attribute(cuda::kMaxThreadsPerMultiprocessor, device);
  // The opt-in limit: launches raise a function's own limit when they need to.
  out->sharedMemoryPerBlock = attribute(cuda::kMaxSharedMemoryPerBlockOptin, device);
  if (out->sharedMemoryPerBlock == 0) out->sharedMemoryPerBlock = attribute(cuda::kMaxSharedMemoryPerBlock, device);
  out->clockRateKHz = attribute(cuda::kClockRate, device);
  out->memoryClockRateKHz = attribute(cuda::kMemoryClockRate, device);
  out->memoryBusWidthBits = attribute(cuda::kMemoryBusWidth, device);
  out->l2CacheBytes = attribute(cuda::kL2CacheSize, device);
  out->integrated = attribute(cuda::kIntegrated, device) != 0;
  size_t total = 0;
  status = api_.cuDeviceTotalMem_v2(&total, device);
  out->totalMemory = total;
  return status;
}

// PTX is text and must end in NUL; the driver copies what it needs.
Status CudaDriver::moduleLoad(Module* out, const void* image, size_t bytes) {
  ImageCheck check = checkNvidiaImage(image, bytes);
  if (!check.valid) {
    tDetail = check.detail;
    return cuda::kInvalidImage;
  }
  std::vector<char> terminated(bytes + 1, 0);
  std::memcpy(terminated.data(), image, bytes);
  std::vector<char> log(16 * 1024, 0);
  int options[] = {cuda::kJitErrorLogBuffer, cuda::kJitErrorLogBufferBytes};
  void* values[] = {log.data(), reinterpret_cast<void*>(log.size() - 1)};
  Status status = api_.cuModuleLoadDataEx(out, terminated.data(), 2, options, values);
  if (status != kSuccess && log[0]) tDetail = std::string("JIT log: ") + log.data();
  return status;
}

// Entry points of Api by their own names; the last argument says whether a library may lack it.
#define X_SYMBOL(name, optional) \
  { #name, reinterpret_cast<void**>(&api.name), optional }

std::vector<Symbol> symbolsOf(Api& api) {
  return {
      X_SYMBOL(cuInit, false), X_SYMBOL(cuDriverGetVersion, false), X_SYMBOL(cuGetErrorName, false),
      X_SYMBOL(cuGetErrorString, false), X_SYMBOL(cuDeviceGetCount, false), X_SYMBOL(cuDeviceGet, false),
      X_SYMBOL(cuDeviceGetName, false), X_SYMBOL(cuDeviceGetAttribute, false), X_SYMBOL(cuDeviceTotalMem_v2, false),
      X_SYMBOL(cuDeviceGetPCIBusId, false), X_SYMBOL(cuDevicePrimaryCtxRetain, false),
      X_SYMBOL(cuDevicePrimaryCtxRelease_v2, false), X_SYMBOL(cuCtxSetCurrent, false),
      X_SYMBOL(cuCtxSynchronize, false), X_SYMBOL(cuMemGetInfo_v2, false), X_SYMBOL(cuMemAlloc_v2, false),
      X_SYMBOL(cuMemFree_v2, false), X_SYMBOL(cuMemHostAlloc, false), X_SYMBOL(cuMemFreeHost, false),
      X_SYMBOL(cuMemHostRegister_v2, true), X_SYMBOL(cuMemHostUnregister, true),
      X_SYMBOL(cuMemcpyHtoDAsync_v2, false), X_SYMBOL(cuMemcpyDtoHAsync_v2, false),
      X_SYMBOL(cuDeviceCanAccessPeer, true), X_SYMBOL(cuCtxEnablePeerAccess, true),
      X_SYMBOL(cuMemcpyPeerAsync, true), X_SYMBOL(cuIpcGetMemHandle, true), X_SYMBOL(cuIpcOpenMemHandle_v2, true),
      X_SYMBOL(cuIpcCloseMemHandle, true), X_SYMBOL(cuMemcpyDtoDAsync_v2, false), X_SYMBOL(cuMemsetD8Async, false),
      X_SYMBOL(cuStreamCreate, false),
      X_SYMBOL(cuStreamDestroy_v2, false), X_SYMBOL(cuStreamSynchronize, false), X_SYMBOL(cuStreamWaitEvent, false),
      X_SYMBOL(cuStreamBeginCapture_v2, false), X_SYMBOL(cuStreamEndCapture, false), X_SYMBOL(cuEventCreate, false),
      X_SYMBOL(cuEventDestroy_v2, false), X_SYMBOL(cuEventRecord, false), X_SYMBOL(cuEventSynchronize, false),
      X_SYMBOL(cuEventQuery, false), X_SYMBOL(cuEventElapsedTime, false), X_SYMBOL(cuModuleLoadDataEx, false),
      X_SYMBOL(cuModuleUnload, false), X_SYMBOL(cuModuleGetFunction, false), X_SYMBOL(cuFuncSetAttribute, false),
      X_SYMBOL(cuLaunchKernel, false), X_SYMBOL(cuLaunchKernelEx, true), X_SYMBOL(cuModuleGetGlobal_v2, false),
      X_SYMBOL(cuGraphInstantiateWithFlags, false),
      X_SYMBOL(cuGraphExecUpdate_v2, true), X_SYMBOL(cuGraphExecUpdate, true), X_SYMBOL(cuGraphLaunch, false),
      X_SYMBOL(cuGraphDestroy, false), X_SYMBOL(cuGraphExecDestroy, false),
  };
}
#undef X_SYMBOL

}  // namespace

std::vector<std::string> cudaToolkitCandidates(const std::vector<std::string>& names) {
  std::vector<std::string> directories;
  for (const char* variable : {"CUDA_PATH", "CUDA_HOME"}) {
    std::string root = environment(variable);
    if (!root.empty()) directories.push_back(root + "/lib64");
  }
  std::vector<std::string> found = globDirectories("/usr/local/cuda*/lib64");
  directories.insert(directories.end(), found.begin(), found.end());
  std::vector<std::string> candidates;
  for (const std::string& directory : directories) {
    for (const std::string& name : names) candidates.push_back(directory + "/" + name);
  }
  candidates.insert(candidates.end(), names.begin(), names.end());
  return candidates;
}

LoadResult loadCudaDriver() {
  LoadResult result;
  Library library = openFirst({"libcuda.so.1", "libcuda.so"});
  result.searched = library.searched;
  if (!library.handle) {
    result.failure.code = "LIBRARY_NOT_FOUND";
    result.failure.message = "libcuda, the NVIDIA driver's library, was not found";
    if (!library.lastError.empty()) result.failure.message += " (" + library.lastError + ")";
    result.failure.remedy = "Install the NVIDIA driver; in a container, pass the GPU in (--gpus all)";
    return result;
  }
  Api api;
  std::memset(&api, 0, sizeof api);
  std::vector<std::string> missing = resolve(library, symbolsOf(api));
  if (!api.cuGraphExecUpdate_v2 && !api.cuGraphExecUpdate) missing.emplace_back("cuGraphExecUpdate");
  if (!missing.empty()) {
    result.failure.code = "SYMBOL_MISSING";
    result.failure.message = library.path + " lacks";
    for (const std::string& name : missing) result.failure.message += " " + name;
    result.failure.remedy = "Update the NVIDIA driver to 470 or later (CUDA 11.4)";
    return result;
  }
  std::string path = pathOfSymbol(reinterpret_cast<void*>(api.cuInit));
  result.driver = std::make_unique<CudaDriver>(api, path.empty() ? library.path : path);
  return result;
}

}  // namespace xhip
