// ggml's block formats as traits, one struct a format; candle's are the block_q* structs of quantized.cu. The rest of the
// module (dequantisation, rows, matrix products) is written once over these traits.
// A block holds SIZE elements in BYTES bytes. Element e of a block is  scale(e/16) * (quant(e) - OFFSET) - minimum(e/16).
//   quad(b, e4)     the raw quants of elements 4*e4 .. 4*e4+3, one a byte (signed when SIGNED, else below 64)
//   scale, minimum  of the sixteen elements e16; HALVES says whether they change within 32 elements, MINS whether a minimum exists
//   RUN, first(part, run)  how one thread takes 32 elements that share bytes: 8/RUN runs of RUN quads, a run starting at
//                   quad first() and lying within 16 (HALVES) or 32 elements, so that it has one scale and one q8_1 partner
// Every product of scale and quant is exact in f32, so fused and separate rounding give the reference's value.
#pragma once

// On the host a call of its own, which several kernels share.
#if X_HOST
#define QUANT_CALL __attribute__((noinline))
#else
#define QUANT_CALL X_DEVICE
#endif

namespace quant {

// Four bytes at an address that is a multiple of 2 (many blocks have an odd number of 16-bit words), or of 4.
X_DEVICE u32 load2(const u8* p) {
#if X_NVPTX
  const u16* h = (const u16*)p;
  return (u32)h[0] | (u32)h[1] << 16;
#else
  u32 v;
  __builtin_memcpy(&v, p, 4);
  return v;
#endif
}
X_DEVICE u32 load4(const u8* p) { return *(const u32*)p; }
X_DEVICE float half(const u8* p) { return to_acc(bitCast<f16>(*(const u16*)p)); }

/** q8_1, the activations' format: f16 d, f16 sum of the source values, 32 int8. */
struct Q8_1 {
  static constexpr u32 SIZE = 32, BYTES = 36;
  static X_DEVICE float scale(const u8* b) { return half(b); }
  static X_DEVICE u32 quad(const u8* b, u32 e4) { return load4(b + 4 + 4 * e4); }
};

// One block of 32 is one thread's share.
struct Legacy {
  static constexpr u32 SIZE = 32, RUN = 8;
  static constexpr bool HALVES = false;
  static X_DEVICE u32 first(u32, u32) { return 0; }
  // Bits 4*e4 .. 4*e4+3 of qh, each as bit 4 of its byte.
  static X_DEVICE u32 fifthBits(u32 qh, u32 e4) {
    const u32 h = qh >> (4 * e4);
    return ((h << 4) & 0x10u) | ((h << 11) & 0x1000u) | ((h << 18) & 0x100000u) | ((h << 25) & 0x10000000u);
  }
  static X_DEVICE u32 nibbles(u32 word, u32 e4) { return (word >> (e4 & 4)) & 0x0f0f0f0fu; }
};

struct Q4_0 : Legacy {
  static constexpr u32 BYTES = 18;
  static constexpr i32 OFFSET = 8;
  static constexpr bool MINS = false, SIGNED = false;
  static X_DEVICE u32 quad(const u8* b, u32 e4) { return nibbles(load2(b + 2 + 4 * (e4 & 3)), e4); }
  static X_DEVICE float scale(const u8* b, u32) { return half(b); }
  static X_DEVICE float minimum(const u8*, u32) { return 0.0f; }
};

struct Q4_1 : Legacy {
  static constexpr u32 BYTES = 20;
  static constexpr i32 OFFSET = 0;
  static constexpr bool MINS = true, SIGNED = false;
  static X_DEVICE u32 quad(const u8* b, u32 e4) { return nibbles(load4(b + 4 + 4 * (e4 & 3)), e4); }
  static X_DEVICE float scale(const u8* b, u32) { return half(b); }
  static X_DEVICE float minimum(const u8* b, u32) { return -half(b + 2); }
};

struct Q5_0 : Legacy {
  static constexpr u32 BYTES = 22;
  static constexpr i32 OFFSET = 16;
  static constexpr bool MINS = false, SIGNED = false;
  static X_DEVICE u32 quad(const u8* b, u32 e4) {
    return nibbles(load2(b + 6 + 4 * (e4 & 3)), e4) | fifthBits(load2(b + 2), e4);
  }
  static X_DEVICE float scale(const u8* b, u32) { return half(b); }
  static X_DEVICE float minimum(const u8*, u32) { return 0.0f; }
};

struct Q5_1 : Legacy {
  static constexpr u32 BYTES = 24;
  static constexpr i32 OFFSET = 0;
  static constexpr bool MINS = true, SIGNED = false;
  static X_DEVICE u32 quad(const u8* b, u32 e4) {
    return nibbles(load4(b + 8 + 4 * (e4 & 3)), e4) | fifthBits(load4(b + 4), e4);
  }
  static X_DEVICE float scale(const u8* b, u32) { return half(b); }
  static X_DEVICE float minimum(const u8* b, u32) { return -half(b + 2); }
};

struct Q8_0 : Legacy {
  static constexpr u32 BYTES = 34;
  static constexpr i32 OFFSET = 0;
  static constexpr bool MINS = false, SIGNED = true;
  static X_DEVICE u32 quad(const u8* b, u32 e4) { return load2(b + 2 + 4 * e4); }
  static X_DEVICE float scale(const u8* b, u32) { return half(b); }
  static X_DEVICE float minimum(const u8*, u32) { return 0.0f; }
};

// Superblocks of 256 whose bytes interleave four groups of 32 within each half of 128 (q2_K, q3_K, q6_K).
struct FourWay {
  static constexpr u32 SIZE = 256, RUN = 2;
  static constexpr bool HALVES = true, SIGNED = false;
  static X_DEVICE u32 first(u32 part, u32 run) { return (part >> 2) * 32 + run * 8 + (part & 3) * 2; }
  static X_DEVICE u32 halfOf(u32 e4) { return e4 >> 5; }
  static X_DEVICE u32 groupOf(u32 e4) { return (e4 >> 3) & 3; }
  static X_DEVICE u32 wordOf(u32 e4) { return e4 & 7; }
};

struct Q2_K : FourWay {
  static constexpr u32 BYTES = 84;
  static constexpr i32 OFFSET = 0;
  static constexpr bool MINS = true;
  static X_DEVICE u32 quad(const u8* b, u32 e4) {
    return (load4(b + 16 + 32 * halfOf(e4) + 4 * wordOf(e4)) >> (2 * groupOf(e4))) & 0x03030303u;
  }
  static X_DEVICE float scale(const u8* b, u32 e16) { return half(b + 80) * (float)(b[e16] & 15); }
  static X_DEVICE float minimum(const u8* b, u32 e16) { return half(b + 82) * (float)(b[e16] >> 4); }
};

struct Q3_K : FourWay {
  static constexpr u32 BYTES = 110;
  static constexpr i32 OFFSET = 4;
  static constexpr bool MINS = false;
  static X_DEVICE u32 quad(const u8* b, u32 e4) {
    const u32 low = (load2(b + 32 + 32 * halfOf(e4) + 4 * wordOf(e4)) >> (2 * groupOf(e4))) & 0x03030303u;
    const u32 high = (load2(b + 4 * wordOf(e4)) >> (4 * halfOf(e4) + groupOf(e4))) & 0x01010101u;
    return low | high << 2;
  }
  static X_DEVICE i32 sixBits(const u8* b, u32 e16) {
    const u32 low = (b[96 + (e16 & 7)] >> (4 * (e16 >> 3))) & 15;
    const u32 high = (b[104 + (e16 & 3)] >> (2 * (e16 >> 2))) & 3;
    return (i32)(low | high << 4) - 32;
  }
  static X_DEVICE float scale(const u8* b, u32 e16) { return half(b + 108) * (float)sixBits(b, e16); }
  static X_DEVICE float minimum(const u8*, u32) { return 0.0f; }
};

struct Q6_K : FourWay {
  static constexpr u32 BYTES = 210;
  static constexpr i32 OFFSET = 32;
  static constexpr bool MINS = false;
  static X_DEVICE u32 quad(const u8* b, u32 e4) {
    const u32 g = groupOf(e4);
    const u32 low = load2(b + 64 * halfOf(e4) + 32 * (g & 1) + 4 * wordOf(e4)) >> (4 * (g >> 1));
    const u32 high = load2(b + 128 + 32 * halfOf(e4) + 4 * wordOf(e4)) >> (2 * g);
    return (low & 0x0f0f0f0fu) | (high & 0x03030303u) << 4;
  }
  static X_DEVICE float scale(const u8* b, u32 e16) { return half(b + 208) * (float)(i8)b[192 + e16]; }
  static X_DEVICE float minimum(const u8*, u32) { return 0.0f; }
};

// Superblocks of 256 whose bytes interleave two groups of 32, with 6-bit scales and minima (q4_K, q5_K).
struct TwoWay {
  static constexpr u32 SIZE = 256, RUN = 4;
  static constexpr i32 OFFSET = 0;
  static constexpr bool HALVES = false, MINS = true, SIGNED = false;
  static X_DEVICE u32 first(u32 part, u32 run) { return (part >> 1) * 16 + run * 8 + (part & 1) * 4; }
  static X_DEVICE u32 nibbles(const u8* qs, u32 e4) {
    return (load4(qs + 32 * (e4 >> 4) + 4 * (e4 & 7)) >> (4 * ((e4 >> 3) & 1))) & 0x0f0f0f0fu;
  }
  static X_DEVICE float scale(const u8* b, u32 e16) {
    const u8* s = b + 4;
    const u32 g = e16 >> 1, j = g & 3;
    const u32 bits = g < 4 ? s[j] & 63u : (s[8 + j] & 15u) | (u32)(s[j] >> 6) << 4;
    return half(b) * (float)bits;
  }
  static X_DEVICE float minimum(const u8* b, u32 e16) {
    const u8* s = b + 4;
    const u32 g = e16 >> 1, j = g & 3;
    const u32 bits = g < 4 ? s[4 + j] & 63u : (u32)(s[8 + j] >> 4) | (u32)(s[4 + j] >> 6) << 4;
    return half(b + 2) * (float)bits;
  }
};

struct Q4_K : TwoWay {
  static constexpr u32 BYTES = 144;
  static X_DEVICE u32 quad(const u8* b, u32 e4) { return nibbles(b + 16, e4); }
};

struct Q5_K : TwoWay {
  static constexpr u32 BYTES = 176;
  static X_DEVICE u32 quad(const u8* b, u32 e4) {
    return nibbles(b + 48, e4) | ((load4(b + 16 + 4 * (e4 & 7)) >> (e4 >> 3)) & 0x01010101u) << 4;
  }
};

/** q8_K: f32 d, 256 int8, 16 sums. candle only dequantises it. */
struct Q8_K {
  static constexpr u32 SIZE = 256, BYTES = 292, RUN = 8;
  static constexpr i32 OFFSET = 0;
  static constexpr bool HALVES = false, MINS = false, SIGNED = true;
  static X_DEVICE u32 first(u32 part, u32) { return part * 8; }
  static X_DEVICE u32 quad(const u8* b, u32 e4) { return load4(b + 4 + 4 * e4); }
  static X_DEVICE float scale(const u8* b, u32) { return *(const float*)b; }
  static X_DEVICE float minimum(const u8*, u32) { return 0.0f; }
};

/** Element i (0..3) of a quad, the offset taken off. */
template <class Q>
X_DEVICE float element(u32 quad, u32 i) {
  const u32 byte = quad >> (8 * i);
  return Q::SIGNED ? (float)(i8)byte : (float)((i32)(byte & 255u) - Q::OFFSET);
}

/** The four values of quad e4 of block b, as f32: exactly the reference's. */
template <class Q>
X_DEVICE void dequantizeQuad(const u8* b, u32 e4, float* out) {
  const u32 quad = Q::quad(b, e4);
  const float d = Q::scale(b, e4 >> 2);
  const float m = Q::minimum(b, e4 >> 2);
#pragma unroll
  for (u32 i = 0; i < 4; ++i) {
    const float v = d * element<Q>(quad, i);
    out[i] = Q::MINS ? v - m : v;
  }
}

}  // namespace quant
