// The host's way to 256 quants of a row at once: a step is one superblock or as many small blocks. Its quants are four
// vectors of 64 bytes. A lane (four bytes) is of the same sixteen values in all four, so that four dot products are
// added up and then multiplied with one scale a lane. Beyond that the order is the format's own: that in which shifts
// and masks bring quants out of their bits. Activations are brought into it once for many rows (host-products.h).
#pragma once

#if X_HOST
namespace quant {

/** Lane 4t + v of vector i is dword i of what lanes 4t to 4t + 3 of vector v, a sixteen, were. */
X_DEVICE void transpose(Bytes64 (&v)[4]) {
#define PAIRS(x, y, a)                                                                                                 \
  __builtin_shufflevector((Ints16)x, (Ints16)y, a, a + 16, a + 1, a + 17, a + 4, a + 20, a + 5, a + 21, a + 8, a + 24, \
                          a + 9, a + 25, a + 12, a + 28, a + 13, a + 29)
#define FOURS(x, y, a)                                                                                                 \
  __builtin_shufflevector(x, y, a, a + 1, a + 16, a + 17, a + 4, a + 5, a + 20, a + 21, a + 8, a + 9, a + 24, a + 25,  \
                          a + 12, a + 13, a + 28, a + 29)
  const Ints16 low01 = PAIRS(v[0], v[1], 0), high01 = PAIRS(v[0], v[1], 2);
  const Ints16 low23 = PAIRS(v[2], v[3], 0), high23 = PAIRS(v[2], v[3], 2);
  v[0] = (Bytes64)FOURS(low01, low23, 0);
  v[1] = (Bytes64)FOURS(low01, low23, 2);
  v[2] = (Bytes64)FOURS(high01, high23, 0);
  v[3] = (Bytes64)FOURS(high01, high23, 2);
#undef PAIRS
#undef FOURS
}

/** Which sixteen is in lane 4t + v (Step::at); before `transpose` it is lanes 4t to 4t + 3 of vector v. */
enum class Order {
  Plain,     // one after the other
  Halves,    // 128 values two vectors: first halves of four 32s, second halves of the same
  Nibbles,   // 128 values two vectors: 32s 0 and 2, 32s 1 and 3
  Strided,   // 32s v and v + 4
  Ternary,   // digits v of TQ1_0's bytes, and fifth digits
  Quarters,  // NVFP4's, whose quarters come out of their bits one a vector
  Entries,   // codebooks': one after the other in the lanes; bytes as host-codebooks.h has them
};

template <class Q>
constexpr Order orderOf() {
  if (sameType<Q, Q4_K> || sameType<Q, Q5_K>) return Order::Nibbles;
  if (sameType<Q, Q2_K> || sameType<Q, Q3_K> || sameType<Q, TQ2_0>) return Order::Strided;
  if (sameType<Q, TQ1_0>) return Order::Ternary;
  if (sameType<Q, NVFP4>) return Order::Quarters;
  if (codebookOf<Q>() != Codebook::None) return Order::Entries;
  const bool halves = sameType<Q, Q4_0> || sameType<Q, Q4_1> || sameType<Q, Q5_0> || sameType<Q, Q5_1> ||
                      sameType<Q, IQ4_NL> || sameType<Q, IQ4_XS> || sameType<Q, MXFP4>;
  return halves ? Order::Halves : Order::Plain;
}

template <class Q>
struct Step {
  static constexpr u32 BLOCKS = 256 / Q::SIZE, BYTES = BLOCKS * Q::BYTES;
  static constexpr Order ORDER = orderOf<Q>();

  /** The first value of the sixteen in lane 4t + v. */
  static constexpr u32 at(u32 v, u32 t) {
    switch (ORDER) {
      case Order::Plain: return 64 * v + 16 * t;
      case Order::Halves: return 128 * (v >> 1) + 32 * t + 16 * (v & 1);
      case Order::Nibbles: return 128 * (v >> 1) + 64 * (t >> 1) + 32 * (v & 1) + 16 * (t & 1);
      case Order::Strided: return 128 * (t >> 1) + 32 * v + 16 * (t & 1);
      case Order::Ternary: return t < 2 ? 32 * v + 16 * t : (t == 2 ? 160 : v < 2 ? 128 : 192) + 16 * v;
      case Order::Quarters: return 128 * (v >> 1) + 32 * t + 16 * (v & 1);
      case Order::Entries: return 64 * t + 16 * v;
    }
  }
  static constexpr u32 valueOfLane(u32 lane) { return at(lane & 3, lane >> 2); }
  /** The lane of a sixteen's values. */
  static constexpr u32 laneOf(u32 value) {
    u32 lane = 0;
    while (valueOfLane(lane) != value / 16 * 16) ++lane;
    return lane;
  }

  /** What quants are larger by than what they stand for. */
  static constexpr i32 OFFSET = Q::SIGNED ? BIAS : Q::OFFSET;

  static X_DEVICE void quants(const u8* b, Bytes64 (&q)[4]) {
    unpack(b, q);
    if constexpr (HAS_SIXTEENS) transpose(q);
  }

  /** Whether `unpack` leaves the sixteens at(v, 0) to at(v, 3) in vector v, one after the other; else it leaves them in lanes. */
  static constexpr bool HAS_SIXTEENS = ORDER != Order::Entries && ORDER != Order::Quarters;

  static X_DEVICE void unpack(const u8* b, Bytes64 (&q)[4]) {
    if constexpr (ORDER == Order::Entries) {
      codebookQuants<Q>(b, q);
    } else if constexpr (ORDER == Order::Quarters) {
      quarters(b, q);
    } else if constexpr (ORDER == Order::Halves) {
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
    } else if constexpr (ORDER == Order::Ternary) {
      ternary(b, q);
    } else if constexpr (sameType<Q, Q6_K>) {
#pragma unroll
      for (u32 i = 0; i < 2; ++i) {
        nibblePair(loadAs<Bytes64>(b + 64 * i), q[2 * i], q[2 * i + 1]);
        const Bytes64 high = withRight(loadAs<Bytes>(b + 128 + 32 * i), 2);
        q[2 * i] |= left(high & 3, 4);
        q[2 * i + 1] |= high & 48;
      }
    } else {
      constexpr u32 PER = Q::SIZE / 32;
#pragma unroll
      for (u32 v = 0; v < 4; ++v) {
        const u8 *first = b + 2 * v / PER * Q::BYTES, *second = b + (2 * v + 1) / PER * Q::BYTES;
        q[v] = joined(group<Q>(first, 2 * v % PER), group<Q>(second, (2 * v + 1) % PER)) + BIAS;
      }
    }
  }

 private:
  static X_DEVICE void nibblePair(Bytes64 raw, Bytes64& low, Bytes64& high) {
    low = raw & 15;
    high = right(raw, 4) & 15;
  }

  // Half i of a step of order Halves; b is where it begins in formats of small blocks.
  static X_DEVICE void halves(const u8* b, u32 i, Bytes64& first, Bytes64& second) {
    if constexpr (sameType<Q, IQ4_XS>) {
      // Superblocks begin at a multiple of their size, not of half of it.
      nibblePair(loadAs<Bytes64>(b - i * BYTES / 2 + 8 + 64 * i), first, second);
      first = levels64<Biased<Uneven>>(first);
      second = levels64<Biased<Uneven>>(second);
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
        first = levels64<Biased<Uneven>>(first);
        second = levels64<Biased<Uneven>>(second);
      } else if constexpr (sameType<Q, MXFP4>) {
        first = levels64<Biased<Float4>>(first);
        second = levels64<Biased<Float4>>(second);
      }
    }
  }

  // A sixteen is eight bytes, its quarters the halves of these, low and high.
  static X_DEVICE void quarters(const u8* b, Bytes64 (&q)[4]) {
    const Ints16 first = (Ints16)joined(loadAs<Bytes>(b + 4), loadAs<Bytes>(b + Q::BYTES + 4));
    const Ints16 second = (Ints16)joined(loadAs<Bytes>(b + 2 * Q::BYTES + 4), loadAs<Bytes>(b + 3 * Q::BYTES + 4));
    const Ints16 even =
        __builtin_shufflevector(first, second, 0, 2, 16, 18, 4, 6, 20, 22, 8, 10, 24, 26, 12, 14, 28, 30);
    const Ints16 odd =
        __builtin_shufflevector(first, second, 1, 3, 17, 19, 5, 7, 21, 23, 9, 11, 25, 27, 13, 15, 29, 31);
    nibblePair((Bytes64)even, q[0], q[2]);
    nibblePair((Bytes64)odd, q[1], q[3]);
#pragma unroll
    for (u32 v = 0; v < 4; ++v) q[v] = levels64<Biased<Float4>>(q[v]);
  }

  // Bytes times 3^n hold digit n as what one more 3 pushes over the top: 48 of five digits and four of four.
  static X_DEVICE void ternary(const u8* b, Bytes64 (&q)[4]) {
    const Quad last = Quad{} + load2(b + 48);
    Ints16 power[5];
    power[0] = (Ints16)joined4(loadAs<Bytes16>(b), loadAs<Bytes16>(b + 16), loadAs<Bytes16>(b + 32), (Bytes16)last);
#pragma unroll
    for (u32 n = 1; n < 5; ++n) {
      const Bytes64 before = (Bytes64)power[n - 1];
      power[n] = (Ints16)(Bytes64)(before + before + before);
    }
    // Lanes 0 to 2 of x, and four numbers of x or y.
#define LAST(x, y, a, c, d, e) __builtin_shufflevector(x, y, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, a, c, d, e)
    q[0] = digits(LAST(power[0], power[4], 16, 17, 18, 19));
    q[1] = digits(LAST(power[1], power[4], 20, 21, 22, 23));
    q[2] = digits(LAST(power[2], power[4], 24, 25, 26, 27));
    const Ints16 mixed = LAST(power[3], LAST(power[0], power[1], 12, 29, 14, 15), 28, 29, 14, 15);
    q[3] = digits(LAST(mixed, power[2], 12, 13, 30, 15));
#undef LAST
  }
  static X_DEVICE Bytes64 digits(Ints16 fractions) {
    const Bytes64 x = (Bytes64)fractions, none = {};
    const Bytes64 one = x >= 86 ? none + 1 : none;
    return x >= 171 ? one + 1 : one;
  }

  // Bit j of word i as bit 4 of byte 16 i + j.
  static X_DEVICE Bytes64 fifths64(Bytes16 words) {
    const Bytes16 eight = {1, 2, 4, 8, 16, 32, 64, 128, 1, 2, 4, 8, 16, 32, 64, 128};
    const Bytes64 spread = __builtin_shufflevector(
        words, words, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 4, 4, 4, 4, 4, 4, 4, 4, 5, 5, 5, 5, 5, 5, 5, 5,  //
        8, 8, 8, 8, 8, 8, 8, 8, 9, 9, 9, 9, 9, 9, 9, 9, 12, 12, 12, 12, 12, 12, 12, 12, 13, 13, 13, 13, 13, 13, 13, 13);
    return (Bytes64)((spread & joined4(eight, eight, eight, eight)) != 0) & 16;
  }
};

}  // namespace quant
#endif
