// INDEXING: index_select (is), gather, index_add (ia), scatter (s) and scatter_add (sa). Mirrors
// candle-kernels/src/indexing.cu, names and parameter lists. What differs: every index type (u8 u32 i16 i32 i64) with
// every one of the ten dtypes; an id out of range gives zeros or is skipped, never an access outside the tensor (candle
// asserts, or nothing for f8); strided ids are honoured in index_select, where candle strides the source instead. As in
// candle, the largest value of an id's type is no element.
// Ours besides: gather_view, s_view and sa_view, for operands of any strides and ids smaller than the tensor outside the
// dim, to which every value is an id; and check_ids, which reports ids out of range.
#include "x.h"
#include "shared/split.h"
#include "indexing/select.h"
#include "indexing/scatter.h"
#include "indexing/view.h"
#include "indexing/check.h"

#define INDEXED(I, i, T, t)                                                                                            \
  KERNEL_EACH(is_##i##_##t, (u64 numel, u64 num_dims, const u64* info, const I* ids, const T* inp, T* out, u64 left_size, \
                             u64 src_dim_size, u64 ids_dim_size, u64 right_size)) {                                    \
    (void)left_size;                                                                                                   \
    indexing::select<sizeof(T)>(numel, num_dims, info, ids, inp, out, src_dim_size, ids_dim_size, right_size);         \
  }                                                                                                                    \
  KERNEL_EACH(gather_##i##_##t, (u64 numel, const I* ids, const T* inp, T* out, u64 left_size, u64 src_dim_size,       \
                                 u64 ids_dim_size, u64 right_size)) {                                                  \
    (void)left_size;                                                                                                   \
    indexing::gather<sizeof(T)>(numel, ids, inp, out, src_dim_size, ids_dim_size, right_size);                         \
  }                                                                                                                    \
  KERNEL_EACH(ia_##i##_##t, (const I* ids, u64 ids_dim_size, const T* inp, T* out, u64 left_size, u64 src_dim_size,    \
                             u64 dst_dim_size, u64 right_size)) {                                                      \
    (void)src_dim_size;                                                                                                \
    indexing::scatter<indexing::Add, true>(ids, inp, out, left_size, ids_dim_size, dst_dim_size, right_size);          \
  }                                                                                                                    \
  KERNEL_EACH(s_##i##_##t, (const I* ids, const T* inp, T* out, u64 left_size, u64 src_dim_size, u64 dst_dim_size,     \
                            u64 right_size)) {                                                                         \
    indexing::scatter<indexing::Set, false>(ids, inp, out, left_size, src_dim_size, dst_dim_size, right_size);         \
  }                                                                                                                    \
  KERNEL_EACH(sa_##i##_##t, (const I* ids, const T* inp, T* out, u64 left_size, u64 src_dim_size, u64 dst_dim_size,    \
                             u64 right_size)) {                                                                        \
    indexing::scatter<indexing::Add, false>(ids, inp, out, left_size, src_dim_size, dst_dim_size, right_size);         \
  }                                                                                                                    \
  KERNEL_EACH(sa_view_##i##_##t, (u64 places, u64 num_dims, const u64* info, const I* ids, const T* inp, T* out,       \
                                  u64 ids_dim_size, u64 dst_dim_size, u64 ids_step, u64 src_step, u64 dst_step)) {     \
    indexing::scatterView<indexing::Add>(places, num_dims, info, ids, inp, out, ids_dim_size, dst_dim_size, ids_step,  \
                                         src_step, dst_step);                                                          \
  }
#define INDEXED_BY_ALL(T, t)  \
  INDEXED(u8, u8, T, t)       \
  INDEXED(u32, u32, T, t)     \
  INDEXED(i16, i16, T, t)     \
  INDEXED(i32, i32, T, t)     \
  INDEXED(i64, i64, T, t)
INDEXED_BY_ALL(u8, u8)
INDEXED_BY_ALL(u32, u32)
INDEXED_BY_ALL(i16, i16)
INDEXED_BY_ALL(i32, i32)
INDEXED_BY_ALL(i64, i64)
INDEXED_BY_ALL(bf16, bf16)
INDEXED_BY_ALL(f16, f16)
INDEXED_BY_ALL(float, f32)
INDEXED_BY_ALL(double, f64)
INDEXED_BY_ALL(f8e4m3, f8e4m3)

// Values that are only moved: by their size in bits.
#define MOVED(I, i, bits)                                                                                              \
  KERNEL_EACH(gather_view_##i##_b##bits, (u64 numel, u64 num_dims, const u64* info, const I* ids, const void* inp,     \
                                          void* out, u64 src_dim_size, u64 src_step)) {                                \
    indexing::gatherView<bits / 8>(numel, num_dims, info, ids, inp, out, src_dim_size, src_step);                      \
  }                                                                                                                    \
  KERNEL_EACH(s_view_##i##_b##bits, (u64 places, u64 num_dims, const u64* info, const I* ids, const void* inp,         \
                                     void* out, u64 ids_dim_size, u64 dst_dim_size, u64 ids_step, u64 src_step,        \
                                     u64 dst_step)) {                                                                  \
    typedef indexing::Bits<bits / 8> W;                                                                                \
    indexing::scatterView<indexing::Set>(places, num_dims, info, ids, (const W*)inp, (W*)out, ids_dim_size,            \
                                         dst_dim_size, ids_step, src_step, dst_step);                                  \
  }
#define BY(I, i)                                                                                                       \
  MOVED(I, i, 8)                                                                                                       \
  MOVED(I, i, 16)                                                                                                      \
  MOVED(I, i, 32)                                                                                                      \
  MOVED(I, i, 64)                                                                                                      \
  KERNEL_EARLY(check_ids_##i)                                                                                          \
  KERNEL_EACH(check_ids_##i, (u64 numel, u64 num_dims, const u64* info, const I* ids, i64 low, u64 size, u64 op,       \
                              u64 dim, u64* report)) {                                                                 \
    early::await();                                                                                                    \
    indexing::check(numel, num_dims, info, ids, low, size, op, dim, report);                                           \
  }
BY(u8, u8)
BY(u32, u32)
BY(i16, i16)
BY(i32, i32)
BY(i64, i64)
