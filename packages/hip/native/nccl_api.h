// The part of NCCL's C interface that we call, which RCCL has under the same names, as function pointers: version 2.7 (send and
// receive) and later. No header of either is included.
#pragma once

#include <climits>
#include <cstddef>
#include <cstdint>

namespace xhip {
namespace nccl {

enum Result : int {
  kSuccess = 0, kUnhandledDeviceError = 1, kSystemError = 2, kInternalError = 3,
  kInvalidArgument = 4, kInvalidUsage = 5, kRemoteError = 6, kInProgress = 7,
};
enum Datatype : int { kUint8 = 1, kInt32 = 2, kUint32 = 3, kInt64 = 4, kFloat16 = 6, kFloat32 = 7, kFloat64 = 8, kBfloat16 = 9 };
enum Op : int { kSum = 0, kProd = 1, kMax = 2, kMin = 3, kAvg = 4 };

struct UniqueId {
  char bytes[128];
};

constexpr int kUndefined = INT_MIN;

// ncclConfig_t as version 2.18 has it. Earlier ones read as much of it as they know; later ones see from `size` and `version` that
// no more was meant.
struct Config {
  size_t size = sizeof(Config);
  unsigned magic = 0xcafebeef;
  unsigned version = 21800;
  int blocking = kUndefined;
  int cgaClusterSize = kUndefined;
  int minCTAs = kUndefined;
  int maxCTAs = kUndefined;
  const char* netName = nullptr;
  int splitShare = kUndefined;
};

struct Api {
  int (*ncclGetVersion)(int* version);
  int (*ncclGetUniqueId)(UniqueId* out);
  int (*ncclCommInitRank)(void** out, int ranks, UniqueId id, int rank);
  int (*ncclCommInitRankConfig)(void** out, int ranks, UniqueId id, int rank, Config* config);  // from 2.14 on
  int (*ncclCommSplit)(void* comm, int color, int key, void** out, Config* config);  // from 2.18 on
  int (*ncclCommDestroy)(void* comm);
  int (*ncclCommAbort)(void* comm);
  int (*ncclCommGetAsyncError)(void* comm, int* result);
  const char* (*ncclGetErrorString)(int result);
  const char* (*ncclGetLastError)(void* comm);  // from 2.13 on
  int (*ncclAllReduce)(const void* send, void* recv, size_t count, int type, int op, void* comm, void* stream);
  int (*ncclAllGather)(const void* send, void* recv, size_t sendCount, int type, void* comm, void* stream);
  int (*ncclReduceScatter)(const void* send, void* recv, size_t recvCount, int type, int op, void* comm, void* stream);
  int (*ncclBroadcast)(const void* send, void* recv, size_t count, int type, int root, void* comm, void* stream);
  int (*ncclSend)(const void* send, size_t count, int type, int peer, void* comm, void* stream);
  int (*ncclRecv)(void* recv, size_t count, int type, int peer, void* comm, void* stream);
  int (*ncclGroupStart)();
  int (*ncclGroupEnd)();
};

}  // namespace nccl
}  // namespace xhip
