// Approximations that are enough for what is rounded to 16 bits after: the GPUs' own, a few units in the last place of an
// f32 off, and a short series on the host.
#pragma once

namespace rough {

#if X_HOST

/** For a result that is rounded to T. */
template <class T>
X_DEVICE float exp(float x) {
  return m::expInline<true, sameType<T, f16>>(x);
}
/** 1 / (1 + exp(-x)). */
template <class T>
X_DEVICE float sigmoid(float x) {
  return 1.0f / (1.0f + exp<T>(-x));
}

#else

/** Results below 2^-126 may be 0. */
X_DEVICE float exp2Normal(float x) {
#if X_NVPTX
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
#elif __has_builtin(__builtin_amdgcn_exp2f)
  return __builtin_amdgcn_exp2f(x);
#else  // clang before 17
  return __builtin_exp2f(x);
#endif
}

/** For a result that is rounded to T. */
template <class T>
X_DEVICE float exp2(float x) {
  if constexpr (sameType<T, f16>) return exp2Normal(x);
  // Shifted out of the subnormal numbers and back.
  const bool small = x < -126.0f;
  return exp2Normal(small ? x + 64.0f : x) * (small ? 5.42101086e-20f : 1.0f);
}

X_DEVICE float reciprocal(float x) {
#if X_NVPTX
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
#else
  return __builtin_amdgcn_rcpf(x);
#endif
}

/** The greater one; of a number and NaN the number. */
X_DEVICE float greater(float a, float b) {
#if X_NVPTX
  float y;
  asm("max.f32 %0, %1, %2;" : "=f"(y) : "f"(a), "f"(b));
  return y;
#else
  return __builtin_fmaxf(a, b);
#endif
}

constexpr float LOG2_E = 1.4426950408889634f;

template <class T>
X_DEVICE float exp(float x) {
  return exp2<T>(x * LOG2_E);
}
/** 1 / (1 + exp(-x)); for bf16 by the exponential that does not overflow: the reciprocal of a large number would be flushed to 0. */
template <class T>
X_DEVICE float sigmoid(float x) {
  if constexpr (sameType<T, f16>) return reciprocal(1.0f + exp2Normal(x * -LOG2_E));
  const float e = exp2<T>(m::abs(x) * -LOG2_E), part = reciprocal(1.0f + e);
  return x < 0.0f ? e * part : part;
}

#endif

}  // namespace rough
