// Images to columns and back: what turns a convolution into a matrix product. Counts that the caller passes are never
// believed beyond what the dims give, so nothing outside the tensors is touched.
#pragma once

namespace conv {

// imageToColumns: dst [b, h_out, w_out, c_in, h_k, w_k] = every window of src, zeros where it leaves the image.
#if X_HOST

// A run is some channels of one window position: what of the window lies inside is the same for all of them.
template <class T>
X_DEVICE void imageToColumns(u64 numel, u64 h_out, u64 w_out, u64 h_k, u64 w_k, const Axis& down, const Axis& across,
                             const Image& image, const T* src, T* dst) {
  const u64 size[4] = {image.dims[0], h_out, w_out, image.dims[1]}, window = h_k * w_k;
  if (window == 0) return;
  const u64 most = product(size);
  forEachRun(numel / window < most ? numel / window : most, size, [&](u64 i, const u64(&at)[4], u32 count) {
    const u64 top = at[1] * down.stride, left = at[2] * across.stride;
    const u64 bottom = top + (h_k - 1) * down.dilation, right = left + (w_k - 1) * across.dilation;
    const bool whole = top >= down.padding && bottom - down.padding < image.dims[2] && left >= across.padding &&
                       right - across.padding < image.dims[3];
    const u64 step = across.dilation * image.strides[3];
    T* out = dst + i * window;
    for (u32 j = 0; j < count; ++j) {
      const T* plane = src + image.plane(at[0], at[3] + j);
      for (u64 y = 0; y < h_k; ++y, out += w_k) {
        const u64 row = top + y * down.dilation;
        if (whole) {
          const T* p = plane + (row - down.padding) * image.strides[2] + (left - across.padding) * image.strides[3];
          for (u64 x = 0; x < w_k; ++x) out[x] = p[x * step];
          continue;
        }
        const bool inside = row >= down.padding && row - down.padding < image.dims[2];
        for (u64 x = 0; x < w_k; ++x) {
          const u64 column = left + x * across.dilation;
          if (inside && column >= across.padding && column - across.padding < image.dims[3])
            out[x] = plane[(row - down.padding) * image.strides[2] + (column - across.padding) * image.strides[3]];
          else out[x] = cast<T>(0.0f);
        }
      }
    }
  });
}

#else

template <class T>
X_DEVICE void imageToColumns(u64 numel, u64 h_out, u64 w_out, u64 h_k, u64 w_k, const Axis& down, const Axis& across,
                             const Image& image, const T* src, T* dst) {
  const u64 size[6] = {image.dims[0], h_out, w_out, image.dims[1], h_k, w_k};
  const u64 most = product(size);
  forEachRun(numel < most ? numel : most, size, [&](u64 i, const u64(&at)[6], u32) {
    const u64 y = at[1] * down.stride + at[4] * down.dilation, x = at[2] * across.stride + at[5] * across.dilation;
    T value = cast<T>(0.0f);
    if (y >= down.padding && y - down.padding < image.dims[2] && x >= across.padding && x - across.padding < image.dims[3])
      value = src[image.plane(at[0], at[3]) + (y - down.padding) * image.strides[2] + (x - across.padding) * image.strides[3]];
    dst[i] = value;
  });
}

#endif

/** dst [b, c_out, l_out] = for each output the sum of what the columns src [b, l_in, c_out, k] put there. */
template <class T>
X_DEVICE void columnsToImage(u64 numel, u64 l_out, u64 l_in, u64 c_out, u64 k, u64 stride, const T* src, T* dst) {
  typedef acc_t<T> A;
  if (stride == 0 || l_out == 0 || c_out == 0) return;
  const u64 size[3] = {stepsTo(numel, c_out * l_out), c_out, l_out};
  forEachRun(numel, size, [&](u64 i, const u64(&at)[3], u32 count) {
    for (u32 j = 0; j < count; ++j) {
      // out = l * stride + tap: the smallest tap belongs to the largest l.
      u64 l = (at[2] + j) / stride, tap = (at[2] + j) - l * stride;
      A sum = (A)0;
      for (; tap < k; tap += stride, --l) {
        if (l < l_in) sum = addWrap<A>(sum, to_acc(src[((at[0] * l_in + l) * c_out + at[1]) * k + tap]));
        if (l == 0) break;
      }
      dst[i + j] = from_acc<T>(sum);
    }
  });
}

}  // namespace conv
