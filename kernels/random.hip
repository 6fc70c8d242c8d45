// RANDOM: uniform and normal numbers of the Philox4x32-10 stream that packages/core/src/philox.ts defines, in which an
// element is a function of (seed, call, index): a seed gives the same numbers on every device. candle has cuRAND on GPUs
// and another generator on each other device. Everything past the words is computed in f64 by the same unfused operations
// as in the reference, then rounded to f32 and from there to the narrow floats: all numbers are equal bit for bit.
#include "x.h"
#include "shared/normal-series.h"

namespace rng {

struct Words {
  u32 w[4];
};

X_DEVICE Words philox(u64 block, u64 call, u64 seed) {
  u32 c0 = (u32)block, c1 = (u32)(block >> 32), c2 = (u32)call, c3 = (u32)(call >> 32);
  u32 k0 = (u32)seed, k1 = (u32)(seed >> 32);
#pragma unroll
  for (u32 round = 0; round < 10; ++round) {
    const u64 p0 = (u64)0xd2511f53u * c0, p1 = (u64)0xcd9e8d57u * c2;
    c0 = (u32)(p1 >> 32) ^ c1 ^ k0;
    c1 = (u32)p1;
    c2 = (u32)(p0 >> 32) ^ c3 ^ k1;
    c3 = (u32)p0;
    k0 += 0x9e3779b9u;
    k1 += 0xbb67ae85u;
  }
  return {{c0, c1, c2, c3}};
}

/** Uniform numbers in [0, 1) of 24 bits from one word, or of 53 from two. */
X_DEVICE double uniform(u32 word) { return (double)(word >> 8) * 0x1p-24; }
X_DEVICE double uniform(u32 high, u32 low) { return (double)((u64)(high >> 5) << 26 | low >> 6) * 0x1p-53; }

/** All of a counter block. */
template <class T>
struct Uniform {
  static constexpr u32 COUNT = sameType<T, double> ? 2 : 4;
  static X_DEVICE void fill(u64 item, u64 seed, u64 call, double (&value)[COUNT]) {
    const Words words = philox(item, call, seed);
    if constexpr (sameType<T, double>) {
      value[0] = uniform(words.w[0], words.w[1]);
      value[1] = uniform(words.w[2], words.w[3]);
    } else {
#pragma unroll
      for (u32 k = 0; k < COUNT; ++k) value[k] = uniform(words.w[k]);
    }
  }
};

struct Point {
  double x, y;
};

/** The bits of a double behind the point, and those of sqrt(2). */
constexpr u64 MANTISSA = 0xfffffffffffffull, ROOT_OF_TWO = 0x6a09e667f3bcdull;

/**
 * (cos, sin) of 2 pi `turns`, which is in [0, 1): the nearest quarter turn is taken off exactly, so that polynomials on an
 * eighth of a turn to either side suffice.
 */
X_DEVICE Point onCircle(double turns) {
  const double quarter = m::floor(turns * 4.0 + 0.5);
  const double rest = turns - quarter * 0.25;
  const double square = rest * rest;
  const double s = rest * series::sine(square);
  const double c = multiplyThenAdd(square, series::cosine(square), 1.0);
  const u32 turn = (u32)quarter & 3u;
  const bool swap = (turn & 1u) != 0;
  const double x = swap ? s : c, y = swap ? c : s;
  return {turn == 1 || turn == 2 ? -x : x, turn >= 2 ? -y : y};
}

/** ln of a positive normal x: x is 2^count m with m in [sqrt(1/2), sqrt(2)], and m is (1 + f) / (1 - f). */
X_DEVICE double logarithm(double x) {
  const u64 bits = bitCast<u64>(x), above = (u64)((bits & MANTISSA) > ROOT_OF_TWO);
  const double count = (double)((i64)((bits >> 52) + above) - 1023);
  const double fraction = bitCast<double>((bits & MANTISSA) | (1023 - above) << 52);
  const double f = (fraction - 1.0) / (fraction + 1.0);
  const double square = f * f, part = square * series::logarithm(square);
  const double low = count * series::LN_2_WIDE_LOW;
  const double tail = multiplyThenAdd(f, part, low);
  // Both products are exact.
  return count * series::LN_2_WIDE_HIGH + (2.0 * f + tail);
}

/** One pair by Box-Muller: a block of f64 has one, the others two, each made alone since two do not fit the registers. */
template <class T>
struct Normal {
  static constexpr u32 COUNT = 2;
  static X_DEVICE void fill(u64 item, u64 seed, u64 call, double (&value)[COUNT]) {
    double first, second;
    if constexpr (sameType<T, double>) {
      const Words words = philox(item, call, seed);
      first = 1.0 - uniform(words.w[0], words.w[1]);
      second = uniform(words.w[2], words.w[3]);
    } else {
      const Words words = philox(item / 2, call, seed);
      const bool odd = item % 2 != 0;
      first = uniform(odd ? words.w[2] : words.w[0]) + 0x1p-24;
      second = uniform(odd ? words.w[3] : words.w[1]);
    }
    const double radius = m::sqrt(-2.0 * logarithm(first));
    const Point point = onCircle(second);
    value[0] = radius * point.x;
    value[1] = radius * point.y;
  }
};

template <class T>
X_DEVICE T narrow(double value) {
  if constexpr (sameType<T, double>) return value;
  else return cast<T>((float)value);
}

/** out[i] = element i of the call, times mul, plus add. */
template <template <class> class Kind, class T>
X_DEVICE void generate(u64 numel, u64 seed, u64 call, double mul, double add, T* out) {
  constexpr u32 N = Kind<T>::COUNT;
  const bool wide = alignedTo(out, sizeof(T) * N);
  X_FOR_EACH(item, (numel + N - 1) / N) {
    double value[N];
    Kind<T>::fill(item, seed, call, value);
    Vec<T, N> result;
#pragma unroll
    for (u32 k = 0; k < N; ++k) result[k] = narrow<T>(multiplyThenAdd(value[k], mul, add));
    const u64 first = item * N;
    if (wide && first + N <= numel) {
      storeVec(out + first, result);
    } else {
#pragma unroll
      for (u32 k = 0; k < N; ++k)
        if (first + k < numel) out[first + k] = result[k];
    }
  }
}

}  // namespace rng

#define RANDOM(T, t)                                                                                    \
  KERNEL_EACH(rand_uniform_##t, (u64 numel, u64 seed, u64 call, double mul, double add, T* out)) {      \
    rng::generate<rng::Uniform>(numel, seed, call, mul, add, out);                                \
  }                                                                                                     \
  KERNEL_EACH(rand_normal_##t, (u64 numel, u64 seed, u64 call, double mul, double add, T* out)) {       \
    rng::generate<rng::Normal>(numel, seed, call, mul, add, out);                                 \
  }
RANDOM(bf16, bf16)
RANDOM(f16, f16)
RANDOM(float, f32)
RANDOM(double, f64)
RANDOM(f8e4m3, f8e4m3)
