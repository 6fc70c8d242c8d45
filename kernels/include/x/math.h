// Mathematics on float and double: m::exp(x), m::pow(a, b) … amdgcn uses ROCm's ocml, nvptx libdevice, the host the
// compiler's builtins, which clang turns into vector calls (-fveclib=libmvec) inside loops.
#pragma once
#if X_HOST
#include "x/series.h"
#endif

// X_MATH_F32(name, libdevice's name, ocml's name) names the function of one target.
#if X_AMDGCN
#define X_MATH_F32(fn, nv, ocml) __ocml_##ocml##_f32
#define X_MATH_F64(fn, nv, ocml) __ocml_##ocml##_f64
#define X_MATH_DECLARE_1(nv, ocml)                                            \
  extern "C" __attribute__((device, const)) float __ocml_##ocml##_f32(float); \
  extern "C" __attribute__((device, const)) double __ocml_##ocml##_f64(double);
#define X_MATH_DECLARE_2(nv, ocml)                                                   \
  extern "C" __attribute__((device, const)) float __ocml_##ocml##_f32(float, float); \
  extern "C" __attribute__((device, const)) double __ocml_##ocml##_f64(double, double);
#elif X_NVRTC
#define X_MATH_F32(fn, nv, ocml) ::nv##f
#define X_MATH_F64(fn, nv, ocml) ::nv
#elif X_NVPTX
#define X_MATH_F32(fn, nv, ocml) __nv_##nv##f
#define X_MATH_F64(fn, nv, ocml) __nv_##nv
#define X_MATH_DECLARE_1(nv, ocml)                                     \
  extern "C" __attribute__((device, const)) float __nv_##nv##f(float); \
  extern "C" __attribute__((device, const)) double __nv_##nv(double);
#define X_MATH_DECLARE_2(nv, ocml)                                            \
  extern "C" __attribute__((device, const)) float __nv_##nv##f(float, float); \
  extern "C" __attribute__((device, const)) double __nv_##nv(double, double);
#else
#define X_MATH_F32(fn, nv, ocml) __builtin_##fn##f
#define X_MATH_F64(fn, nv, ocml) __builtin_##fn
#endif

#ifdef X_MATH_DECLARE_1
X_MATH_DECLARE_1(exp, exp)
X_MATH_DECLARE_1(expm1, expm1)
X_MATH_DECLARE_1(log, log)
X_MATH_DECLARE_1(log1p, log1p)
X_MATH_DECLARE_1(sin, sin)
X_MATH_DECLARE_1(cos, cos)
X_MATH_DECLARE_1(tanh, tanh)
X_MATH_DECLARE_1(erf, erf)
X_MATH_DECLARE_1(normcdf, ncdf)
X_MATH_DECLARE_1(round, round)
X_MATH_DECLARE_1(sqrt, sqrt)
X_MATH_DECLARE_1(rint, rint)
X_MATH_DECLARE_2(pow, pow)
#endif

namespace m {

#define X_MATH_1(fn, nv, ocml)                                       \
  X_DEVICE float fn(float x) { return X_MATH_F32(fn, nv, ocml)(x); } \
  X_DEVICE double fn(double x) { return X_MATH_F64(fn, nv, ocml)(x); }
#define X_MATH_2(fn, nv, ocml)                                                   \
  X_DEVICE float fn(float a, float b) { return X_MATH_F32(fn, nv, ocml)(a, b); } \
  X_DEVICE double fn(double a, double b) { return X_MATH_F64(fn, nv, ocml)(a, b); }

#if X_HOST
/**
 * exp(x) inline and branch-free, a fifth to a third faster than libmvec's call; within 1 unit in the last place.
 * `brief`: within 2^-16 of it, for what is rounded to 16 bits. `normal`: exp(-18) for all x below, in fewer steps.
 */
template <bool brief, bool normal>
X_DEVICE float expInline(float x) {
  // Beyond these exp is infinite and 0 all the same. A NaN is neither and stays.
  constexpr float least = normal ? -18.0f : -104.0f;
  x = x > 88.8f ? 88.8f : x;
  x = x < least ? least : x;
  // The last bits of 1.5 * 2^23 + n are n, the integer nearest to x / ln 2.
  const float shifted = x * series::LOG2_E + 12582912.0f, n = shifted - 12582912.0f;
  float r, power;  // r = x - n ln 2; exp(r)
  if constexpr (brief) {
    r = x - n * series::LN_2;
    power = series::exponentialBrief(r);
  } else {
    r = x - n * series::LN_2_HIGH;
    r = r - n * series::LN_2_LOW;
    power = series::exponential(r);
  }
  power = power * r + 1.0f;
  power = power * r + 1.0f;
  const u32 bits = bitCast<u32>(shifted), one = 0x3f800000u;
  // 2^n may itself be infinite or subnormal, its two factors are not.
  const u32 half = normal ? 0 : bits >> 1;
  if constexpr (!normal) power = power * bitCast<float>((half << 23) + one);
  return power * bitCast<float>(((bits - half) << 23) + one);
}
X_DEVICE float exp(float x) { return expInline<false, false>(x); }
X_DEVICE double exp(double x) { return __builtin_exp(x); }
#else
X_MATH_1(exp, exp, exp)
#endif
X_MATH_1(log, log, log)
X_MATH_1(sin, sin, sin)
X_MATH_1(cos, cos, cos)
#if X_HOST
// libmvec has no tanh: this one is branch-free over exp, so it vectorises; within 2 units in the last place.
X_DEVICE float tanh(float x) {
  const float a = __builtin_fabsf(x);
  const float large = 1.0f - 2.0f / (exp(2.0f * a) + 1.0f);
  const float z = a * a;
  return __builtin_copysignf(a < 0.625f ? a + a * (z * series::tangent(z)) : large, x);
}
X_DEVICE double tanh(double x) { return __builtin_tanh(x); }
#else
X_MATH_1(tanh, tanh, tanh)
#endif
/** exp(x) - 1 and log(1 + x), exact near 0 too; log1p of finite numbers from -1 up. */
#if X_HOST
// Branch-free over what vectorises.
X_DEVICE float expm1(float x) {
  return __builtin_fabsf(x) < 1e-4f ? x * (1.0f + 0.5f * x) : tanh(0.5f * x) * (exp(x) + 1.0f);
}
X_DEVICE double expm1(double x) { return __builtin_expm1(x); }
X_DEVICE float log1p(float x) {
  // What the sum's rounding loses is a factor of its logarithm.
  const float u = 1.0f + x, rounded = u - 1.0f;
  return rounded == 0.0f ? x : log(u) * (x / rounded);
}
X_DEVICE double log1p(double x) { return __builtin_log1p(x); }
#else
X_MATH_1(expm1, expm1, expm1)
X_MATH_1(log1p, log1p, log1p)
#endif
X_MATH_1(erf, erf, erf)
X_MATH_2(pow, pow, pow)
/** Nearest integer, halves away from zero. */
X_MATH_1(round, round, round)

/** Standard normal distribution function. */
#if X_HOST
// Branch-free over exp, so it vectorises. exp(-x²/2) is that of the upper half of x's bits, whose square is exact, times what
// the lower ones leave, which is near 1.
X_DEVICE float normcdf(float x) {
  float a = __builtin_fabsf(x);
  a = a > 14.8f ? 14.8f : a;
  const float high = bitCast<float>(bitCast<u32>(a) & 0xfffff000u), s = (high - a) * (high + a) * 0.5f;
  const float rest = 1.0f + s * (1.0f + s * (0.5f + s * (0.166666667f + s * 0.0416666667f)));
  const float t = 1.0f / (1.0f + 0.35355339f * a);
  const float half = 0.5f * t * series::complement(t) * (exp(-0.5f * high * high) * rest);
  const float result = x < 0.0f ? half : 1.0f - half;
  return x == x ? result : x;
}
X_DEVICE double normcdf(double x) { return 0.5 * __builtin_erfc(x * -0.70710678118654752); }
#else
X_MATH_1(normcdf, normcdf, ncdf)
#endif

// Instructions on every target, so the compiler's own names serve.
#if X_NVRTC
#define X_MATH_BUILTIN_1(fn)                        \
  X_DEVICE float fn(float x) { return ::fn##f(x); } \
  X_DEVICE double fn(double x) { return ::fn(x); }
#define X_MATH_BUILTIN_2(fn)                                    \
  X_DEVICE float fn(float a, float b) { return ::fn##f(a, b); } \
  X_DEVICE double fn(double a, double b) { return ::fn(a, b); }
#else
#define X_MATH_BUILTIN_1(fn)                                  \
  X_DEVICE float fn(float x) { return __builtin_##fn##f(x); } \
  X_DEVICE double fn(double x) { return __builtin_##fn(x); }
#define X_MATH_BUILTIN_2(fn)                                              \
  X_DEVICE float fn(float a, float b) { return __builtin_##fn##f(a, b); } \
  X_DEVICE double fn(double a, double b) { return __builtin_##fn(a, b); }
#endif
X_MATH_BUILTIN_1(floor)
X_MATH_BUILTIN_1(ceil)
X_MATH_BUILTIN_1(fabs)
/** The smaller or larger; a NaN loses to a number. */
X_MATH_BUILTIN_2(fmin)
X_MATH_BUILTIN_2(fmax)
#if X_NVPTX
X_MATH_1(sqrt, sqrt, sqrt)
/** Nearest integer, halves to even. */
X_MATH_1(rint, rint, rint)
#else
X_MATH_BUILTIN_1(sqrt)
/** Nearest integer, halves to even. */
X_MATH_BUILTIN_1(rint)
#endif

/** a / b for b of 1 and more: on GPUs within 3 units in the last place, by a few instructions where `/` takes tens. */
X_DEVICE float overOneOrMore(float a, float b) {
#if X_NVPTX
  float quotient;
  asm("div.full.f32 %0, %1, %2;" : "=f"(quotient) : "f"(a), "f"(b));
  return quotient;
#elif X_AMDGCN
  // The reciprocal of a number above 2^126 would be flushed to 0.
  const bool large = b > 7.9228163e28f;  // 2^96
  const float part = large ? 2.3283064e-10f : 1.0f;  // 2^-32
  return a * __builtin_amdgcn_rcpf(b * part) * part;
#else
  return a / b;
#endif
}
X_DEVICE double overOneOrMore(double a, double b) { return a / b; }

X_DEVICE float abs(float x) { return fabs(x); }
X_DEVICE double abs(double x) { return fabs(x); }

}  // namespace m
