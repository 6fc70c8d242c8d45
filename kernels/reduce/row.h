// A row held by one block for several passes: softmax and the norms read it once. On GPUs a row of up to 64 bytes a
// thread (32 for f64, and for bf16 on gfx906, whose norms would spill; 16 for f8e4m3, whose conversion is long, and for f16
// with an old compiler), a multiple of 16
// bytes, stays in registers; a longer or unaligned one is read again from cache, and on the host the cache is all there is
// to need.
#pragma once

namespace reduce {

template <class T>
struct Row {
  typedef acc_t<T> A;
#if defined(__gfx906__)
  static constexpr u32 BF16_TILES = 2;
#else
  static constexpr u32 BF16_TILES = 4;
#endif
  static constexpr u32 V = vecWidth<T>;
  static constexpr u32 TILES = sizeof(T) == 1 || (FEW_REGISTERS && sameType<T, f16>) ? 1
                               : sizeof(T) == 8                                      ? 2
                               : sameType<T, bf16>                                   ? BF16_TILES
                                                                                     : 4;
  /** One loop for rows that are held and for others: its code is mostly conversions. */
  static constexpr bool ONCE = sizeof(T) == 1;
  const T* x;
  u32 n;
#if !X_HOST
  bool held, wide;
  // Plain words: old compilers keep an array of _Float16 in scratch memory.
  typedef typename vec::Word<sizeof(T)>::type W;
  Vec<W, V> tile[TILES];

  static X_DEVICE Vec<W, V> load(const T* p) { return loadVec<V>((const W*)p); }
  static X_DEVICE A value(W w) { return to_acc(bitCast<T>(w)); }
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
      if (held && c < n) tile[t] = load(x + c);
    }
#endif
  }

  /**
   * Op over f(column, value) by the block; every thread gets the result. Sums are plain once a thread has its own: a block adds
   * these in pairs only, which is off by a rounding or two, and joining tallies would take twice the instructions.
   */
  template <class Op, class F>
  X_DEVICE A reduce(F f) const {
#if !X_HOST
    if (wide) {
      auto mine = Tally<Op, A>::none();
      if constexpr (ONCE) {
        for (u32 c = threadIndex() * V; c < n; c += blockThreads() * V)
          mine.take(overVector<Op>(held ? tile[0] : load(x + c), c, f));
        return blockReduce<Op, true>(mine.result());
      }
      if (held) {
        A terms[TILES];
#pragma unroll
        for (u32 t = 0; t < TILES; ++t) {
          const u32 c = (t * blockThreads() + threadIndex()) * V;
          terms[t] = c < n ? overVector<Op>(tile[t], c, f) : Op::template identity<A>();
        }
        mine = Tally<Op, A>::of(inPairs<Op>(terms));
      } else {
#pragma unroll 2
        for (u32 c = threadIndex() * V; c < n; c += blockThreads() * V) mine.take(overVector<Op>(load(x + c), c, f));
      }
      return blockReduce<Op, true>(mine.result());
    }
#endif
    const T* p = x;
#if X_HOST
    const Widening<T> widen;
    return overBlock<Op, T>(n, [p, f, widen](u64 j) { return f((u32)j, widen(p[j])); }).result();
#else
    return overBlock<Op, T>(n, [p, f](u64 j) { return f((u32)j, to_acc(p[j])); }).result();
#endif
  }

  /** y[column] = f(value, weights at column...); y may be the row itself. */
  template <class Y, class F, class... Ts>
  X_DEVICE void map(Y* y, F f, const Ts*... weights) const {
#if !X_HOST
    if (wide && aligned16(y) && (aligned16(weights) && ...)) {
      if constexpr (ONCE) {
        for (u32 c = threadIndex() * V; c < n; c += blockThreads() * V)
          put(y + c, held ? tile[0] : load(x + c), f, load(weights + c)...);
        return;
      }
#pragma unroll
      for (u32 t = 0; t < TILES; ++t) {
        const u32 c = (t * blockThreads() + threadIndex()) * V;
        if (held && c < n) put(y + c, tile[t], f, load(weights + c)...);
      }
      if (!held) {
        for (u32 c = threadIndex() * V; c < n; c += blockThreads() * V)
          put(y + c, load(x + c), f, load(weights + c)...);
      }
      return;
    }
    X_FOR_BLOCK(j, n) y[j] = from_acc<T>(f(to_acc(x[j]), to_acc(weights[j])...));
#else
    // In place is the only overlap there can be, so iterations do not depend on each other.
    const T* p = x;
#pragma clang loop vectorize(assume_safety)
    for (u32 j = 0; j < n; ++j) y[j] = from_acc<Y>(f(to_acc(p[j]), to_acc(weights[j])...));
#endif
  }

#if !X_HOST
  template <class Op, class F>
  static X_DEVICE A overVector(const Vec<W, V>& v, u32 column, F f) {
    A terms[V];
#pragma unroll
    for (u32 e = 0; e < V; ++e) terms[e] = f(column + e, value(v[e]));
    return inPairs<Op>(terms);
  }

  template <class F, class... Ws>
  static X_DEVICE void put(T* y, const Vec<W, V>& v, F f, const Ws&... weights) {
    Vec<W, V> out;
#pragma unroll
    for (u32 e = 0; e < V; ++e) out[e] = bitCast<W>(from_acc<T>(f(value(v[e]), value(weights[e])...)));
    storeVec((W*)y, out);
  }
#endif
};

// exp of v, 0 at most, for a result that is rounded to T.
template <class T>
X_DEVICE acc_t<T> expBelow(acc_t<T> v) {
#if !X_HOST
  if constexpr (sizeof(T) < 4) return rough::exp2Normal(v * rough::LOG2_E);
#endif
  return m::exp(v);
}

/** Row blockX() of n columns: y = exp(x - max) / sum, computed in f32 (f64 for f64). A row with a NaN is all NaN. */
template <class T>
X_DEVICE void softmax(const T* src, T* dst, u32 n) {
  typedef acc_t<T> A;
  const u64 at = (u64)blockX() * n;
  Row<T> row;
  row.open(src + at, n);
#if X_HOST
  const A largest = overBlockAt<MaxNan>(src + at, n).result();
  // exp is the cost here: f32 and f64 rows keep it in dst between the passes, narrower ones would lose bits.
  if constexpr (sameType<T, A>) {
    T* out = dst + at;
    row.map(out, [largest](A v) { return m::exp(v - largest); });
    row.open(out, n);
    const A sum = row.template reduce<Sum>([](u32, A v) { return v; });
    row.map(out, [sum](A v) { return v / sum; });
    return;
  } else {
    constexpr u32 HELD = 8192;
    if (n <= HELD) {
      A held[HELD];
      row.map(held, [largest](A v) { return m::exp(v - largest); });
      const A scale = (A)1 / overBlock<Sum, A>(n, [&held](u64 j) { return held[j]; }).result();
      T* out = dst + at;
      for (u32 j = 0; j < n; ++j) out[j] = from_acc<T>(held[j] * scale);
      return;
    }
  }
#else
  const A largest = row.template reduce<MaxNan>([](u32, A v) { return v; });
#endif
  const A sum = row.template reduce<Sum>([largest](u32, A v) { return expBelow<T>(v - largest); });
  const A scale = (A)1 / sum;
  row.map(dst + at, [largest, scale](A v) { return expBelow<T>(v - largest) * scale; });
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
  if (alpha == nullptr) row.map(dst + at, [scale](A v) { return v * scale; });
  else row.map(dst + at, [scale](A v, A a) { return v * scale * a; }, alpha);
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
    row.map(dst + at, [=](A v, A a, A b) { return (v - mean) * scale * a + b; }, alpha, beta);
  else if (alpha != nullptr) row.map(dst + at, [=](A v, A a) { return (v - mean) * scale * a; }, alpha);
  else if (beta != nullptr) row.map(dst + at, [=](A v, A b) { return (v - mean) * scale + b; }, beta);
  else row.map(dst + at, [=](A v) { return (v - mean) * scale; });
}

/**
 * The gradient of a norm at row blockX(): of the root-mean-square norm, or of the layer norm where it is `centred`. grad is of what
 * the norm gave; dx of its source; scaled = grad times the normed source, whose sums over rows are alpha's.
 */
template <class T>
X_DEVICE void normBackward(const T* src, const T* alpha, const T* grad, T* dx, T* scaled, u32 n, float eps, bool centred) {
  typedef acc_t<T> A;
  const u64 at = (u64)blockX() * n;
  const T* given = grad + at;
  Row<T> row;
  row.open(src + at, n);
  const A mean = centred ? row.template reduce<Sum>([](u32, A v) { return v; }) / (A)n : (A)0;
  const A squares = row.template reduce<Sum>([mean](u32, A v) { return (v - mean) * (v - mean); });
  const A scale = (A)1 / m::sqrt(squares / (A)n + (A)eps);
  const A along = row.template reduce<Sum>(
                      [=](u32 j, A v) { return to_acc(given[j]) * to_acc(alpha[j]) * ((v - mean) * scale); }) / (A)n;
  const A level =
      centred ? row.template reduce<Sum>([=](u32 j, A) { return to_acc(given[j]) * to_acc(alpha[j]); }) / (A)n : (A)0;
  row.map(scaled + at, [=](A v, A g) { return g * ((v - mean) * scale); }, given);
  row.map(dx + at, [=](A v, A g, A a) { return (g * a - level - (v - mean) * scale * along) * scale; }, given, alpha);
}

}  // namespace reduce
