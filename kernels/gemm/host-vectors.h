// Vectors of a host's registers, for products.
#pragma once

#if X_HOST
namespace gemm {

#ifdef __AVX512F__
constexpr u32 VECTOR_BYTES = 64;
#else
constexpr u32 VECTOR_BYTES = 32;
#endif

template <class A, u32 BYTES = VECTOR_BYTES>
struct Vector {
  static constexpr u32 N = BYTES / sizeof(A);
  typedef A type __attribute__((vector_size(BYTES)));
  typedef A loose __attribute__((vector_size(BYTES), aligned(sizeof(A)), may_alias));
};

/** As many neighbouring elements as a vector has, widened. */
template <u32 BYTES = VECTOR_BYTES, class T>
X_DEVICE typename Vector<sum_t<T>, BYTES>::type loadWide(const T* p) {
  typedef Vector<sum_t<T>, BYTES> V;
  if constexpr (sameType<T, sum_t<T>>) {
    return *(const typename V::loose*)p;
  } else if constexpr (sameType<T, bf16>) {
    typedef u16 Halves __attribute__((vector_size(BYTES / 2)));
    typedef u32 Words __attribute__((vector_size(BYTES)));
    Halves h;
    __builtin_memcpy(&h, p, sizeof(h));
    return (typename V::type)(__builtin_convertvector(h, Words) << 16);
#if !X_F16_BITS
  } else if constexpr (sameType<T, f16>) {
    typedef _Float16 Halves __attribute__((vector_size(BYTES / 2)));
    Halves h;
    __builtin_memcpy(&h, p, sizeof(h));
    return __builtin_convertvector(h, typename V::type);
#endif
  } else {
    typename V::type v;
    for (u32 i = 0; i < V::N; ++i) v[i] = widened(p[i]);
    return v;
  }
}

X_DEVICE u64 tilesOf(u64 n, u64 each) { return (n + each - 1) / each; }

template <u32 count, u32 N>
struct Vectors {
  static constexpr u32 value = count, columns = count * N;
};

/** f(vectors) with the vectors of N that so many columns are, at most MOST, as a constant. */
template <u32 MOST, u32 N, class F>
X_DEVICE void withVectors(u64 columns, F f) {
  if constexpr (MOST > 1) {
    if (columns <= (MOST - 1) * N) return withVectors<MOST - 1, N>(columns, f);
  }
  f(Vectors<MOST, N>());
}

}  // namespace gemm
#endif
