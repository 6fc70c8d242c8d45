// u{op}_{t} for the five float dtypes, ucopy_{t} and {uneg uabs usqr urelu usign}_{t} for all ten, and uelu_{t}, upowf_{t}
// with a parameter of type T. candle: candle-kernels/src/unary.cu; inp null means in place, info null contiguous. What
// differs: small floats compute in f32 and round once, integers are there and wrap. relu of NaN is NaN, as in PyTorch
// (candle: 0); as in candle, sign of 0 and of NaN is 0, and round takes halves away from zero.
#include "x.h"
#include "shared/rough.h"

template <class A>
X_DEVICE A negative(A x) {
  if constexpr (isFloatType<A>) return -x;
  else return subWrap((A)0, x);
}

template <class A>
X_DEVICE bool isNegative(A x) {
  if constexpr ((A)-1 < (A)0) return x < (A)0;
  else return false;
}

template <class A>
X_DEVICE A magnitude(A x) {
  if constexpr (isFloatType<A>) return m::abs(x);
  else return isNegative(x) ? negative(x) : x;
}

/** ln(1 + e^x). */
template <class A>
X_DEVICE A softplus(A x) {
  return (x < (A)0 ? (A)0 : x) + m::log1p(m::exp(-m::abs(x)));
}

/** The standard normal distribution function. */
template <class A>
X_DEVICE A normalBelow(A x) {
  return m::normcdf(x);
}
#if X_HOST
// What the rounding of a = -x / √2 loses would be 2a² times as large in the result.
X_DEVICE double normalBelow(double x) {
  const double c = x < -40.0 ? -40.0 : x, a = c * -0.70710678118654752;
  const double lost = __builtin_fma(c, -0.70710678118654752, -a) + c * 4.8336466567264567e-17;
  const double below = 0.5 * __builtin_erfc(a);
  return x < 0.0 ? below * (1.0 - 2.0 * a * lost) : below;
}
#endif

/** x tanh(ln(1 + e^x)) = x w / (w + 2) of w = e^x (e^x + 2). From x = 20 the quotient is 1 in f64 too. */
template <class A>
X_DEVICE A mish(A x) {
  const A e = m::exp(x > (A)20 ? (A)20 : x), w = e * (e + (A)2);
  return x * (w / (w + (A)2));
}

template <class T>
struct Copy {
  X_DEVICE T operator()(T x) const { return x; }
};

template <class T>
struct Elu {
  static constexpr u32 limit = 4;
  acc_t<T> alpha;
  X_DEVICE T operator()(T v) const {
    const acc_t<T> x = to_acc(v);
    return from_acc<T>(x > 0 ? x : alpha * m::expm1(x));
  }
};

template <class T>
struct Powf {
  static constexpr u32 limit = 2;
  acc_t<T> exponent;
  X_DEVICE T operator()(T x) const { return from_acc<T>(m::pow(to_acc(x), exponent)); }
};

template <u32 limit, class F, class T>
X_DEVICE void unary(u64 numel, u64 num_dims, const u64* info, F f, const T* inp, T* out) {
  mapEach<limit>(numel, num_dims, inp == nullptr ? nullptr : info, f, out, inp == nullptr ? (const T*)out : inp);
}

#define UCOPY(T)                                                                                      \
  KERNEL_MAP(ucopy_##T, (u64 numel, u64 num_dims, const u64* X_RESTRICT info, const T* inp, T* out)) { \
    unary<16>(numel, num_dims, info, Copy<T>(), inp, out);                                            \
  }
#define UNARY_WITH_PARAM(name, T, Op)                                                                            \
  KERNEL_MAP(name##_##T, (u64 numel, u64 num_dims, const u64* X_RESTRICT info, T param, const T* inp, T* out)) { \
    unary<Op<T>::limit>(numel, num_dims, info, Op<T>{to_acc(param)}, inp, out);                                             \
  }
#define UELU(T) UNARY_WITH_PARAM(uelu, T, Elu)
#define UPOWF(T) UNARY_WITH_PARAM(upowf, T, Powf)
X_ALL_TYPES(UCOPY)
X_FLOAT_TYPES(UELU)
X_FLOAT_TYPES(UPOWF)

template <class Op, class T>
struct Apply {
  X_DEVICE T operator()(T x) const { return from_acc<T>(Op::of(to_acc(x))); }
};
template <class Op, class T>
struct ApplyRoughly {
  X_DEVICE T operator()(T x) const { return from_acc<T>(Op::template roughly<T>(to_acc(x))); }
};

#define UNARY(T, name)                                                                                  \
  KERNEL_MAP(u##name##_##T, (u64 numel, u64 num_dims, const u64* X_RESTRICT info, const T* inp, T* out)) { \
    unary<name##_op::limit>(numel, num_dims, info, Apply<name##_op, T>(), inp, out);                       \
  }

// ALL(name, elements, expression) is u{name} of the ten dtypes, FLOATS of the five float dtypes. The number is how many
// elements a GPU thread computes at once, of the 16 bytes that it moves: all 16 for a few instructions, 8 for the
// activations' exp, 4 or 2 for long code, whose copies would cost registers and code size and gain nothing.
#define OPERATOR(name, elements, expression) \
  struct name##_op {                         \
    static constexpr u32 limit = elements;   \
    template <class A>                       \
    static X_DEVICE A of(A x) {              \
      return expression;                     \
    }                                        \
  };
#define FLOATS(name, elements, expression)   \
  OPERATOR(name, elements, expression)       \
  X_FLOAT_TYPES_OF(UNARY, name)
#define ALL(name, elements, expression)      \
  OPERATOR(name, elements, expression)       \
  X_ALL_TYPES_OF(UNARY, name)
// With a second expression: what f16 and bf16 take, whose rounding hides that it is approximate.
#define FLOATS_ROUGH(name, elements, expression, approximate)           \
  struct name##_op {                                                    \
    static constexpr u32 limit = elements;                              \
    template <class A>                                                  \
    static X_DEVICE A of(A x) {                                         \
      return expression;                                                \
    }                                                                   \
    template <class T>                                                  \
    static X_DEVICE float roughly(float x) {                            \
      return approximate;                                               \
    }                                                                   \
  };                                                                    \
  template <>                                                           \
  struct Apply<name##_op, f16> : ApplyRoughly<name##_op, f16> {};       \
  template <>                                                           \
  struct Apply<name##_op, bf16> : ApplyRoughly<name##_op, bf16> {};     \
  X_FLOAT_TYPES_OF(UNARY, name)

ALL(neg, 16, negative(x))
FLOATS(recip, 16, (A)1 / x)
FLOATS_ROUGH(exp, 8, m::exp(x), rough::exp<T>(x))
FLOATS(expm1, 4, m::expm1(x))
FLOATS(log, 4, m::log(x))
FLOATS(sin, 2, m::sin(x))
FLOATS(cos, 2, m::cos(x))
FLOATS(tanh, 8, m::tanh(x))
FLOATS(erf, 2, m::erf(x))
FLOATS(ceil, 16, m::ceil(x))
FLOATS(floor, 16, m::floor(x))
FLOATS(round, 8, m::round(x))
FLOATS(normcdf, 2, m::normcdf(x))
ALL(abs, 16, magnitude(x))
ALL(sqr, 16, mulWrap(x, x))
FLOATS(sqrt, 8, m::sqrt(x))
// x (1 + tanh u) / 2 = x / (1 + exp(-2u)), which loses nothing where tanh is near -1. 2 sqrt(2 / pi) = 1.5957691216057308
FLOATS_ROUGH(gelu, 8,
             m::overOneOrMore(x, (A)1 + m::exp((A)-1.5957691216057308 * x * ((A)1 + (A)0.044715 * x * x))),
             x * rough::sigmoid<T>(1.5957691216f * x * (1.0f + 0.044715f * x * x)))
FLOATS(gelu_erf, 2, x * normalBelow(x))
ALL(relu, 16, isNegative(x) ? (A)0 : x)
FLOATS_ROUGH(silu, 8, m::overOneOrMore(x, (A)1 + m::exp(-x)), x * rough::sigmoid<T>(x))
FLOATS(softplus, 4, softplus(x))
FLOATS(mish, 4, mish(x))
ALL(sign, 16, (A)((int)(x > (A)0) - (int)isNegative(x)))
FLOATS_ROUGH(sigmoid, 8, m::overOneOrMore((A)1, (A)1 + m::exp(-x)), rough::sigmoid<T>(x))
