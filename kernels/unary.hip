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

#define UNARY_OPERATOR(Name, elements, expression) \
  struct Name {                                    \
    static constexpr u32 limit = elements;         \
    template <class A>                             \
    static X_DEVICE A of(A x) {                    \
      return expression;                           \
    }                                              \
  };
// With a second expression: what f16 and bf16 take, whose rounding hides that it is approximate.
#define UNARY_OPERATOR_ROUGH(Name, elements, expression, approximate) \
  struct Name {                                                       \
    static constexpr u32 limit = elements;                            \
    template <class A>                                                \
    static X_DEVICE A of(A x) {                                       \
      return expression;                                              \
    }                                                                 \
    template <class T>                                                \
    static X_DEVICE float roughly(float x) {                          \
      return approximate;                                             \
    }                                                                 \
  };
// The number is how many elements a GPU thread computes at once, of the 16 bytes that it moves: all 16 for a few
// instructions, 8 for the activations' exp, 4 or 2 for long code, whose copies would cost registers and code size and gain nothing.
UNARY_OPERATOR(Neg, 16, negative(x))
UNARY_OPERATOR(Recip, 16, (A)1 / x)
UNARY_OPERATOR_ROUGH(Exp, 8, m::exp(x), rough::exp<T>(x))
UNARY_OPERATOR(Log, 4, m::log(x))
UNARY_OPERATOR(Sin, 2, m::sin(x))
UNARY_OPERATOR(Cos, 2, m::cos(x))
UNARY_OPERATOR(Tanh, 8, m::tanh(x))
UNARY_OPERATOR(Erf, 2, m::erf(x))
UNARY_OPERATOR(Ceil, 16, m::ceil(x))
UNARY_OPERATOR(Floor, 16, m::floor(x))
UNARY_OPERATOR(Round, 8, m::round(x))
UNARY_OPERATOR(Normcdf, 2, m::normcdf(x))
UNARY_OPERATOR(Abs, 16, magnitude(x))
UNARY_OPERATOR(Sqr, 16, mulWrap(x, x))
UNARY_OPERATOR(Sqrt, 8, m::sqrt(x))
// sqrt(2 / pi) = 0.7978845608028654
UNARY_OPERATOR_ROUGH(Gelu, 8, (A)0.5 * x * ((A)1 + m::tanh((A)0.7978845608028654 * x * ((A)1 + (A)0.044715 * x * x))),
                     x * rough::sigmoid<T>(1.5957691216f * x * (1.0f + 0.044715f * x * x)))
UNARY_OPERATOR(GeluErf, 2, x * m::normcdf(x))
UNARY_OPERATOR(Relu, 16, isNegative(x) ? (A)0 : x)
UNARY_OPERATOR_ROUGH(Silu, 8, m::overOneOrMore(x, (A)1 + m::exp(-x)), x * rough::sigmoid<T>(x))
UNARY_OPERATOR(Sign, 16, (A)((int)(x > (A)0) - (int)isNegative(x)))
UNARY_OPERATOR_ROUGH(Sigmoid, 8, m::overOneOrMore((A)1, (A)1 + m::exp(-x)), rough::sigmoid<T>(x))

template <class Op, class T>
struct Apply {
  X_DEVICE T operator()(T x) const { return from_acc<T>(Op::of(to_acc(x))); }
};
template <class Op, class T>
struct ApplyRoughly {
  X_DEVICE T operator()(T x) const { return from_acc<T>(Op::template roughly<T>(to_acc(x))); }
};
#define X_ROUGH_OPERATOR(Op)     \
  template <>                    \
  struct Apply<Op, f16> : ApplyRoughly<Op, f16> {};    \
  template <>                    \
  struct Apply<Op, bf16> : ApplyRoughly<Op, bf16> {};
X_ROUGH_OPERATOR(Exp)
X_ROUGH_OPERATOR(Gelu)
X_ROUGH_OPERATOR(Silu)
X_ROUGH_OPERATOR(Sigmoid)

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
    // exp(x) - 1 near 0 would be its own rounding error.
    return from_acc<T>(x > 0 ? x : alpha * (m::tanh(x / 2) * (m::exp(x) + (acc_t<T>)1)));
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

#define UNARY(name, T, Op)                                                                            \
  KERNEL_MAP(name##_##T, (u64 numel, u64 num_dims, const u64* X_RESTRICT info, const T* inp, T* out)) { \
    unary<Op::limit>(numel, num_dims, info, Apply<Op, T>(), inp, out);                                \
  }
#define UNARY_WITH_PARAM(name, T, Op)                                                                            \
  KERNEL_MAP(name##_##T, (u64 numel, u64 num_dims, const u64* X_RESTRICT info, T param, const T* inp, T* out)) { \
    unary<Op<T>::limit>(numel, num_dims, info, Op<T>{to_acc(param)}, inp, out);                                             \
  }
#define UCOPY(T)                                                                                      \
  KERNEL_MAP(ucopy_##T, (u64 numel, u64 num_dims, const u64* X_RESTRICT info, const T* inp, T* out)) { \
    unary<16>(numel, num_dims, info, Copy<T>(), inp, out);                                            \
  }

#define UNEG(T) UNARY(uneg, T, Neg)
#define URECIP(T) UNARY(urecip, T, Recip)
#define UEXP(T) UNARY(uexp, T, Exp)
#define ULOG(T) UNARY(ulog, T, Log)
#define USIN(T) UNARY(usin, T, Sin)
#define UCOS(T) UNARY(ucos, T, Cos)
#define UTANH(T) UNARY(utanh, T, Tanh)
#define UERF(T) UNARY(uerf, T, Erf)
#define UCEIL(T) UNARY(uceil, T, Ceil)
#define UFLOOR(T) UNARY(ufloor, T, Floor)
#define UROUND(T) UNARY(uround, T, Round)
#define UNORMCDF(T) UNARY(unormcdf, T, Normcdf)
#define UABS(T) UNARY(uabs, T, Abs)
#define USQR(T) UNARY(usqr, T, Sqr)
#define USQRT(T) UNARY(usqrt, T, Sqrt)
#define UGELU(T) UNARY(ugelu, T, Gelu)
#define UGELU_ERF(T) UNARY(ugelu_erf, T, GeluErf)
#define URELU(T) UNARY(urelu, T, Relu)
#define USILU(T) UNARY(usilu, T, Silu)
#define USIGN(T) UNARY(usign, T, Sign)
#define USIGMOID(T) UNARY(usigmoid, T, Sigmoid)
#define UELU(T) UNARY_WITH_PARAM(uelu, T, Elu)
#define UPOWF(T) UNARY_WITH_PARAM(upowf, T, Powf)

X_ALL_TYPES(UNEG)
X_FLOAT_TYPES(URECIP)
X_FLOAT_TYPES(UEXP)
X_FLOAT_TYPES(ULOG)
X_FLOAT_TYPES(USIN)
X_FLOAT_TYPES(UCOS)
X_FLOAT_TYPES(UTANH)
X_FLOAT_TYPES(UERF)
X_FLOAT_TYPES(UCEIL)
X_FLOAT_TYPES(UFLOOR)
X_FLOAT_TYPES(UROUND)
X_FLOAT_TYPES(UNORMCDF)
X_ALL_TYPES(UABS)
X_ALL_TYPES(USQR)
X_FLOAT_TYPES(USQRT)
X_FLOAT_TYPES(UGELU)
X_FLOAT_TYPES(UGELU_ERF)
X_ALL_TYPES(URELU)
X_FLOAT_TYPES(USILU)
X_ALL_TYPES(USIGN)
X_FLOAT_TYPES(USIGMOID)
X_FLOAT_TYPES(UELU)
X_FLOAT_TYPES(UPOWF)
X_ALL_TYPES(UCOPY)
