// The codebook formats of one to three bits as traits like those of formats.h; candle has kernels for none of them. Eight
// or four neighbouring values are an entry of a table (codebooks.h), with signs and a scale beside it; layouts are
// described in packages/quantized/src/blocks/codebook.ts. Scales are halves of small powers of two times odd numbers, so
// their products with quants are exact. IQ1's levels are shifted by an eighth: its quants are eight times as large.
#pragma once

namespace quant {

// What the two-bit fields of IQ2's entries stand for: 8, 25, 43. IQ1's: -1, 0 and 1, times 8, plus or minus 1.
constexpr u32 LEVELS_IQ2 = 0x002b1908u, LEVELS_IQ1_UP = 0x000901f9u, LEVELS_IQ1_DOWN = 0x0007fff7u;
// The four-bit fields of IQ3's: 4, 12, 20, 28, 36, 44, 52, 62, and 1, 3, ... 15.
constexpr u32 LOW_IQ3_XXS = 0x1c140c04u, HIGH_IQ3_XXS = 0x3e342c24u, LOW_IQ3_S = 0x07050301u, HIGH_IQ3_S = 0x0f0d0b09u;

// Half e4 & 1 of an entry of eight two-bit fields.
X_DEVICE u32 halfEntry(u32 table, u32 entry, u32 e4) { return pick4(table, (entry >> (8 * (e4 & 1))) & 255); }
X_DEVICE u32 halfSigns(u32 eight, u32 e4) { return (eight >> (4 * (e4 & 1))) & 15; }
X_DEVICE u32 byteOf(u32 word, u32 i) { return (word >> (8 * (i & 3))) & 255; }
X_DEVICE u32 nibbleOf(const u8* p, u32 i) { return (p[i >> 1] >> (4 * (i & 1))) & 15; }

struct IQ2_XXS : SignedRow {
  static constexpr u32 SIZE = 256, BYTES = 66;
  static X_DEVICE u32 quad(const u8* b, u32 e4) {
    const u8* at = b + 2 + 8 * (e4 >> 3);
    const u32 i = (e4 >> 1) & 3, signs = evenSigns((load2(at + 4) >> (7 * i)) & 127);
    return negated(halfEntry(LEVELS_IQ2, IQ2_XXS_GRID[byteOf(load2(at), i)], e4), halfSigns(signs, e4));
  }
  static X_DEVICE float scale(const u8* b, u32 e16) {
    return half(b) * (float)(2 * (load2(b + 6 + 8 * (e16 >> 1)) >> 28) + 1) * 0.125f;
  }
};

struct IQ2_XS : SignedHalves {
  static constexpr u32 SIZE = 256, BYTES = 74;
  static X_DEVICE u32 quad(const u8* b, u32 e4) {
    const u32 word = *(const u16*)(b + 2 + 2 * (e4 >> 1));
    return negated(halfEntry(LEVELS_IQ2, IQ2_XS_GRID[word & 511], e4), halfSigns(evenSigns(word >> 9), e4));
  }
  static X_DEVICE float scale(const u8* b, u32 e16) { return half(b) * (float)(2 * nibbleOf(b + 66, e16) + 1) * 0.125f; }
};

struct IQ2_S : SignedHalves {
  static constexpr u32 SIZE = 256, BYTES = 82;
  static X_DEVICE u32 quad(const u8* b, u32 e4) {
    const u32 i = e4 >> 1, high = (b[66 + (i >> 2)] >> (2 * (i & 3))) & 3;
    const u32 index = byteOf(load2(b + 2 + (i & ~3u)), i) | high << 8;
    return negated(halfEntry(LEVELS_IQ2, IQ2_S_GRID[index], e4), halfSigns(byteOf(load2(b + 34 + (i & ~3u)), i), e4));
  }
  static X_DEVICE float scale(const u8* b, u32 e16) { return half(b) * (float)(2 * nibbleOf(b + 74, e16) + 1) * 0.125f; }
};

struct IQ3_XXS : SignedRow {
  static constexpr u32 SIZE = 256, BYTES = 98;
  static X_DEVICE u32 quad(const u8* b, u32 e4) {
    const u32 entry = IQ3_XXS_GRID[byteOf(load2(b + 2 + (e4 & ~3u)), e4)];
    const u32 signs = evenSigns((load2(b + 66 + 4 * (e4 >> 3)) >> (7 * ((e4 >> 1) & 3))) & 127);
    return negated(pick8(LOW_IQ3_XXS, HIGH_IQ3_XXS, entry), halfSigns(signs, e4));
  }
  static X_DEVICE float scale(const u8* b, u32 e16) {
    return half(b) * (float)(2 * (load2(b + 66 + 4 * (e16 >> 1)) >> 28) + 1) * 0.25f;
  }
};

struct IQ3_S : SignedRow {
  static constexpr u32 SIZE = 256, BYTES = 110;
  static X_DEVICE u32 quad(const u8* b, u32 e4) {
    const u32 high = (b[66 + (e4 >> 3)] >> (e4 & 7)) & 1;
    const u32 entry = IQ3_S_GRID[byteOf(load2(b + 2 + (e4 & ~3u)), e4) | high << 8];
    return negated(pick8(LOW_IQ3_S, HIGH_IQ3_S, entry), nibbleOf(b + 74, e4));
  }
  static X_DEVICE float scale(const u8* b, u32 e16) { return half(b) * (float)(2 * nibbleOf(b + 106, e16 >> 1) + 1); }
};

struct IQ1_S : SignedRow {
  static constexpr u32 SIZE = 256, BYTES = 50;
  static X_DEVICE u32 word(const u8* b, u32 g) { return *(const u16*)(b + 34 + 2 * g); }
  static X_DEVICE u32 quad(const u8* b, u32 e4) {
    const u32 i = e4 >> 1, bits = word(b, e4 >> 3);
    const u32 index = byteOf(load2(b + 2 + (i & ~3u)), i) | ((bits >> (3 * (i & 3))) & 7) << 8;
    return halfEntry(bits & 0x8000u ? LEVELS_IQ1_DOWN : LEVELS_IQ1_UP, IQ1_GRID[index], e4);
  }
  static X_DEVICE float scale(const u8* b, u32 e16) {
    return half(b) * (float)(2 * ((word(b, e16 >> 1) >> 12) & 7) + 1) * 0.125f;
  }
};

struct IQ1_M : SignedHalves {
  static constexpr u32 SIZE = 256, BYTES = 56;
  static X_DEVICE u32 quad(const u8* b, u32 e4) {
    const u32 i = e4 >> 1, high = nibbleOf(b + 32, i);
    const u32 index = byteOf(load4(b + (i & ~3u)), i) | (high & 7) << 8;
    return halfEntry(high & 8 ? LEVELS_IQ1_DOWN : LEVELS_IQ1_UP, IQ1_GRID[index], e4);
  }
  // The top nibbles of the four scale words, lowest first, are the half.
  static X_DEVICE float blockScale(const u8* b) {
    const u32 w0 = load4(b + 48), w1 = load4(b + 52);
    const u32 bits = ((w0 >> 12) & 15) | ((w0 >> 24) & 0xf0u) | ((w1 >> 4) & 0xf00u) | ((w1 >> 16) & 0xf000u);
    return to_acc(bitCast<f16>((u16)bits));
  }
  static X_DEVICE float scale(const u8* b, u32 e16) {
    const u32 w0 = load4(b + 48), w1 = load4(b + 52);
    const u32 sub = ((e16 < 8 ? w0 : w1) >> (16 * ((e16 >> 2) & 1) + 3 * (e16 & 3))) & 7;
    return blockScale(b) * (float)(2 * sub + 1) * 0.125f;
  }
};

}  // namespace quant
