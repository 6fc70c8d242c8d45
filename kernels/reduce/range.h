// Reducing a range with several independent partial results, so that loads overlap on GPUs and loops vectorise on the
// host without reordering licence. Float sums are split over many lanes, which also keeps their rounding error small.
#pragma once

namespace reduce {

// Integer sums wrap as candle's do; signed overflow is undefined in C++, so wide ones add unsigned.
struct WrapSum {
  template <class T>
  static X_DEVICE T identity() {
    return (T)0;
  }
  template <class T>
  static X_DEVICE T apply(T a, T b) {
    if constexpr (sameType<T, i32>) return (i32)((u32)a + (u32)b);
    else if constexpr (sameType<T, i64>) return (i64)((u64)a + (u64)b);
    else return (T)(a + b);
  }
};

// blockReduce moves 4 or 8 bytes: narrower integers travel as 32-bit ones, and wrap when they come back.
template <class A>
struct Carried {
  typedef A type;
};
template <>
struct Carried<u8> {
  typedef u32 type;
};
template <>
struct Carried<i16> {
  typedef i32 type;
};

template <class Op, class A>
X_DEVICE A blockOf(A v) {
  typedef typename Carried<A>::type C;
  // An identity of A must not beat real values as C, so threads without values pass A's own identity.
  return (A)blockReduce<Op>((C)v);
}

#if X_HOST
template <class A>
constexpr u32 LANES = 128 / sizeof(A);
#else
template <class A>
constexpr u32 LANES = 4;
#endif

/** Op over get(0) .. get(n-1), by the whole block; every thread gets the result. N is the number of partial results. */
template <class Op, class A, u32 N = LANES<A>, class Get>
X_DEVICE A overBlock(u64 n, Get get) {
  A lane[N];
#pragma unroll
  for (u32 l = 0; l < N; ++l) lane[l] = Op::template identity<A>();
  const u64 threads = blockThreads();
  u64 j = threadIndex();
#if X_HOST
  // Two levels: lane sums of 64 steps go into totals, so that even a billion terms lose little.
  A totals[N];
  for (u32 l = 0; l < N; ++l) totals[l] = lane[l];
  while (j + N <= n) {
    for (u32 l = 0; l < N; ++l) lane[l] = Op::template identity<A>();
    const u64 stop = n - j >= 64ull * N ? j + 64ull * N : j + (n - j) / N * N;
    for (; j < stop; j += N)
      for (u32 l = 0; l < N; ++l) lane[l] = Op::template apply<A>(lane[l], get(j + l));
    for (u32 l = 0; l < N; ++l) totals[l] = Op::template apply<A>(totals[l], lane[l]);
  }
  for (u32 l = 0; l < N; ++l) lane[l] = totals[l];
#else
  for (; j + (N - 1) * threads < n; j += N * threads) {
#pragma unroll
    for (u32 l = 0; l < N; ++l) lane[l] = Op::template apply<A>(lane[l], get(j + l * threads));
  }
#endif
  for (u32 l = 0; j < n; j += threads, l = (l + 1) % N) lane[0] = Op::template apply<A>(lane[0], get(j));
#pragma unroll
  for (u32 w = N / 2; w > 0; w /= 2)
#pragma unroll
    for (u32 l = 0; l < w; ++l) lane[l] = Op::template apply<A>(lane[l], lane[l + w]);
  return blockOf<Op>(lane[0]);
}

/** The same over n contiguous elements at p, with 16-byte loads where p allows them. */
template <class Op, class T>
X_DEVICE acc_t<T> overBlockAt(const T* p, u64 n) {
  typedef acc_t<T> A;
#if !X_HOST
  constexpr u32 V = vecWidth<T>;
  if (V > 1 && aligned16(p) && n >= V * 32) {
    const u64 vectors = n / V;
    A lane[4];
#pragma unroll
    for (u32 l = 0; l < 4; ++l) lane[l] = Op::template identity<A>();
#pragma unroll 2
    for (u64 j = threadIndex(); j < vectors; j += blockThreads()) {
      const Vec<T, V> v = loadVec<V>(p + j * V);
#pragma unroll
      for (u32 e = 0; e < V; ++e) lane[e % 4] = Op::template apply<A>(lane[e % 4], to_acc(v[e]));
    }
    for (u64 j = vectors * V + threadIndex(); j < n; j += blockThreads()) lane[0] = Op::template apply<A>(lane[0], to_acc(p[j]));
    lane[0] = Op::template apply<A>(Op::template apply<A>(lane[0], lane[1]), Op::template apply<A>(lane[2], lane[3]));
    return blockOf<Op>(lane[0]);
  }
#endif
  return overBlock<Op, A>(n, [p](u64 j) { return to_acc(p[j]); });
}

constexpr u32 NO_INDEX = 0xffffffffu;

template <class T>
X_DEVICE bool sameValue(T a, T b) {
  return a == b || (a != a && b != b);
}

/** The smallest j whose get(j) is the extremum; a NaN beats every number. n > 0. */
template <class Op, class A, class Get>
X_DEVICE u32 indexOverBlock(u64 n, Get get) {
#if X_HOST
  const A best = overBlock<Op, A>(n, get);
  for (u64 j = 0; j < n; j += 256) {
    const u64 stop = j + 256 < n ? j + 256 : n;
    u32 hits = 0;
    for (u64 i = j; i < stop; ++i) {
      const A v = get(i);
      hits += (v == best) | ((v != v) & (best != best));
    }
    if (hits == 0) continue;
    for (u64 i = j; i < stop; ++i)
      if (sameValue(get(i), best)) return (u32)i;
  }
  return NO_INDEX;
#else
  A best = Op::template identity<A>();
  u32 index = NO_INDEX;
#pragma unroll 2
  for (u64 j = threadIndex(); j < n; j += blockThreads()) {
    const A v = get(j);
    const bool better = index == NO_INDEX || (best == best && !sameValue(Op::template apply<A>(best, v), best));
    best = better ? v : best;
    index = better ? (u32)j : index;
  }
  const A winner = blockOf<Op>(best);
  return blockReduce<Min>(index != NO_INDEX && sameValue(best, winner) ? index : NO_INDEX);
#endif
}

}  // namespace reduce
