// The part of the CUDA driver API that we call, as function pointers. Names are the exported ones (`_v2` where the ABI has
// a second version); values were printed from cuda.h 13.0. No CUDA header is included, so the addon builds without CUDA.
#pragma once

#include <cstddef>
#include <cstdint>

#include "driver.h"

namespace xhip {
namespace cuda {

using CUresult = int;
constexpr CUresult kSuccess = 0;
constexpr CUresult kInvalidImage = 200;
constexpr CUresult kNotReady = 600;
constexpr CUresult kPeerAccessAlreadyEnabled = 704;
constexpr CUresult kGraphExecUpdateFailure = 910;

enum Attribute : int {
  kMaxThreadsPerBlock = 1,
  kMaxSharedMemoryPerBlock = 8,
  kWarpSize = 10,
  kClockRate = 13,
  kMultiprocessorCount = 16,
  kIntegrated = 18,
  kMemoryClockRate = 36,
  kMemoryBusWidth = 37,
  kL2CacheSize = 38,
  kMaxThreadsPerMultiprocessor = 39,
  kComputeCapabilityMajor = 75,
  kComputeCapabilityMinor = 76,
  kMaxSharedMemoryPerBlockOptin = 97,
};

constexpr int kJitErrorLogBuffer = 5;
constexpr int kJitErrorLogBufferBytes = 6;
constexpr int kFunctionMaxDynamicSharedBytes = 8;
constexpr unsigned kIpcLazyEnablePeerAccess = 1;
constexpr unsigned kStreamNonBlocking = 1;
constexpr int kCaptureModeRelaxed = 2;
inline void* launchParamEnd() { return nullptr; }
inline void* launchParamBufferPointer() { return reinterpret_cast<void*>(1); }
inline void* launchParamBufferSize() { return reinterpret_cast<void*>(2); }

// What cuGraphExecUpdate_v2 fills.
struct GraphUpdateInfo {
  int result;
  void* errorNode;
  void* errorFromNode;
};

// CUlaunchAttribute and CUlaunchConfig of cuda.h.
constexpr int kProgrammaticStreamSerialization = 6;
struct LaunchAttribute {
  int id;
  int padding;
  int value[16];
};
struct LaunchSettings {
  unsigned grid[3];
  unsigned block[3];
  unsigned sharedBytes;
  void* stream;
  LaunchAttribute* attributes;
  unsigned attributeCount;
};

struct Api {
  CUresult (*cuInit)(unsigned);
  CUresult (*cuDriverGetVersion)(int*);
  CUresult (*cuGetErrorName)(CUresult, const char**);
  CUresult (*cuGetErrorString)(CUresult, const char**);
  CUresult (*cuDeviceGetCount)(int*);
  CUresult (*cuDeviceGet)(int* device, int ordinal);
  CUresult (*cuDeviceGetName)(char*, int bytes, int device);
  CUresult (*cuDeviceGetAttribute)(int*, int attribute, int device);
  CUresult (*cuDeviceTotalMem_v2)(size_t*, int device);
  CUresult (*cuDeviceGetPCIBusId)(char*, int bytes, int device);
  CUresult (*cuDevicePrimaryCtxRetain)(void** context, int device);
  CUresult (*cuDevicePrimaryCtxRelease_v2)(int device);
  CUresult (*cuCtxSetCurrent)(void*);
  CUresult (*cuCtxSynchronize)();
  CUresult (*cuMemGetInfo_v2)(size_t*, size_t*);
  CUresult (*cuMemAlloc_v2)(uint64_t*, size_t);
  CUresult (*cuMemFree_v2)(uint64_t);
  CUresult (*cuMemHostAlloc)(void**, size_t, unsigned flags);
  CUresult (*cuMemFreeHost)(void*);
  CUresult (*cuMemHostRegister_v2)(void*, size_t, unsigned flags);
  CUresult (*cuMemHostUnregister)(void*);
  CUresult (*cuMemcpyHtoDAsync_v2)(uint64_t dst, const void* src, size_t, void* stream);
  CUresult (*cuMemcpyDtoHAsync_v2)(void* dst, uint64_t src, size_t, void* stream);
  CUresult (*cuDeviceCanAccessPeer)(int*, int device, int peer);
  CUresult (*cuCtxEnablePeerAccess)(void* peer, unsigned flags);
  CUresult (*cuMemcpyPeerAsync)(uint64_t dst, void* dstContext, uint64_t src, void* srcContext, size_t, void* stream);
  CUresult (*cuIpcGetMemHandle)(PeerHandle*, uint64_t);
  CUresult (*cuIpcOpenMemHandle_v2)(uint64_t*, PeerHandle, unsigned flags);
  CUresult (*cuIpcCloseMemHandle)(uint64_t);
  CUresult (*cuMemcpyDtoDAsync_v2)(uint64_t dst, uint64_t src, size_t, void* stream);
  CUresult (*cuMemsetD8Async)(uint64_t dst, unsigned char, size_t, void* stream);
  CUresult (*cuStreamCreate)(void**, unsigned flags);
  CUresult (*cuStreamDestroy_v2)(void*);
  CUresult (*cuStreamSynchronize)(void*);
  CUresult (*cuStreamWaitEvent)(void* stream, void* event, unsigned flags);
  CUresult (*cuStreamBeginCapture_v2)(void*, int mode);
  CUresult (*cuStreamEndCapture)(void*, void** graph);
  CUresult (*cuEventCreate)(void**, unsigned flags);
  CUresult (*cuEventDestroy_v2)(void*);
  CUresult (*cuEventRecord)(void* event, void* stream);
  CUresult (*cuEventSynchronize)(void*);
  CUresult (*cuEventQuery)(void*);
  CUresult (*cuEventElapsedTime)(float*, void* start, void* end);
  CUresult (*cuModuleLoadDataEx)(void** module, const void* image, unsigned count, int* options, void** values);
  CUresult (*cuModuleUnload)(void*);
  CUresult (*cuModuleGetFunction)(void** function, void* module, const char* name);
  CUresult (*cuModuleGetGlobal_v2)(uint64_t* address, size_t* bytes, void* module, const char* name);
  CUresult (*cuFuncSetAttribute)(void* function, int attribute, int value);
  CUresult (*cuLaunchKernel)(void* function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                             unsigned sharedBytes, void* stream, void** params, void** extra);
  CUresult (*cuLaunchKernelEx)(const LaunchSettings*, void* function, void** params, void** extra);
  CUresult (*cuGraphInstantiateWithFlags)(void** exec, void* graph, unsigned long long flags);
  CUresult (*cuGraphExecUpdate_v2)(void* exec, void* graph, GraphUpdateInfo*);
  CUresult (*cuGraphExecUpdate)(void* exec, void* graph, void** errorNode, int* result);
  CUresult (*cuGraphLaunch)(void* exec, void* stream);
  CUresult (*cuGraphDestroy)(void*);
  CUresult (*cuGraphExecDestroy)(void*);
};

}  // namespace cuda
}  // namespace xhip
