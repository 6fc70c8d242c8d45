// Rotary embeddings: rope_i (pairs are neighbours), rope and rope_thd (pairs are half a head apart). As in candle a pair
// is one work item; ours are grid-stride, count in 64 bits, compute f16 and bf16 in f32, and on the host run row by row
// so that the inner loop is plain. stride_b > 0 says that cos and sin have a row set for every stride_b source elements.
#pragma once

namespace reduce {

template <class T>
X_DEVICE void rotate(const T* src, const T* cos, const T* sin, T* dst, u64 a, u64 b, u64 angle) {
  const auto c = to_acc(cos[angle]), s = to_acc(sin[angle]), x = to_acc(src[a]), y = to_acc(src[b]);
  dst[a] = from_acc<T>(x * c - y * s);
  dst[b] = from_acc<T>(x * s + y * c);
}

/** Pairs [0, pairs) of which `rowPairs` neighbouring ones form a row; place(row, pair) does the rest of one pair. */
template <class F>
X_DEVICE void forPairs(u64 pairs, u32 rowPairs, F place) {
#if X_HOST
  for (u64 i = launch::eachBegin(pairs), end = launch::eachEnd(pairs); i < end;) {
    const u64 row = i / rowPairs;
    const u64 from = i - row * rowPairs;
    const u64 to = end - i < rowPairs - from ? from + (end - i) : rowPairs;
#pragma clang loop vectorize(assume_safety)
    for (u64 p = from; p < to; ++p) place(row, p);
    i += to - from;
  }
#else
  X_FOR_EACH(i, pairs) {
    const u64 row = quotientOf(i, rowPairs);
    place(row, i - row * rowPairs);
  }
#endif
}

template <class T>
X_DEVICE void ropeInterleaved(const T* src, const T* cos, const T* sin, T* dst, u32 bh, u32 td, u32 stride_b) {
  const u32 half = td / 2;
  forPairs((u64)bh * half, half, [=](u64 row, u64 p) {
    const u64 at = row * td + 2 * p;
    const u64 set = stride_b > 0 ? row * td / stride_b : 0;
    rotate(src, cos, sin, dst, at, at + 1, p + set * half);
  });
}

template <class T>
X_DEVICE void rope(const T* src, const T* cos, const T* sin, T* dst, u32 bh, u32 td, u32 d, u32 stride_b) {
  const u32 half = d / 2, steps = td / d;
  forPairs((u64)bh * steps * half, half, [=](u64 row, u64 p) {
    const u64 at = row * d + p;
    const u64 set = stride_b > 0 ? row * d / stride_b : 0;
    rotate(src, cos, sin, dst, at, at + half, row % steps * half + p + set * (td / 2));
  });
}

template <class T>
X_DEVICE void ropeThd(const T* src, const T* cos, const T* sin, T* dst, u32 b, u32 t, u32 h, u32 d, u32 stride_b) {
  const u32 half = d / 2;
  forPairs((u64)b * t * h * half, half, [=](u64 row, u64 p) {
    const u64 at = row * d + p;
    const u64 set = stride_b > 0 ? row * d / stride_b : 0;
    rotate(src, cos, sin, dst, at, at + half, row / h % t * half + p + set * ((u64)t * d / 2));
  });
}

}  // namespace reduce
