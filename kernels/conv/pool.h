// Pooling and upsampling. candle's names are kept: in the pools and the nearest upsampling `w` is dimension 2 and `h`
// dimension 3, in the bilinear one `h` is dimension 2. What differs: averages divide by the window's size in the
// accumulator's type (candle multiplies by an f32 reciprocal, f64 too, and sums u8 in u8): integers are summed exactly
// and truncated once; the maximum of a window with a NaN is NaN for every float; a source position past the edge,
// which a wrong scale gives, is the edge.
#pragma once

namespace conv {

/** The exact sum of fewer than 2^32 integers of 64 bits: their upper and lower halves are added up apart. */
struct WideSum {
  i64 high;
  u64 low;

  WideSum() = default;
  X_DEVICE explicit WideSum(i64 v) : high(v >> 32), low((u32)v) {}
  X_DEVICE WideSum operator+(const WideSum& other) const {
    WideSum sum;
    sum.high = high + other.high;
    sum.low = low + other.low;
    return sum;
  }
  /** Truncated; n is below 2^32. */
  X_DEVICE i64 dividedBy(u64 n) const {
    const i64 top = high + (i64)(low >> 32);
    const u32 bottom = (u32)low;
    const bool negative = top < 0;
    const u64 upper = negative ? (u64)-top - (bottom != 0 ? 1 : 0) : (u64)top, lower = negative ? (u32)-bottom : bottom;
    const u64 quotient = (upper / n << 32) + ((upper % n << 32) + lower) / n;
    return (i64)(negative ? 0 - quotient : quotient);
  }
};

struct Average {
  template <class T>
  struct Acc {
    typedef acc_t<T> type;
  };
  typedef Sum Over;
  template <class A>
  static X_DEVICE auto finish(A a, u64 window) {
    if constexpr (sameType<A, WideSum>) return a.dividedBy(window);
    else return a / (A)window;
  }
};
#define AVERAGED_AS(T, A)     \
  template <>                 \
  struct Average::Acc<T> {    \
    typedef A type;           \
  };
AVERAGED_AS(u8, u64)
AVERAGED_AS(u32, u64)
AVERAGED_AS(i16, i64)
AVERAGED_AS(i32, i64)
AVERAGED_AS(i64, WideSum)

struct Largest {
  template <class T>
  struct Acc {
    typedef acc_t<T> type;
  };
  typedef MaxNan Over;
  template <class A>
  static X_DEVICE A finish(A a, u64) {
    return a;
  }
};

X_DEVICE u64 windows(u64 in, u64 k, u64 stride) { return stride == 0 || k == 0 || k > in ? 0 : (in - k) / stride + 1; }

/** dst [b, c, outputs of dim 2, outputs of dim 3]; windows lie wholly inside. */
template <class Op, class T>
X_DEVICE void pool(u64 w_k, u64 h_k, u64 w_stride, u64 h_stride, const u64* info, const T* src, T* dst) {
  typedef typename Op::template Acc<T>::type A;
  const Image image(4, info, info + 4);
  const u64 size[4] = {image.dims[0], image.dims[1], windows(image.dims[2], w_k, w_stride), windows(image.dims[3], h_k, h_stride)};
  const u64 next = h_stride * image.strides[3];
  forEachRun(product(size), size, [&](u64 i, const u64(&at)[4], u32 count) {
    typedef Tally<typename Op::Over, A> Of;
    Of acc[RUN];
    for (u32 j = 0; j < RUN; ++j) acc[j] = Of::none();
    const T* corner = src + image.plane(at[0], at[1]) + at[2] * w_stride * image.strides[2] + at[3] * next;
    for (u64 x = 0; x < w_k; ++x) {
      for (u64 y = 0; y < h_k; ++y) {
        const T* p = corner + x * image.strides[2] + y * image.strides[3];
        for (u32 j = 0; j < count; ++j) acc[j].take((A)to_acc(p[j * next]));
      }
    }
    for (u32 j = 0; j < count; ++j) dst[i + j] = cast<T>(Op::finish(acc[j].result(), w_k * h_k));
  });
}

X_DEVICE u64 nearest(u64 out, double scale, u64 in) {
  const u64 position = cast<u64>((double)out * scale);
  return position < in ? position : in - 1;
}

/** dst [b, c, w_out, h_out], each element the source's at floor(position * scale). */
template <class T>
X_DEVICE void upsampleNearest(u64 w_out, u64 h_out, double w_scale, double h_scale, const Image& image, const T* src, T* dst) {
  const u64 size[4] = {image.dims[0], image.dims[1], w_out, h_out};
  const u64 n = image.dims[2] == 0 || image.dims[3] == 0 ? 0 : product(size);
#if X_HOST
  // Where the columns of a row come from, found once.
  constexpr u32 KNOWN = 4096;
  if (h_out <= KNOWN && image.dims[3] * image.strides[3] >> 31 == 0) {
    u32 columns[KNOWN];
    for (u32 j = 0; j < h_out; ++j) columns[j] = (u32)(nearest(j, h_scale, image.dims[3]) * image.strides[3]);
    forEachRun(n, size, [&](u64 i, const u64(&at)[4], u32 count) {
      const T* row = src + image.plane(at[0], at[1]) + nearest(at[2], w_scale, image.dims[2]) * image.strides[2];
      const u32* from = columns + at[3];
      for (u32 j = 0; j < count; ++j) dst[i + j] = row[from[j]];
    });
    return;
  }
#endif
  forEachRun(n, size, [&](u64 i, const u64(&at)[4], u32 count) {
    const T* row = src + image.plane(at[0], at[1]) + nearest(at[2], w_scale, image.dims[2]) * image.strides[2];
    for (u32 j = 0; j < count; ++j) dst[i + j] = row[nearest(at[3] + j, h_scale, image.dims[3]) * image.strides[3]];
  });
}

/** Where an output lies between two source elements. */
struct Between {
  u64 low, high;
  double weight;  // of `high`
};

/** An axis of the bilinear upsampling by PyTorch's area_pixel rules; without align_corners centres of pixels match. */
struct Resampling {
  u64 in;
  double scale, centre;

  X_DEVICE Resampling(u64 in_, u64 outs, bool align_corners, bool has_scale, double factor) : in(in_) {
    centre = align_corners ? 0.0 : 0.5;
    if (align_corners) scale = outs > 1 ? (double)(in - 1) / (double)(outs - 1) : 0.0;
    else scale = has_scale ? 1.0 / factor : (double)in / (double)outs;
  }

  X_DEVICE Between at(u64 out) const {
    double position = multiplyThenAdd(scale, (double)out + centre, -centre);
    position = position > 0.0 ? position : 0.0;
    const u64 low = position < (double)in ? (u64)position : in - 1;
    const double weight = position - (double)low;
    return {low, low + 1 < in ? low + 1 : low, weight < 1.0 ? weight : 1.0};
  }
};

X_DEVICE double mix(double a, double b, double weight) { return multiplyThenAdd(b, weight, a * (1.0 - weight)); }

/** dst [b, c, h_out, w_out]; arithmetic in f64 and never fused, so that integers are truncated alike everywhere. */
template <class T>
X_DEVICE void upsampleBilinear(u64 w_out, u64 h_out, bool align_corners, bool has_scale_h, double scale_h, bool has_scale_w,
                               double scale_w, const Image& image, const T* src, T* dst) {
  const u64 size[4] = {image.dims[0], image.dims[1], h_out, w_out};
  const u64 n = image.dims[2] == 0 || image.dims[3] == 0 ? 0 : product(size);
  const Resampling rows(image.dims[2], h_out, align_corners, has_scale_h, scale_h);
  const Resampling columns(image.dims[3], w_out, align_corners, has_scale_w, scale_w);
  forEachRun(n, size, [&](u64 i, const u64(&at)[4], u32 count) {
    const Between h = rows.at(at[2]);
    const T* top = src + image.plane(at[0], at[1]) + h.low * image.strides[2];
    const T* bottom = top + (h.high > h.low ? image.strides[2] : 0);
    for (u32 j = 0; j < count; ++j) {
      const Between w = columns.at(at[3] + j);
      const u64 left = w.low * image.strides[3], right = left + (w.high > w.low ? image.strides[3] : 0);
      const double above = mix(cast<double>(top[left]), cast<double>(top[right]), w.weight);
      const double below = mix(cast<double>(bottom[left]), cast<double>(bottom[right]), w.weight);
      dst[i + j] = cast<T>(mix(above, below, h.weight));
    }
  });
}

}  // namespace conv
