// The host's way to 32 quants at once for the formats of level-formats.h and codebook-formats.h; those of formats.h are in
// host.h, which includes this.
#pragma once

#if X_HOST
namespace quant {

typedef u64 Longs __attribute__((vector_size(32)));

/** The level of each byte (0 to 15). */
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
#else
  u8 raw[32];
  __builtin_memcpy(raw, &index, 32);
  for (u32 i = 0; i < 32; ++i) raw[i] = ((const u8*)words)[raw[i]];
  return loadAs<Bytes>(raw);
#endif
}

// A codebook with a byte a value, which a register takes as it is: unpacking fields costs more than the larger table.
template <class T, u32 N>
struct Wide {
  T entry[N];
};
template <class T, u32 N>
constexpr Wide<T, N> widened(const u16 (&packed)[N], u64 levels) {
  constexpr u32 BITS = 16 / sizeof(T);
  Wide<T, N> wide = {};
  for (u32 i = 0; i < N; ++i)
    for (u32 j = 0; j < sizeof(T); ++j)
      wide.entry[i] |= (T)((levels >> (8 * ((packed[i] >> (BITS * j)) & ((1u << BITS) - 1)))) & 255) << (8 * j);
  return wide;
}
static constexpr Wide<u64, 256> WIDE_IQ2_XXS = widened<u64>(IQ2_XXS_GRID, LEVELS_IQ2);
static constexpr Wide<u64, 512> WIDE_IQ2_XS = widened<u64>(IQ2_XS_GRID, LEVELS_IQ2);
static constexpr Wide<u64, 1024> WIDE_IQ2_S = widened<u64>(IQ2_S_GRID, LEVELS_IQ2);
static constexpr Wide<u32, 256> WIDE_IQ3_XXS = widened<u32>(IQ3_XXS_GRID, (u64)HIGH_IQ3_XXS << 32 | LOW_IQ3_XXS);
static constexpr Wide<u32, 512> WIDE_IQ3_S = widened<u32>(IQ3_S_GRID, (u64)HIGH_IQ3_S << 32 | LOW_IQ3_S);
static constexpr Wide<u64, 2048> WIDE_IQ1 = widened<u64>(IQ1_GRID, LEVELS_IQ1_UP);

struct EvenSigns {
  u8 eight[128];
};
constexpr EvenSigns allEvenSigns() {
  EvenSigns signs = {};
  for (u32 seven = 0; seven < 128; ++seven) {
    u32 ones = 0;
    for (u32 i = 0; i < 7; ++i) ones += (seven >> i) & 1;
    signs.eight[seven] = (u8)(seven | (ones & 1) << 7);
  }
  return signs;
}
static constexpr EvenSigns EVEN_SIGNS = allEvenSigns();

// Byte i negated where bit i of `signs` is set.
X_DEVICE Bytes withSigns(Bytes q, u32 signs) {
  const Bytes mask = (Bytes)(fifths((const u8*)&signs) != 0);
  return (q ^ mask) - mask;
}
// Eight signs four times, from fields of seven bits.
X_DEVICE u32 evenSigns4(u32 fields) {
  u32 signs = 0;
  for (u32 i = 0; i < 4; ++i) signs |= (u32)EVEN_SIGNS.eight[(fields >> (7 * i)) & 127] << (8 * i);
  return signs;
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
  } else if constexpr (sameType<Q, IQ2_XXS>) {
    Longs entries;
#pragma unroll
    for (u32 i = 0; i < 4; ++i) entries[i] = WIDE_IQ2_XXS.entry[b[2 + 8 * g + i]];
    return withSigns((Bytes)entries, evenSigns4(load2(b + 6 + 8 * g)));
  } else if constexpr (sameType<Q, IQ2_XS>) {
    Longs entries;
    u32 signs = 0;
#pragma unroll
    for (u32 i = 0; i < 4; ++i) {
      const u32 word = *(const u16*)(b + 2 + 8 * g + 2 * i);
      entries[i] = WIDE_IQ2_XS.entry[word & 511];
      signs |= (u32)EVEN_SIGNS.eight[word >> 9] << (8 * i);
    }
    return withSigns((Bytes)entries, signs);
  } else if constexpr (sameType<Q, IQ2_S>) {
    Longs entries;
#pragma unroll
    for (u32 i = 0; i < 4; ++i) entries[i] = WIDE_IQ2_S.entry[b[2 + 4 * g + i] | ((b[66 + g] >> (2 * i)) & 3) << 8];
    return withSigns((Bytes)entries, load2(b + 34 + 4 * g));
  } else if constexpr (sameType<Q, IQ3_XXS>) {
    Ints entries;
#pragma unroll
    for (u32 i = 0; i < 8; ++i) entries[i] = (i32)WIDE_IQ3_XXS.entry[b[2 + 8 * g + i]];
    return withSigns((Bytes)entries, evenSigns4(load2(b + 66 + 4 * g)));
  } else if constexpr (sameType<Q, IQ3_S>) {
    Ints entries;
#pragma unroll
    for (u32 i = 0; i < 8; ++i) entries[i] = (i32)WIDE_IQ3_S.entry[b[2 + 8 * g + i] | ((b[66 + g] >> i) & 1) << 8];
    return withSigns((Bytes)entries, load2(b + 74 + 4 * g));
  } else {
    Longs entries, shifts;
#pragma unroll
    for (u32 i = 0; i < 4; ++i) {
      const u32 j = 4 * g + i;
      u32 high;
      if constexpr (sameType<Q, IQ1_S>) high = ((IQ1_S::word(b, g) >> (3 * i)) & 7) | ((IQ1_S::word(b, g) >> 12) & 8);
      else high = nibbleOf(b + 32, j);
      entries[i] = WIDE_IQ1.entry[b[(sameType<Q, IQ1_S> ? 2 : 0) + j] | (high & 7) << 8];
      shifts[i] = high & 8 ? 0x0202020202020202ull : 0;
    }
    return (Bytes)entries - (Bytes)shifts;
  }
}

}  // namespace quant
#endif
