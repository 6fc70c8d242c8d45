// What the stand-ins for convolution libraries share: shapes, and convolutions as plain loops.
#pragma once

#include "values.h"

struct Tensor {
  int type = -1;  // in the library's numbers
  int dims[4] = {};
  bool channelsLast = false;
  int64_t at(int64_t n, int64_t c, int64_t h, int64_t w) const {
    return channelsLast ? ((n * dims[2] + h) * dims[3] + w) * dims[1] + c : ((n * dims[1] + c) * dims[2] + h) * dims[3] + w;
  }
};
struct Convolution {
  int pad[2], stride[2], dilation[2];
};

// Whether y is what convolving x with w gives.
inline bool matches(const Tensor& x, const Tensor& w, const Convolution& c, const Tensor& y) {
  if (x.type != w.type || x.type != y.type || x.dims[0] != y.dims[0] || w.dims[0] != y.dims[1] || w.dims[1] != x.dims[1]) return false;
  for (int i = 0; i < 2; i++) {
    const int reach = c.dilation[i] * (w.dims[2 + i] - 1) + 1;
    if ((x.dims[2 + i] + 2 * c.pad[i] - reach) / c.stride[i] + 1 != y.dims[2 + i]) return false;
  }
  return true;
}

// Walks every product of the forward convolution: index of y, of x, of w.
template <class F>
inline void each(const Tensor& x, const Tensor& w, const Convolution& c, const Tensor& y, F visit) {
  const int *xd = x.dims, *wd = w.dims, *yd = y.dims;
  for (int n = 0; n < yd[0]; n++)
    for (int o = 0; o < yd[1]; o++)
      for (int h = 0; h < yd[2]; h++)
        for (int v = 0; v < yd[3]; v++)
          for (int i = 0; i < xd[1]; i++)
            for (int a = 0; a < wd[2]; a++)
              for (int b = 0; b < wd[3]; b++) {
                const int row = h * c.stride[0] - c.pad[0] + a * c.dilation[0];
                const int column = v * c.stride[1] - c.pad[1] + b * c.dilation[1];
                if (row < 0 || row >= xd[2] || column < 0 || column >= xd[3]) continue;
                visit(y.at(n, o, h, v), x.at(n, i, row, column), w.at(o, i, a, b));
              }
}

// The result's numbers: y of the forward convolution, or its x from y and w.
template <class F>
inline void convolveInto(Format f, void* out, const Tensor& result, F products) {
  const int* d = result.dims;
  std::string sums(size_t(d[0]) * d[1] * d[2] * d[3] * 8, '\0');
  auto* sum = reinterpret_cast<double*>(&sums[0]);
  products(sum);
  for (size_t i = 0; i < sums.size() / 8; i++) store(f, out, int64_t(i), sum[i]);
}
inline void convolveForward(Format f, const Tensor& xd, const void* x, const Tensor& wd, const void* w, const Convolution& c, const Tensor& yd, void* y) {
  convolveInto(f, y, yd, [&](double* sum) {
    each(xd, wd, c, yd, [&](int64_t yi, int64_t xi, int64_t wi) { sum[yi] += load(f, x, xi) * load(f, w, wi); });
  });
}
// dy is the forward form's y, dx its x.
inline void convolveBackward(Format f, const Tensor& dyd, const void* dy, const Tensor& wd, const void* w, const Convolution& c, const Tensor& dxd, void* dx) {
  convolveInto(f, dx, dxd, [&](double* sum) {
    each(dxd, wd, c, dyd, [&](int64_t yi, int64_t xi, int64_t wi) { sum[xi] += load(f, dy, yi) * load(f, w, wi); });
  });
}
