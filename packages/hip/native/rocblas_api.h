// The part of rocBLAS that we call, as function pointers. Written from the public headers' signatures, which are the same
// in ROCm 5.2, 6 and 7 (test/library-signatures.ts has the table); no ROCm header is included.
#pragma once

#include <cstddef>
#include <cstdint>

namespace xhip {
namespace rocblas {

constexpr int kSuccess = 0;
constexpr int kMemoryError = 5;

enum Operation : int { kNone = 111, kTranspose = 112 };
enum Datatype : int { kF16 = 150, kF32 = 151, kF64 = 152, kBF16 = 168 };
constexpr int kAlgoStandard = 0;
constexpr int kAtomicsNotAllowed = 0;
constexpr uint32_t kFlagsNone = 0;

struct Api {
  int (*rocblas_create_handle)(void** handle);
  int (*rocblas_destroy_handle)(void* handle);
  int (*rocblas_set_stream)(void* handle, void* stream);
  int (*rocblas_set_workspace)(void* handle, void* address, size_t bytes);
  int (*rocblas_set_atomics_mode)(void* handle, int mode);
  int (*rocblas_get_version_string)(char* text, size_t bytes);
  const char* (*rocblas_status_to_string)(int status);
  int (*rocblas_gemm_strided_batched_ex)(void* handle, int transA, int transB, int32_t m, int32_t n, int32_t k,
                                         const void* alpha, const void* a, int aType, int32_t lda, int64_t strideA,
                                         const void* b, int bType, int32_t ldb, int64_t strideB, const void* beta,
                                         const void* c, int cType, int32_t ldc, int64_t strideC, void* d, int dType,
                                         int32_t ldd, int64_t strideD, int32_t batchCount, int computeType, int algo,
                                         int32_t solutionIndex, uint32_t flags);
};

}  // namespace rocblas
}  // namespace xhip
