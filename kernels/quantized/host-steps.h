// The host's way to 256 quants of a row at once: a step is one superblock or as many small blocks. Its quants are four
// vectors of 64 bytes in an order that is the format's own, so that they come out of their bits by shifts and masks alone;
// activations are brought into that order once for all rows (host-matvec.h).
#pragma once

#if X_HOST
namespace quant {

typedef u8 Bytes64 __attribute__((vector_size(64)));
typedef i8 Signed64 __attribute__((vector_size(64)));
typedef char Chars64 __attribute__((vector_size(64)));
typedef u16 Words32 __attribute__((vector_size(64)));
typedef short Shorts32 __attribute__((vector_size(64)));
typedef i32 Ints16 __attribute__((vector_size(64)));

X_DEVICE Bytes64 joined(Bytes low, Bytes high) {
  return __builtin_shufflevector(low, high, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22,
                                 23, 24, 25, 26, 27, 28, 29, 30, 31, 32, 33, 34, 35, 36, 37, 38, 39, 40, 41, 42, 43, 44, 45,
                                 46, 47, 48, 49, 50, 51, 52, 53, 54, 55, 56, 57, 58, 59, 60, 61, 62, 63);
}
X_DEVICE Bytes64 joined4(Bytes16 a, Bytes16 b, Bytes16 c, Bytes16 d) { return joined(joined(a, b), joined(c, d)); }

// Bytes shifted as words, as registers can: the caller masks what comes in from the neighbour.
X_DEVICE Bytes64 right(Bytes64 v, u32 bits) { return (Bytes64)((Words32)v >> (u16)bits); }
X_DEVICE Bytes64 left(Bytes64 v, u32 bits) { return (Bytes64)((Words32)v << (u16)bits); }
/** low in the lower half, high shifted right by `bits` in the upper; the caller masks. */
X_DEVICE Bytes64 withRight(Bytes v, u32 bits) {
  typedef u16 Words __attribute__((vector_size(32)));
  return joined(v, (Bytes)((Words)v >> (u16)bits));
}

/** How the sixteens of a step lie in the four vectors (`at`). */
enum class Order {
  Plain,    // one after the other
  Halves,   // 128 values two vectors: first halves of four 32s, second halves of the same
  Nibbles,  // 128 values two vectors: 32s 0 and 2, 32s 1 and 3
  Strided,  // 32s v and v + 4
};

template <class Q>
constexpr Order orderOf() {
  if (sameType<Q, Q4_K> || sameType<Q, Q5_K>) return Order::Nibbles;
  if (sameType<Q, Q2_K> || sameType<Q, Q3_K> || sameType<Q, TQ2_0>) return Order::Strided;
  const bool halves = sameType<Q, Q4_0> || sameType<Q, Q4_1> || sameType<Q, Q5_0> || sameType<Q, Q5_1> ||
                      sameType<Q, IQ4_NL> || sameType<Q, IQ4_XS> || sameType<Q, MXFP4> || sameType<Q, NVFP4>;
  return halves ? Order::Halves : Order::Plain;
}

template <class Q>
struct Step {
  static constexpr u32 BLOCKS = 256 / Q::SIZE, BYTES = BLOCKS * Q::BYTES;
  static constexpr Order ORDER = orderOf<Q>();
  /** Vectors 2i and 2i + 1 have their units in the same lanes, and quants so small that sums of products fit 16 bits. */
  static constexpr bool PAIRED = ORDER == Order::Halves && !Q::SIGNED;

  /** The first value of sixteen number i of vector v. */
  static constexpr u32 at(u32 v, u32 i) {
    switch (ORDER) {
      case Order::Plain: return 64 * v + 16 * i;
      case Order::Halves: return 128 * (v >> 1) + 32 * i + 16 * (v & 1);
      case Order::Nibbles: return 128 * (v >> 1) + 64 * (i >> 1) + 32 * (v & 1) + 16 * (i & 1);
      case Order::Strided: return 128 * (i >> 1) + 32 * v + 16 * (i & 1);
    }
  }
  static constexpr u32 unit(u32 v, u32 i) { return at(v, i) / Units<Q>::SIZE; }

  static X_DEVICE void quants(const u8* b, Bytes64 (&q)[4]) {
    if constexpr (ORDER == Order::Halves) {
#pragma unroll
      for (u32 i = 0; i < 2; ++i) halves(b + i * BYTES / 2, i, q[2 * i], q[2 * i + 1]);
    } else if constexpr (ORDER == Order::Nibbles) {
#pragma unroll
      for (u32 i = 0; i < 2; ++i) nibblePair(loadAs<Bytes64>(b + Q::BYTES - 128 + 64 * i), q[2 * i], q[2 * i + 1]);
      if constexpr (sameType<Q, Q5_K>) {
        const Bytes64 high = withRight(loadAs<Bytes>(b + 16), 2);
        q[0] |= left(high & 1, 4);
        q[1] |= left(high & 2, 3);
        q[2] |= high & 16;
        q[3] |= right(high & 32, 1);
      }
    } else if constexpr (ORDER == Order::Strided) {
      const Bytes64 raw = loadAs<Bytes64>(b + (sameType<Q, Q2_K> ? 16 : sameType<Q, Q3_K> ? 32 : 0));
#pragma unroll
      for (u32 v = 0; v < 4; ++v) q[v] = right(raw, 2 * v) & 3;
      if constexpr (sameType<Q, Q3_K>) {
        const Bytes64 high = withRight(loadAs<Bytes>(b), 4);
        q[0] |= left(high & 1, 2);
        q[1] |= left(high & 2, 1);
        q[2] |= high & 4;
        q[3] |= right(high & 8, 1);
      }
    } else if constexpr (sameType<Q, Q6_K>) {
#pragma unroll
      for (u32 i = 0; i < 2; ++i) {
        nibblePair(loadAs<Bytes64>(b + 64 * i), q[2 * i], q[2 * i + 1]);
        const Bytes64 high = withRight(loadAs<Bytes>(b + 128 + 32 * i), 2);
        q[2 * i] |= left(high & 3, 4);
        q[2 * i + 1] |= high & 48;
      }
    } else {
#pragma unroll
      for (u32 v = 0; v < 4; ++v) q[v] = joined(groupOf(b, 2 * v), groupOf(b, 2 * v + 1));
    }
  }

 private:
  static X_DEVICE Bytes groupOf(const u8* b, u32 g) {
    constexpr u32 PER = Q::SIZE / 32;
    return group<Q>(b + g / PER * Q::BYTES, g % PER);
  }

  static X_DEVICE void nibblePair(Bytes64 raw, Bytes64& low, Bytes64& high) {
    low = raw & 15;
    high = right(raw, 4) & 15;
  }

  // Half i of a step of order Halves; b is where it begins in formats of small blocks.
  static X_DEVICE void halves(const u8* b, u32 i, Bytes64& first, Bytes64& second) {
    if constexpr (sameType<Q, NVFP4>) {
      typedef u64 Longs8 __attribute__((vector_size(64)));
      Bytes64 low, high;
      nibblePair(joined(loadAs<Bytes>(b + 4), loadAs<Bytes>(b + Q::BYTES + 4)), low, high);
      low = levels64<Float4>(low);
      high = levels64<Float4>(high);
      first = (Bytes64)__builtin_shufflevector((Longs8)low, (Longs8)high, 0, 8, 2, 10, 4, 12, 6, 14);
      second = (Bytes64)__builtin_shufflevector((Longs8)low, (Longs8)high, 1, 9, 3, 11, 5, 13, 7, 15);
    } else if constexpr (sameType<Q, IQ4_XS>) {
      // Superblocks begin at a multiple of their size, not of half of it.
      nibblePair(loadAs<Bytes64>(b - i * BYTES / 2 + 8 + 64 * i), first, second);
      first = levels64<Uneven>(first);
      second = levels64<Uneven>(second);
    } else {
      const u8* qs = b + Q::BYTES - 16;
      nibblePair(joined4(loadAs<Bytes16>(qs), loadAs<Bytes16>(qs + Q::BYTES), loadAs<Bytes16>(qs + 2 * Q::BYTES),
                         loadAs<Bytes16>(qs + 3 * Q::BYTES)),
                 first, second);
      if constexpr (sameType<Q, Q5_0> || sameType<Q, Q5_1>) {
        const u8* qh = qs - 4;
        const Quad bits = {load2(qh), load2(qh + Q::BYTES), load2(qh + 2 * Q::BYTES), load2(qh + 3 * Q::BYTES)};
        first |= fifths64((Bytes16)(bits & 0xffff));
        second |= fifths64((Bytes16)(bits >> 16));
      } else if constexpr (sameType<Q, IQ4_NL>) {
        first = levels64<Uneven>(first);
        second = levels64<Uneven>(second);
      } else if constexpr (sameType<Q, MXFP4>) {
        first = levels64<Float4>(first);
        second = levels64<Float4>(second);
      }
    }
  }

  // Bit j of word i as bit 4 of byte 16 i + j.
  static X_DEVICE Bytes64 fifths64(Bytes16 words) {
    const Bytes16 eight = {1, 2, 4, 8, 16, 32, 64, 128, 1, 2, 4, 8, 16, 32, 64, 128};
    const Bytes64 spread = __builtin_shufflevector(
        words, words, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 4, 4, 4, 4, 4, 4, 4, 4, 5, 5, 5, 5, 5, 5, 5, 5,  //
        8, 8, 8, 8, 8, 8, 8, 8, 9, 9, 9, 9, 9, 9, 9, 9, 12, 12, 12, 12, 12, 12, 12, 12, 13, 13, 13, 13, 13, 13, 13, 13);
    return (Bytes64)((spread & joined4(eight, eight, eight, eight)) != 0) & 16;
  }

  template <class L>
  static X_DEVICE Bytes64 levels64(Bytes64 index) {
#if defined(__AVX512BW__)
    const u32 words[4] = {L::W0, L::W1, L::W2, L::W3};
    const Bytes16 table = loadAs<Bytes16>((const u8*)words);
    return (Bytes64)__builtin_ia32_pshufb512((Chars64)joined4(table, table, table, table), (Chars64)index);
#else
    return joined(levels<L>(loadAs<Bytes>((const u8*)&index)), levels<L>(loadAs<Bytes>((const u8*)&index + 32)));
#endif
  }
};

}  // namespace quant
#endif
