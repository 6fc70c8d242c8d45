// REDUCE: sums, extrema and their indices, softmax, norms and rotary embeddings. Mirrors candle-kernels/src/reduce.cu:
// every name and parameter list. What differs: any grid and block size is right on every warp width; i16 i32 f8e4m3 are
// covered; f16, bf16 and f8e4m3 accumulate in f32 and f64 norms in f64; min and max propagate NaN, argmin and argmax
// give the first NaN, else the first index of the extremum; softmax and the norms take one block a row whatever the
// block's shape (their block_size argument is read by nobody). cols_* (reduce/columns.h), rows_*, part_* and
// done_* (reduce/fast.h) and cumsum_* (reduce/scan.h) are ours.
#include "x.h"
#include "shared/split.h"
#include "shared/rough.h"
#include "shared/tally.h"
#include "shared/turn.h"
#include "reduce/range-host.h"
#include "reduce/range.h"
#include "reduce/fast.h"
#include "reduce/columns.h"
#include "reduce/row.h"
#include "reduce/rope.h"
#include "reduce/scan.h"

#define REDUCE(op, Op, T, t)                                                                                  \
  KERNEL(fast_##op##_##t, (u64 src_numel, u64 el_per_block, u64 num_dims, const u64* info, const T* src, T* dst)) { \
    reduce::fast<Op>(src_numel, el_per_block, num_dims, info, src, dst);                                      \
  }                                                                                                           \
  KERNEL(cols_##op##_##t,                                                                                     \
         (u64 left, u64 size, u64 right, u64 parts, const T* src, Handed<Op, T>* partial, T* dst)) {          \
    reduce::columns<Op>(left, size, right, parts, src, partial, dst);                                         \
  }                                                                                                           \
  KERNEL_EACH(cols_done_##op##_##t, (u64 left, u64 parts, u64 right, const Handed<Op, T>* partial, T* dst)) { \
    reduce::columnsDone<Op>(left, parts, right, partial, dst);                                                \
  }                                                                                                           \
  KERNEL(rows_##op##_##t, (u64 rows, u64 size, const T* src, T* dst)) { reduce::rows<Op>(rows, size, src, dst); } \
  KERNEL(part_##op##_##t, (u64 rows, u64 size, u64 parts, const T* src, Handed<Op, T>* partial)) {            \
    reduce::part<Op>(rows, size, parts, src, partial);                                                        \
  }                                                                                                           \
  KERNEL(done_##op##_##t, (u64 rows, u64 parts, const Handed<Op, T>* partial, T* dst)) {                      \
    reduce::done<Op>(rows, parts, partial, dst);                                                              \
  }
#define REDUCE_INDEX(op, Op, T, t)                                                                            \
  KERNEL(fast_##op##_##t, (u64 src_numel, u64 el_per_block, u64 num_dims, const u64* info, const T* src, u32* dst)) { \
    reduce::fastIndex<Op>(src_numel, el_per_block, num_dims, info, src, dst);                                 \
  }                                                                                                           \
  KERNEL(cols_##op##_##t, (u64 left, u64 size, u64 right, u64 parts, const T* src, u32* out)) {               \
    reduce::columnsIndex<Op>(left, size, right, parts, src, out);                                             \
  }                                                                                                           \
  KERNEL_EACH(cols_done_##op##_##t,                                                                           \
              (u64 left, u64 size, u64 parts, u64 right, const T* src, const u32* partial, u32* dst)) {       \
    reduce::columnsIndexDone<Op>(left, size, parts, right, src, partial, dst);                                \
  }                                                                                                           \
  KERNEL(rows_##op##_##t, (u64 rows, u64 size, const T* src, u32* dst)) {                                     \
    reduce::rowsIndex<Op>(rows, size, src, dst);                                                              \
  }                                                                                                           \
  KERNEL(part_##op##_##t, (u64 rows, u64 size, u64 parts, const T* src, u32* partial)) {                      \
    reduce::partIndex<Op>(rows, size, parts, src, partial);                                                   \
  }                                                                                                           \
  KERNEL(done_##op##_##t, (u64 rows, u64 size, u64 parts, const T* src, const u32* partial, u32* dst)) {      \
    reduce::doneIndex<Op>(rows, size, parts, src, partial, dst);                                              \
  }
#define REDUCE_ALL(T, t)                 \
  REDUCE(sum, reduce::WrapSum, T, t)     \
  REDUCE(min, MinNan, T, t)              \
  REDUCE(max, MaxNan, T, t)              \
  REDUCE_INDEX(argmin, MinNan, T, t)     \
  REDUCE_INDEX(argmax, MaxNan, T, t)     \
  KERNEL(cumsum_##t, (u64 left, u64 size, u64 right, const T* src, T* dst)) { reduce::cumsum(left, size, right, src, dst); }
REDUCE_ALL(u8, u8)
REDUCE_ALL(u32, u32)
REDUCE_ALL(i16, i16)
REDUCE_ALL(i32, i32)
REDUCE_ALL(i64, i64)
REDUCE_ALL(bf16, bf16)
REDUCE_ALL(f16, f16)
REDUCE_ALL(float, f32)
REDUCE_ALL(double, f64)
REDUCE_ALL(f8e4m3, f8e4m3)

#define SUM_INTO(T, t)                                                                                         \
  KERNEL(sum_##t, (u64 numel, u64 num_dims, u64 num_sum_dims, const u64* info, const T* inp, T* out)) {        \
    reduce::sumInto(numel, num_dims, num_sum_dims, info, inp, out);                                            \
  }
SUM_INTO(bf16, bf16)
SUM_INTO(f16, f16)
SUM_INTO(float, f32)
SUM_INTO(double, f64)
SUM_INTO(u32, u32)

KERNEL(norm_backward_f32, (const float* src, const float* alpha, const float* grad, float* dx, float* scaled, i32 n_cols, float eps,
                           bool centred)) {
  reduce::normBackward(src, alpha, grad, dx, scaled, (u32)n_cols, eps, centred);
}

#define ROWS(T, t)                                                                                             \
  KERNEL(softmax_##t, (const T* src, T* dst, i32 n_cols)) { reduce::softmax(src, dst, (u32)n_cols); }          \
  KERNEL_EARLY(rmsnorm_##t)                                                                                    \
  KERNEL(rmsnorm_##t, (const T* src, T* dst, const T* alpha, i32 n_cols, i32 block_size, float eps)) {         \
    (void)block_size;                                                                                          \
    early::await();                                                                                            \
    reduce::rmsNorm(src, dst, alpha, (u32)n_cols, eps);                                                        \
  }                                                                                                            \
  KERNEL_EARLY(layernorm_##t)                                                                                  \
  KERNEL(layernorm_##t,                                                                                        \
         (const T* src, T* dst, const T* alpha, const T* beta, i32 n_cols, i32 block_size, float eps)) {       \
    (void)block_size;                                                                                          \
    early::await();                                                                                            \
    reduce::layerNorm(src, dst, alpha, beta, (u32)n_cols, eps);                                                \
  }                                                                                                            \
  KERNEL_EARLY(rope_i_##t)                                                                                     \
  KERNEL_EACH(rope_i_##t, (const T* src, const T* cos, const T* sin, T* dst, u32 bh, u32 td, u32 stride_b)) {  \
    early::await();                                                                                            \
    reduce::ropeInterleaved(src, cos, sin, dst, bh, td, stride_b);                                             \
  }                                                                                                            \
  KERNEL_EARLY(rope_##t)                                                                                       \
  KERNEL_EACH(rope_##t, (const T* src, const T* cos, const T* sin, T* dst, u32 bh, u32 td, u32 d, u32 stride_b)) { \
    early::await();                                                                                            \
    reduce::rope(src, cos, sin, dst, bh, td, d, stride_b);                                                     \
  }                                                                                                            \
  KERNEL_EACH(rope_thd_##t,                                                                                    \
              (const T* src, const T* cos, const T* sin, T* dst, u32 b, u32 t, u32 h, u32 d, u32 stride_b)) {  \
    reduce::ropeThd(src, cos, sin, dst, b, t, h, d, stride_b);                                                 \
  }
ROWS(bf16, bf16)
ROWS(f16, f16)
ROWS(float, f32)
ROWS(double, f64)
ROWS(f8e4m3, f8e4m3)
