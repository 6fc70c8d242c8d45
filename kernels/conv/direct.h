// Convolutions without a matrix product. Direct and transposed, of one and two dimensions, are one loop: they differ in
// which outputs of a run a tap of the kernel reaches, and from where. candle's naive conv1d multiplies the whole of
// stride * out + tap by the dilation; only the tap is dilated here.
#pragma once

namespace conv {

struct Axis {
  u64 stride, padding, dilation;
};

/** What one tap adds to a run: outputs first, first + step, ... take source elements from, from + skip, ... */
struct Reach {
  u64 count, first, step, from, skip;
};

/** Tap k of an axis of `in` source elements over the outputs [o, o + run). */
template <bool transposed>
X_DEVICE Reach reach(const Axis& axis, u64 k, u64 in, u64 o, u64 run) {
  if constexpr (transposed) {
    // out + padding = source * stride + k * dilation
    const i64 t = (i64)(o + axis.padding) - (i64)(k * axis.dilation);
    const u64 past = t > 0 ? (u64)t % axis.stride : 0;
    const u64 first = t <= 0 ? (u64)-t : (past == 0 ? 0 : axis.stride - past);
    if (first >= run) return {0, 0, 0, 0, 0};
    const u64 from = (u64)(t + (i64)first) / axis.stride;
    if (from >= in) return {0, 0, 0, 0, 0};
    const u64 wanted = run == 1 ? 1 : stepsTo(run - first, axis.stride);
    return {wanted < in - from ? wanted : in - from, first, axis.stride, from, 1};
  } else {
    // source + padding = out * stride + k * dilation
    const i64 x = (i64)(o * axis.stride + k * axis.dilation) - (i64)axis.padding;
    if (run == 1) return {x >= 0 && x < (i64)in ? 1u : 0u, 0, 1, (u64)x, axis.stride};
    if (x >= (i64)in) return {0, 0, 0, 0, 0};
    if (axis.stride == 0) return {x >= 0 ? run : 0, 0, 1, (u64)x, 0};
    const u64 first = x < 0 ? stepsTo((u64)-x, axis.stride) : 0;
    const u64 end = stepsTo((u64)((i64)in - x), axis.stride);
    const u64 last = end < run ? end : run;
    return {last > first ? last - first : 0, first, 1, (u64)(x + (i64)(first * axis.stride)), axis.stride};
  }
}

/**
 * dst[b, c_out, h, w] = sum of src * kernel. Kernel dims are [c_out, c_in / groups, h, w], or [c_in, c_out / groups, h, w]
 * when transposed. f16 and bf16 are summed in f32 and rounded once; integers wrap.
 */
template <bool transposed, class T>
X_DEVICE void convolve(u64 groups, const Image& image, const Image& taps, const Axis& down, const Axis& across, u64 h_out, u64 w_out,
                       const T* src, const T* kernel, T* dst) {
  typedef acc_t<T> A;
  if (transposed && (down.stride == 0 || across.stride == 0)) return;
  // Channels of a group.
  const u64 c_in = image.dims[1] / groups, c_out = transposed ? taps.dims[1] : taps.dims[0] / groups;
  const u64 size[4] = {image.dims[0], c_out * groups, h_out, w_out};
  const u64 outStride = taps.strides[transposed ? 1 : 0], inStride = taps.strides[transposed ? 0 : 1];
  forEachRun(product(size), size, [&](u64 i, const u64(&at)[4], u32 count) {
    A acc[RUN] = {};
    const u64 group = groups == 1 ? 0 : quotientOf(at[1], c_out);
    const T* image_part = src + image.plane(at[0], group * c_in);
    const T* weights = kernel + (transposed ? (at[1] - group * c_out) * outStride + group * c_in * inStride : at[1] * outStride);
    for (u64 y = 0; y < taps.dims[2]; ++y) {
      const Reach row = reach<transposed>(down, y, image.dims[2], at[2], 1);
      if (row.count == 0) continue;
      for (u64 x = 0; x < taps.dims[3]; ++x) {
        const Reach run = reach<transposed>(across, x, image.dims[3], at[3], count);
        if (run.count == 0) continue;
        const T* w = weights + y * taps.strides[2] + x * taps.strides[3];
        const T* p = image_part + row.from * image.strides[2] + run.from * image.strides[3];
        for (u64 c = 0; c < c_in; ++c, w += inStride, p += image.strides[1]) {
          const A weight = to_acc(*w);
          if constexpr (RUN == 1) {
            acc[0] = addWrap<A>(acc[0], mulWrap<A>(to_acc(*p), weight));
          } else {
            A* sums = acc + run.first;
            const u64 skip = run.skip * image.strides[3];
            if (run.step == 1 && skip == 1) {
              for (u64 j = 0; j < run.count; ++j) sums[j] = addWrap<A>(sums[j], mulWrap<A>(to_acc(p[j]), weight));
            } else {
              for (u64 j = 0; j < run.count; ++j)
                sums[j * run.step] = addWrap<A>(sums[j * run.step], mulWrap<A>(to_acc(p[j * skip]), weight));
            }
          }
        }
      }
    }
    for (u32 j = 0; j < count; ++j) dst[i + j] = from_acc<T>(acc[j]);
  });
}

/** The arguments of a 1-D kernel: info = src dims, src strides, kernel dims, kernel strides, three each. */
template <bool transposed, class T>
X_DEVICE void convolve1d(u64 l_out, const Axis& axis, const u64* info, const T* src, const T* kernel, T* dst) {
  convolve<transposed>(1, Image(3, info, info + 3), Image(3, info + 6, info + 9), Axis{1, 0, 1}, axis, 1, l_out, src, kernel, dst);
}

/** The same with four each. */
template <bool transposed, class T>
X_DEVICE void convolve2d(u64 w_out, u64 h_out, const Axis& axis, const u64* info, const T* src, const T* kernel, T* dst) {
  convolve<transposed>(1, Image(4, info, info + 4), Image(4, info + 8, info + 12), axis, axis, h_out, w_out, src, kernel, dst);
}

}  // namespace conv
