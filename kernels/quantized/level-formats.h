// Formats whose quants are levels of a small table, as traits like those of formats.h: IQ4_NL and IQ4_XS (uneven steps),
// MXFP4 and NVFP4 (levels of a 4-bit float), TQ1_0 and TQ2_0 (-1, 0 and 1), and q8_1 as a weight. candle has kernels for
// none of them. Layouts are described in packages/quantized/src/blocks/{four-bit-tables,ternary}.ts.
#pragma once

namespace quant {

struct Q8_1_Weight : Legacy {
  static constexpr u32 BYTES = 36;
  static constexpr i32 OFFSET = 0;
  static constexpr bool MINS = false, SIGNED = true;
  static X_DEVICE u32 quad(const u8* b, u32 e4) { return load4(b + 4 + 4 * e4); }
  static X_DEVICE float scale(const u8* b, u32) { return half(b); }
  static X_DEVICE float minimum(const u8*, u32) { return 0.0f; }
};

// Signed quants, no offset and no minimum.
struct SignedLevels {
  static constexpr i32 OFFSET = 0;
  static constexpr bool MINS = false, SIGNED = true, SUPER = false;
  static X_DEVICE float minimum(const u8*, u32) { return 0.0f; }
};

// Neighbouring elements are a thread's share: all 32 have one scale.
struct SignedRow : SignedLevels {
  static constexpr u32 RUN = 8;
  static constexpr bool HALVES = false;
  static X_DEVICE u32 first(u32 part, u32) { return part * 8; }
};

// The same with a scale for every 16.
struct SignedHalves : SignedLevels {
  static constexpr u32 RUN = 4;
  static constexpr bool HALVES = true;
  static X_DEVICE u32 first(u32 part, u32 run) { return part * 8 + run * 4; }
};

struct IQ4_NL : SignedRow {
  static constexpr u32 SIZE = 32, BYTES = 18;
  static X_DEVICE u32 quad(const u8* b, u32 e4) { return pick16<Uneven>(Legacy::nibbles(load2(b + 2 + 4 * (e4 & 3)), e4)); }
  static X_DEVICE void run(const u8* b, u32, u32 (&q)[RUN]) {
    u32 words[4];
    loadWords2(b + 2, words);
#pragma unroll
    for (u32 i = 0; i < RUN; ++i) q[i] = pick16<Uneven>(Legacy::nibbles(words[i & 3], i));
  }
  static X_DEVICE float scale(const u8* b, u32) { return half(b); }
};

struct IQ4_XS : SignedRow {
  static constexpr u32 SIZE = 256, BYTES = 136;
  static X_DEVICE u32 quad(const u8* b, u32 e4) {
    return pick16<Uneven>(Legacy::nibbles(load4(b + 8 + 16 * (e4 >> 3) + 4 * (e4 & 3)), e4));
  }
  static X_DEVICE float scale(const u8* b, u32 e16) {
    const u32 g = e16 >> 1, word = load4(b);
    const u32 low = (b[4 + (g >> 1)] >> (4 * (g & 1))) & 15, high = (word >> (16 + 2 * g)) & 3;
    return half(b) * (float)((i32)(low | high << 4) - 32);
  }
};

struct MXFP4 : SignedRow {
  static constexpr u32 SIZE = 32, BYTES = 17;
  static X_DEVICE u32 quad(const u8* b, u32 e4) { return pick16<Float4>(Legacy::nibbles(load1(b + 1 + 4 * (e4 & 3)), e4)); }
  // 2^(e - 128), half of the exponent's value since levels are doubled; the two smallest are subnormal.
  static X_DEVICE float scale(const u8* b, u32) {
    const u32 e = b[0];
    return bitCast<float>(e < 2 ? 0x00200000u << e : (e - 1) << 23);
  }
};

struct NVFP4 : SignedHalves {
  static constexpr u32 SIZE = 64, BYTES = 36;
  static X_DEVICE u32 quad(const u8* b, u32 e4) {
    const u32 word = load4(b + 4 + 8 * (e4 >> 2) + 4 * (e4 & 1));
    return pick16<Float4>((word >> (2 * (e4 & 2))) & 0x0f0f0f0fu);
  }
  // Half of a float of four exponent and three fraction bits, its top bit ignored; 0x7f alone reads as 0.
  static X_DEVICE float scale(const u8* b, u32 e16) {
    const u32 byte = b[e16], e = (byte >> 3) & 15, fraction = byte & 7;
    if (byte == 0x7f) return 0.0f;
    return e == 0 ? (float)fraction * 0x1p-10f : bitCast<float>((e + 119) << 23 | fraction << 20);
  }
};

struct TQ1_0 {
  static constexpr u32 SIZE = 256, BYTES = 54, RUN = 4;
  static constexpr i32 OFFSET = 1;
  static constexpr bool HALVES = false, MINS = false, SIGNED = false, SUPER = false;
  static X_DEVICE u32 first(u32 part, u32 run) { return part * 8 + run * 4; }
  // A byte is a fraction of 256 in base 3: times 3^n its digit n is next, which one more 3 pushes over the top.
  static X_DEVICE u32 quad(const u8* b, u32 e4) {
    const u32 run = e4 >> 2, i = e4 & 3;
    const u32 n = run < 10 ? run >> 1 : run < 15 ? run - 10 : i;
    const u32 at = run < 10 ? 16 * (run & 1) + 4 * i : run < 15 ? 32 + 4 * i : 48;
    const u32 word = load2(b + at), power = (u32)(0x511b090301ull >> (8 * n)) & 255;
    const u32 even = ((word & 0x00ff00ffu) * power) & 0x00ff00ffu, odd = (((word >> 8) & 0x00ff00ffu) * power) & 0x00ff00ffu;
    return ((even * 3) >> 8 & 0x00030003u) | ((odd * 3) & 0x03000300u);
  }
  static X_DEVICE float scale(const u8* b, u32) { return half(b + 52); }
  static X_DEVICE float minimum(const u8*, u32) { return 0.0f; }
};

struct TQ2_0 : FourWay {
  static constexpr u32 BYTES = 66;
  static constexpr i32 OFFSET = 1;
  static constexpr bool HALVES = false, MINS = false, SUPER = false;
  static X_DEVICE u32 quad(const u8* b, u32 e4) {
    return (load2(b + 32 * halfOf(e4) + 4 * wordOf(e4)) >> (2 * groupOf(e4))) & 0x03030303u;
  }
  static X_DEVICE float scale(const u8* b, u32) { return half(b + 64); }
  static X_DEVICE float minimum(const u8*, u32) { return 0.0f; }
};

}  // namespace quant
