// SORT: positions that sort the rows of a matrix. asort_* mirror candle-kernels/src/sort.cu, names and parameters. What
// differs: all ten dtypes, stable in both directions, NaN is the greatest, -0 equals 0, any block size (candle's needs
// one thread a column). sort_warp_*, sort_chunk_* and sort_radix_* are ours: for rows of up to 1024 columns, of up to 4096
// and of any width, where candle's shared memory of four bytes a column ends at a few thousand; topk_* is ours and finds
// the first k without sorting the row. Of ours one kernel serves both directions.
#include "x.h"
#include "shared/barrier.h"
#include "shared/split.h"
#include "sort/key.h"
#include "sort/row.h"
#include "sort/chunk.h"
#include "sort/lanes.h"
#include "sort/warp-row.h"
#include "sort/radix.h"
#include "sort/select.h"
#include "sort/topk-host.h"
#include "sort/topk.h"

#define ASORT(order, descending, T, t)                                                     \
  KERNEL(asort_##order##_##t, (const T* x, u32* dst, i32 ncols, i32 ncols_pad)) {          \
    sort::row(x, dst, (u32)ncols, (u32)ncols_pad, sort::flipOf<sort::Key<T>>(descending)); \
  }
#define SORT(T, t)                                                                                                     \
  ASORT(asc, false, T, t)                                                                                              \
  ASORT(desc, true, T, t)                                                                                              \
  KERNEL(sort_chunk_##t, (u64 rows, u64 cols, u64 size, u64 descending, const T* x, u32* index, T* values)) {          \
    sort::chunks(rows, cols, size, x, index, values, descending != 0);                                                 \
  }                                                                                                                    \
  KERNEL_BOUNDS(sort_radix_count_##t, 256, (u64 rows, u64 cols, u64 part, u64 descending, const T* x, u32* counts)) {  \
    typedef sort::radix::Values<T> From;                                                                               \
    sort::radix::count(rows, cols, part, From{x, sort::flipOf<From::K>(descending != 0)}, counts);                     \
  }                                                                                                                    \
  KERNEL_BOUNDS(sort_radix_scatter_##t, 256,                                                                           \
                (u64 rows, u64 cols, u64 part, u64 descending, const T* x, const u32* counts, void* keys, u32* to)) {  \
    typedef sort::radix::Values<T> From;                                                                               \
    const From from{x, sort::flipOf<From::K>(descending != 0)};                                                        \
    sort::radix::scatter(rows, cols, part, from, counts, (From::K*)keys, to);                                          \
  }                                                                                                                    \
  KERNEL(topk_##t, (u64 rows, u64 cols, u64 width, u64 k, u64 parts, u64 descending, const T* x, const u32* from,      \
                    u32* to)) {                                                                                        \
    sort::topk(rows, cols, width, k, parts, x, from, to, descending != 0);                                             \
  }
SORT(u8, u8)
SORT(u32, u32)
SORT(i16, i16)
SORT(i32, i32)
SORT(i64, i64)
SORT(bf16, bf16)
SORT(f16, f16)
SORT(float, f32)
SORT(double, f64)
SORT(f8e4m3, f8e4m3)

// Keys of 8 bytes would cost twice the registers.
#define SORT_WARP(T, t)                                                                           \
  KERNEL_BOUNDS(sort_warp_##t, sort::warprow::BOUND,                                              \
                (u64 rows, u64 cols, u64 descending, const T* x, u32* index, T* values)) {        \
    sort::warprow::rows(rows, cols, x, index, values, descending != 0);                           \
  }
SORT_WARP(u8, u8)
SORT_WARP(u32, u32)
SORT_WARP(i16, i16)
SORT_WARP(i32, i32)
SORT_WARP(bf16, bf16)
SORT_WARP(f16, f16)
SORT_WARP(float, f32)
SORT_WARP(f8e4m3, f8e4m3)

// The passes after the first know neither types nor directions, only keys.
#define SORT_KEYS(K, k)                                                                                                \
  KERNEL_BOUNDS(sort_radix_count_##k, 256, (u64 rows, u64 cols, u64 part, u64 shift, const K* from, u32* counts)) {    \
    sort::radix::count(rows, cols, part, sort::radix::Keys<K>{from, nullptr, (u32)shift}, counts);                     \
  }                                                                                                                    \
  KERNEL_BOUNDS(sort_radix_scatter_##k, 256,                                                                           \
                (u64 rows, u64 cols, u64 part, u64 shift, const K* from, const u32* counts, const u32* positions,      \
                 K* keys, u32* to)) {                                                                                  \
    sort::radix::scatter(rows, cols, part, sort::radix::Keys<K>{from, positions, (u32)shift}, counts, keys, to);       \
  }
SORT_KEYS(u16, b16)
SORT_KEYS(u32, b32)
SORT_KEYS(u64, b64)
