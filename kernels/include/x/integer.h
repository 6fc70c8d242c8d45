// Arithmetic that every target defines the same way, for all ten dtypes: integers wrap, a division by zero is 0 and the
// lowest value divided by -1 wraps (the host processor would trap on both).
#pragma once

namespace integer {

template <class T>
struct UnsignedOf {
  typedef u32 type;  // 8- and 16-bit values promote to 32 bits anyway
};
template <>
struct UnsignedOf<i64> {
  typedef u64 type;
};
template <>
struct UnsignedOf<u64> {
  typedef u64 type;
};

}  // namespace integer

template <class T>
X_DEVICE T addWrap(T a, T b) {
  if constexpr (isFloatType<T>) return a + b;
  else return (T)((typename integer::UnsignedOf<T>::type)a + (typename integer::UnsignedOf<T>::type)b);
}

template <class T>
X_DEVICE T subWrap(T a, T b) {
  if constexpr (isFloatType<T>) return a - b;
  else return (T)((typename integer::UnsignedOf<T>::type)a - (typename integer::UnsignedOf<T>::type)b);
}

template <class T>
X_DEVICE T mulWrap(T a, T b) {
  if constexpr (isFloatType<T>) return a * b;
  else return (T)((typename integer::UnsignedOf<T>::type)a * (typename integer::UnsignedOf<T>::type)b);
}

template <class T>
X_DEVICE T divSafe(T a, T b) {
  if constexpr (isFloatType<T>) {
    return a / b;
  } else if constexpr ((T)-1 < (T)0) {
    const bool special = b == 0 || b == -1;
    const T quotient = (T)(a / (special ? (T)1 : b));
    return b == 0 ? (T)0 : (b == -1 ? subWrap((T)0, a) : quotient);
  } else {
    return b == 0 ? (T)0 : (T)(a / (b == 0 ? (T)1 : b));
  }
}
