// Reducing a range by a block: each thread has loads in flight and adds its terms in pairs before they join its tally;
// on the host, whose block is one thread, many lanes side by side (reduce/range-host.h).
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

}  // namespace reduce

template <>
[[maybe_unused]] constexpr bool isSum<reduce::WrapSum> = true;

namespace reduce {

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

/** Op over the tallies of this block's threads; every thread gets the result. T is the elements' type. */
template <class Op, class T>
X_DEVICE Handed<Op, T> ofBlock(const Tally<Op, acc_t<T>>& tally) {
  const Handed<Op, T> mine = handed<Op, T>(tally);
#if X_HOST
  return mine;
#else
  typedef typename Carried<acc_t<T>>::type C;
  if constexpr (sameType<Handed<Op, T>, CarefulSum>) return blockReduce<Join>(mine);
  // An identity of the accumulator's type must not beat real values as C, so threads without values pass that type's own.
  else return {(acc_t<T>)blockReduce<Op>((C)mine.value)};
#endif
}

#if !X_HOST
template <class A>
constexpr u32 LANES = 4;
// Vectors that a thread loads before it uses the first.
constexpr u32 IN_FLIGHT = FEW_REGISTERS ? 1 : 4;

/** The same over the lanes of this warp. */
template <class Op, class T>
X_DEVICE Handed<Op, T> ofWarp(const Tally<Op, acc_t<T>>& tally) {
  const Handed<Op, T> mine = handed<Op, T>(tally);
  typedef typename Carried<acc_t<T>>::type C;
  if constexpr (sameType<Handed<Op, T>, CarefulSum>) return warpReduce<Join>(mine);
  else return {(acc_t<T>)warpReduce<Op>((C)mine.value)};
}
#endif

#if !X_HOST
/** Op over this thread's share of get(0) .. get(n-1), of which a thread of the block takes every blockThreads()th. */
template <class Op, class T, u32 N = LANES<acc_t<T>>, class Get>
X_DEVICE Tally<Op, acc_t<T>> shareBy(u64 n, Get get) {
  typedef acc_t<T> A;
  Tally<Op, A> mine = Tally<Op, A>::none();
  const u64 threads = blockThreads();
  u64 j = threadIndex();
  if constexpr (N > 1) {
    for (; j + (N - 1) * threads < n; j += N * threads) {
      A terms[N];
#pragma unroll
      for (u32 l = 0; l < N; ++l) terms[l] = get(j + l * threads);
      mine.take(inPairs<Op>(terms));
    }
  }
  for (; j < n; j += threads) mine.take(get(j));
  return mine;
}
#endif

/** Op over get(0) .. get(n-1), by the whole block; every thread gets the result. N terms are on the way at once. */
template <class Op, class T, u32 N = LANES<acc_t<T>>, class Get>
X_DEVICE Handed<Op, T> overBlock(u64 n, Get get) {
#if X_HOST
  typedef acc_t<T> A;
  Tally<Op, A> lanes[N];
  for (u32 l = 0; l < N; ++l) lanes[l] = Tally<Op, A>::none();
  u64 j = 0;
  for (; j + 8 * N <= n; j += 8 * N) takeSteps<Op, A, N, 8>(lanes, j, get);
  return overRest<Op, T>(lanes, j, n, get);
#else
  return ofBlock<Op, T>(shareBy<Op, T, N>(n, get));
#endif
}

#if !X_HOST
/** several(j, vectors j, j + step, ... of p), LOADS of them, and one(j, vector j) for what is left of j = first, first + step, ... */
template <u32 V, u32 LOADS = IN_FLIGHT, class T, class Several, class One>
X_DEVICE void forGroups(const T* p, u64 vectors, u32 first, u32 step, Several several, One one) {
  u64 j = first;
  if constexpr (LOADS > 1) {
    for (; j + (LOADS - 1) * step < vectors; j += LOADS * step) {
      Vec<T, V> v[LOADS];
#pragma unroll
      for (u32 l = 0; l < LOADS; ++l) v[l] = loadVec<V>(p + (j + l * step) * V);
      several(j, v);
    }
  }
  for (; j < vectors; j += step) one(j, loadVec<V>(p + j * V));
}

/** visit(j, vector j of p) for j = first, first + step, ... below `vectors`, LOADS loads at a time. */
template <u32 V, u32 LOADS = IN_FLIGHT, class T, class F>
X_DEVICE void forVectors(const T* p, u64 vectors, u32 first, u32 step, F visit) {
  const auto several = [&](u64 j, const Vec<T, V>(&v)[LOADS]) {
#pragma unroll
    for (u32 l = 0; l < LOADS; ++l) visit(j + l * step, v[l]);
  };
  forGroups<V, LOADS>(p, vectors, first, step, several, visit);
}

/** Whether n elements at p are worth vectors. */
template <class T>
X_DEVICE bool vectorises(const T* p, u64 n) {
  return vecWidth<T> > 1 && aligned16(p) && n >= vecWidth<T> * 32;
}

/** Op over all elements of N vectors, in pairs. */
template <class Op, class T, u32 V, u32 N>
X_DEVICE acc_t<T> overVectors(const Vec<T, V> (&v)[N]) {
  acc_t<T> terms[N * V];
#pragma unroll
  for (u32 l = 0; l < N; ++l)
#pragma unroll
    for (u32 e = 0; e < V; ++e) terms[l * V + e] = to_acc(v[l][e]);
  return inPairs<Op>(terms);
}

/**
 * Op over the share of one of `step` threads in n contiguous elements, with 16-byte loads. Where the elements of one load are
 * reduced to one value that joins a single running one, ptxas waits for each load before the next: sums therefore take the
 * elements of all loads under way in pairs (but bytes, which would have twice the registers on AMD), and f32 extrema have a
 * running value for each place in a vector.
 */
template <class Op, class T>
X_DEVICE Tally<Op, acc_t<T>> shareOf(const T* p, u64 n, u32 first, u32 step) {
  typedef acc_t<T> A;
  constexpr u32 V = vecWidth<T>;
  // Sixteen conversions take longer than a load, and are long code.
  constexpr u32 LOADS = sameType<T, f8e4m3> ? 1 : IN_FLIGHT;
  constexpr u32 CHAINS = !isSum<Op> && sameType<T, float> ? V : 1;
  const u64 vectors = n / V;
  Tally<Op, A> shares[CHAINS];
#pragma unroll
  for (u32 c = 0; c < CHAINS; ++c) shares[c] = Tally<Op, A>::none();
  const auto one = [&](u64, const Vec<T, V>& v) {
#pragma unroll
    for (u32 c = 0; c < CHAINS; ++c) {
      A terms[V / CHAINS];
#pragma unroll
      for (u32 e = 0; e < V / CHAINS; ++e) terms[e] = to_acc(v[e * CHAINS + c]);
      shares[c].take(inPairs<Op>(terms));
    }
  };
  if constexpr (isSum<Op> && sizeof(T) > 1) {
    const auto several = [&](u64, const Vec<T, V>(&v)[IN_FLIGHT]) { shares[0].take(overVectors<Op>(v)); };
    forGroups<V>(p, vectors, first, step, several, one);
  } else {
    forVectors<V, LOADS>(p, vectors, first, step, one);
  }
  for (u64 j = vectors * V + first; j < n; j += step) shares[0].take(to_acc(p[j]));
#pragma unroll
  for (u32 c = 1; c < CHAINS; ++c) shares[0].join(shares[c]);
  return shares[0];
}
#endif

/** The same over n contiguous elements at p, with 16-byte loads where p allows them. */
template <class Op, class T>
X_DEVICE Handed<Op, T> overBlockAt(const T* p, u64 n) {
#if !X_HOST
  const auto get = [p](u64 j) { return to_acc(p[j]); };
  return ofBlock<Op, T>(vectorises(p, n) ? shareOf<Op>(p, n, threadIndex(), blockThreads()) : shareBy<Op, T>(n, get));
#else
  if constexpr (isSum<Op> && (sameType<T, float> || sameType<T, bf16>)) return sumAt<Op>(p, n);
  if constexpr (isSum<Op>) return overBlock<Op, T>(n, [p](u64 j) { return to_acc(p[j]); });
  if constexpr (isExtremum<Op> && sameType<T, float>) {
    float extremum;
    if (plainExtremum<Op>(p, n, &extremum)) return {extremum};
  }
  const Widening<T> widen;
  return overBlock<Op, T>(n, [p, widen](u64 j) { return widen(p[j]); });
#endif
}

constexpr u32 NO_INDEX = 0xffffffffu;

template <class T>
X_DEVICE bool sameValue(T a, T b) {
  return a == b || (a != a && b != b);
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
/** The position of the block's winner, from every thread's best; NO_INDEX where a thread saw none. */
template <class Op, class A>
X_DEVICE u32 winnerOf(const Best<A>& best) {
  typedef typename Carried<A>::type C;
  const A winner = (A)blockReduce<Op>((C)best.value);
  return blockReduce<Min>(best.index != NO_INDEX && sameValue(best.value, winner) ? best.index : NO_INDEX);
}

/** The best of this thread's share of get(0) .. get(n-1), N of them at once. */
template <class Op, class A, u32 N = 2, class Get>
X_DEVICE Best<A> bestBy(u64 n, Get get) {
  Best<A> best = Best<A>::template none<Op>();
#pragma unroll N
  for (u64 j = threadIndex(); j < n; j += blockThreads()) best.template take<Op>(get(j), (u32)j);
  return best;
}
#endif

/** The smallest j whose get(j) is the extremum; a NaN beats every number. n > 0. */
template <class Op, class A, class Get>
X_DEVICE u32 indexOverBlock(u64 n, Get get) {
#if X_HOST
  const A best = overBlock<Op, A>(n, get).result();
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
  return winnerOf<Op>(bestBy<Op, A>(n, get));
#endif
}

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
  const auto get = [p](u64 j) { return to_acc(p[j]); };
  return winnerOf<Op>(vectorises(p, n) ? bestOfShare<Op>(p, n, threadIndex(), blockThreads()) : bestBy<Op, acc_t<T>>(n, get));
#else
  const Widening<T> widen;
  return indexOverBlock<Op, acc_t<T>>(n, [p, widen](u64 j) { return widen(p[j]); });
#endif
}

}  // namespace reduce
