// Index arithmetic of the module: walking an output by runs of its last axis, and the tensors that `info` describes.
// A run is one element on GPUs, where neighbouring threads take neighbouring elements, and up to 64 on the host, where
// the loops over a run vectorise.
#pragma once

namespace conv {

constexpr u32 RUN = X_HOST ? 64 : 1;

/** A tensor of `rank` 3 or 4 as [batch, channels, height, width]; rank 3 has no height. */
struct Image {
  u64 dims[4];
  u64 strides[4];

  X_DEVICE Image(u32 rank, const u64* dims_, const u64* strides_) {
    const bool flat = rank == 3;
    dims[0] = dims_[0], dims[1] = dims_[1], dims[2] = flat ? 1 : dims_[2], dims[3] = flat ? dims_[2] : dims_[3];
    strides[0] = strides_[0], strides[1] = strides_[1], strides[2] = flat ? 0 : strides_[2];
    strides[3] = flat ? strides_[2] : strides_[3];
  }

  /** Storage offset of [b, c, 0, 0]. */
  X_DEVICE u64 plane(u64 b, u64 c) const { return b * strides[0] + c * strides[1]; }
};

/** at = the coordinates of element i of a row-major tensor of n elements; no size is 0. */
template <u32 N>
X_DEVICE void coordinates(u64 i, u64 n, const u64 (&size)[N], u64 (&at)[N]) {
  if ((n >> 32) == 0) {
    u32 rest = (u32)i;
#pragma unroll
    for (u32 d = N; d-- > 1;) {
      const u32 quotient = rest / (u32)size[d];
      at[d] = rest - quotient * (u32)size[d];
      rest = quotient;
    }
    at[0] = rest;
  } else {
#pragma unroll
    for (u32 d = N; d-- > 1;) {
      const u64 quotient = i / size[d];
      at[d] = i - quotient * size[d];
      i = quotient;
    }
    at[0] = i;
  }
}

template <u32 N>
X_DEVICE u64 product(const u64 (&size)[N]) {
  u64 n = 1;
#pragma unroll
  for (u32 d = 0; d < N; ++d) n *= size[d];
  return n;
}

/** f(i, coordinates of i, count) for runs of `count` elements from i that share all coordinates but the last. */
template <u32 N, class F>
X_DEVICE void forEachRun(u64 n, const u64 (&size)[N], F f) {
#if X_HOST
  u64 i = launch::eachBegin(n);
  const u64 end = launch::eachEnd(n);
  if (i >= end) return;
  u64 at[N];
  coordinates(i, n, size, at);
  while (i < end) {
    const u64 left = size[N - 1] - at[N - 1] < end - i ? size[N - 1] - at[N - 1] : end - i;
    const u32 count = left < RUN ? (u32)left : RUN;
    f(i, at, count);
    i += count;
    at[N - 1] += count;
    for (u32 d = N - 1; d > 0 && at[d] == size[d]; --d) {
      at[d] = 0;
      ++at[d - 1];
    }
  }
#else
  X_FOR_EACH(i, n) {
    u64 at[N];
    coordinates(i, n, size, at);
    f(i, at, 1u);
  }
#endif
}

/** Whole steps of `step` that reach from 0 to `distance` or beyond. */
X_DEVICE u64 stepsTo(u64 distance, u64 step) { return (distance + step - 1) / step; }

}  // namespace conv
