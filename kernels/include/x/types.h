// The element types beside the integers: f16, bf16 and f8e4m3, and the accumulator that each type computes in.
// f16 is the compiler's _Float16 where arithmetic on it is native; elsewhere (x86-64-v2, NVRTC) it is a struct of bits
// like bf16 and f8e4m3. Kernels therefore never compute in f16: they convert with to_acc/from_acc or cast.
#pragma once

#if X_NVRTC || (X_HOST && defined(__x86_64__) && !defined(__F16C__))
#define X_F16_BITS 1
struct f16 {
  u16 bits;
};
#else
#define X_F16_BITS 0
typedef _Float16 f16;
#endif

/** bfloat16: the upper half of an f32. */
struct bf16 {
  u16 bits;
};

/** OCP E4M3FN: no infinity, largest 448, NaN is 0x7f or 0xff. */
struct f8e4m3 {
  u8 bits;
};

template <class T>
struct AccOf {
  typedef T type;
};
template <>
struct AccOf<f16> {
  typedef float type;
};
template <>
struct AccOf<bf16> {
  typedef float type;
};
template <>
struct AccOf<f8e4m3> {
  typedef float type;
};

/** The type that T computes in: float for f16, bf16 and f8e4m3, T itself otherwise. */
template <class T>
using acc_t = typename AccOf<T>::type;

/** Whether T is one of f16 bf16 f8e4m3 f32 f64. */
template <class T>
constexpr bool isFloatType = sameType<T, f16> || sameType<T, bf16> || sameType<T, f8e4m3> || sameType<T, float> ||
                             sameType<T, double>;
