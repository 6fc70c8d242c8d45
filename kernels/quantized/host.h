// The host's side of the block formats: 32 quants unpacked into one vector, a block's scales decoded at once, and a dot
// product of rows with q8_1 columns that keeps eight f32 partial sums in a register and streams each row once.
#pragma once

#if X_HOST
namespace quant {

typedef u8 Bytes16 __attribute__((vector_size(16), aligned(1), may_alias));
typedef u8 Bytes __attribute__((vector_size(32)));
typedef i8 Signed __attribute__((vector_size(32)));
typedef i16 Words __attribute__((vector_size(64)));
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
#include "quantized/host-groups.h"
#include "quantized/host-scales.h"
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

// A block's scales and minima, one pair for every 16 (HALVES) or 32 elements.
template <class Q>
struct Scales {
  static constexpr u32 COUNT = Q::SIZE / (Q::HALVES ? 16 : 32);
  alignas(32) float d[COUNT < 8 ? 8 : COUNT];
  alignas(32) float m[COUNT < 8 ? 8 : COUNT];

  X_DEVICE void open(const u8* b) {
    if constexpr (Q::SIZE == 256) {
      const typename Units<Q>::Floats scales = Units<Q>::scales(b), minima = Units<Q>::minima(b, scales);
      __builtin_memcpy(d, &scales, sizeof(scales));
      if (Q::MINS) __builtin_memcpy(m, &minima, sizeof(minima));
    } else {
      for (u32 i = 0; i < COUNT; ++i) {
        d[i] = Q::scale(b, Q::HALVES ? i : 2 * i);
        if (Q::MINS) m[i] = Q::minimum(b, Q::HALVES ? i : 2 * i);
      }
    }
  }
  static X_DEVICE Floats spread(const float* s, u32 g) {
    if constexpr (Q::HALVES) {
      const float a = s[2 * g], c = s[2 * g + 1];
      return Floats{a, a, a, a, c, c, c, c};
    } else {
      return Floats{s[g], s[g], s[g], s[g], s[g], s[g], s[g], s[g]};
    }
  }
};

// Sums of four neighbouring products. q is unsigned and below 128 unless `isSigned`.
template <bool isSigned>
X_DEVICE Ints dot32(Bytes q, Signed u) {
#if defined(__AVX2__)
  Words16 pairs;
  if constexpr (isSigned) {
    const Signed s = (Signed)q;
    const Chars magnitude = (Chars)__builtin_elementwise_abs(s);
    pairs = (Words16)__builtin_ia32_pmaddubsw256(magnitude, __builtin_ia32_psignb256((Chars)u, (Chars)s));
  } else {
    pairs = (Words16)__builtin_ia32_pmaddubsw256((Chars)q, (Chars)u);
  }
  return (Ints)__builtin_ia32_pmaddwd256(pairs, Words16{} + 1);
#elif defined(__SSSE3__)
  Ints sums;
  for (u32 h = 0; h < 2; ++h) {
    const Chars16 x = loadAs<Chars16>((const u8*)&q + 16 * h), y = loadAs<Chars16>((const u8*)&u + 16 * h);
    Words8 pairs;
    if constexpr (isSigned) {
      const Chars16 magnitude = (Chars16)__builtin_elementwise_abs((Signed16)x);
      pairs = (Words8)__builtin_ia32_pmaddubsw128(magnitude, __builtin_ia32_psignb128(y, x));
    } else {
      pairs = (Words8)__builtin_ia32_pmaddubsw128(x, y);
    }
    const Ints4 quarter = (Ints4)__builtin_ia32_pmaddwd128(pairs, Words8{} + 1);
    __builtin_memcpy((u8*)&sums + 16 * h, &quarter, 16);
  }
  return sums;
#else
  Ints sums;
  for (u32 i = 0; i < 8; ++i) {
    i32 s = 0;
    for (u32 j = 0; j < 4; ++j) s += (isSigned ? (i32)(i8)q[4 * i + j] : (i32)q[4 * i + j]) * (i32)u[4 * i + j];
    sums[i] = s;
  }
  return sums;
#endif
}

X_DEVICE float total(Floats v) { return ((v[0] + v[4]) + (v[2] + v[6])) + ((v[1] + v[5]) + (v[3] + v[7])); }

/** out[c][r] = row r . column c for ROWS rows of `blocks` blocks and COLS q8_1 columns. */
template <class Q, u32 ROWS, u32 COLS>
X_DEVICE void hostTile(const u8* const* rows, const u8* y, u64 columnBytes, u64 blocks, float (&out)[COLS][ROWS]) {
  constexpr u32 GROUPS = Q::SIZE / 32;
  constexpr bool SUMS = Q::MINS || Q::OFFSET != 0;
  Floats acc[COLS][ROWS] = {};
  for (u64 k = 0; k < blocks; ++k) {
    Scales<Q> scales[ROWS];
#pragma unroll
    for (u32 r = 0; r < ROWS; ++r) scales[r].open(rows[r] + k * Q::BYTES);
#pragma unroll
    for (u32 g = 0; g < GROUPS; ++g) {
      const u8* yb = y + (k * GROUPS + g) * Q8_1::BYTES;
      Bytes q[ROWS];
#pragma unroll
      for (u32 r = 0; r < ROWS; ++r) q[r] = group<Q>(rows[r] + k * Q::BYTES, g);
#pragma unroll
      for (u32 c = 0; c < COLS; ++c) {
        const Signed u = loadAs<Signed>(yb + c * columnBytes + 4);
        const float d8 = Q8_1::scale(yb + c * columnBytes);
        Ints sum = {};
        if constexpr (SUMS) sum = dot32<false>(Bytes{} + 1, u);
#pragma unroll
        for (u32 r = 0; r < ROWS; ++r) {
          Ints t = dot32<Q::SIGNED>(q[r], u);
          if constexpr (Q::OFFSET != 0) t -= sum * Q::OFFSET;
          acc[c][r] += __builtin_convertvector(t, Floats) * (Scales<Q>::spread(scales[r].d, g) * d8);
          if constexpr (Q::MINS) acc[c][r] -= __builtin_convertvector(sum, Floats) * (Scales<Q>::spread(scales[r].m, g) * d8);
        }
      }
    }
  }
#pragma unroll
  for (u32 c = 0; c < COLS; ++c)
#pragma unroll
    for (u32 r = 0; r < ROWS; ++r) out[c][r] = total(acc[c][r]);
}

/** ROWS rows times any number of columns. */
template <class Q, u32 ROWS>
QUANT_CALL void hostRows(const u8* x, u64 rowBytes, const u8* y, u64 columnBytes, u64 blocks, u64 columns, float* dst,
                         u64 dstStride) {
  const u8* at[ROWS];
  for (u32 r = 0; r < ROWS; ++r) at[r] = x + r * rowBytes;
  u64 c = 0;
  for (; c + 4 <= columns; c += 4) {
    float out[4][ROWS];
    hostTile<Q, ROWS, 4>(at, y + c * columnBytes, columnBytes, blocks, out);
    for (u32 j = 0; j < 4; ++j)
      for (u32 r = 0; r < ROWS; ++r) dst[(c + j) * dstStride + r] = out[j][r];
  }
  for (; c < columns; ++c) {
    float out[1][ROWS];
    hostTile<Q, ROWS, 1>(at, y + c * columnBytes, columnBytes, blocks, out);
    for (u32 r = 0; r < ROWS; ++r) dst[c * dstStride + r] = out[0][r];
  }
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
