// The driver table over libamdhip64: HIP 5.2.3 (Debian), 6, 7 and later. Only plain, old entry points are used: no memory
// pools, no cooperative launches. Device facts come from hipDeviceGetAttribute, because hipDeviceProp_t changed its layout
// in ROCm 6; only the architecture's name has no attribute and is read out of whichever struct the library fills.
#include <algorithm>
#include <cstring>
#include <map>
#include <mutex>
#include <utility>

#include "code_image.h"
#include "driver.h"
#include "dynlib.h"
#include "library_paths.h"
#include "rocm_api.h"
#include "rocm_staging.h"

namespace xhip {
namespace {

using rocm::Api;
using rocm::kSuccess;

thread_local std::string tDetail;
thread_local int tOrdinal = 0;

void* address(DevicePtr pointer) { return reinterpret_cast<void*>(pointer); }

// gfx90a:sramecc+:xnack- -> gfx90a
std::string withoutFeatures(const std::string& arch) { return arch.substr(0, arch.find(':')); }

// The loaded code must outlive the module: HIP keeps pointers into the image.
struct LoadedModule {
  void* handle = nullptr;
  std::vector<char> image;
};

class RocmDriver final : public Driver {
 public:
  RocmDriver(const Api& api, std::string path) : api_(api), path_(std::move(path)) {}

  std::string libraryPath() const override { return path_; }
  std::string version() const override {
    // hipRuntimeGetVersion packs major * 10^7 + minor * 10^5 + patch.
    int packed = 0;
    if (api_.hipRuntimeGetVersion(&packed) != kSuccess || packed <= 0) return "";
    return std::to_string(packed / 10000000) + "." + std::to_string(packed / 100000 % 100) + "." +
           std::to_string(packed % 100000);
  }
  const char* errorName(Status status) const override { return api_.hipGetErrorName(status); }
  const char* errorString(Status status) const override { return api_.hipGetErrorString(status); }
  std::string failureDetail() override { return std::exchange(tDetail, std::string()); }

  Status init() override { return api_.hipInit(0); }
  Status deviceCount(int* count) override { return api_.hipGetDeviceCount(count); }
  Status deviceProperties(int ordinal, DeviceProperties* out) override;

  Status openContext(int ordinal, Context* out) override {
    Status status = api_.hipSetDevice(ordinal);
    if (status != kSuccess) return status;
    tOrdinal = ordinal;
    std::lock_guard<std::mutex> lock(mutex_);
    contexts_[ordinal].users++;
    *out = reinterpret_cast<Context>(intptr_t(ordinal) + 1);
    return kSuccess;
  }
  Status closeContext(Context context) override {
    int ordinal = ordinalOf(context);
    std::lock_guard<std::mutex> lock(mutex_);
    PerDevice& device = contexts_[ordinal];
    if (--device.users > 0) return kSuccess;
    Status status = api_.hipSetDevice(ordinal);
    if (status == kSuccess) device.staging.release(api_);
    return status;
  }
  Status makeCurrent(Context context) override {
    tOrdinal = ordinalOf(context);
    return api_.hipSetDevice(tOrdinal);
  }
  Status deviceSynchronize() override { return api_.hipDeviceSynchronize(); }

  Status memInfo(size_t* freeBytes, size_t* totalBytes) override { return api_.hipMemGetInfo(freeBytes, totalBytes); }
  Status malloc(DevicePtr* out, size_t bytes) override {
    void* pointer = nullptr;
    Status status = api_.hipMalloc(&pointer, bytes);
    *out = reinterpret_cast<DevicePtr>(pointer);
    return status;
  }
  Status free(DevicePtr pointer) override { return api_.hipFree(address(pointer)); }
  Status hostMalloc(void** out, size_t bytes) override { return api_.hipHostMalloc(out, bytes, 0); }
  Status hostFree(void* pointer) override { return api_.hipHostFree(pointer); }
  Status hostRegister(void* memory, size_t bytes) override {
    if (!api_.hipHostRegister || !api_.hipHostUnregister) return kNotSupported;
    const Status status = api_.hipHostRegister(memory, bytes, 0);
    if (status != kSuccess) (void)api_.hipGetLastError();
    return status;
  }
  Status hostUnregister(void* memory) override { return api_.hipHostUnregister(memory); }

  Status memcpyHtoDAsync(DevicePtr dst, const void* src, size_t bytes, Stream stream) override {
    rocm::UploadStaging* staging = nullptr;
    {
      std::lock_guard<std::mutex> lock(mutex_);
      staging = &contexts_[tOrdinal].staging;
    }
    return staging->copy(api_, dst, src, bytes, stream);
  }
  Status memcpyPinnedAsync(DevicePtr dst, const void* src, size_t bytes, Stream stream) override {
    return api_.hipMemcpyHtoDAsync(address(dst), const_cast<void*>(src), bytes, stream);
  }
  Status memcpyDtoHAsync(void* dst, DevicePtr src, size_t bytes, Stream stream) override {
    return api_.hipMemcpyDtoHAsync(dst, address(src), bytes, stream);
  }
  Status memcpyDtoDAsync(DevicePtr dst, DevicePtr src, size_t bytes, Stream stream) override {
    return api_.hipMemcpyDtoDAsync(address(dst), address(src), bytes, stream);
  }
  Status memsetD8Async(DevicePtr dst, uint8_t value, size_t bytes, Stream stream) override {
    return api_.hipMemsetD8Async(address(dst), value, bytes, stream);
  }

  Status reachPeer(Context from, Context to, bool* reached) override {
    *reached = false;
    if (!api_.hipDeviceCanAccessPeer || !api_.hipDeviceEnablePeerAccess || !api_.hipMemcpyPeerAsync) return kSuccess;
    int can = 0;
    Status status = api_.hipDeviceCanAccessPeer(&can, ordinalOf(from), ordinalOf(to));
    if (status != kSuccess || !can) return status;
    status = api_.hipDeviceEnablePeerAccess(ordinalOf(to), 0);
    *reached = status == kSuccess || status == rocm::kPeerAccessAlreadyEnabled;
    if (status != kSuccess) (void)api_.hipGetLastError();
    return kSuccess;
  }
  Status memcpyPeerAsync(DevicePtr dst, Context to, DevicePtr src, Context from, size_t bytes, Stream stream) override {
    return api_.hipMemcpyPeerAsync(address(dst), ordinalOf(to), address(src), ordinalOf(from), bytes, stream);
  }
  // A device's own caches would not see what another one writes to its memory.
  Status peerMalloc(DevicePtr* out, size_t bytes) override {
    if (!api_.hipExtMallocWithFlags) return kNotSupported;
    void* pointer = nullptr;
    Status status = api_.hipExtMallocWithFlags(&pointer, bytes, rocm::kMallocUncached);
    if (status != kSuccess) {
      (void)api_.hipGetLastError();
      status = api_.hipExtMallocWithFlags(&pointer, bytes, rocm::kMallocFineGrained);
    }
    *out = reinterpret_cast<DevicePtr>(pointer);
    return status;
  }
  Status peerExport(DevicePtr pointer, PeerHandle* out) override {
    return api_.hipIpcGetMemHandle ? api_.hipIpcGetMemHandle(out, address(pointer)) : kNotSupported;
  }
  Status peerOpen(DevicePtr* out, const PeerHandle& handle) override {
    if (!api_.hipIpcOpenMemHandle || !api_.hipIpcCloseMemHandle) return kNotSupported;
    void* pointer = nullptr;
    const Status status = api_.hipIpcOpenMemHandle(&pointer, handle, rocm::kIpcLazyEnablePeerAccess);
    *out = reinterpret_cast<DevicePtr>(pointer);
    return status;
  }
  Status peerClose(DevicePtr pointer) override { return api_.hipIpcCloseMemHandle(address(pointer)); }

  Status streamCreate(Stream* out) override { return api_.hipStreamCreateWithFlags(out, rocm::kStreamNonBlocking); }
  Status streamDestroy(Stream stream) override { return api_.hipStreamDestroy(stream); }
  Status streamSynchronize(Stream stream) override { return api_.hipStreamSynchronize(stream); }
  Status streamWaitEvent(Stream stream, Event event) override { return api_.hipStreamWaitEvent(stream, event, 0); }
  Status streamBeginCapture(Stream stream) override {
    return api_.hipStreamBeginCapture(stream, rocm::kCaptureModeRelaxed);
  }
  Status streamEndCapture(Stream stream, Graph* out) override { return api_.hipStreamEndCapture(stream, out); }

  Status eventCreate(Event* out) override { return api_.hipEventCreate(out); }
  Status eventDestroy(Event event) override { return api_.hipEventDestroy(event); }
  Status eventRecord(Event event, Stream stream) override { return api_.hipEventRecord(event, stream); }
  Status eventSynchronize(Event event) override { return api_.hipEventSynchronize(event); }
  Status eventQuery(Event event, bool* done) override {
    Status status = api_.hipEventQuery(event);
    *done = status == kSuccess;
    if (status != rocm::kNotReady) return status;
    (void)api_.hipGetLastError();  // "not ready" is an answer; it must not stick as the thread's last error
    return kSuccess;
  }
  Status eventElapsedMs(float* out, Event start, Event end) override {
    return api_.hipEventElapsedTime(out, start, end);
  }

  Status moduleLoad(Module* out, const void* image, size_t bytes) override {
    ImageCheck check = checkAmdImage(image, bytes);
    if (!check.valid) {
      tDetail = check.detail;
      return rocm::kInvalidImage;
    }
    auto module = std::make_unique<LoadedModule>();
    const char* data = static_cast<const char*>(image);
    module->image.assign(data, data + bytes);
    Status status = api_.hipModuleLoadData(&module->handle, module->image.data());
    if (status != kSuccess) {
      tDetail = "the image is " + check.detail;
      return status;
    }
    *out = module.release();
    return kSuccess;
  }
  Status moduleUnload(Module module) override {
    std::unique_ptr<LoadedModule> loaded(static_cast<LoadedModule*>(module));
    return api_.hipModuleUnload(loaded->handle);
  }
  Status moduleGetFunction(Function* out, Module module, const char* name) override {
    return api_.hipModuleGetFunction(out, static_cast<LoadedModule*>(module)->handle, name);
  }
  // AMD has no opt-in: a kernel may use all the LDS that a workgroup can have.
  Status functionSetMaxSharedBytes(Function, int) override { return kSuccess; }

  Status launch(Function function, const LaunchConfig& config, const void* args, size_t argBytes,
                Stream stream) override {
    void* extra[] = {rocm::launchParamBufferPointer(), const_cast<void*>(args), rocm::launchParamBufferSize(), &argBytes,
                     rocm::launchParamEnd()};
    return api_.hipModuleLaunchKernel(function, config.grid[0], config.grid[1], config.grid[2], config.block[0],
                                      config.block[1], config.block[2], config.sharedBytes, stream, nullptr, extra);
  }

  Status graphInstantiate(GraphExec* out, Graph graph) override {
    void* errorNode = nullptr;
    char log[512] = {0};
    Status status = api_.hipGraphInstantiate(out, graph, &errorNode, log, sizeof log);
    if (status != kSuccess) tDetail.assign(log, strnlen(log, sizeof log));
    return status;
  }
  Status graphExecUpdate(GraphExec exec, Graph graph, bool* updated) override {
    void* errorNode = nullptr;
    int result = 0;
    Status status = api_.hipGraphExecUpdate(exec, graph, &errorNode, &result);
    *updated = status == kSuccess && result == 0;
    // A graph of another shape is an answer, not a failure: the caller instantiates anew.
    return status == rocm::kGraphExecUpdateFailure || result != 0 ? kSuccess : status;
  }
  Status graphLaunch(GraphExec exec, Stream stream) override { return api_.hipGraphLaunch(exec, stream); }
  Status graphDestroy(Graph graph) override { return api_.hipGraphDestroy(graph); }
  Status graphExecDestroy(GraphExec exec) override { return api_.hipGraphExecDestroy(exec); }

 private:
  struct PerDevice {
    int users = 0;
    rocm::UploadStaging staging;
  };
  static int ordinalOf(Context context) { return int(reinterpret_cast<intptr_t>(context) - 1); }
  int attribute(rocm::Attribute which, int ordinal) const {
    int value = 0;
    return api_.hipDeviceGetAttribute(&value, which, ordinal) == kSuccess ? value : 0;
  }
  std::string archName(int ordinal) const;

  Api api_;
  std::string path_;
  std::mutex mutex_;
  std::map<int, PerDevice> contexts_;
};

std::string RocmDriver::archName(int ordinal) const {
  std::vector<char> buffer(rocm::kPropertiesBuffer, 0);
  bool current = api_.hipGetDevicePropertiesR0600 != nullptr;
  auto fill = current ? api_.hipGetDevicePropertiesR0600 : api_.hipGetDeviceProperties;
  if (!fill || fill(buffer.data(), ordinal) != kSuccess) return "";
  const char* name = buffer.data() + (current ? rocm::kArchNameOffsetR0600 : rocm::kArchNameOffsetR0000);
  return std::string(name, strnlen(name, rocm::kArchNameBytes));
}

Status RocmDriver::deviceProperties(int ordinal, DeviceProperties* out) {
  char text[256] = {0};
  Status status = api_.hipDeviceGetName(text, sizeof text, ordinal);
  if (status != kSuccess) return status;
  out->name = text;
  out->archFull = archName(ordinal);
  out->arch = withoutFeatures(out->archFull);
  std::memset(text, 0, sizeof text);
  if (api_.hipDeviceGetPCIBusId(text, sizeof text, ordinal) == kSuccess) out->pciBusId = text;
  out->warpSize = attribute(rocm::kWarpSize, ordinal);
  out->multiprocessorCount = attribute(rocm::kMultiprocessorCount, ordinal);
  out->maxThreadsPerBlock = attribute(rocm::kMaxThreadsPerBlock, ordinal);
  out->maxThreadsPerMultiprocessor = attribute(rocm::kMaxThreadsPerMultiprocessor, ordinal);
  out->sharedMemoryPerBlock = attribute(rocm::kMaxSharedMemoryPerBlock, ordinal);
  out->clockRateKHz = attribute(rocm::kClockRate, ordinal);
  out->memoryClockRateKHz = attribute(rocm::kMemoryClockRate, ordinal);
  out->memoryBusWidthBits = attribute(rocm::kMemoryBusWidth, ordinal);
  out->l2CacheBytes = attribute(rocm::kL2CacheSize, ordinal);
  out->integrated = attribute(rocm::kIntegrated, ordinal) != 0;
  size_t total = 0;
  status = api_.hipDeviceTotalMem(&total, ordinal);
  out->totalMemory = total;
  return status;
}

// Entry points of Api by their own names; the last argument says whether a library may lack it.
#define X_SYMBOL(name, optional) \
  { #name, reinterpret_cast<void**>(&api.name), optional }

std::vector<Symbol> symbolsOf(Api& api) {
  return {
      X_SYMBOL(hipInit, false), X_SYMBOL(hipRuntimeGetVersion, false),
      X_SYMBOL(hipGetErrorName, false), X_SYMBOL(hipGetErrorString, false), X_SYMBOL(hipGetLastError, false),
      X_SYMBOL(hipGetDeviceCount, false), X_SYMBOL(hipSetDevice, false), X_SYMBOL(hipDeviceGetName, false),
      X_SYMBOL(hipDeviceGetAttribute, false), X_SYMBOL(hipDeviceTotalMem, false),
      X_SYMBOL(hipDeviceGetPCIBusId, false), X_SYMBOL(hipGetDeviceProperties, true),
      X_SYMBOL(hipGetDevicePropertiesR0600, true), X_SYMBOL(hipDeviceSynchronize, false),
      X_SYMBOL(hipMemGetInfo, false), X_SYMBOL(hipMalloc, false), X_SYMBOL(hipFree, false),
      X_SYMBOL(hipHostMalloc, false), X_SYMBOL(hipHostFree, false),
      X_SYMBOL(hipHostRegister, true), X_SYMBOL(hipHostUnregister, true), X_SYMBOL(hipMemcpyHtoDAsync, false),
      X_SYMBOL(hipMemcpyDtoHAsync, false), X_SYMBOL(hipMemcpyDtoDAsync, false), X_SYMBOL(hipMemsetD8Async, false),
      X_SYMBOL(hipDeviceCanAccessPeer, true),
      X_SYMBOL(hipDeviceEnablePeerAccess, true), X_SYMBOL(hipMemcpyPeerAsync, true),
      X_SYMBOL(hipExtMallocWithFlags, true), X_SYMBOL(hipIpcGetMemHandle, true), X_SYMBOL(hipIpcOpenMemHandle, true),
      X_SYMBOL(hipIpcCloseMemHandle, true),
      X_SYMBOL(hipStreamCreateWithFlags, false), X_SYMBOL(hipStreamDestroy, false),
      X_SYMBOL(hipStreamSynchronize, false), X_SYMBOL(hipStreamWaitEvent, false),
      X_SYMBOL(hipStreamBeginCapture, false), X_SYMBOL(hipStreamEndCapture, false), X_SYMBOL(hipEventCreate, false),
      X_SYMBOL(hipEventDestroy, false), X_SYMBOL(hipEventRecord, false), X_SYMBOL(hipEventSynchronize, false),
      X_SYMBOL(hipEventQuery, false), X_SYMBOL(hipEventElapsedTime, false), X_SYMBOL(hipModuleLoadData, false),
      X_SYMBOL(hipModuleUnload, false), X_SYMBOL(hipModuleGetFunction, false), X_SYMBOL(hipModuleLaunchKernel, false),
      X_SYMBOL(hipGraphInstantiate, false), X_SYMBOL(hipGraphExecUpdate, false), X_SYMBOL(hipGraphLaunch, false),
      X_SYMBOL(hipGraphDestroy, false), X_SYMBOL(hipGraphExecDestroy, false),
  };
}
#undef X_SYMBOL

}  // namespace

std::vector<std::string> rocmLibraryCandidates(const std::vector<std::string>& names) {
  std::vector<std::string> directories;
  for (const char* variable : {"ROCM_PATH", "HIP_PATH"}) {
    std::string root = environment(variable);
    if (!root.empty()) directories.push_back(root + "/lib");
  }
  for (const char* pattern : {"/opt/rocm/core*/lib", "/opt/rocm/lib", "/opt/rocm-*/lib"}) {
    std::vector<std::string> found = globDirectories(pattern);
    // A fixed path is named in the report even when it is absent: that is where people look first.
    if (found.empty() && std::string(pattern).find('*') == std::string::npos) found.emplace_back(pattern);
    directories.insert(directories.end(), found.begin(), found.end());
  }
  std::vector<std::string> candidates;
  for (const std::string& directory : directories) {
    for (const std::string& name : names) candidates.push_back(directory + "/" + name);
  }
  candidates.insert(candidates.end(), names.begin(), names.end());
  return candidates;
}

LoadResult loadRocmDriver() {
  LoadResult result;
  std::string override = environment("X_HIP_LIBRARY");
  std::vector<std::string> candidates =
      override.empty() ? rocmLibraryCandidates({"libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so.5", "libamdhip64.so"})
                       : std::vector<std::string>{override};
  Library library = openFirst(candidates);
  result.searched = library.searched;
  if (!library.handle) {
    result.failure.code = "LIBRARY_NOT_FOUND";
    result.failure.message = override.empty() ? "libamdhip64, the HIP runtime, was not found"
                                              : "X_HIP_LIBRARY names " + override + ", which cannot be loaded";
    if (!library.lastError.empty()) {
      result.failure.message += " (" + library.lastError + ")";
    } else if (!override.empty()) {
      result.failure.message += " (no such file)";
    }
    result.failure.remedy = override.empty()
                                ? "Install ROCm (or, on Debian, libamdhip64-5), or set ROCM_PATH or X_HIP_LIBRARY"
                                : "Point X_HIP_LIBRARY at a libamdhip64.so, or unset it";
    return result;
  }
  Api api;
  std::memset(&api, 0, sizeof api);
  std::vector<std::string> missing = resolve(library, symbolsOf(api));
  if (!missing.empty()) {
    result.failure.code = "SYMBOL_MISSING";
    result.failure.message = library.path + " lacks";
    for (const std::string& name : missing) result.failure.message += " " + name;
    result.failure.remedy = "Use the HIP runtime of ROCm 5.0 or later";
    return result;
  }
  std::string path = pathOfSymbol(reinterpret_cast<void*>(api.hipInit));
  result.driver = std::make_unique<RocmDriver>(api, path.empty() ? library.path : path);
  return result;
}

}  // namespace xhip
