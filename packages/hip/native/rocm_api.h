// The part of the HIP driver API that we call, as function pointers, with the few constants it needs. Written from the
// public headers' signatures; no HIP header is included, so the addon builds without ROCm.
#pragma once

#include <cstddef>
#include <cstdint>

#include "driver.h"

namespace xhip {
namespace rocm {

using hipError = int;
constexpr hipError kSuccess = 0;
constexpr hipError kInvalidImage = 200;
constexpr hipError kNotReady = 600;
constexpr hipError kPeerAccessAlreadyEnabled = 704;
constexpr hipError kGraphExecUpdateFailure = 910;

// hipDeviceAttribute_t. The enum was renumbered at HIP 5.0 and has only been appended to since: these values were printed
// from the headers of 5.2.3 (Debian and upstream), 5.7.1, 6.0.0 and 6.2.2, and read off a 7.x header.
enum Attribute : int {
  kClockRate = 5,
  kIntegrated = 16,
  kL2CacheSize = 19,
  kMaxThreadsPerBlock = 56,
  kMaxThreadsPerMultiprocessor = 57,
  kMemoryBusWidth = 59,
  kMemoryClockRate = 60,
  kMultiprocessorCount = 63,
  kMaxSharedMemoryPerBlock = 74,
  kWarpSize = 87,
};

// offsetof(hipDeviceProp_t, gcnArchName), printed by a program compiled against each header. The struct behind
// hipGetDeviceProperties (792 bytes in 5.2.3 and 5.7.1) has it at 396; the one behind hipGetDevicePropertiesR0600
// (1472 bytes in 6.0.0, 6.2.2; 7.x only turned reserved words into fields) has it at 1160.
constexpr size_t kArchNameOffsetR0000 = 396;
constexpr size_t kArchNameOffsetR0600 = 1160;
constexpr size_t kArchNameBytes = 256;
constexpr size_t kPropertiesBuffer = 8192;  // several times the largest struct, so that a longer one cannot overrun it

// Of hipExtMallocWithFlags: memory that no cache of the device keeps, since ROCm 5.3, and memory that its caches keep in step.
constexpr unsigned kMallocFineGrained = 1;
constexpr unsigned kMallocUncached = 3;
constexpr unsigned kIpcLazyEnablePeerAccess = 1;
constexpr unsigned kStreamNonBlocking = 1;
constexpr int kCaptureModeRelaxed = 2;
inline void* launchParamBufferPointer() { return reinterpret_cast<void*>(1); }
inline void* launchParamBufferSize() { return reinterpret_cast<void*>(2); }
inline void* launchParamEnd() { return reinterpret_cast<void*>(3); }

struct Api {
  hipError (*hipInit)(unsigned flags);
  hipError (*hipRuntimeGetVersion)(int*);
  const char* (*hipGetErrorName)(hipError);
  const char* (*hipGetErrorString)(hipError);
  hipError (*hipGetLastError)();
  hipError (*hipGetDeviceCount)(int*);
  hipError (*hipSetDevice)(int);
  hipError (*hipDeviceGetName)(char*, int bytes, int device);
  hipError (*hipDeviceGetAttribute)(int*, int attribute, int device);
  hipError (*hipDeviceTotalMem)(size_t*, int device);
  hipError (*hipDeviceGetPCIBusId)(char*, int bytes, int device);
  hipError (*hipGetDeviceProperties)(void*, int device);
  hipError (*hipGetDevicePropertiesR0600)(void*, int device);
  hipError (*hipDeviceSynchronize)();
  hipError (*hipMemGetInfo)(size_t*, size_t*);
  hipError (*hipMalloc)(void**, size_t);
  hipError (*hipFree)(void*);
  hipError (*hipHostMalloc)(void**, size_t, unsigned flags);
  hipError (*hipHostFree)(void*);
  hipError (*hipHostRegister)(void*, size_t, unsigned flags);
  hipError (*hipHostUnregister)(void*);
  hipError (*hipMemcpyHtoDAsync)(void* dst, void* src, size_t, void* stream);
  hipError (*hipMemcpyDtoHAsync)(void* dst, void* src, size_t, void* stream);
  hipError (*hipMemcpyDtoDAsync)(void* dst, void* src, size_t, void* stream);
  hipError (*hipMemsetD8Async)(void* dst, unsigned char, size_t, void* stream);
  hipError (*hipDeviceCanAccessPeer)(int*, int device, int peer);
  hipError (*hipDeviceEnablePeerAccess)(int peer, unsigned flags);
  hipError (*hipMemcpyPeerAsync)(void* dst, int dstDevice, const void* src, int srcDevice, size_t, void* stream);
  hipError (*hipExtMallocWithFlags)(void**, size_t, unsigned flags);
  hipError (*hipIpcGetMemHandle)(PeerHandle*, void*);
  hipError (*hipIpcOpenMemHandle)(void**, PeerHandle, unsigned flags);
  hipError (*hipIpcCloseMemHandle)(void*);
  hipError (*hipStreamCreateWithFlags)(void**, unsigned flags);
  hipError (*hipStreamDestroy)(void*);
  hipError (*hipStreamSynchronize)(void*);
  hipError (*hipStreamWaitEvent)(void* stream, void* event, unsigned flags);
  hipError (*hipStreamBeginCapture)(void*, int mode);
  hipError (*hipStreamEndCapture)(void*, void** graph);
  hipError (*hipEventCreate)(void**);
  hipError (*hipEventDestroy)(void*);
  hipError (*hipEventRecord)(void* event, void* stream);
  hipError (*hipEventSynchronize)(void*);
  hipError (*hipEventQuery)(void*);
  hipError (*hipEventElapsedTime)(float*, void* start, void* end);
  hipError (*hipModuleLoadData)(void** module, const void* image);
  hipError (*hipModuleUnload)(void*);
  hipError (*hipModuleGetFunction)(void** function, void* module, const char* name);
  hipError (*hipModuleLaunchKernel)(void* function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                                    unsigned bz, unsigned sharedBytes, void* stream, void** params, void** extra);
  hipError (*hipGraphInstantiate)(void** exec, void* graph, void** errorNode, char* log, size_t logBytes);
  hipError (*hipGraphExecUpdate)(void* exec, void* graph, void** errorNode, int* result);
  hipError (*hipGraphLaunch)(void* exec, void* stream);
  hipError (*hipGraphDestroy)(void*);
  hipError (*hipGraphExecDestroy)(void*);
};

}  // namespace rocm
}  // namespace xhip
