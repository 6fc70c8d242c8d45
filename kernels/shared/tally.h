// Running results over many terms. A float sum of n terms that only rounds each addition is off by up to n/2 units in the
// last place, and always to one side where all terms are equal. Sums of f32 are therefore kept in more bits, so that the
// result is the exact sum rounded about once, however many terms there are and however they are split over threads and
// blocks: in f64 on the host, and on GPUs, where f64 may be slow, in two f32. Callers add a few neighbouring terms in
// pairs before a tally takes them, which saves most of the work: of equal terms these sums are exact.
#pragma once

template <class Op>
constexpr bool isSum = sameType<Op, Sum>;

/** The running result of Op over A, kept as W. */
template <class Op, class A, class W>
struct PlainTally {
  W value;
  X_DEVICE static PlainTally none() { return {Op::template identity<W>()}; }
  /** Of one term. */
  X_DEVICE static PlainTally of(A v) { return {Op::template apply<W>(Op::template identity<W>(), (W)v)}; }
  X_DEVICE void take(A v) { value = Op::template apply<W>(value, (W)v); }
  template <class V>
  X_DEVICE void join(const PlainTally<Op, A, V>& other) {
    value = Op::template apply<W>(value, (W)other.value);
  }
  X_DEVICE A result() const { return (A)value; }
};

/** A sum, and beside it what its additions rounded away, which is added to the next term, as Kahan does. */
struct alignas(8) CarefulSum {
  float value, lost;
  X_DEVICE static CarefulSum none() { return {0.0f, 0.0f}; }
  /** Of one term, from which nothing is rounded away. */
  X_DEVICE static CarefulSum of(float v) { return {0.0f + v, 0.0f}; }
  X_DEVICE void take(float v) {
    v += lost;
    const float sum = value + v;
    lost = roundedAway(value, v, sum);
    value = sum;
  }
  /** Two lanes that join each other's sums get the same bits. */
  X_DEVICE void join(const CarefulSum& other) {
    const float sum = value + other.value;
    lost = (lost + other.lost) + roundedAway(value, other.value, sum);
    value = sum;
  }
  template <class Op>
  X_DEVICE void join(const PlainTally<Op, float, float>& other) {
    take(other.value);
  }
  X_DEVICE float result() const { return value + lost; }

 private:
  /** a + b - sum for sum = a + b rounded (Knuth's two-sum); 0 where that is infinite or NaN. */
  static X_DEVICE float roundedAway(float a, float b, float sum) {
    const float added = sum - a, lost = (a - (sum - added)) + (b - added);
    return lost == lost ? lost : 0.0f;
  }
};

namespace tally {

template <class Op, class A, bool widens = isSum<Op> && sameType<A, float>>
struct Of {
  typedef PlainTally<Op, A, A> type;
};
template <class Op, class A>
struct Of<Op, A, true> {
#if X_HOST
  typedef PlainTally<Op, A, double> type;
#else
  typedef CarefulSum type;
#endif
};

}  // namespace tally

template <class Op, class A>
using Tally = typename tally::Of<Op, A>::type;

/**
 * What threads and blocks that share the terms of one result in T hand each other: the small floats keep fewer bits than
 * a sum that was rounded to f32.
 */
template <class Op, class T>
using Handed = typename tally::Of<Op, acc_t<T>, isSum<Op> && sameType<T, float>>::type;

template <class Op, class T>
X_DEVICE Handed<Op, T> handed(const Tally<Op, acc_t<T>>& tally) {
  if constexpr (sameType<Handed<Op, T>, Tally<Op, acc_t<T>>>) return tally;
  else return {tally.result()};
}

/** Joins tallies, as an operator of warpReduce and blockReduce. */
struct Join {
  template <class H>
  static X_DEVICE H identity() {
    return H::none();
  }
  template <class H>
  static X_DEVICE H apply(H a, const H& b) {
    a.join(b);
    return a;
  }
};

/** Op over N terms in pairs of pairs; N is a power of two. */
template <class Op, u32 N, class A>
X_DEVICE A inPairs(A (&v)[N]) {
#pragma unroll
  for (u32 w = N / 2; w > 0; w /= 2)
#pragma unroll
    for (u32 i = 0; i < w; ++i) v[i] = Op::template apply<A>(v[i], v[i + w]);
  return v[0];
}
