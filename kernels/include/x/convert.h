// cast<To>(v) between the ten dtypes, and to_acc/from_acc. Values follow candle's CPU (Rust `as`): float to integer
// truncates, saturates and maps NaN to 0; integer to integer wraps; integers reach the small floats through f32; f64
// reaches them with one rounding. f8e4m3 saturates to ±448. Everything is branch-free, so host loops vectorise.
#pragma once

namespace convert {

X_DEVICE float bf16ToFloat(bf16 v) { return bitCast<float>((u32)v.bits << 16); }

X_DEVICE bf16 floatToBf16(float v) {
#if X_NVRTC
  bf16 r;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(r.bits) : "f"(v));
  return r;
#elif X_NVPTX || defined(__ARM_FEATURE_BF16)  // clang converts neighbours in pairs, or fours
  return bf16{bitCast<u16>((__bf16)v)};
#else
  const u32 u = bitCast<u32>(v);
  const u32 rounded = (u + 0x7fffu + ((u >> 16) & 1u)) >> 16;
  const u32 nan = (u >> 16) | 0x40u;
  return bf16{(u16)((u & 0x7fffffffu) > 0x7f800000u ? nan : rounded)};
#endif
}

X_DEVICE float f8ToFloat(f8e4m3 v) {
  const u32 magnitude = v.bits & 0x7fu;
  const u32 normal = (magnitude << 20) + (120u << 23);
  const u32 subnormal = bitCast<u32>((float)(i32)magnitude * 0.001953125f);  // units of 2^-9
  const u32 finite = magnitude < 8u ? subnormal : normal;
  return bitCast<float>((magnitude == 0x7fu ? 0x7fc00000u : finite) | ((u32)(v.bits & 0x80u) << 24));
}

X_DEVICE f8e4m3 floatToF8(float v) {
  const u32 u = bitCast<u32>(v);
  const u32 a = u & 0x7fffffffu;
  const u32 normal = ((a + 0x7ffffu + ((a >> 20) & 1u)) >> 20) - (120u << 3);
  // Adding 2^14 makes the unit in the last place 2^-9, the subnormal step: the sum's low bits are the code.
  const u32 subnormal = bitCast<u32>(bitCast<float>(a) + 16384.0f) - bitCast<u32>(16384.0f);
  const u32 finite = a < 0x3c800000u ? subnormal : normal;
  const u32 saturated = a >= 0x43e00000u ? 0x7eu : finite;  // 448 and more, infinity too
  return f8e4m3{(u8)(a > 0x7f800000u ? 0x7fu : saturated | ((u >> 24) & 0x80u))};
}

X_DEVICE float halfBitsToFloat(u16 h) {
  const u32 magnitude = h & 0x7fffu;
  const u32 normal = (magnitude << 13) + (112u << 23);
  const u32 special = (magnitude << 13) + (224u << 23);
  const u32 subnormal = bitCast<u32>((float)(i32)magnitude * 5.9604644775390625e-08f);  // units of 2^-24
  const u32 finite = magnitude < 0x400u ? subnormal : normal;
  return bitCast<float>((magnitude >= 0x7c00u ? special : finite) | ((u32)(h & 0x8000u) << 16));
}

X_DEVICE u16 floatToHalfBits(float v) {
  const u32 u = bitCast<u32>(v);
  const u32 a = u & 0x7fffffffu;
  const u32 normal = (a + 0xfffu + ((a >> 13) & 1u) - (112u << 23)) >> 13;
  const u32 subnormal = bitCast<u32>(bitCast<float>(a) + 0.5f) - bitCast<u32>(0.5f);  // as in floatToF8
  const u32 finite = a < 0x38800000u ? subnormal : normal;
  const u32 bounded = a >= 0x477ff000u ? 0x7c00u : finite;
  const u32 nan = 0x7e00u | ((a >> 13) & 0x3ffu);
  return (u16)((a > 0x7f800000u ? nan : bounded) | ((u >> 16) & 0x8000u));
}

X_DEVICE float f16ToFloat(f16 v) {
#if X_NVRTC
  float r;
  asm("cvt.f32.f16 %0, %1;" : "=f"(r) : "h"(v.bits));
  return r;
#elif X_F16_BITS
  return halfBitsToFloat(v.bits);
#else
  return (float)v;
#endif
}

X_DEVICE f16 floatToF16(float v) {
#if X_NVRTC
  f16 r;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(r.bits) : "f"(v));
  return r;
#elif X_F16_BITS
  return f16{floatToHalfBits(v)};
#else
  // Of the rounding of a product clang makes v_fma_mixlo_f16 with an addend of +0, and of -0 that makes +0.
  return (f16)opaque(v);
#endif
}

// f64 -> f32 rounded to odd: rounding that again to a narrower type gives the correctly rounded result.
X_DEVICE float doubleToFloatOdd(double v) {
  const float nearest = (float)v;
  const double back = (double)nearest;
  u32 u = bitCast<u32>(nearest);
  const double magnitude = v < 0 ? -v : v;
  const double backMagnitude = back < 0 ? -back : back;
  u -= backMagnitude > magnitude ? 1u : 0u;
  u |= back != v ? 1u : 0u;
  return bitCast<float>(u);
}

template <class To>
struct Limits;
template <>
struct Limits<u8> {
  static constexpr u8 low = 0, high = 255;
};
template <>
struct Limits<i8> {
  static constexpr i8 low = -128, high = 127;
};
template <>
struct Limits<u16> {
  static constexpr u16 low = 0, high = 65535;
};
template <>
struct Limits<i16> {
  static constexpr i16 low = -32768, high = 32767;
};
template <>
struct Limits<u32> {
  static constexpr u32 low = 0, high = 4294967295u;
};
template <>
struct Limits<i32> {
  static constexpr i32 low = -2147483647 - 1, high = 2147483647;
};
template <>
struct Limits<u64> {
  static constexpr u64 low = 0, high = ~0ull;
};
template <>
struct Limits<i64> {
  static constexpr i64 low = -9223372036854775807ll - 1, high = 9223372036854775807ll;
};

// Truncates and saturates. `edge` is the first value above the range, a power of two and therefore exact.
template <class To, class F>
X_DEVICE To floatToInt(F v) {
  constexpr F low = (F)Limits<To>::low;
  constexpr F edge = (F)(Limits<To>::high / 2 + 1) * (F)2;
  const bool above = v >= edge;
  const bool inside = v > low && v < edge;
  const To truncated = (To)(inside ? v : (F)0);
  const To outside = above ? Limits<To>::high : (v == v ? Limits<To>::low : (To)0);
  return inside ? truncated : outside;
}

template <class From>
X_DEVICE acc_t<From> widen(From v) {
  if constexpr (sameType<From, f16>) return f16ToFloat(v);
  else if constexpr (sameType<From, bf16>) return bf16ToFloat(v);
  else if constexpr (sameType<From, f8e4m3>) return f8ToFloat(v);
  else return v;
}

}  // namespace convert

/** v as a To, for any two of the dtypes (and i8 u16 u64). */
template <class To, class From>
X_DEVICE To cast(From v) {
  if constexpr (sameType<To, From>) {
    return v;
  } else if constexpr (sameType<To, f16> || sameType<To, bf16> || sameType<To, f8e4m3>) {
    float f;
    if constexpr (sameType<From, double>) f = convert::doubleToFloatOdd(v);
    else f = (float)convert::widen(v);
    if constexpr (sameType<To, f16>) return convert::floatToF16(f);
    else if constexpr (sameType<To, bf16>) return convert::floatToBf16(f);
    else return convert::floatToF8(f);
  } else if constexpr (isFloatType<From> && !isFloatType<To>) {
    return convert::floatToInt<To>(convert::widen(v));
  } else {
    return (To)convert::widen(v);
  }
}

/** v in the type that T computes in. */
template <class T>
X_DEVICE acc_t<T> to_acc(T v) {
  return convert::widen(v);
}

/** An accumulator value back in T. */
template <class T>
X_DEVICE T from_acc(acc_t<T> a) {
  return cast<T>(a);
}
