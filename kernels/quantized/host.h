// The host's side of the block formats: 32 quants unpacked into one vector, which is how blocks become numbers again.
// Products take 256 at once (host-products.h).
#pragma once

#if X_HOST
namespace quant {

typedef u8 Bytes16 __attribute__((vector_size(16), aligned(1), may_alias));
typedef u8 Bytes __attribute__((vector_size(32)));
typedef i8 Signed __attribute__((vector_size(32)));
typedef short Words16 __attribute__((vector_size(32)));
typedef i32 Ints __attribute__((vector_size(32)));
typedef float Floats __attribute__((vector_size(32)));
typedef u32 Quad __attribute__((vector_size(16)));
typedef char Chars __attribute__((vector_size(32)));
typedef char Chars16 __attribute__((vector_size(16)));
typedef i8 Signed16 __attribute__((vector_size(16)));
typedef short Words8 __attribute__((vector_size(16)));
typedef i32 Ints4 __attribute__((vector_size(16)));

template <class V>
X_DEVICE V loadAs(const u8* p) {
  V v;
  __builtin_memcpy(&v, p, sizeof(V));
  return v;
}

X_DEVICE Bytes joined(Bytes16 low, Bytes16 high) {
  return __builtin_shufflevector(low, high, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22,
                                 23, 24, 25, 26, 27, 28, 29, 30, 31);
}
X_DEVICE Bytes nibbles(const u8* qs) {
  const Bytes16 raw = loadAs<Bytes16>(qs);
  return joined(raw & 15, raw >> 4);
}
// Bit j of qh as bit 4 of byte j.
X_DEVICE Bytes fifths(const u8* qh) {
  const Bytes select = {1, 2, 4, 8, 16, 32, 64, 128, 1, 2, 4, 8, 16, 32, 64, 128,
                        1, 2, 4, 8, 16, 32, 64, 128, 1, 2, 4, 8, 16, 32, 64, 128};
  typedef u8 Four __attribute__((vector_size(4)));
  const Four four = loadAs<Four>(qh);
  const Bytes spread = __builtin_shufflevector(four, four, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2, 2,
                                               2, 3, 3, 3, 3, 3, 3, 3, 3);
  return (Bytes)((spread & select) != 0) & 16;
}

}  // namespace quant
#endif
#include "quantized/host-neon.h"
#include "quantized/host-groups.h"
#if X_HOST
namespace quant {

// The quants of group g (32 elements) of block b.
template <class Q>
X_DEVICE Bytes group(const u8* b, u32 g) {
  if constexpr (sameType<Q, Q4_0>) return nibbles(b + 2);
  else if constexpr (sameType<Q, Q4_1>) return nibbles(b + 4);
  else if constexpr (sameType<Q, Q5_0>) return nibbles(b + 6) | fifths(b + 2);
  else if constexpr (sameType<Q, Q5_1>) return nibbles(b + 8) | fifths(b + 4);
  else if constexpr (sameType<Q, Q8_0>) return loadAs<Bytes>(b + 2);
  else if constexpr (sameType<Q, Q8_K>) return loadAs<Bytes>(b + 4 + 32 * g);
  else if constexpr (sameType<Q, Q2_K>) return (loadAs<Bytes>(b + 16 + 32 * (g >> 2)) >> (u8)(2 * (g & 3))) & 3;
  else if constexpr (sameType<Q, Q3_K>)
    return ((loadAs<Bytes>(b + 32 + 32 * (g >> 2)) >> (u8)(2 * (g & 3))) & 3) | ((loadAs<Bytes>(b) >> (u8)g) & 1) << 2;
  else if constexpr (sameType<Q, Q6_K>)
    return ((loadAs<Bytes>(b + 64 * (g >> 2) + 32 * (g & 1)) >> (u8)(4 * ((g >> 1) & 1))) & 15) |
           ((loadAs<Bytes>(b + 128 + 32 * (g >> 2)) >> (u8)(2 * (g & 3))) & 3) << 4;
  else if constexpr (sameType<Q, Q4_K>) return (loadAs<Bytes>(b + 16 + 32 * (g >> 1)) >> (u8)(4 * (g & 1))) & 15;
  else if constexpr (sameType<Q, Q5_K>)
    return ((loadAs<Bytes>(b + 48 + 32 * (g >> 1)) >> (u8)(4 * (g & 1))) & 15) | ((loadAs<Bytes>(b + 16) >> (u8)g) & 1) << 4;
  else return tableGroup<Q>(b, g);
}

/** The 32 values of group g of block b as f32. */
template <class Q>
X_DEVICE void dequantizeGroup(const u8* b, u32 g, float* out) {
  const Bytes q = group<Q>(b, g);
  const float d0 = Q::scale(b, 2 * g), d1 = Q::HALVES ? Q::scale(b, 2 * g + 1) : d0;
  const float m0 = Q::minimum(b, 2 * g), m1 = Q::HALVES ? Q::minimum(b, 2 * g + 1) : m0;
  u8 raw[32];
  __builtin_memcpy(raw, &q, 32);
  for (u32 h = 0; h < 2; ++h) {
    const float d = h ? d1 : d0, m = h ? m1 : m0;
    for (u32 i = 0; i < 16; ++i) {
      const u8 byte = raw[16 * h + i];
      const float v = d * (Q::SIGNED ? (float)(i8)byte : (float)((i32)byte - Q::OFFSET));
      out[16 * h + i] = Q::MINS ? v - m : v;
    }
  }
}

}  // namespace quant
#endif
