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
// Vectors that a thread loads before it uses the first.
constexpr u32 IN_FLIGHT = FEW_REGISTERS ? 1 : 4;
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

#if !X_HOST
/** visit(j, vector j of p) for j = first, first + step, ... below `vectors`, LOADS loads at a time. */
template <u32 V, u32 LOADS = IN_FLIGHT, class T, class F>
X_DEVICE void forVectors(const T* p, u64 vectors, u32 first, u32 step, F visit) {
  u64 j = first;
  for (; j + (LOADS - 1) * step < vectors; j += LOADS * step) {
    Vec<T, V> v[LOADS];
#pragma unroll
    for (u32 l = 0; l < LOADS; ++l) v[l] = loadVec<V>(p + (j + l * step) * V);
#pragma unroll
    for (u32 l = 0; l < LOADS; ++l) visit(j + l * step, v[l]);
  }
  for (; j < vectors; j += step) visit(j, loadVec<V>(p + j * V));
}

/** Whether n elements at p are worth vectors. */
template <class T>
X_DEVICE bool vectorises(const T* p, u64 n) {
  return vecWidth<T> > 1 && aligned16(p) && n >= vecWidth<T> * 32;
}

/** Op over the share of one of `step` threads in n contiguous elements, with 16-byte loads. */
template <class Op, class T>
X_DEVICE acc_t<T> shareOf(const T* p, u64 n, u32 first, u32 step) {
  typedef acc_t<T> A;
  constexpr u32 V = vecWidth<T>;
  const u64 vectors = n / V;
  A lane[4];
#pragma unroll
  for (u32 l = 0; l < 4; ++l) lane[l] = Op::template identity<A>();
  forVectors<V>(p, vectors, first, step, [&](u64, const Vec<T, V>& v) {
#pragma unroll
    for (u32 e = 0; e < V; ++e) lane[e % 4] = Op::template apply<A>(lane[e % 4], to_acc(v[e]));
  });
  for (u64 j = vectors * V + first; j < n; j += step) lane[0] = Op::template apply<A>(lane[0], to_acc(p[j]));
  return Op::template apply<A>(Op::template apply<A>(lane[0], lane[1]), Op::template apply<A>(lane[2], lane[3]));
}
#endif

/** The same over n contiguous elements at p, with 16-byte loads where p allows them. */
template <class Op, class T>
X_DEVICE acc_t<T> overBlockAt(const T* p, u64 n) {
#if !X_HOST
  if (vectorises(p, n)) return blockOf<Op>(shareOf<Op>(p, n, threadIndex(), blockThreads()));
#endif
  return overBlock<Op, acc_t<T>>(n, [p](u64 j) { return to_acc(p[j]); });
}

constexpr u32 NO_INDEX = 0xffffffffu;

template <class T>
X_DEVICE bool sameValue(T a, T b) {
  return a == b || (a != a && b != b);
}

#if !X_HOST
/** The block's winner from every thread's best value and its position, NO_INDEX where a thread saw none. */
template <class Op, class A>
X_DEVICE u32 winnerOf(A best, u32 index) {
  const A winner = blockOf<Op>(best);
  return blockReduce<Min>(index != NO_INDEX && sameValue(best, winner) ? index : NO_INDEX);
}
#endif

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
    const bool better = index == NO_INDEX || Op::beats(v, best);
    best = better ? v : best;
    index = better ? (u32)j : index;
  }
  return winnerOf<Op>(best, index);
#endif
}

/** The extremum met so far and where; positions come in ascending order, so the first of equals stays. */
template <class A>
struct Best {
  A value;
  u32 index;
  template <class Op>
  X_DEVICE static Best none() {
    return {Op::template identity<A>(), NO_INDEX};
  }
  template <class Op>
  X_DEVICE void take(A v, u32 i) {
    const bool better = index == NO_INDEX || Op::beats(v, value);
    value = better ? v : value;
    index = better ? i : index;
  }
  /** As take, for positions in any order. */
  template <class Op>
  X_DEVICE void merge(A v, u32 i) {
    const bool better = i != NO_INDEX && (index == NO_INDEX || Op::beats(v, value) || (sameValue(v, value) && i < index));
    value = better ? v : value;
    index = better ? i : index;
  }
};

#if !X_HOST
/**
 * The best of the share of one of `step` threads in n contiguous elements, with 16-byte loads: of a vector its extremum
 * alone is compared, and where that lies in it is looked for once.
 */
template <class Op, class T>
X_DEVICE Best<acc_t<T>> bestOfShare(const T* p, u64 n, u32 first, u32 step) {
  typedef Best<acc_t<T>> B;
  if constexpr (FEW_REGISTERS && sizeof(T) == 1) {
    B all = B::template none<Op>();
    for (u64 j = first; j < n; j += step) all.template take<Op>(to_acc(p[j]), (u32)j);
    return all;
  }
  constexpr u32 V = vecWidth<T>;
  // Sixteen values that are converted take the registers of more loads.
  constexpr u32 LOADS = sizeof(T) == 1 ? 1 : IN_FLIGHT;
  const u64 vectors = n / V;
  B best = B::template none<Op>();
  Vec<T, V> winner = {};
  forVectors<V, LOADS>(p, vectors, first, step, [&](u64 j, const Vec<T, V>& v) {
    acc_t<T> extremum = to_acc(v[0]);
#pragma unroll
    for (u32 e = 1; e < V; ++e) extremum = Op::template apply<acc_t<T>>(extremum, to_acc(v[e]));
    const u32 before = best.index;
    best.template take<Op>(extremum, (u32)j);
    if (best.index != before) winner = v;
  });
  B all = B::template none<Op>();
  if (best.index != NO_INDEX) {
#pragma unroll
    for (u32 e = V; e-- > 0;)
      if (sameValue(to_acc(winner[e]), best.value)) all = {best.value, best.index * V + e};
  }
  for (u64 j = vectors * V + first; j < n; j += step) all.template take<Op>(to_acc(p[j]), (u32)j);
  return all;
}
#endif

/** The same over n contiguous elements at p, with 16-byte loads where p allows them. */
template <class Op, class T>
X_DEVICE u32 indexOverBlockAt(const T* p, u64 n) {
#if !X_HOST
  if (vectorises(p, n)) {
    const Best<acc_t<T>> best = bestOfShare<Op>(p, n, threadIndex(), blockThreads());
    return winnerOf<Op>(best.value, best.index);
  }
#endif
  return indexOverBlock<Op, acc_t<T>>(n, [p](u64 j) { return to_acc(p[j]); });
}

}  // namespace reduce
