// The gradient of a pool of maxima: elements of a window that are equally large share what the window has.
#pragma once

namespace conv {

/** grad is that of the windows, top their maxima: both [b, c, outputs of dim 2, outputs of dim 3]. */
template <class T>
struct MaxPoolGradient {
  typedef acc_t<T> A;
  u64 w_k, h_k, w_stride, h_stride;
  Image image;
  u64 rows, columns;
  const T *src, *top, *grad;

  X_DEVICE MaxPoolGradient(u64 w_k_, u64 h_k_, u64 w_stride_, u64 h_stride_, const u64* info, const T* src_, const T* top_, const T* grad_)
      : w_k(w_k_), h_k(h_k_), w_stride(w_stride_), h_stride(h_stride_), image(4, info, info + 4), src(src_), top(top_), grad(grad_) {
    rows = windows(image.dims[2], w_k, w_stride), columns = windows(image.dims[3], h_k, h_stride);
  }

  /** dst is as the source, contiguous. */
  X_DEVICE void run(T* dst) const {
#if X_HOST
    if constexpr (sameType<T, float>) {
      X_FOR_EACH(plane, image.dims[0] * image.dims[1]) spread(plane, dst + plane * image.dims[2] * image.dims[3]);
      return;
    }
#endif
    forEachRun(product(image.dims), image.dims, [&](u64 i, const u64(&at)[4], u32 count) {
      for (u32 j = 0; j < count; ++j) dst[i + j] = from_acc<T>(gathered(at, at[3] + j));
    });
  }

 private:
  /** The first window that reaches a place, and one behind the last. */
  static X_DEVICE u64 firstOf(u64 place, u64 k, u64 stride) { return place < k ? 0 : (place - k) / stride + 1; }
  static X_DEVICE u64 endOf(u64 place, u64 stride, u64 count) { return place / stride < count ? place / stride + 1 : count; }

  X_DEVICE A gathered(const u64 (&at)[4], u64 column) const {
    const T* plane = src + image.plane(at[0], at[1]);
    const u64 first = (at[0] * image.dims[1] + at[1]) * rows;
    const A own = to_acc(plane[at[2] * image.strides[2] + column * image.strides[3]]);
    A sum = 0;
    for (u64 x = firstOf(at[2], w_k, w_stride), xs = endOf(at[2], w_stride, rows); x < xs; ++x) {
      for (u64 y = firstOf(column, h_k, h_stride), ys = endOf(column, h_stride, columns); y < ys; ++y) {
        const u64 window = (first + x) * columns + y;
        const A largest = to_acc(top[window]);
        const T* corner = plane + x * w_stride * image.strides[2] + y * h_stride * image.strides[3];
        A equals = 0;
        for (u64 i = 0; i < w_k; ++i)
          for (u64 j = 0; j < h_k; ++j) equals += (A)(to_acc(corner[i * image.strides[2] + j * image.strides[3]]) == largest);
        sum += (A)(own == largest) * (to_acc(grad[window]) / equals);
      }
    }
    return sum;
  }

#if X_HOST
  /** A plane of dst: some windows beside each other at a time, each of whose elements is added to. */
  X_DEVICE void spread(u64 plane, T* dst) const {
    if (image.strides[3] == 1 && h_stride == 2) spreadBy<2>(plane, dst);
    else spreadBy<0>(plane, dst);
  }
  /** STRIDE: from window to window of a row, whose elements lie side by side; 0: whatever it is. */
  template <u32 STRIDE>
  X_DEVICE void spreadBy(u64 plane, T* dst) const {
    constexpr u64 AT_ONCE = 64;
    const u64 width = image.dims[3], stride = STRIDE ? STRIDE : h_stride, apart = STRIDE ? STRIDE : h_stride * image.strides[3];
    const T* from = src + image.plane(plane / image.dims[1], plane % image.dims[1]);
    __builtin_memset(dst, 0, image.dims[2] * width * sizeof(T));
    for (u64 x = 0; x < rows; ++x) {
      for (u64 y = 0; y < columns; y += AT_ONCE) {
        const u64 count = columns - y < AT_ONCE ? columns - y : AT_ONCE, window = (plane * rows + x) * columns + y;
        const T *largest = top + window, *given = grad + window, *corner = from + x * w_stride * image.strides[2] + y * apart;
        T* to = dst + x * w_stride * width + y * stride;
        T share[AT_ONCE] = {};
        for (u64 i = 0; i < w_k; ++i)
          for (u64 k = 0; k < h_k; ++k)
            for (u64 j = 0; j < count; ++j)
              share[j] += (T)(corner[i * image.strides[2] + k * image.strides[3] + j * apart] == largest[j]);
        for (u64 j = 0; j < count; ++j) share[j] = given[j] / share[j];
        for (u64 i = 0; i < w_k; ++i)
          for (u64 k = 0; k < h_k; ++k)
            for (u64 j = 0; j < count; ++j)
              to[i * width + k + j * stride] +=
                  (T)(corner[i * image.strides[2] + k * image.strides[3] + j * apart] == largest[j]) * share[j];
      }
    }
  }
#endif
};

}  // namespace conv
