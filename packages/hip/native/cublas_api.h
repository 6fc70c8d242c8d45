// The part of cuBLAS that we call, as function pointers: version 11 (where the compute type became an argument of its
// own), 12 and 13. No CUDA header is included.
#pragma once

#include <cstddef>
#include <cstdint>

namespace xhip {
namespace cublas {

constexpr int kSuccess = 0;
constexpr int kAllocFailed = 3;

enum Operation : int { kNone = 0, kTranspose = 1 };
enum Datatype : int { kF32 = 0, kF64 = 1, kF16 = 2, kBF16 = 14 };
enum Compute : int { kCompute16F = 64, kCompute32F = 68, kCompute64F = 70, kCompute32FFastBF16 = 75, kCompute32FFastTF32 = 77 };
constexpr int kAlgoDefault = -1;
// Sums of f16 and bf16 products stay in f32 between split parts too.
constexpr int kDefaultMath = 0;
constexpr int kDisallowReducedPrecisionReduction = 16;
constexpr int kPropertyMajor = 0;

struct Api {
  int (*cublasCreate_v2)(void** handle);
  int (*cublasDestroy_v2)(void* handle);
  int (*cublasSetStream_v2)(void* handle, void* stream);
  int (*cublasSetWorkspace_v2)(void* handle, void* workspace, size_t bytes);
  int (*cublasSetMathMode)(void* handle, int mode);
  int (*cublasGetProperty)(int which, int* value);
  const char* (*cublasGetStatusName)(int status);
  int (*cublasGemmStridedBatchedEx)(void* handle, int transA, int transB, int m, int n, int k, const void* alpha,
                                    const void* a, int aType, int lda, long long strideA, const void* b, int bType,
                                    int ldb, long long strideB, const void* beta, void* c, int cType, int ldc,
                                    long long strideC, int batchCount, int computeType, int algo);
};

}  // namespace cublas
}  // namespace xhip
