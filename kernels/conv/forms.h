// What the products of a convolution on the host are made of: an element of planes and of the kernel, and how a vector of them
// is multiplied. Values are widened to what is summed in; CPUs with dot products of pairs (shared/pairs.h) have two of bf16 in
// an element, twice the products in the same time: of two channels where vectors run along outputs, else neighbours.
#pragma once

#if X_HOST
namespace conv {

#ifdef __AVX512F__
constexpr u32 VECTOR_BYTES = 64, BLOCK_ROWS = 8;
#else
constexpr u32 VECTOR_BYTES = 32, BLOCK_ROWS = 4;
#endif

X_DEVICE constexpr i16 bitsOf(u16) { return 0; }
X_DEVICE constexpr i32 bitsOf(u32) { return 0; }
X_DEVICE constexpr i32 bitsOf(float) { return 0; }
X_DEVICE constexpr i64 bitsOf(double) { return 0; }

template <class A, class Signed = decltype(bitsOf(A()))>
struct Lanes {
  static constexpr u32 N = VECTOR_BYTES / sizeof(A);
  typedef A type __attribute__((vector_size(VECTOR_BYTES)));
  typedef A loose __attribute__((vector_size(VECTOR_BYTES), aligned(sizeof(A)), may_alias));
  typedef Signed mask __attribute__((vector_size(VECTOR_BYTES)));
};

/** Values of T, widened. */
template <class T>
struct Widened {
  typedef acc_t<T> Element, Sum;
  /** Channels of the image in an element. */
  static constexpr u32 DEEP = 1;
  static X_DEVICE Element of(T v) { return to_acc(v); }
  static X_DEVICE typename Lanes<Sum>::type add(typename Lanes<Sum>::type sums, typename Lanes<Sum>::type w, typename Lanes<Sum>::type x) {
    return sums + w * x;
  }
  /** With one value for all lanes: to add it to zeros would be an addition each time, for a sum of -0 and 0 is 0. */
  static X_DEVICE typename Lanes<Sum>::type add(typename Lanes<Sum>::type sums, Element w, typename Lanes<Sum>::type x) {
    return sums + w * x;
  }
};

#ifdef __AVX512F__
/** Neighbours along a line, in the bits of bf16. */
struct Neighbours {
  typedef u16 Element;
  typedef float Sum;
  static constexpr u32 DEEP = 1;
  static X_DEVICE u16 of(bf16 v) { return v.bits; }
  X_PAIRS_TARGET static X_DEVICE Lanes<float>::type add(Lanes<float>::type sums, Lanes<u16>::type w, Lanes<u16>::type x) {
    return pairs::add(sums, (pairs::Words)w, (pairs::Words)x);
  }
};

/** The same place of two channels, zeros for a channel that there is not. */
struct Channels {
  typedef u32 Element;
  typedef float Sum;
  static constexpr u32 DEEP = 2;
  static X_DEVICE u32 of(bf16 first, bf16 second) { return first.bits | (u32)second.bits << 16; }
  X_PAIRS_TARGET static X_DEVICE Lanes<float>::type add(Lanes<float>::type sums, Lanes<u32>::type w, Lanes<u32>::type x) {
    return pairs::add(sums, w, x);
  }
  X_PAIRS_TARGET static X_DEVICE Lanes<float>::type add(Lanes<float>::type sums, u32 w, Lanes<u32>::type x) {
    return pairs::add(sums, Lanes<u32>::type{} + w, x);
  }
};
#endif

/** f(form) with what this CPU multiplies T in; `Pairs` are its pairs of bf16. */
#ifdef __AVX512F__
template <class T, class Pairs, class F>
X_DEVICE void withForm(F f) {
  if constexpr (sameType<T, bf16>) {
    if (pairs::supported()) return f(Pairs());
  }
  f(Widened<T>());
}
#else
struct Neighbours {};
struct Channels {};

template <class T, class Pairs, class F>
X_DEVICE void withForm(F f) {
  f(Widened<T>());
}
#endif

}  // namespace conv
#endif
