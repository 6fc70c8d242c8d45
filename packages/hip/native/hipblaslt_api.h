// The part of hipBLASLt that we call, as function pointers: ROCm 6.0 (hipBLASLt 0.6) and later, where layouts take
// hipDataType numbers and an algorithm is 24 opaque bytes. No ROCm header is included.
#pragma once

#include <cstddef>
#include <cstdint>

namespace xhip {
namespace hipblaslt {

constexpr int kSuccess = 0;
constexpr int kAllocFailed = 2;
constexpr int kFirstVersion = 600;  // major * 100000 + minor * 100 + patch

enum Operation : int32_t { kNone = 111, kTranspose = 112 };
enum Datatype : int { kF32 = 0, kF64 = 1, kF16 = 2, kBF16 = 14 };
enum Compute : int { kCompute32F = 2, kCompute64F = 7 };
enum DescAttribute : int { kTransA = 0, kTransB = 1 };
enum LayoutAttribute : int { kBatchCount = 0, kBatchStride = 1 };
enum PreferenceAttribute : int { kMaxWorkspaceBytes = 1 };

struct Algorithm {
  uint8_t data[16];
  size_t maxWorkspaceBytes;
};
struct HeuristicResult {
  Algorithm algorithm;
  size_t workspaceBytes;
  int state;
  float wavesCount;
  int reserved[4];
};
static_assert(sizeof(Algorithm) == 24 && sizeof(HeuristicResult) == 56, "as in hipblaslt.h");

struct Api {
  int (*hipblasLtCreate)(void** handle);
  int (*hipblasLtDestroy)(void* handle);
  int (*hipblasLtGetVersion)(void* handle, int* version);
  int (*hipblasLtMatmulDescCreate)(void** desc, int computeType, int scaleType);
  int (*hipblasLtMatmulDescDestroy)(void* desc);
  int (*hipblasLtMatmulDescSetAttribute)(void* desc, int attribute, const void* value, size_t bytes);
  int (*hipblasLtMatrixLayoutCreate)(void** layout, int type, uint64_t rows, uint64_t columns, int64_t ld);
  int (*hipblasLtMatrixLayoutDestroy)(void* layout);
  int (*hipblasLtMatrixLayoutSetAttribute)(void* layout, int attribute, const void* value, size_t bytes);
  int (*hipblasLtMatmulPreferenceCreate)(void** preference);
  int (*hipblasLtMatmulPreferenceDestroy)(void* preference);
  int (*hipblasLtMatmulPreferenceSetAttribute)(void* preference, int attribute, const void* value, size_t bytes);
  int (*hipblasLtMatmulAlgoGetHeuristic)(void* handle, void* desc, void* a, void* b, void* c, void* d, void* preference,
                                         int requested, HeuristicResult* results, int* returned);
  int (*hipblasLtMatmul)(void* handle, void* desc, const void* alpha, const void* a, void* aLayout, const void* b,
                         void* bLayout, const void* beta, const void* c, void* cLayout, void* d, void* dLayout,
                         const Algorithm* algorithm, void* workspace, size_t workspaceBytes, void* stream);
};

}  // namespace hipblaslt
}  // namespace xhip
