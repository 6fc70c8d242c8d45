// The host's way to 32 quants at once for the formats of level-formats.h and codebook-formats.h; those of formats.h are in
// host.h, which includes this.
#pragma once

#if X_HOST
namespace quant {

/** The level of each byte's lowest four bits; the top bit is 0. */
template <class L>
X_DEVICE Bytes levels(Bytes index) {
  const u32 words[4] = {L::W0, L::W1, L::W2, L::W3};
#if defined(__AVX2__)
  const Bytes16 table = loadAs<Bytes16>((const u8*)words);
  return (Bytes)__builtin_ia32_pshufb256((Chars)joined(table, table), (Chars)index);
#elif defined(__SSSE3__)
  const Chars16 table = loadAs<Chars16>((const u8*)words);
  const Chars16 low = loadAs<Chars16>((const u8*)&index), high = loadAs<Chars16>((const u8*)&index + 16);
  return joined((Bytes16)__builtin_ia32_pshufb128(table, low), (Bytes16)__builtin_ia32_pshufb128(table, high));
#elif QUANT_NEON
  const Bytes16 table = loadAs<Bytes16>((const u8*)words);
  return joined(lookUp(table, loadAs<Bytes16>((const u8*)&index)), lookUp(table, loadAs<Bytes16>((const u8*)&index + 16)));
#else
  u8 raw[32];
  __builtin_memcpy(raw, &index, 32);
  for (u32 i = 0; i < 32; ++i) raw[i] = ((const u8*)words)[raw[i] & 15];
  return loadAs<Bytes>(raw);
#endif
}

X_DEVICE Bytes ternaryDigits(Bytes fractions) { return -(Bytes)(fractions >= 86) - (Bytes)(fractions >= 171); }

template <class Q>
X_DEVICE Bytes tableGroup(const u8* b, u32 g) {
  if constexpr (sameType<Q, Q8_1_Weight>) return loadAs<Bytes>(b + 4);
  else if constexpr (sameType<Q, IQ4_NL>) return levels<Uneven>(nibbles(b + 2));
  else if constexpr (sameType<Q, IQ4_XS>) return levels<Uneven>(nibbles(b + 8 + 16 * g));
  else if constexpr (sameType<Q, MXFP4>) return levels<Float4>(nibbles(b + 1));
  else if constexpr (sameType<Q, NVFP4>) {
    const Bytes q = nibbles(b + 4 + 16 * g);
    return levels<Float4>(__builtin_shufflevector(q, q, 0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23, 8, 9, 10, 11,
                                                  12, 13, 14, 15, 24, 25, 26, 27, 28, 29, 30, 31));
  } else if constexpr (sameType<Q, TQ2_0>) {
    return (loadAs<Bytes>(b + 32 * (g >> 2)) >> (u8)(2 * (g & 3))) & 3;
  } else if constexpr (sameType<Q, TQ1_0>) {
    const u8 powers[5] = {1, 3, 9, 27, 81};
    if (g < 5) return ternaryDigits(loadAs<Bytes>(b) * powers[g]);
    const Bytes16 low = loadAs<Bytes16>(b + 32);
    if (g < 7) return ternaryDigits(joined(low * powers[2 * g - 10], low * powers[2 * g - 9]));
    typedef u8 Four __attribute__((vector_size(4)));
    const Four last = loadAs<Four>(b + 48);
    const Bytes16 four = __builtin_shufflevector(last, last, 0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3);
    return ternaryDigits(joined(low * powers[4], four * Bytes16{1, 1, 1, 1, 3, 3, 3, 3, 9, 9, 9, 9, 27, 27, 27, 27}));
  } else {
    // Codebooks, whose entries products take another way (host-codebooks.h).
    u32 quads[8];
#pragma unroll
    for (u32 i = 0; i < 8; ++i) quads[i] = Q::quad(b, 8 * g + i);
    return loadAs<Bytes>((const u8*)quads);
  }
}

}  // namespace quant
#endif
