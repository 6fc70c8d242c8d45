// A row held by one block for several passes: softmax and the norms read it once. On GPUs a row of up to 64 bytes a
// thread (32 for f64 and bf16, whose norms would spill on gfx906), a multiple of 16 bytes, stays in registers; a longer or unaligned one is read again from cache,
// and on the host the cache is all there is to need.
#pragma once

namespace reduce {

template <class T>
struct Row {
  typedef acc_t<T> A;
  static constexpr u32 V = vecWidth<T>, TILES = sizeof(T) == 8 || sameType<T, bf16> ? 2 : 4;
  const T* x;
  u32 n;
#if !X_HOST
  bool held, wide;
  Vec<T, V> tile[TILES];
#endif

  X_DEVICE void open(const T* row, u32 columns) {
    x = row;
    n = columns;
#if !X_HOST
    wide = aligned16(row) && columns % V == 0;
    held = wide && columns <= TILES * V * blockThreads();
#pragma unroll
    for (u32 t = 0; t < TILES; ++t) {
      const u32 c = (t * blockThreads() + threadIndex()) * V;
      if (held && c < n) tile[t] = loadVec<V>(x + c);
    }
#endif
  }

  /** Op over f(column, value) by the block; every thread gets the result. */
  template <class Op, class F>
  X_DEVICE A reduce(F f) const {
#if !X_HOST
    if (wide) {
      A acc = Op::template identity<A>();
      if (held) {
#pragma unroll
        for (u32 t = 0; t < TILES; ++t) {
          const u32 c = (t * blockThreads() + threadIndex()) * V;
          if (c < n) {
#pragma unroll
            for (u32 e = 0; e < V; ++e) acc = Op::template apply<A>(acc, f(c + e, to_acc(tile[t][e])));
          }
        }
      } else {
#pragma unroll 2
        for (u32 c = threadIndex() * V; c < n; c += blockThreads() * V) {
          const Vec<T, V> v = loadVec<V>(x + c);
#pragma unroll
          for (u32 e = 0; e < V; ++e) acc = Op::template apply<A>(acc, f(c + e, to_acc(v[e])));
        }
      }
      return blockOf<Op>(acc);
    }
#endif
    const T* p = x;
    return overBlock<Op, A>(n, [p, f](u64 j) { return f((u32)j, to_acc(p[j])); });
  }

  /** y[column] = f(column, value); y may be the row itself. */
  template <class F>
  X_DEVICE void map(T* y, F f) const {
#if !X_HOST
    if (wide && aligned16(y)) {
#pragma unroll
      for (u32 t = 0; t < TILES; ++t) {
        const u32 c = (t * blockThreads() + threadIndex()) * V;
        if (held && c < n) put(y + c, c, tile[t], f);
      }
      if (!held) {
        for (u32 c = threadIndex() * V; c < n; c += blockThreads() * V) put(y + c, c, loadVec<V>(x + c), f);
      }
      return;
    }
    X_FOR_BLOCK(j, n) y[j] = from_acc<T>(f((u32)j, to_acc(x[j])));
#else
    // In place is the only overlap there can be, so iterations do not depend on each other.
    const T* p = x;
#pragma clang loop vectorize(assume_safety)
    for (u32 j = 0; j < n; ++j) y[j] = from_acc<T>(f(j, to_acc(p[j])));
#endif
  }

#if !X_HOST
  template <class F>
  static X_DEVICE void put(T* y, u32 c, const Vec<T, V>& v, F f) {
    Vec<T, V> out;
#pragma unroll
    for (u32 e = 0; e < V; ++e) out[e] = from_acc<T>(f(c + e, to_acc(v[e])));
    storeVec(y, out);
  }
#endif
};

/** Row blockX() of n columns: y = exp(x - max) / sum, computed in f32 (f64 for f64). A row with a NaN is all NaN. */
template <class T>
X_DEVICE void softmax(const T* src, T* dst, u32 n) {
  typedef acc_t<T> A;
  const u64 at = (u64)blockX() * n;
  Row<T> row;
  row.open(src + at, n);
  const A largest = row.template reduce<MaxNan>([](u32, A v) { return v; });
#if X_HOST
  // exp is the cost here: f32 and f64 rows keep it in dst between the passes, narrower ones would lose bits.
  if constexpr (sameType<T, A>) {
    T* out = dst + at;
    row.map(out, [largest](u32, A v) { return m::exp(v - largest); });
    row.open(out, n);
    const A sum = row.template reduce<Sum>([](u32, A v) { return v; });
    row.map(out, [sum](u32, A v) { return v / sum; });
    return;
  }
#endif
  const A sum = row.template reduce<Sum>([largest](u32, A v) { return m::exp(v - largest); });
  const A scale = (A)1 / sum;
  row.map(dst + at, [largest, scale](u32, A v) { return m::exp(v - largest) * scale; });
}

/** Row blockX(): y = x / sqrt(mean(x^2) + eps) * alpha; alpha may be null. */
template <class T>
X_DEVICE void rmsNorm(const T* src, T* dst, const T* alpha, u32 n, float eps) {
  typedef acc_t<T> A;
  const u64 at = (u64)blockX() * n;
  Row<T> row;
  row.open(src + at, n);
  const A squares = row.template reduce<Sum>([](u32, A v) { return v * v; });
  const A scale = (A)1 / m::sqrt(squares / (A)n + (A)eps);
  if (alpha == nullptr) row.map(dst + at, [scale](u32, A v) { return v * scale; });
  else row.map(dst + at, [scale, alpha](u32 c, A v) { return v * scale * to_acc(alpha[c]); });
}

/** Row blockX(): y = (x - mean) / sqrt(var + eps) * alpha + beta; either may be null. The variance is taken around the mean. */
template <class T>
X_DEVICE void layerNorm(const T* src, T* dst, const T* alpha, const T* beta, u32 n, float eps) {
  typedef acc_t<T> A;
  const u64 at = (u64)blockX() * n;
  Row<T> row;
  row.open(src + at, n);
  const A mean = row.template reduce<Sum>([](u32, A v) { return v; }) / (A)n;
  const A squares = row.template reduce<Sum>([mean](u32, A v) { return (v - mean) * (v - mean); });
  const A scale = (A)1 / m::sqrt(squares / (A)n + (A)eps);
  if (alpha != nullptr && beta != nullptr)
    row.map(dst + at, [=](u32 c, A v) { return (v - mean) * scale * to_acc(alpha[c]) + to_acc(beta[c]); });
  else if (alpha != nullptr) row.map(dst + at, [=](u32 c, A v) { return (v - mean) * scale * to_acc(alpha[c]); });
  else if (beta != nullptr) row.map(dst + at, [=](u32 c, A v) { return (v - mean) * scale + to_acc(beta[c]); });
  else row.map(dst + at, [=](u32, A v) { return (v - mean) * scale; });
}

}  // namespace reduce
