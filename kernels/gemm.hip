// GEMM: batched matrix products for devices without a BLAS library, and for shapes where one is slow. Ours: candle has
// only cuBLAS here, so a program of candle's launches none of these. Strides are in elements and arbitrary, out is
// row-major [b, m, n], f16, bf16 and f8e4m3 accumulate in f32, integers wrap, k = 0 writes zeros.
//   gemm_{t}  tiles; grid (ceil(n/64), ceil(m/64), b) and 256 threads on GPUs
//   gemm_mma_{f16,bf16}  on matrix units; 256 threads, and on NVIDIA as many times 48 KiB of dynamic shared memory as there
//             are, of 2 to 4 (4 where compiled for sm_90a); each operand aligned to 16 bytes in all but one stride, which
//             is 1. gemm_{t} on targets without such units.
//   gemm_groups_{t}  rows of a mixture's experts, each group with the weights of its expert
//   gemv_{t}  the same product for small m, by reading the right matrix once for every 8 rows (4 on the host)
#include "x.h"
#include "shared/split.h"
#include "shared/mma.h"
#include "shared/wgmma.h"
#include "gemm/tile.h"
#include "gemm/host.h"
#include "gemm/vector.h"
#include "gemm/mma.h"

#define GEMM_KERNEL(name, threads, T, function)                                                                        \
  KERNEL_BOUNDS(name, threads, (u64 b, u64 m, u64 n, u64 k, const T* lhs, u64 lhs_batch_stride, u64 lhs_row_stride,    \
                    u64 lhs_col_stride, const T* rhs, u64 rhs_batch_stride, u64 rhs_row_stride, u64 rhs_col_stride, T* out)) { \
    function(b, m, n, k, gemm::Operand<T>{lhs, lhs_batch_stride, lhs_row_stride, lhs_col_stride},                      \
             gemm::Operand<T>{rhs, rhs_batch_stride, rhs_row_stride, rhs_col_stride}, out);                            \
  }

// Rows of experts' groups: gemm/tile.h. For any grid and block.
#define GROUPS(T, t)                                                                                                   \
  KERNEL_BOUNDS(gemm_groups_##t, 512,                                                                                  \
                (u64 n, u64 k, const T* rows, const T* weights, const u32* tiles, u32 count, T* out)) {                \
    gemm::multiplyGroups<T>(n, k, rows, weights, tiles, count, out);                                                   \
  }
GROUPS(bf16, bf16)
GROUPS(f16, f16)
GROUPS(float, f32)

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
