// GEMM: batched matrix products for devices without a BLAS library, and for shapes where one is slow. Ours: candle has
// only cuBLAS here, so a program of candle's launches none of these. Strides are in elements and arbitrary, out is
// row-major [b, m, n], f16, bf16 and f8e4m3 accumulate in f32, integers wrap, k = 0 writes zeros.
//   gemm_{t}  tiles; grid (ceil(n/64), ceil(m/64), b) and 256 threads on GPUs
//   gemm_mma_{f16,bf16}  on matrix units; 256 threads, and on NVIDIA as many times 48 KiB of dynamic shared memory as there
//             are, of 2 to 4 (4 where compiled for sm_90a); each operand aligned to 16 bytes in all but one stride, which
//             is 1. gemm_{t} on targets without such units.
//   gemm_groups_{t}  rows of a mixture's experts, each group with the weights of its expert
//   linear_{way}_{f16,bf16}  rows times the transpose of weights of t into f32, summed in f32: gemm/linear.h. upto1, 2, 4 and 8:
//             so many rows of f32; many: any number of them; mma: rows of t on matrix units, as gemm_mma; groups: as gemm_groups,
//             rows of f32; experts: a row of f32 for each choice of an expert
//   linear_round_{f16,bf16}  f32 to t, where finite values stay finite; with `less`, what that leaves of them
//   gemv_{t}  the same product for small m, by reading the right matrix once for every 8 rows (4 on the host)
#include "x.h"
#include "shared/split.h"
#include "shared/team.h"
#include "shared/pairs.h"
#include "shared/turn.h"
#include "shared/amx.h"
#include "shared/mma.h"
#include "shared/wgmma.h"
#include "gemm/tile.h"
#include "gemm/host-vectors.h"
#include "gemm/host-pairs.h"
#include "gemm/host-amx.h"
#include "gemm/host.h"
#include "gemm/vector.h"
#include "gemm/linear.h"
#include "gemm/mma.h"

#define GEMM_KERNEL(name, threads, T, function)                                                                        \
  KERNEL_BOUNDS(name, threads, (u64 b, u64 m, u64 n, u64 k, const T* lhs, u64 lhs_batch_stride, u64 lhs_row_stride,    \
                    u64 lhs_col_stride, const T* rhs, u64 rhs_batch_stride, u64 rhs_row_stride, u64 rhs_col_stride, T* out)) { \
    function(b, m, n, k, gemm::Operand<T>{lhs, lhs_batch_stride, lhs_row_stride, lhs_col_stride},                      \
             gemm::Operand<T>{rhs, rhs_batch_stride, rhs_row_stride, rhs_col_stride}, out);                            \
  }

// Rows of experts' groups: gemm/tile.h. For any grid and block.
#define GROUPS(name, L, R)                                                                                             \
  KERNEL_BOUNDS(name, 512,                                                                                             \
                (u64 n, u64 k, const L* rows, const R* weights, const u32* tiles, u32 count, L* out)) {                \
    gemm::multiplyGroups(n, k, rows, weights, tiles, count, out);                                                      \
  }
GROUPS(gemm_groups_bf16, bf16, bf16)
GROUPS(gemm_groups_f16, f16, f16)
GROUPS(gemm_groups_f32, float, float)
GROUPS(linear_groups_bf16, float, bf16)
GROUPS(linear_groups_f16, float, f16)

#define PRODUCT(T, t)                              \
  GEMM_KERNEL(gemm_##t, 512, T, gemm::multiply)    \
  GEMM_KERNEL(gemv_##t, 512, T, gemm::multiplyFew)
PRODUCT(bf16, bf16)
PRODUCT(f16, f16)
PRODUCT(float, f32)
PRODUCT(double, f64)
PRODUCT(f8e4m3, f8e4m3)
// Signed products have the bits of unsigned ones, whose overflow C++ defines.
PRODUCT(u8, u8)
PRODUCT(u32, u32)
PRODUCT(u16, i16)
PRODUCT(u32, i32)
PRODUCT(u64, i64)

#if X_MMA
#define MULTIPLY gemm::multiplyMma
#else
#define MULTIPLY gemm::multiply
#endif
GEMM_KERNEL(gemm_mma_bf16, 256, bf16, MULTIPLY)
GEMM_KERNEL(gemm_mma_f16, 256, f16, MULTIPLY)

// Few rows: each thread has the registers for its loads in flight.
#define LINEAR_FEW(T, t, ROWS)                                                                                         \
  KERNEL_EARLY(linear_upto##ROWS##_##t)                                                                                \
  KERNEL_BOUNDS(linear_upto##ROWS##_##t, 256, (u64 m, u64 n, u64 k, const float* x, const T* weights, float* out)) {   \
    gemm::linearFew<ROWS>(m, n, k, x, weights, out);                                                                   \
  }
#if X_MMA
#define LINEAR_MMA gemm::multiplyMma
#else
#define LINEAR_MMA gemm::multiply
#endif
#define LINEAR(T, t)                                                                                                   \
  LINEAR_FEW(T, t, 1)                                                                                                  \
  LINEAR_FEW(T, t, 2)                                                                                                  \
  LINEAR_FEW(T, t, 4)                                                                                                  \
  LINEAR_FEW(T, t, 8)                                                                                                  \
  KERNEL_BOUNDS(linear_many_##t, 512, (u64 m, u64 n, u64 k, const float* x, const T* weights, float* out)) {           \
    gemm::multiply(1, m, n, k, gemm::Operand<float>{x, 0, k, 1}, gemm::Operand<T>{weights, 0, 1, k}, out);             \
  }                                                                                                                    \
  KERNEL_BOUNDS(linear_mma_##t, 256, (u64 m, u64 n, u64 k, const T* x, const T* weights, float* out)) {                \
    LINEAR_MMA(1, m, n, k, gemm::Operand<T>{x, 0, k, 1}, gemm::Operand<T>{weights, 0, 1, k}, out);                     \
  }                                                                                                                    \
  KERNEL_MAP(linear_round_##t, (u64 count, const float* x, const T* less, T* y)) {                                     \
    if (less) mapEach(count, 0, nullptr, [](float v, T part) { return gemm::roundedRest(v, part); }, y, x, less);      \
    else mapEach(count, 0, nullptr, [](float v) { return gemm::roundedFinite<T>(v); }, y, x);                          \
  }                                                                                                                    \
  KERNEL_EARLY(linear_experts_##t)                                                                                     \
  KERNEL_BOUNDS(linear_experts_##t, 256,                                                                               \
                (u64 pairs, u64 n, u64 k, u32 topk, bool shared, const float* x, const T* weights, const u32* ids,     \
                 float* out)) {                                                                                        \
    gemm::linearExperts(pairs, n, k, topk, shared, x, weights, ids, out);                                              \
  }
LINEAR(bf16, bf16)
LINEAR(f16, f16)
