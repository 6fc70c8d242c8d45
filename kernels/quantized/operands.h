// Quantised rows and columns as f16 operands of matrix units, for stream.h. Whatever the format, a step along k takes four
// elements of each quarter of a span of 256 (a quarter is 64 elements that lie together in the row), so that a lane unpacks one
// quarter, or several where lanes hold more of an operand, and needs that one's scales only. Which elements a step takes is
// the format's affair (Quarter); rows and columns have the same.
//   - values are rounded once: a weight is fma(quant, scale, -minimum) with scale and minimum in f16, an activation quant * scale
//   - weights are 16 times what they are, up to 4094, and activations a sixteenth, up to 1048064, so that small ones keep
//     their digits; beyond that results are not finite
#pragma once

namespace quant {

#if X_MMA

constexpr u32 SPAN = 256, GROUPS = SPAN / 32, STEPS = SPAN / 16;
/** Steps whose elements an operand holds, one behind the other in both operands of a product. */
constexpr u32 STEPS_AT_ONCE = mma::Unit<f16>::K / 16;
constexpr float WEIGHT_UNIT = 16.0f;

/** Two f16 in a word. */
namespace pair {

#if X_MMA_NVIDIA
X_DEVICE u32 of(float v) { return mma::roundPair<f16>(v, v); }
X_DEVICE u32 subtract(u32 a, u32 b) {
  u32 r;
  asm("sub.rn.f16x2 %0, %1, %2;" : "=r"(r) : "r"(a), "r"(b));
  return r;
}
X_DEVICE u32 multiply(u32 a, u32 b) {
  u32 r;
  asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(r) : "r"(a), "r"(b));
  return r;
}
X_DEVICE u32 multiplyAdd(u32 a, u32 b, u32 c) {
  u32 r;
  asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(r) : "r"(a), "r"(b), "r"(c));
  return r;
}
/** Bytes 0 and 1, or 2 and 3, each below the same byte. */
X_DEVICE u32 widen(u32 bytes, u32 above, u32 half) { return permute(bytes, above, half == 0 ? 0x4140 : 0x4342); }
#else
typedef _Float16 Halves __attribute__((ext_vector_type(2)));
X_DEVICE u32 of(float v) {
  const u32 bits = bitCast<u16>(cast<f16>(v));
  return bits | bits << 16;
}
X_DEVICE u32 subtract(u32 a, u32 b) { return bitCast<u32>(bitCast<Halves>(a) - bitCast<Halves>(b)); }
X_DEVICE u32 multiply(u32 a, u32 b) { return bitCast<u32>(bitCast<Halves>(a) * bitCast<Halves>(b)); }
X_DEVICE u32 multiplyAdd(u32 a, u32 b, u32 c) {
  return bitCast<u32>(__builtin_elementwise_fma(bitCast<Halves>(a), bitCast<Halves>(b), bitCast<Halves>(c)));
}
X_DEVICE u32 widen(u32 bytes, u32 above, u32 half) {
  return permute(bytes, above, half == 0 ? 0x04010400u : 0x04030402u);
}
#endif

/** An f16 twice: 1024 and more are whole numbers, 64 to 128 sixteenths of one. */
X_DEVICE constexpr u32 twice(u32 bits) { return bits | bits << 16; }
/** Either value of a pair twice. */
X_DEVICE u32 twiceOf(u32 pair, u32 half) {
#if X_MMA_NVIDIA
  return permute(pair, pair, half == 0 ? 0x1010 : 0x3232);
#else
  return permute(pair, pair, half == 0 ? 0x01000100u : 0x03020302u);
#endif
}
/** Bytes 0 and 1, or 2 and 3, less `zero`, as numbers. `above`: 0x64 in each byte. */
X_DEVICE u32 numbers(u32 bytes, u32 above, u32 half, u32 zero = 0) {
  return subtract(widen(bytes, above, half), twice(0x6400 + zero));
}

}  // namespace pair

/** How a format's span is cut: scales of a quarter, and where the four elements that quarter t has in a step lie. */
template <class Q>
struct Quarter {
  static constexpr bool SUPER = Q::SIZE == SPAN, FOUR_WAY = SUPER && Q::HALVES, TWO_WAY = SUPER && !Q::HALVES;
  static constexpr u32 SCALES = FOUR_WAY ? 4 : 2, STEPS_EACH = STEPS / SCALES;
  /** Quads that lie together and are loaded at once. */
  static constexpr u32 RUN = FOUR_WAY ? 4 : 8;

  static X_DEVICE const u8* block(const u8* span, u32 t, u32 step) {
    return SUPER ? span : span + (2 * t + step / 8) * Q::BYTES;
  }
  static X_DEVICE u32 quad(u32 t, u32 step) {
    return FOUR_WAY ? t / 2 * 32 | step / 4 * 8 | t % 2 * 4 | step % 4 : SUPER ? 16 * t | step : step % 8;
  }
  /** The inverse: word w of the 32 elements g is of a quarter, in a step. */
  static X_DEVICE u32 quarterOf(u32 g, u32 w) { return operands::quarterOf(FOUR_WAY, g, w); }
  static X_DEVICE u32 stepOf(u32 g, u32 w) { return operands::stepOf(FOUR_WAY, g, w); }
};

/** What a lane unpacks of a row's span: a quarter's quants, and its scales and minima as pairs. */
template <class Q>
struct RowQuarter {
  typedef Quarter<Q> Cut;
  u32 quads[STEPS], scale[Cut::SCALES], minimum[Q::MINS ? Cut::SCALES : 1], above;

  /**
   * `left`: groups of 32 from the span's first one on to the row's end; what lies past it is nothing. `above_`: 0x64 in each
   * byte, which the compiler does not know, so that it stays in one register.
   */
  X_DEVICE void load(const u8* span, u32 t, u32 left, u32 above_) {
    above = above_;
#pragma unroll
    for (u32 i = 0; i < STEPS; i += Cut::RUN) {
      u32 run[Cut::RUN];
      runOf<Q>(Cut::block(span, t, i), Cut::quad(t, i), run, 0);
#pragma unroll
      for (u32 j = 0; j < Cut::RUN; ++j) quads[i + j] = run[j];
    }
    if constexpr (Cut::TWO_WAY) {
      const Vec<u32, 4> head = load16(span);
      const u32 scales = Q::twoSixBits(head[1], head[3], 2 * t), minima = Q::twoSixBits(head[2], head[3] >> 4, 2 * t);
      const u32 unit = pair::multiply(head[0], 0xcc004c00u);  // d by 16, the minima's d by -16
      const u32 d = pair::multiply(pair::numbers(scales, above, 0), pair::twiceOf(unit, 0));
      const u32 m = pair::multiply(pair::numbers(minima, above, 0), pair::twiceOf(unit, 1));
#pragma unroll
      for (u32 s = 0; s < 2; ++s) scale[s] = pair::twiceOf(d, s), minimum[s] = pair::twiceOf(m, s);
      return;
    }
#pragma unroll
    for (u32 s = 0; s < Cut::SCALES; ++s) {
      const u32 step = s * Cut::STEPS_EACH, e16 = Cut::quad(t, step) / 4;
      const u8* b = Cut::block(span, t, step);
      const bool inside = Cut::SUPER || 2 * t + s < left;
      const float d = Q::scale(b, e16) * WEIGHT_UNIT;
      scale[s] = inside ? pair::of(d) : 0;
      if constexpr (Q::MINS) {
        const float m = Q::minimum(b, e16) * -WEIGHT_UNIT;
        minimum[s] = inside ? pair::of(m) : 0;
      }
    }
  }

  /** Elements 0 and 1, or 2 and 3, of a step. */
  X_DEVICE u32 operator()(u32 step, u32 half) const {
    constexpr u32 SIGN = Q::SIGNED ? 0x80808080u : 0;
    const u32 whole = pair::numbers(quads[step] ^ SIGN, above, half, Q::SIGNED ? 128 : Q::OFFSET);
    const u32 s = step / Cut::STEPS_EACH;
    if constexpr (Q::MINS) return pair::multiplyAdd(whole, scale[s], minimum[s]);
    else return pair::multiply(whole, scale[s]);
  }
};

/** Rows of an operand that a lane holds words of, and quarters of each. */
#if X_MMA_NVIDIA
constexpr u32 HELD_ROWS = 2, HELD_QUARTERS = 1;
X_DEVICE u32 heldRow(u32 i) { return laneId() / 4 + 8 * i; }
X_DEVICE u32 heldQuarter(u32) { return laneId() % 4; }
#else
constexpr u32 HELD_ROWS = 1, HELD_QUARTERS = mma::Unit<f16>::WORDS / STEPS_AT_ONCE / 2;
X_DEVICE u32 heldRow(u32) { return laneId() % 16; }
#if X_MMA_GFX11  // both halves of a wave hold the same
X_DEVICE u32 heldQuarter(u32 i) { return i; }
#else
X_DEVICE u32 heldQuarter(u32 i) { return laneId() / 16 * HELD_QUARTERS + i; }
#endif
#endif

/** A span of 16 rows as left operands. */
template <class Q>
struct RowOperands {
  RowQuarter<Q> held[HELD_ROWS][HELD_QUARTERS];

  /** `begin(r)`: where the span of row r begins. */
  template <class Begin>
  X_DEVICE void load(u32 left, u32 above, Begin begin) {
#pragma unroll
    for (u32 r = 0; r < HELD_ROWS; ++r) {
      const u8* span = begin(heldRow(r));
#pragma unroll
      for (u32 i = 0; i < HELD_QUARTERS; ++i) held[r][i].load(span, heldQuarter(i), left, above);
    }
  }

  /** Of `step` and those behind it that an operand holds. */
  X_DEVICE mma::Operand<f16> operator[](u32 step) const {
    mma::Operand<f16> x;
#if X_MMA_NVIDIA
#pragma unroll
    for (u32 w = 0; w < 4; ++w) x.word[w] = held[w % 2][0](step, w / 2);
#else
#pragma unroll
    for (u32 s = 0; s < STEPS_AT_ONCE; ++s)
#pragma unroll
      for (u32 w = 0; w < 2 * HELD_QUARTERS; ++w) x.word[2 * HELD_QUARTERS * s + w] = held[0][w / 2](step + s, w % 2);
#endif
    return x;
  }
};

/**
 * COLUMNS columns of a span as right operands in shared memory, 32 bytes each and step, in two pieces of 16. NVIDIA's are as
 * shared/wgmma.h has them, four steps of all columns after the other, which mma.sync reads as well; on AMD columns have a piece
 * more, so that they begin in different banks.
 */
template <u32 COLUMNS>
struct ColumnOperands {
#if X_MMA_NVIDIA
  static constexpr u32 BLOCK = COLUMNS * 128, BYTES = STEPS / 4 * BLOCK;
  static X_DEVICE u32 at(u32 column, u32 step, u32 half) {
    return step / 4 * BLOCK + column * 128 + ((step % 4 * 2 + half) ^ column % 8) * 16;
  }
#else
  static constexpr u32 STRIDE = SPAN * 2 + 16, BYTES = COLUMNS * STRIDE;
  static X_DEVICE u32 at(u32 column, u32 step, u32 half) { return column * STRIDE + step * 32 + half * 16; }
#endif
  alignas(16) u8 bytes[BYTES];

  /** WORDS words, from `first` on, of 32 activations of a column in a q8_1 block, or zeros. */
  template <class Q, u32 WORDS>
  X_DEVICE void convert(u32 column, const u8* block, u32 g, u32 first, bool inside) {
    typedef Quarter<Q> Cut;
    const u32 scale = inside ? pair::twice(*(const u16*)block) : 0;
    // Lanes beside each other begin at other words, so that they write to different banks.
    const auto word = [&](u32 j) { return WORDS < 8 ? first + j : Cut::FOUR_WAY ? (j & 4) | (j + g) % 4 : (j + 2 * g) % 8; };
    u32 quads[WORDS];
#pragma unroll
    for (u32 j = 0; j < WORDS; ++j) quads[j] = Q8_1::quad(block, word(j));
#pragma unroll
    for (u32 j = 0; j < WORDS; ++j) {
      const u32 w = word(j), quad = quads[j] ^ 0x80808080u;
      u32 values[2];
#pragma unroll
      for (u32 half = 0; half < 2; ++half)
        values[half] = pair::multiply(pair::subtract(pair::widen(quad, 0x54545454u, half), pair::twice(0x5480)), scale);
      const u32 step = Cut::stepOf(g, w), t = Cut::quarterOf(g, w);
#if X_MMA_NVIDIA
      // The first half of an operand along k has elements 0 and 1 of all quarters.
      u8* const to[2] = {bytes + at(column, step, 0), bytes + at(column, step, 1)};
      ((u32*)to[0])[t] = values[0];
      ((u32*)to[1])[t] = values[1];
#else
      u8* const to = bytes + at(column, step, 0);
      storeVec((u32*)to + 2 * t, Vec<u32, 2>{values[0], values[1]});
#endif
    }
  }

  /** Columns 16 * j to 16 * j + 15 in a step, and in those behind it that an operand holds. */
  X_DEVICE mma::Operand<f16> load(u32 j, u32 step) const {
#if X_MMA_NVIDIA
    mma::Operand<f16> y;
    mma::loadMatrices(y.word, mma::sharedAddress(bytes) + at(16 * j + mma::rowToLoad<true>(), step, mma::halfToLoad<true>()));
    return y;
#elif X_MMA_CDNA == 4
    mma::Operand<f16> y;
    const u8* const own = bytes + at(16 * j + laneId() % 16, step, 0) + laneId() / 16 * 8;
#pragma unroll
    for (u32 s = 0; s < STEPS_AT_ONCE; ++s)
#pragma unroll
      for (u32 w = 0; w < 2; ++w) y.word[2 * s + w] = ((const u32*)(own + s * 32))[w];
    return y;
#else
    return mma::load<f16, true>(bytes + at(16 * j, step, 0), STRIDE);
#endif
  }
};

#endif

}  // namespace quant
