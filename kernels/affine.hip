// affine_{t}: out = inp * mul + add, in T. candle: candle-kernels/src/affine.cu; inp null means in place, info null
// contiguous. What differs: small floats compute in f32 and round once, integers wrap, every dtype is there.
#include "x.h"

template <class T>
struct Affine {
  acc_t<T> mul, add;
  X_DEVICE T operator()(T x) const {
    if constexpr (isFloatType<T>) return from_acc<T>(to_acc(x) * mul + add);
    else return addWrap(mulWrap(x, mul), add);
  }
};

template <class T>
X_DEVICE void affine(u64 numel, u64 num_dims, const u64* info, const T* inp, T* out, T mul, T add) {
  const Affine<T> f{to_acc(mul), to_acc(add)};
  mapEach(numel, num_dims, inp == nullptr ? nullptr : info, f, out, inp == nullptr ? (const T*)out : inp);
}

#define AFFINE(T)                                                                                                    \
  KERNEL_MAP(affine_##T, (u64 numel, u64 num_dims, const u64* X_RESTRICT info, const T* inp, T* out, T mul, T add)) { \
    affine<T>(numel, num_dims, info, inp, out, mul, add);                                                            \
  }
X_ALL_TYPES(AFFINE)
