// ggml's block formats as traits, one struct a format; candle's are the block_q* structs of quantized.cu. The rest of the
// module (dequantisation, rows, matrix products) is written once over these traits.
// A block holds SIZE elements in BYTES bytes. Element e of a block is  scale(e/16) * (quant(e) - OFFSET) - minimum(e/16).
//   quad(b, e4)     the raw quants of elements 4*e4 .. 4*e4+3, one a byte (signed when SIGNED, else below 64)
//   scale, minimum  of the sixteen elements e16; HALVES says whether they change within 32 elements, MINS whether a minimum exists
//   SUPER           scale(e16) is superScale times the integer intScale(e16), minimum(e16) likewise
//   RUN, first(part, run)  how one thread takes 32 elements that share bytes: 8/RUN runs of RUN quads, a run starting at
//                   quad first() and lying within 16 (HALVES) or 32 elements, so that it has one scale and one q8_1 partner
//   run(b, e4, q)   the quads from e4 = first() on, as many as q has room for: RUN, or in superblocks twice as many from an
//                   even part on; only where that takes fewer loads than the quads one by one
// Every product of scale and quant is exact in f32, so fused and separate rounding give the reference's value.
#pragma once

// On the host a call of its own, which several kernels share.
#if X_HOST
#define QUANT_CALL __attribute__((noinline))
#else
#define QUANT_CALL X_DEVICE
#endif

// The same on hosts whose registers do not hold what it is given, so that a call costs nothing.
#if X_HOST && !defined(__AVX512F__)
#define QUANT_NARROW_CALL inline __attribute__((noinline))
#else
#define QUANT_NARROW_CALL X_DEVICE
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
// Sixteen bytes, on GPUs at a multiple of 16.
X_DEVICE Vec<u32, 4> load16(const u8* p) {
#if X_HOST
  Vec<u32, 4> v;
  __builtin_memcpy(&v, p, 16);
  return v;
#else
  return loadVec<4>((const u32*)p);
#endif
}

/** N words, a multiple of four, from p as load16. */
template <u32 N>
X_DEVICE void loadWords16(const u8* p, u32 (&words)[N]) {
#pragma unroll
  for (u32 i = 0; i < N; i += 4) {
    const Vec<u32, 4> four = load16(p + 4 * i);
#pragma unroll
    for (u32 e = 0; e < 4; ++e) words[i + e] = four[e];
  }
}

/** N words from p, a multiple of 2: on NVIDIA whole words where these are aligned, and halves at both ends. */
template <u32 N>
X_DEVICE void loadWords2(const u8* p, u32 (&words)[N]) {
#if X_NVPTX
  const bool odd = ((u64)p & 2) != 0;
  // If odd: the first word's low half, words between, the last word's high half. Else the last word's halves around them.
  u32 piece[N + 1];
  piece[0] = (u32)((const u16*)(odd ? p : p + 4 * N - 4))[0] << 16;
  const u32* whole = (const u32*)(odd ? p + 2 : p);
#pragma unroll
  for (u32 i = 0; i < N - 1; ++i) piece[i + 1] = whole[i];
  piece[N] = ((const u16*)(p + 4 * N - 2))[0];
#pragma unroll
  for (u32 i = 0; i < N - 1; ++i) words[i] = permute(piece[i], piece[i + 1], odd ? 0x5432 : 0x7654);
  words[N - 1] = (odd ? piece[N - 1] : piece[0]) >> 16 | piece[N] << 16;
#else
  __builtin_memcpy(words, p, 4 * N);
#endif
}
/** v to the left, by any number of bits. */
X_DEVICE u32 rotated(u32 v, u32 bits) { return v << (bits & 31) | v >> (-bits & 31); }

// One block of 32 is one thread's share.
struct Legacy {
  static constexpr u32 SIZE = 32, RUN = 8;
  static constexpr bool HALVES = false, SUPER = false;
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
  static X_DEVICE void run(const u8* b, u32, u32 (&q)[RUN]) {
    u32 words[4];
    loadWords2(b + 2, words);
#pragma unroll
    for (u32 i = 0; i < RUN; ++i) q[i] = nibbles(words[i & 3], i);
  }
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
  static X_DEVICE void run(const u8* b, u32, u32 (&q)[RUN]) {
    u32 words[5];
    loadWords2(b + 2, words);
#pragma unroll
    for (u32 i = 0; i < RUN; ++i) q[i] = nibbles(words[1 + (i & 3)], i) | fifthBits(words[0], i);
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
  static X_DEVICE void run(const u8* b, u32, u32 (&q)[RUN]) { loadWords2(b + 2, q); }
  static X_DEVICE float scale(const u8* b, u32) { return half(b); }
  static X_DEVICE float minimum(const u8*, u32) { return 0.0f; }
};

// Superblocks of 256 whose bytes interleave four groups of 32 within each half of 128 (q2_K, q3_K, q6_K).
struct FourWay {
  static constexpr u32 SIZE = 256, RUN = 2;
  static constexpr bool HALVES = true, SIGNED = false, SUPER = true;
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
  // From whole words, which the runs of a thread share.
  static X_DEVICE u32 both(const u8* b, u32 e16) { return load4(b + (e16 & ~3u)) >> (8 * (e16 & 3)); }
  static X_DEVICE i32 intScale(const u8* b, u32 e16) { return (i32)(both(b, e16) & 15); }
  static X_DEVICE i32 intMinimum(const u8* b, u32 e16) { return (i32)(both(b, e16) >> 4 & 15); }
  static X_DEVICE float superScale(const u8* b) { return half(b + 80); }
  static X_DEVICE float superMinimum(const u8* b) { return half(b + 82); }
  static X_DEVICE float scale(const u8* b, u32 e16) { return superScale(b) * (float)intScale(b, e16); }
  static X_DEVICE float minimum(const u8* b, u32 e16) { return superMinimum(b) * (float)intMinimum(b, e16); }
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
  template <u32 N>
  static X_DEVICE void run(const u8* b, u32 e4, u32 (&q)[N]) {
    u32 low[N], high[N];
    loadWords2(b + 32 + 32 * halfOf(e4) + 4 * wordOf(e4), low);
    loadWords2(b + 4 * wordOf(e4), high);
#pragma unroll
    for (u32 i = 0; i < N; ++i)
      q[i] = (low[i] >> (2 * groupOf(e4)) & 0x03030303u) | (high[i] >> (4 * halfOf(e4) + groupOf(e4)) & 0x01010101u) << 2;
  }
  static X_DEVICE i32 intScale(const u8* b, u32 e16) {
    u32 words[3];
    loadWords2(b + 96, words);
    const u32 place = 8 * (e16 & 3), low = (e16 & 4 ? words[1] : words[0]) >> (place + 4 * (e16 >> 3));
    return (i32)((low & 15) | (words[2] >> (place + 2 * (e16 >> 2)) & 3) << 4) - 32;
  }
  static X_DEVICE float superScale(const u8* b) { return half(b + 108); }
  static X_DEVICE float scale(const u8* b, u32 e16) { return superScale(b) * (float)intScale(b, e16); }
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
  template <u32 N>
  static X_DEVICE void run(const u8* b, u32 e4, u32 (&q)[N]) {
    const u32 g = groupOf(e4);
    u32 low[N], high[N];
    loadWords2(b + 64 * halfOf(e4) + 32 * (g & 1) + 4 * wordOf(e4), low);
    loadWords2(b + 128 + 32 * halfOf(e4) + 4 * wordOf(e4), high);
#pragma unroll
    for (u32 i = 0; i < N; ++i) {
      const u32 upper = rotated(high[i], 4 - 2 * g);  // two bits where they belong, which the mask leaves
      q[i] = (low[i] >> (4 * (g >> 1)) & 0x0f0f0f0fu) | (upper & 0x30303030u);
    }
  }
  // From eight bytes, which the runs of a thread share.
  static X_DEVICE i32 intScale(const u8* b, u32 e16) {
    u32 words[2];
    loadWords2(b + 192 + (e16 & 8), words);
    return (i8)((e16 & 4 ? words[1] : words[0]) >> (8 * (e16 & 3)));
  }
  static X_DEVICE float superScale(const u8* b) { return half(b + 208); }
  static X_DEVICE float scale(const u8* b, u32 e16) { return superScale(b) * (float)(i8)b[192 + e16]; }
  static X_DEVICE float minimum(const u8*, u32) { return 0.0f; }
};

// Superblocks of 256 whose bytes interleave two groups of 32, with 6-bit scales and minima (q4_K, q5_K). They begin at
// multiples of 16: the head is d, the minima's d and twelve bytes of scales.
struct TwoWay {
  static constexpr u32 SIZE = 256, RUN = 4;
  static constexpr i32 OFFSET = 0;
  static constexpr bool HALVES = false, MINS = true, SIGNED = false, SUPER = true;
  static X_DEVICE u32 first(u32 part, u32 run) { return (part >> 1) * 16 + run * 8 + (part & 1) * 4; }
  static X_DEVICE u32 nibbles(const u8* qs, u32 e4) {
    return (load4(qs + 32 * (e4 >> 4) + 4 * (e4 & 7)) >> (4 * ((e4 >> 3) & 1))) & 0x0f0f0f0fu;
  }
  // Of group g, six bits of byte g & 3 of `own`, or four of `last` below two of `own`: for two groups, a thread's, at once,
  // the first an even one.
  static X_DEVICE u32 twoSixBits(u32 own, u32 last, u32 g) {
    const u32 place = 16 * (g >> 1 & 1), pair = own >> place;
    return g >> 1 < 2 ? pair & 0x3f3f : (last >> place & 0x0f0f) | (pair >> 2 & 0x3030);
  }
  static X_DEVICE i32 sixBits(u32 own, u32 last, u32 g) { return (i32)(twoSixBits(own, last, g) >> (8 * (g & 1)) & 63); }
  static X_DEVICE i32 intScale(const u8* b, u32 e16) {
    const Vec<u32, 4> head = load16(b);
    return sixBits(head[1], head[3], e16 >> 1);
  }
  static X_DEVICE i32 intMinimum(const u8* b, u32 e16) {
    const Vec<u32, 4> head = load16(b);
    return sixBits(head[2], head[3] >> 4, e16 >> 1);
  }
  static X_DEVICE float superScale(const u8* b) { return to_acc(bitCast<f16>((u16)load16(b)[0])); }
  static X_DEVICE float superMinimum(const u8* b) { return to_acc(bitCast<f16>((u16)(load16(b)[0] >> 16))); }
  static X_DEVICE float scale(const u8* b, u32 e16) { return superScale(b) * (float)intScale(b, e16); }
  static X_DEVICE float minimum(const u8* b, u32 e16) { return superMinimum(b) * (float)intMinimum(b, e16); }
};

struct Q4_K : TwoWay {
  static constexpr u32 BYTES = 144;
  static X_DEVICE u32 quad(const u8* b, u32 e4) { return nibbles(b + 16, e4); }
  template <u32 N>
  static X_DEVICE void run(const u8* b, u32 e4, u32 (&q)[N]) {
    u32 words[N];
    loadWords16(b + 16 + 32 * (e4 >> 4) + 4 * (e4 & 7), words);
#pragma unroll
    for (u32 i = 0; i < N; ++i) q[i] = words[i] >> (4 * ((e4 >> 3) & 1)) & 0x0f0f0f0fu;
  }
};

struct Q5_K : TwoWay {
  static constexpr u32 BYTES = 176;
  static X_DEVICE u32 quad(const u8* b, u32 e4) {
    return nibbles(b + 48, e4) | ((load4(b + 16 + 4 * (e4 & 7)) >> (e4 >> 3)) & 0x01010101u) << 4;
  }
  template <u32 N>
  static X_DEVICE void run(const u8* b, u32 e4, u32 (&q)[N]) {
    u32 low[N], high[N];
    loadWords16(b + 48 + 32 * (e4 >> 4) + 4 * (e4 & 7), low);
    loadWords16(b + 16 + 4 * (e4 & 7), high);
#pragma unroll
    for (u32 i = 0; i < N; ++i)
      q[i] = (low[i] >> (4 * ((e4 >> 3) & 1)) & 0x0f0f0f0fu) | (high[i] >> (e4 >> 3) & 0x01010101u) << 4;
  }
};

/** q8_K: f32 d, 256 int8, 16 sums. candle only dequantises it. */
struct Q8_K {
  static constexpr u32 SIZE = 256, BYTES = 292, RUN = 8;
  static constexpr i32 OFFSET = 0;
  static constexpr bool HALVES = false, MINS = false, SIGNED = true, SUPER = false;
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
