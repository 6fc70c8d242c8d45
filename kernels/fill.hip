// fill_{t}(buf, value, numel), const_set_{t} (a constant into a strided destination) and copy2d_{t} (d1 rows of d2
// elements between two row strides); transpose_b{bits} and copy_back_b{bits} are ours (fill/*.h). candle: candle-kernels/src/fill.cu.
// What differs: any grid and block size is right (candle's copy2d is one thread an element), i16 and i32 are there, rows
// that allow it move 16 bytes an access.
#include "x.h"
#include "shared/split.h"
#include "shared/turn.h"
#include "fill/transpose.h"
#include "fill/back.h"

template <class T>
struct Constant {
  T value;
  X_DEVICE T operator()() const { return value; }
  X_DEVICE void operator()(u64, T* p) const { *p = value; }
};

template <class T>
X_DEVICE void constSet(u64 numel, u64 num_dims, const u64* info, T value, T* out) {
  const Constant<T> constant{value};
  if (info == nullptr || isContiguous(num_dims, info, info + num_dims)) each::contiguous<16>(numel, constant, out);
  else forEachStrided(numel, num_dims, info, constant, out);
}

template <class T>
X_DEVICE void copyRows(const T* src, T* dst, u64 rows, u64 columns, u64 src_stride, u64 dst_stride) {
#if X_HOST
  const u64 end = launch::eachEnd(rows * columns);
  for (u64 i = launch::eachBegin(rows * columns); i < end;) {
    const u64 row = i / columns;
    const u64 column = i - row * columns;
    const u64 run = columns - column < end - i ? columns - column : end - i;
    __builtin_memmove(dst + row * dst_stride + column, src + row * src_stride + column, run * sizeof(T));
    i += run;
  }
#else
  X_FOR_EACH(i, rows * columns) {
    const u64 row = (i | columns) >> 32 == 0 ? (u32)i / (u32)columns : i / columns;
    const u64 column = i - row * columns;
    dst[row * dst_stride + column] = src[row * src_stride + column];
  }
#endif
}

template <class T>
X_DEVICE void copy2d(const T* src, T* dst, u32 d1, u32 d2, u32 src_s, u32 dst_s) {
  constexpr u32 V = vecWidth<T>;
  typedef typename vec::Word<16>::type Word;
  const bool whole = aligned16(src) && aligned16(dst) && (d2 | src_s | dst_s) % V == 0;
  if (!X_HOST && whole) copyRows((const Word*)src, (Word*)dst, d1, d2 / V, src_s / V, dst_s / V);
  else copyRows(src, dst, d1, d2, src_s, dst_s);
}

#define FILL(T) \
  KERNEL_EACH(fill_##T, (T * buf, T value, u64 numel)) { constSet<T>(numel, 0, nullptr, value, buf); }
#define CONST_SET(T)                                                                                       \
  KERNEL_EACH(const_set_##T, (u64 numel, u64 num_dims, const u64* X_RESTRICT info, T value, T* out)) { \
    constSet<T>(numel, num_dims, info, value, out);                                                        \
  }
#define COPY2D(T)                                                                              \
  KERNEL_EARLY(copy2d_##T)                                                                     \
  KERNEL_EACH(copy2d_##T, (const T* src, T* dst, u32 d1, u32 d2, u32 src_s, u32 dst_s)) { \
    early::await();                                                                            \
    copy2d<T>(src, dst, d1, d2, src_s, dst_s);                                                 \
  }

X_ALL_TYPES(FILL)
X_ALL_TYPES(CONST_SET)
X_ALL_TYPES(COPY2D)

#define TRANSPOSE(name, T, across, blocks)                                                                   \
  KERNEL_BLOCKS(name, 256, blocks,                                                                           \
                (u64 batches, u64 rows, u64 cols, u64 num_dims, const u64* info, u64 row_step, u64 col_step, \
                 const T* src, T* dst)) {                                                                    \
    transpose::Copy<T, across>{rows, cols, num_dims, info, row_step, col_step, src, dst}.run(batches);       \
  }
TRANSPOSE(transpose_b8, u8, 32, 4)
TRANSPOSE(transpose_b16, u16, 32, 4)
TRANSPOSE(transpose_b32, u32, 64, 4)
TRANSPOSE(transpose_b64, u64, 32, 4)
// Larger tiles, whose places take less of the time; AMD's GPUs have too little shared memory for several of them.
TRANSPOSE(transpose_b16_wide, u16, X_NVPTX ? 64 : 32, 3)

#define COPY_BACK(name, T)                                                                             \
  KERNEL_EACH(name, (u64 numel, u64 num_dims, const u64* X_RESTRICT info, const T* src, T* dst)) { \
    back::copy(numel, num_dims, info, src, dst);                                                       \
  }
COPY_BACK(copy_back_b8, u8)
COPY_BACK(copy_back_b16, u16)
COPY_BACK(copy_back_b32, u32)
COPY_BACK(copy_back_b64, u64)
