// SORT: positions that sort the rows of a matrix. asort_* mirror candle-kernels/src/sort.cu, names and parameters. What
// differs: all ten dtypes, stable in both directions, NaN is the greatest, -0 equals 0, any block size (candle's needs
// one thread a column). sort_warp_*, sort_chunk_* and sort_radix_* are ours: for rows of up to 1024 columns, of up to 4096
// and of any width, where candle's shared memory of four bytes a column ends at a few thousand; topk_* is ours and finds
// the first k without sorting the row.
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

#define SORT(order, ascending, T, t)                                                                                   \
  KERNEL(asort_##order##_##t, (const T* x, u32* dst, i32 ncols, i32 ncols_pad)) {                                      \
    sort::row<ascending>(x, dst, (u32)ncols, (u32)ncols_pad);                                                          \
  }                                                                                                                    \
  KERNEL(sort_chunk_##order##_##t, (u64 rows, u64 cols, u64 size, const T* x, u32* index, T* values)) {                \
    sort::chunks<ascending>(rows, cols, size, x, index, values);                                                       \
  }                                                                                                                    \
  KERNEL_BOUNDS(sort_radix_count_##order##_##t, 256, (u64 rows, u64 cols, u64 part, const T* x, u32* counts)) {        \
    sort::radix::count(rows, cols, part, sort::radix::Values<ascending, T>{x}, counts);                                \
  }                                                                                                                    \
  KERNEL_BOUNDS(sort_radix_scatter_##order##_##t, 256,                                                                 \
                (u64 rows, u64 cols, u64 part, const T* x, const u32* counts, void* keys, u32* to)) {                  \
    typedef sort::radix::Values<ascending, T> From;                                                                    \
    sort::radix::scatter(rows, cols, part, From{x}, counts, (From::K*)keys, to);                                       \
  }                                                                                                                    \
  KERNEL(topk_##order##_##t,                                                                                           \
         (u64 rows, u64 cols, u64 width, u64 k, u64 parts, const T* x, const u32* from, u32* to)) {                    \
    sort::topk<ascending>(rows, cols, width, k, parts, x, from, to);                                                   \
  }
#define SORT_BOTH(T, t)    \
  SORT(asc, true, T, t)    \
  SORT(desc, false, T, t)
SORT_BOTH(u8, u8)
SORT_BOTH(u32, u32)
SORT_BOTH(i16, i16)
SORT_BOTH(i32, i32)
SORT_BOTH(i64, i64)
SORT_BOTH(bf16, bf16)
SORT_BOTH(f16, f16)
SORT_BOTH(float, f32)
SORT_BOTH(double, f64)
SORT_BOTH(f8e4m3, f8e4m3)

// Keys of 8 bytes would cost twice the registers.
#define SORT_WARP(order, ascending, T, t)                                                                              \
  KERNEL_BOUNDS(sort_warp_##order##_##t, sort::warprow::BOUND,                                                         \
                (u64 rows, u64 cols, const T* x, u32* index, T* values)) {                                             \
    sort::warprow::rows<ascending>(rows, cols, x, index, values);                                                      \
  }
#define SORT_WARP_BOTH(T, t)    \
  SORT_WARP(asc, true, T, t)    \
  SORT_WARP(desc, false, T, t)
SORT_WARP_BOTH(u8, u8)
SORT_WARP_BOTH(u32, u32)
SORT_WARP_BOTH(i16, i16)
SORT_WARP_BOTH(i32, i32)
SORT_WARP_BOTH(bf16, bf16)
SORT_WARP_BOTH(f16, f16)
SORT_WARP_BOTH(float, f32)
SORT_WARP_BOTH(f8e4m3, f8e4m3)

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
