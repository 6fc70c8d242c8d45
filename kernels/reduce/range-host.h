// Reducing a range by one thread of the host: lanes side by side let the loop vectorise without reordering licence. Where the
// compiler would take half vectors, or an instruction that knows less than we have to, the loop is written in vectors.
#pragma once

#if X_HOST
namespace reduce {

template <class A>
constexpr u32 LANES = 128 / sizeof(A);

/**
 * to_acc for terms that are compared. What was f16 would be compared as f16 once the compiler sees that nothing was lost, an element
 * at a time where the CPU has no such arithmetic: a factor that it does not see is in the way.
 */
template <class T>
struct Widening {
  acc_t<T> one = (acc_t<T>)1;
  X_DEVICE Widening() {
    if constexpr (sameType<T, f16>) asm("" : "+m"(one));
  }
  X_DEVICE acc_t<T> operator()(T v) const {
    if constexpr (sameType<T, f16>) return to_acc(v) * one;
    else return to_acc(v);
  }
};

/** Lane l takes the terms j + l, j + N + l, ... of S steps. */
template <class Op, class A, u32 N, u32 S, class Get>
X_DEVICE void takeSteps(Tally<Op, A> (&lanes)[N], u64 j, Get get) {
  for (u32 l = 0; l < N; ++l) {
    A terms[S];
    for (u32 s = 0; s < S; ++s) terms[s] = get(j + s * N + l);
    lanes[l].take(inPairs<Op>(terms));
  }
}

/** The result of lanes that have taken the terms before j, with those from there on. */
template <class Op, class T, u32 N, class Get>
X_DEVICE Handed<Op, T> overRest(Tally<Op, acc_t<T>> (&lanes)[N], u64 j, u64 n, Get get) {
  typedef acc_t<T> A;
  if (j + 4 * N <= n) takeSteps<Op, A, N, 4>(lanes, j, get), j += 4 * N;
  if (j + 2 * N <= n) takeSteps<Op, A, N, 2>(lanes, j, get), j += 2 * N;
  if (j + N <= n) takeSteps<Op, A, N, 1>(lanes, j, get), j += N;
  if (j < n) {
    A rest[N];
    for (u32 l = 0; l < N; ++l) rest[l] = Op::template identity<A>();
    for (u32 l = 0; j + l < n; ++l) rest[l] = get(j + l);
    for (u32 l = 0; l < N; ++l) lanes[l].take(rest[l]);
  }
#pragma unroll
  for (u32 w = N / 2; w > 0; w /= 2)
    for (u32 l = 0; l < w; ++l) lanes[l].join(lanes[l + w]);
  return handed<Op, T>(lanes[0]);
}

/** Running extrema side by side: with their largest magnitudes, what the registers hold. */
#ifdef __AVX512F__
constexpr u32 EXTREMUM_CHAINS = 4;
#else
constexpr u32 EXTREMUM_CHAINS = 2;
#endif

template <class Op>
constexpr bool isExtremum = sameType<Op, MaxNan> || sameType<Op, MinNan>;

/**
 * The extremum of n floats by an instruction that knows neither NaN nor the sign of 0: false where there is a NaN among them or
 * the extremum is 0, and where they are few.
 */
template <class Op>
X_DEVICE bool plainExtremum(const float* p, u64 n, float* extremum) {
  typedef float Floats __attribute__((vector_size(64)));
  typedef float LooseFloats __attribute__((vector_size(64), aligned(4), may_alias));
  typedef u32 Words __attribute__((vector_size(64)));
  constexpr u32 N = 16, CHAINS = EXTREMUM_CHAINS;
  if (n < CHAINS * N) return false;
  constexpr bool MOST = sameType<Op, MaxNan>;
  Floats best[CHAINS];
  Words magnitude[CHAINS] = {};
  for (u32 c = 0; c < CHAINS; ++c) best[c] = Floats{} + p[0];
  // The last step ends with the range and repeats what it has in common with the one before.
  for (u64 j = 0; j < n; j += CHAINS * N) {
    const float* from = p + (n - j < CHAINS * N ? n - CHAINS * N : j);
#pragma unroll
    for (u32 c = 0; c < CHAINS; ++c) {
      const Floats v = *(const LooseFloats*)(from + c * N);
      const Words m = (Words)v & 0x7fffffffu;
      best[c] = (MOST ? v > best[c] : v < best[c]) ? v : best[c];
      magnitude[c] = m > magnitude[c] ? m : magnitude[c];
    }
  }
#pragma unroll
  for (u32 c = 1; c < CHAINS; ++c) {
    best[0] = (MOST ? best[c] > best[0] : best[c] < best[0]) ? best[c] : best[0];
    magnitude[0] = magnitude[c] > magnitude[0] ? magnitude[c] : magnitude[0];
  }
  float result = best[0][0];
  bool nan = false;
  for (u32 l = 0; l < N; ++l) {
    const float v = best[0][l];
    result = (MOST ? v > result : v < result) ? v : result;
    nan |= magnitude[0][l] > 0x7f800000u;
  }
  *extremum = result;
  return !nan && result != 0.0f;
}

/** Sixteen neighbours as f32. */
template <class T>
struct Sixteen {
  typedef float type __attribute__((vector_size(64)));
  X_DEVICE static type at(const T* p) {
    if constexpr (sizeof(T) == 4) {
      type v;
      __builtin_memcpy(&v, p, sizeof(v));
      return v;
    } else if constexpr (sameType<T, bf16>) {
      typedef u16 Halves __attribute__((vector_size(32)));
      typedef u32 Words __attribute__((vector_size(64)));
      Halves h;
      __builtin_memcpy(&h, p, sizeof(h));
      return (type)(__builtin_convertvector(h, Words) << 16);
    } else {
      type v;
      for (u32 i = 0; i < 16; ++i) v[i] = to_acc(p[i]);
      return v;
    }
  }
};

/** Sums of f32 and bf16 as overBlock makes them, with whole vectors for what it leaves to the compiler. */
template <class Op, class T>
X_DEVICE Handed<Op, T> sumAt(const T* p, u64 n) {
  typedef double Wide __attribute__((vector_size(128)));
  constexpr u32 N = 32, STEPS = 8;
  static_assert(LANES<float> == N && sizeof(Tally<Op, float>) == sizeof(double), "a lane is a sum in f64");
  Wide sums[2] = {};
  u64 j = 0;
  for (; j + STEPS * N <= n; j += STEPS * N) {
#pragma unroll
    for (u32 half = 0; half < 2; ++half) {
      typename Sixteen<T>::type v[STEPS];
#pragma unroll
      for (u32 s = 0; s < STEPS; ++s) v[s] = Sixteen<T>::at(p + j + s * N + half * 16);
#pragma unroll
      for (u32 w = STEPS / 2; w > 0; w /= 2)
#pragma unroll
        for (u32 s = 0; s < w; ++s) v[s] += v[s + w];
      sums[half] += __builtin_convertvector(v[0], Wide);
    }
  }
  Tally<Op, float> lanes[N];
  __builtin_memcpy(lanes, sums, sizeof(lanes));
  return overRest<Op, T>(lanes, j, n, [p](u64 i) { return to_acc(p[i]); });
}

}  // namespace reduce
#endif
