// badd bsub bmul bdiv bmaximum bminimum _{t}, bpow_{t} of the five float dtypes, and the comparisons eq ne lt le gt ge _{t}
// with u8 results. candle: candle-kernels/src/binary.cu; info is dims, lhs strides, rhs strides, or null when both sides
// are contiguous. What differs: small floats compute in f32, integers wrap and divide by zero to 0, maximum and minimum
// propagate NaN on every device, i16 and i32 are there, and bpow.
#include "x.h"

// The number is how many elements a GPU thread computes at once: as many as 16 bytes have, fewer where the code is long.
#define BINARY_OPERATOR(Name, elements, expression) \
  struct Name {                            \
    static constexpr u32 limit = elements; \
    template <class A>                     \
    static X_DEVICE auto of(A a, A b) {    \
      return expression;                   \
    }                                      \
  };
BINARY_OPERATOR(Add, 16, addWrap(a, b))
BINARY_OPERATOR(Subtract, 16, subWrap(a, b))
BINARY_OPERATOR(Multiply, 16, mulWrap(a, b))
BINARY_OPERATOR(Divide, 4, divSafe(a, b))
BINARY_OPERATOR(Maximum, FEW_REGISTERS ? 8 : 16, MaxNan::apply(a, b))
BINARY_OPERATOR(Minimum, FEW_REGISTERS ? 8 : 16, MinNan::apply(a, b))
BINARY_OPERATOR(Power, 2, m::pow(a, b))
BINARY_OPERATOR(Equal, 16, (u8)(a == b))
BINARY_OPERATOR(NotEqual, 16, (u8)(a != b))
BINARY_OPERATOR(Less, 16, (u8)(a < b))
BINARY_OPERATOR(LessOrEqual, 16, (u8)(a <= b))
BINARY_OPERATOR(Greater, 16, (u8)(a > b))
BINARY_OPERATOR(GreaterOrEqual, 16, (u8)(a >= b))

template <class Op, class T>
struct Arithmetic {
  static constexpr u32 limit = Op::limit;
  typedef T Out;
  X_DEVICE T operator()(T a, T b) const { return from_acc<T>(Op::of(to_acc(a), to_acc(b))); }
};

template <class Op, class T>
struct Comparison {
  // f8e4m3 is long to convert, and both sides are.
  static constexpr u32 limit = sameType<T, f8e4m3> ? 2 : Op::limit;
  typedef u8 Out;
  X_DEVICE u8 operator()(T a, T b) const { return Op::of(to_acc(a), to_acc(b)); }
};

#define BINARY(name, T, F)                                                                                      \
  KERNEL_MAP(name##_##T, (u64 numel, u64 num_dims, const u64* X_RESTRICT info, const T* lhs, const T* rhs, F::Out* out)) { \
    mapEach<F::limit>(numel, num_dims, info, F(), out, lhs, rhs);                                                         \
  }
#define ARITHMETIC(name, T, Op)     \
  typedef Arithmetic<Op, T> Op##_##T; \
  BINARY(name, T, Op##_##T)
#define COMPARISON(name, T, Op)     \
  typedef Comparison<Op, T> Op##_##T; \
  BINARY(name, T, Op##_##T)

#define ADD(T) ARITHMETIC(badd, T, Add)
#define SUBTRACT(T) ARITHMETIC(bsub, T, Subtract)
#define MULTIPLY(T) ARITHMETIC(bmul, T, Multiply)
#define DIVIDE(T) ARITHMETIC(bdiv, T, Divide)
#define MAXIMUM(T) ARITHMETIC(bmaximum, T, Maximum)
#define MINIMUM(T) ARITHMETIC(bminimum, T, Minimum)
#define POWER(T) ARITHMETIC(bpow, T, Power)
#define EQUAL(T) COMPARISON(eq, T, Equal)
#define NOT_EQUAL(T) COMPARISON(ne, T, NotEqual)
#define LESS(T) COMPARISON(lt, T, Less)
#define LESS_OR_EQUAL(T) COMPARISON(le, T, LessOrEqual)
#define GREATER(T) COMPARISON(gt, T, Greater)
#define GREATER_OR_EQUAL(T) COMPARISON(ge, T, GreaterOrEqual)

X_ALL_TYPES(ADD)
X_ALL_TYPES(SUBTRACT)
X_ALL_TYPES(MULTIPLY)
X_ALL_TYPES(DIVIDE)
X_ALL_TYPES(MAXIMUM)
X_ALL_TYPES(MINIMUM)
X_FLOAT_TYPES(POWER)
X_ALL_TYPES(EQUAL)
X_ALL_TYPES(NOT_EQUAL)
X_ALL_TYPES(LESS)
X_ALL_TYPES(LESS_OR_EQUAL)
X_ALL_TYPES(GREATER)
X_ALL_TYPES(GREATER_OR_EQUAL)
