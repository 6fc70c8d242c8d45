// The quants of 256 values of the codebook formats. Entries stay what they are in the tables, 16 bits of eight two-bit
// or four four-bit fields, so that a vector holds 32 of them, and shifts and masks bring out a field of all at once.
// Word i of a vector is entry i, or of entries of four 2i in one vector and 2i + 1 in another; field f of its byte h is
//   of eight  value 8i + 4h + f, byte 2i + h of vector f
//   of four   value 8i + 4a + 2h + f, byte 2i + h of vector 2a + f, where a is 1 for entry 2i + 1
#pragma once

#if X_HOST
namespace quant {

/** How many values an entry has. */
enum class Codebook { None, Eight, Four };
template <class Q>
constexpr Codebook codebookOf() {
  if (sameType<Q, IQ3_XXS> || sameType<Q, IQ3_S>) return Codebook::Four;
  const bool eight = sameType<Q, IQ1_S> || sameType<Q, IQ1_M> || sameType<Q, IQ2_XXS> || sameType<Q, IQ2_XS> ||
                     sameType<Q, IQ2_S>;
  return eight ? Codebook::Eight : Codebook::None;
}

/** 256 activations in that order. */
template <class Q>
X_DEVICE void codebookOrder(const u8* values, Bytes64 (&u)[4]) {
  typedef u32 Fours __attribute__((vector_size(64)));
  typedef u16 Pairs __attribute__((vector_size(16)));
#pragma unroll
  for (u32 v = 0; v < 4; ++v)
#pragma unroll
    for (u32 i = 0; i < 4; ++i) {
      u8* out = (u8*)&u[v] + 16 * i;
      const u8* from = values + 64 * i;
      if constexpr (codebookOf<Q>() == Codebook::Eight) {
        const Bytes16 every = __builtin_convertvector(loadAs<Fours>(from) >> (8 * v), Bytes16);
        __builtin_memcpy(out, &every, 16);
      } else {
        const Longs8 eights = loadAs<Longs8>(from) >> (32 * (v >> 1) + 8 * (v & 1));
        const Pairs every = __builtin_convertvector((eights & 0xff) | (eights >> 8 & 0xff00), Pairs);
        __builtin_memcpy(out, &every, 16);
      }
    }
}

#if defined(__AVX512BW__)
typedef short Table __attribute__((vector_size(64)));
/** Of N entries, those of an index's lowest bits. */
template <u32 N>
X_DEVICE Words32 permuted(const u16* table, Words32 index) {
  const u8* at = (const u8*)table;
  if constexpr (N == 64) {
    return (Words32)__builtin_ia32_vpermi2varhi512(loadAs<Table>(at), (Table)index, loadAs<Table>(at + 64));
  } else {
    const Words32 low = permuted<N / 2>(table, index), high = permuted<N / 2>(table + N / 2, index);
    return (index & (u16)(N / 2)) != 0 ? high : low;
  }
}
#endif
template <u32 N>
X_DEVICE Words32 entriesOf(const u16 (&table)[N], Words32 index) {
#if defined(__AVX512BW__)
  return permuted<N>(table, index);
#else
  Words32 entries;
#pragma unroll
  for (u32 i = 0; i < 32; ++i) entries[i] = table[index[i]];
  return entries;
#endif
}

// Tables for levels64.
struct LevelsIq2 {
  static constexpr u32 W0 = LEVELS_IQ2, W1 = 0, W2 = 0, W3 = 0;
};
struct LevelsIq3Xxs {
  static constexpr u32 W0 = LOW_IQ3_XXS, W1 = HIGH_IQ3_XXS, W2 = 0, W3 = 0;
};
struct LevelsIq3S {
  static constexpr u32 W0 = LOW_IQ3_S, W1 = HIGH_IQ3_S, W2 = 0, W3 = 0;
};
// Bit 7 where a number of four bits has an odd number of ones.
struct Parity {
  static constexpr u32 W0 = 0x00808000u, W1 = 0x80000080u, W2 = 0x80000080u, W3 = 0x00808000u;
};

// Words of groups of two or four that share a word, and what tells the four apart.
#define TWICE(i) i, i
#define FOUR_TIMES(i) i, i, i, i
#define WORDS_OF_FOUR(a, b, c, d) \
  Words32 { a, b, c, d, a, b, c, d, a, b, c, d, a, b, c, d, a, b, c, d, a, b, c, d, a, b, c, d, a, b, c, d }
typedef u8 Bytes8 __attribute__((vector_size(8)));
typedef u16 Words8u __attribute__((vector_size(16)));
X_DEVICE Words32 fourTimes(Words8u v) {
  return __builtin_shufflevector(v, v, FOUR_TIMES(0), FOUR_TIMES(1), FOUR_TIMES(2), FOUR_TIMES(3), FOUR_TIMES(4),
                                 FOUR_TIMES(5), FOUR_TIMES(6), FOUR_TIMES(7));
}
X_DEVICE Words32 wordsOf(const u8* bytes) { return __builtin_convertvector(loadAs<Bytes>(bytes), Words32); }
// Of byte g, field i of two bits in bits 8 and 9 of word 4g + i, with others around it.
X_DEVICE Words32 highBits(const u8* eight) {
  return fourTimes(__builtin_convertvector(loadAs<Bytes8>(eight), Words8u) << 8) >> WORDS_OF_FOUR(0, 2, 4, 6);
}

/** Eight signs of seven: the last makes the number of minus signs even. */
X_DEVICE Words32 evenSigns(Words32 seven) {
  return seven | (Words32)levels64<Parity>((Bytes64)((seven ^ seven >> 4) & 15));
}
/** The same of four fields of seven bits in each number. */
X_DEVICE Words32 evenSigns(Longs8 fields) {
#define STRADDLED(i) i, i + 1, i, i + 1, i + 1, i + 2, i + 2, i + 3
  const Bytes64 v = (Bytes64)fields;
  const Bytes64 bytes = __builtin_shufflevector(v, v, STRADDLED(0), STRADDLED(8), STRADDLED(16), STRADDLED(24),
                                                STRADDLED(32), STRADDLED(40), STRADDLED(48), STRADDLED(56));
#undef STRADDLED
  return evenSigns((Words32)bytes >> WORDS_OF_FOUR(0, 7, 6, 5) & 127);
}

// Byte 2i + h, which is larger by BIAS, negated where word i of `signs` has bit first + h * step.
X_DEVICE Bytes64 withSigns(Bytes64 q, Words32 signs, u32 first, u32 step) {
  const Words32 bits = Words32{} + (u16)(1u << first | 256u << (first + step));
  return ((Bytes64)(signs | signs << 8) & (Bytes64)bits) != 0 ? -q : q;
}

template <class L>
X_DEVICE void eights(Words32 entries, Words32 signs, Bytes64 (&q)[4]) {
  // Two fields to a byte: levels are those of the lower.
  const Bytes64 even = (Bytes64)entries & 0x33, odd = right((Bytes64)entries, 2) & 0x33;
  q[0] = withSigns(levels64<L>(even), signs, 0, 4);
  q[1] = withSigns(levels64<L>(odd), signs, 1, 4);
  q[2] = withSigns(levels64<L>(right(even, 4)), signs, 2, 4);
  q[3] = withSigns(levels64<L>(right(odd, 4)), signs, 3, 4);
}
template <class L>
X_DEVICE void fours(Words32 even, Words32 odd, Words32 signs, Bytes64 (&q)[4]) {
#pragma unroll
  for (u32 f = 0; f < 2; ++f) {
    q[f] = withSigns(levels64<L>(right((Bytes64)even, 4 * f) & 15), signs, f, 2);
    q[2 + f] = withSigns(levels64<L>(right((Bytes64)odd, 4 * f) & 15), signs, 4 + f, 2);
  }
}
// Eight times a field less one, and less or more one.
X_DEVICE void shifted(Words32 entries, Words32 down, Bytes64 (&q)[4]) {
  const Bytes64 least = (Bytes64)(down != 0 ? Words32{} + 0xf7f7 : Words32{} + 0xf9f9) + BIAS;
  q[0] = (left((Bytes64)entries, 3) & 24) + least;
  q[1] = (left((Bytes64)entries, 1) & 24) + least;
  q[2] = (right((Bytes64)entries, 1) & 24) + least;
  q[3] = (right((Bytes64)entries, 3) & 24) + least;
}

template <class Q>
X_DEVICE void codebookQuants(const u8* b, Bytes64 (&q)[4]) {
  if constexpr (sameType<Q, IQ2_XXS>) {
    const Longs8 groups = loadAs<Longs8>(b + 2);
    const Ints index = __builtin_convertvector(groups, Ints);
    const Words32 entries = entriesOf(IQ2_XXS_GRID, __builtin_convertvector((Bytes)index, Words32));
    eights<Biased<LevelsIq2>>(entries, evenSigns(groups >> 32), q);
  } else if constexpr (sameType<Q, IQ2_XS>) {
    const Words32 words = loadAs<Words32>(b + 2);
    eights<Biased<LevelsIq2>>(entriesOf(IQ2_XS_GRID, words & 511), evenSigns(words >> 9), q);
  } else if constexpr (sameType<Q, IQ2_S>) {
    const Words32 index = wordsOf(b + 2) | (highBits(b + 66) & 0x300);
    eights<Biased<LevelsIq2>>(entriesOf(IQ2_S_GRID, index), wordsOf(b + 34), q);
  } else if constexpr (sameType<Q, IQ3_XXS>) {
    const Words32 index = loadAs<Words32>(b + 2);
    typedef u32 Eight __attribute__((vector_size(32)));
    fours<Biased<LevelsIq3Xxs>>(entriesOf(IQ3_XXS_GRID, index & 255), entriesOf(IQ3_XXS_GRID, index >> 8),
                        evenSigns(__builtin_convertvector(loadAs<Eight>(b + 66), Longs8)), q);
  } else if constexpr (sameType<Q, IQ3_S>) {
    const Words32 index = loadAs<Words32>(b + 2), high = highBits(b + 66);
    fours<Biased<LevelsIq3S>>(entriesOf(IQ3_S_GRID, (index & 255) | (high & 256)),
                      entriesOf(IQ3_S_GRID, index >> 8 | (high >> 1 & 256)), wordsOf(b + 74), q);
  } else if constexpr (sameType<Q, IQ1_S>) {
    const Words32 words = fourTimes(loadAs<Words8u>(b + 34));
    const Words32 high = words >> WORDS_OF_FOUR(0, 3, 6, 9) & 7;
    shifted(entriesOf(IQ1_GRID, wordsOf(b + 2) | high << 8), words & 0x8000, q);
  } else {
    const Words16 pairs = __builtin_convertvector(loadAs<Bytes16>(b + 32), Words16);
    const Words32 twice = (Words32)__builtin_shufflevector(
        pairs, pairs, TWICE(0), TWICE(1), TWICE(2), TWICE(3), TWICE(4), TWICE(5), TWICE(6), TWICE(7), TWICE(8),
        TWICE(9), TWICE(10), TWICE(11), TWICE(12), TWICE(13), TWICE(14), TWICE(15));
    const Words32 nibbles = twice >> WORDS_OF_FOUR(0, 4, 0, 4);
    shifted(entriesOf(IQ1_GRID, wordsOf(b) | (nibbles & 7) << 8), nibbles & 8, q);
  }
}
#undef TWICE
#undef FOUR_TIMES
#undef WORDS_OF_FOUR

}  // namespace quant
#endif
