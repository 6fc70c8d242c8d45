// The part of OpenBLAS that we call, as function pointers: CBLAS with 32-bit integers, and OpenBLAS's own thread and
// version functions. No header is included.
#pragma once

#include <cstdint>

namespace xhip {
namespace openblas {

enum Order : int { kColumnMajor = 102 };
enum Transpose : int { kNone = 111, kTranspose = 112 };
constexpr int kSequential = 0;  // openblas_get_parallel: built without threads, perhaps without locks

struct Api {
  void (*cblas_sgemm)(int order, int transA, int transB, int m, int n, int k, float alpha, const float* a, int lda,
                      const float* b, int ldb, float beta, float* c, int ldc);
  void (*cblas_dgemm)(int order, int transA, int transB, int m, int n, int k, double alpha, const double* a, int lda,
                      const double* b, int ldb, double beta, double* c, int ldc);
  // bf16 operands, f32 result; absent from most builds for x86.
  void (*cblas_sbgemm)(int order, int transA, int transB, int m, int n, int k, float alpha, const uint16_t* a, int lda,
                       const uint16_t* b, int ldb, float beta, float* c, int ldc);
  void (*openblas_set_num_threads)(int count);
  int (*openblas_get_parallel)();
  char* (*openblas_get_config)();
};

}  // namespace openblas
}  // namespace xhip
