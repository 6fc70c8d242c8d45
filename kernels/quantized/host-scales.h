// The scales and minima of 256 values (a superblock, or as many small blocks), those of all units in one vector: what the
// formats' structs give one by one. A unit is the 16 or 32 values that share a scale.
#pragma once

#if X_HOST
namespace quant {

template <class Q>
struct Units {
  static constexpr u32 SIZE = Q::HALVES ? 16 : 32, COUNT = 256 / SIZE;
  typedef float Floats __attribute__((vector_size(4 * COUNT)));
  typedef u32 Words __attribute__((vector_size(4 * COUNT)));
  typedef u8 Bytes __attribute__((vector_size(COUNT)));
  typedef i8 Signed __attribute__((vector_size(COUNT)));

  /** What a unit's quants are multiplied with. */
  static X_DEVICE Floats scales(const u8* b) {
    if constexpr (sameType<Q, Q4_K> || sameType<Q, Q5_K>) {
      return floats(sixBits(b, 0)) * half(b);
    } else if constexpr (sameType<Q, Q2_K>) {
      return floats(loadAs<Bytes>(b) & 15) * half(b + 80);
    } else if constexpr (sameType<Q, Q3_K>) {
      const u32 w0 = load2(b + 96), w1 = load2(b + 100), w2 = load2(b + 104);
      const Quad low = (Quad{w0, w1, w0, w1} >> Quad{0, 0, 4, 4}) & 0x0f0f0f0fu;
      const Quad high = (Quad{w2, w2, w2, w2} >> Quad{0, 2, 4, 6}) & 0x03030303u;
      return floats((Signed)(low | high << 4) - 32) * half(b + 108);
    } else if constexpr (sameType<Q, Q6_K>) {
      return floats(loadAs<Signed>(b + 192)) * half(b + 208);
    } else if constexpr (sameType<Q, IQ4_XS>) {
      const Words low = fields(load4(b + 4), 4) & 15, high = fields(load4(b) >> 16, 2) & 3;
      return (floats(low | high << 4) - 32) * half(b);
    } else if constexpr (sameType<Q, IQ2_XXS>) {
      typedef u64 Longs __attribute__((vector_size(64)));
      return odd(__builtin_convertvector(loadAs<Longs>(b + 2) >> 60, Words)) * (half(b) * 0.125f);
    } else if constexpr (sameType<Q, IQ3_XXS>) {
      return odd(loadAs<Words>(b + 66) >> 28) * (half(b) * 0.25f);
    } else if constexpr (sameType<Q, IQ2_XS> || sameType<Q, IQ2_S>) {
      return odd(nibbles16(b + Q::BYTES - 8)) * (half(b) * 0.125f);
    } else if constexpr (sameType<Q, IQ3_S>) {
      return odd(fields(load2(b + 106), 4) & 15) * half(b);
    } else if constexpr (sameType<Q, IQ1_S>) {
      typedef u16 Shorts __attribute__((vector_size(16)));
      return odd(__builtin_convertvector(loadAs<Shorts>(b + 34) >> 12 & 7, Words)) * (half(b) * 0.125f);
    } else if constexpr (sameType<Q, IQ1_M>) {
      const u32 w0 = load4(b + 48), w1 = load4(b + 52), v0 = w0 >> 16, v1 = w1 >> 16;
      const Words words = {w0, w0, w0, w0, v0, v0, v0, v0, w1, w1, w1, w1, v1, v1, v1, v1};
      return odd(words >> Words{0, 3, 6, 9, 0, 3, 6, 9, 0, 3, 6, 9, 0, 3, 6, 9} & 7) * (IQ1_M::blockScale(b) * 0.125f);
    } else if constexpr (sameType<Q, NVFP4>) {
      const Quad four = {load4(b), load4(b + Q::BYTES), load4(b + 2 * Q::BYTES), load4(b + 3 * Q::BYTES)};
      const Bytes bytes = (Bytes)four;
      // Its bits are those of a float that is 2^-7 of it, subnormals included: an f16, or an f32 of 2^-119.
      const Bytes counted = bytes & (Bytes)(bytes != 0x7f) & 127;
#if !X_F16_BITS
      typedef _Float16 Halves __attribute__((vector_size(32)));
      typedef u16 Shorts __attribute__((vector_size(32)));
      return __builtin_convertvector((Halves)(__builtin_convertvector(counted, Shorts) << 7), Floats) * 0x1p7f;
#else
      return (Floats)(__builtin_convertvector(counted, Words) << 20) * 0x1p119f;
#endif
    } else if constexpr (sameType<Q, MXFP4>) {
      const Words e = {b[0], b[17], b[34], b[51], b[68], b[85], b[102], b[119]};
      const Words tiny = (Words)(e < 2);
      return (Floats)((tiny & 0x00200000u << (e & 1)) | (~tiny & (e - 1) << 23));
    } else if constexpr (Q::SIZE == 32) {
      return eightHalves(b);
    } else {
      return Floats{} + Q::scale(b, 0);
    }
  }

  /** What a unit's values are less than scale times quant. */
  static X_DEVICE Floats minima(const u8* b) {
    if constexpr (sameType<Q, Q4_K> || sameType<Q, Q5_K>) return floats(sixBits(b, 1)) * half(b + 2);
    else if constexpr (sameType<Q, Q2_K>) return floats(loadAs<Bytes>(b) >> 4) * half(b + 82);
    else return -eightHalves(b + 2);
  }

 private:
  template <class V>
  static X_DEVICE Floats floats(V integers) {
    return __builtin_convertvector(integers, Floats);
  }
  // Twice a field plus one.
  static X_DEVICE Floats odd(Words fields) { return floats(fields << 1 | 1); }

  // Eight fields of `bits` bits, the first lowest; the caller masks.
  static X_DEVICE Words fields(u32 word, u32 bits) { return (Words{} + word) >> (Words{0, 1, 2, 3, 4, 5, 6, 7} * bits); }
  static X_DEVICE Words nibbles16(const u8* p) {
    const u32 w0 = load2(p), w1 = load2(p + 4);
    return Words{w0, w0, w0, w0, w0, w0, w0, w0, w1, w1, w1, w1, w1, w1, w1, w1} >>
               Words{0, 4, 8, 12, 16, 20, 24, 28, 0, 4, 8, 12, 16, 20, 24, 28} &
           15;
  }

  // The scales (which = 0) or minima (1) of q4_K and q5_K.
  static X_DEVICE Bytes sixBits(const u8* b, u32 which) {
    typedef u32 Two __attribute__((vector_size(8)));
    const u32 word = load4(b + 4 + 4 * which), high = load4(b + 12) >> (4 * which);
    return (Bytes)Two{word & 0x3f3f3f3fu, (high & 0x0f0f0f0fu) | ((word >> 6) & 0x03030303u) << 4};
  }

  // The f16 at p in each of eight small blocks.
  static X_DEVICE Floats eightHalves(const u8* p) {
#if !X_F16_BITS
    typedef _Float16 Halves __attribute__((vector_size(16)));
    // Put together outside of vector registers: cores have fewer ports for these.
    u64 words[2] = {};
#pragma unroll
    for (u32 i = 0; i < 8; ++i) words[i / 4] |= (u64) * (const u16*)(p + i * Q::BYTES) << 16 * (i % 4);
    asm("" : "+r"(words[0]), "+r"(words[1]));
    return __builtin_convertvector(loadAs<Halves>((const u8*)words), Floats);
#else
    Floats values;
#pragma unroll
    for (u32 i = 0; i < 8; ++i) values[i] = half(p + i * Q::BYTES);
    return values;
#endif
  }
};

/** What units of SIZE values have, in the lanes of a step. */
template <class Q, u32 SIZE, class V>
X_DEVICE Floats16 ofLanes(V units) {
#define LANE(i) Step<Q>::valueOfLane(i) / SIZE
  return __builtin_shufflevector(units, units, LANE(0), LANE(1), LANE(2), LANE(3), LANE(4), LANE(5), LANE(6), LANE(7),
                                 LANE(8), LANE(9), LANE(10), LANE(11), LANE(12), LANE(13), LANE(14), LANE(15));
#undef LANE
}

}  // namespace quant
#endif
