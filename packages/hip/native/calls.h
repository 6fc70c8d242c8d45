// The operations of the driver table, what each platform calls them (for error messages), and the platforms.
#pragma once

#include <cstdint>

namespace xhip {

enum class Platform : uint32_t { Rocm = 0, Cuda = 1, Host = 2 };
constexpr uint32_t kPlatformCount = 3;

inline const char* platformName(Platform platform) {
  static const char* const names[kPlatformCount] = {"rocm", "cuda", "host"};
  return names[uint32_t(platform)];
}

// X(operation, HIP name, CUDA name, host name)
#define X_HIP_CALLS(X)                                                                   \
  X(Init, "hipInit", "cuInit", "init")                                                   \
  X(DeviceCount, "hipGetDeviceCount", "cuDeviceGetCount", "deviceCount")                 \
  X(DeviceProperties, "hipDeviceGetAttribute", "cuDeviceGetAttribute", "deviceProperties") \
  X(OpenContext, "hipSetDevice", "cuDevicePrimaryCtxRetain", "openContext")              \
  X(MakeCurrent, "hipSetDevice", "cuCtxSetCurrent", "makeCurrent")                       \
  X(DeviceSynchronize, "hipDeviceSynchronize", "cuCtxSynchronize", "deviceSynchronize")  \
  X(MemInfo, "hipMemGetInfo", "cuMemGetInfo", "memInfo")                                 \
  X(Malloc, "hipMalloc", "cuMemAlloc", "malloc")                                         \
  X(Free, "hipFree", "cuMemFree", "free")                                                \
  X(HostMalloc, "hipHostMalloc", "cuMemHostAlloc", "hostMalloc")                         \
  X(HostUnregister, "hipHostUnregister", "cuMemHostUnregister", "hostUnregister")        \
  X(MemcpyHtoD, "hipMemcpyHtoDAsync", "cuMemcpyHtoDAsync", "memcpyHtoD")                 \
  X(MemcpyDtoH, "hipMemcpyDtoHAsync", "cuMemcpyDtoHAsync", "memcpyDtoH")                 \
  X(MemcpyDtoD, "hipMemcpyDtoDAsync", "cuMemcpyDtoDAsync", "memcpyDtoD")                 \
  X(PeerAccess, "hipDeviceCanAccessPeer", "cuDeviceCanAccessPeer", "reachPeer")          \
  X(MemcpyPeer, "hipMemcpyPeerAsync", "cuMemcpyPeerAsync", "memcpyPeer")                 \
  X(PeerMalloc, "hipExtMallocWithFlags", "cuMemAlloc", "peerMalloc")                     \
  X(PeerOpen, "hipIpcOpenMemHandle", "cuIpcOpenMemHandle", "peerOpen")                   \
  X(Memset, "hipMemsetD8Async", "cuMemsetD8Async", "memset")                             \
  X(StreamCreate, "hipStreamCreateWithFlags", "cuStreamCreate", "streamCreate")          \
  X(StreamSynchronize, "hipStreamSynchronize", "cuStreamSynchronize", "streamSynchronize") \
  X(StreamWaitEvent, "hipStreamWaitEvent", "cuStreamWaitEvent", "streamWaitEvent")       \
  X(StreamBeginCapture, "hipStreamBeginCapture", "cuStreamBeginCapture", "streamBeginCapture") \
  X(StreamEndCapture, "hipStreamEndCapture", "cuStreamEndCapture", "streamEndCapture")   \
  X(EventCreate, "hipEventCreate", "cuEventCreate", "eventCreate")                       \
  X(EventRecord, "hipEventRecord", "cuEventRecord", "eventRecord")                       \
  X(EventSynchronize, "hipEventSynchronize", "cuEventSynchronize", "eventSynchronize")   \
  X(EventQuery, "hipEventQuery", "cuEventQuery", "eventQuery")                           \
  X(EventElapsed, "hipEventElapsedTime", "cuEventElapsedTime", "eventElapsed")           \
  X(ModuleLoad, "hipModuleLoadData", "cuModuleLoadDataEx", "moduleLoad")                 \
  X(ModuleUnload, "hipModuleUnload", "cuModuleUnload", "moduleUnload")                   \
  X(ModuleGetFunction, "hipModuleGetFunction", "cuModuleGetFunction", "moduleGetFunction") \
  X(FuncSetShared, "hipFuncSetAttribute", "cuFuncSetAttribute", "functionSetMaxSharedBytes") \
  X(Launch, "hipModuleLaunchKernel", "cuLaunchKernel", "launch")                         \
  X(Library, "library call", "library call", "enqueueTask")                              \
  X(GraphInstantiate, "hipGraphInstantiate", "cuGraphInstantiateWithFlags", "graphInstantiate") \
  X(GraphExecUpdate, "hipGraphExecUpdate", "cuGraphExecUpdate", "graphExecUpdate")       \
  X(GraphLaunch, "hipGraphLaunch", "cuGraphLaunch", "graphLaunch")                       \
  X(GraphDestroy, "hipGraphDestroy", "cuGraphDestroy", "graphDestroy")                   \
  X(GraphExecDestroy, "hipGraphExecDestroy", "cuGraphExecDestroy", "graphExecDestroy")

enum class Call : uint32_t {
#define X_ENUM(operation, hip, cuda, host) operation,
  X_HIP_CALLS(X_ENUM)
#undef X_ENUM
};

inline const char* callName(Platform platform, Call call) {
  static const char* const names[][kPlatformCount] = {
#define X_NAMES(operation, hip, cuda, host) {hip, cuda, host},
      X_HIP_CALLS(X_NAMES)
#undef X_NAMES
  };
  return names[uint32_t(call)][uint32_t(platform)];
}

// Numbers that HIP, CUDA and the host platform share.
constexpr int kStatusInvalidValue = 1;
constexpr int kStatusOutOfMemory = 2;
constexpr int kStatusNoDevice = 100;
constexpr int kStatusInvalidDevice = 101;
constexpr int kStatusNoBinaryForGpu = 209;
constexpr int kStatusNotFound = 500;

}  // namespace xhip
