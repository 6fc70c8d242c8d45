// Quantised rows times many q8_1 columns on ARM with matrix products of bytes (FEAT_I8MM): an instruction multiplies eight values of
// two rows with eight of two columns. Panels are those of host-panels.h, with two dwords of two rows side by side; columns go in
// pairs. A register of sums is then two rows' of the first column, the second of each pair: row 0, column 0; row 0, column 1; row 1,
// column 0; row 1, column 1. Integers and the order of sums are those of dot products.
#pragma once

#if X_HOST && defined(__ARM_FEATURE_MATMUL_INT8)
#define QUANT_MMLA 1
namespace quant {

typedef float Floats4 __attribute__((vector_size(16)));

/** Adds the products of eight values of two rows with those of two columns. */
X_DEVICE Ints4 addTwoByTwo(Ints4 sums, Bytes16 rows, Bytes16 columns) {
  return __builtin_neon_vmmlaq_s32((Signed16)sums, (Signed16)rows, (Signed16)columns, 34);
}
/** Of sixteen lanes of each, those of the lower (0) or the upper (1) eight in turn. */
template <u32 HALF, class V>
X_DEVICE V inTurn(V a, V b) {
#define TURN(i) 8 * HALF + (i), 16 + 8 * HALF + (i)
  return __builtin_shufflevector(a, b, TURN(0), TURN(1), TURN(2), TURN(3), TURN(4), TURN(5), TURN(6), TURN(7));
#undef TURN
}

/** `p` for columns `column0` to `column0 + columns`: what HostTile computes. */
template <class Q>
struct MmlaTile {
  static constexpr u64 COLUMNS = HostTile<Q>::COLUMNS, STEPS = HostTile<Q>::STEPS;
  static constexpr u64 PAIRS = 2;  // of columns whose sums registers hold
  static constexpr u32 UNITS = Units<Q>::COUNT, EIGHTS = Units<Q>::SIZE / 8;
  const HostProducts<Q>& p;
  u64 column0, columns;

  /** What steps `first` to `first + HostProducts::STEPS` add. */
  X_DEVICE void add(u64 first) const {
    constexpr u64 MOST = HostProducts<Q>::STEPS;
    const u64 steps = p.steps() - first < MOST ? p.steps() - first : MOST;
    Columns opened[COLUMNS / 2 * MOST * UNITS];
    for (u64 c = 0; c < columns; c += 2)
      for (u64 k = 0; k < steps; ++k) openColumns(c, first + k, opened + c / 2 * steps * UNITS + k, steps);
    for (u64 row = p.begin; row < p.end; row += 16) addPanel(row, first, steps, opened);
  }

 private:
  /** A unit of sixteen rows, two a register. */
  struct alignas(64) Rows {
    Bytes16 q[8][EIGHTS];
    Floats4 scales[8];
    Floats4 minima[Q::MINS ? 8 : 0];
  };
  /** A unit of two columns. */
  struct Columns {
    Bytes16 values[EIGHTS];
    Floats4 d;
    union {
      Ints4 start;   // as ColumnUnit has them
      Floats4 sums;
    };
  };
  typedef Floats4 Sums[PAIRS][8];

  /** Columns c and c + 1, which is c once more where there is none. */
  X_DEVICE void openColumns(u64 c, u64 step, Columns* units, u64 apart) const {
    const u64 at = 8 * step, left = p.inner / 32 - at, second = c + 1 < columns ? c + 1 : c;
    const u8* y = p.y + at * Q8_1::BYTES;
    ColumnUnit<Q> own[2][UNITS];
    openColumn<Q>(y + (column0 + c) * p.columnBytes, (u32)(left < 8 ? left : 8), own[0], 1);
    openColumn<Q>(y + (column0 + second) * p.columnBytes, (u32)(left < 8 ? left : 8), own[1], 1);
    for (u32 u = 0; u < UNITS; ++u) {
      const ColumnUnit<Q>&a = own[0][u], &b = own[1][u];
      Columns& unit = units[u * apart];
#pragma unroll
      for (u32 e = 0; e < EIGHTS; ++e)
        unit.values[e] = (Bytes16)Quad{a.dwords[2 * e], a.dwords[2 * e + 1], b.dwords[2 * e], b.dwords[2 * e + 1]};
      unit.d = Floats4{a.d, b.d, a.d, b.d};
      if constexpr (Q::MINS) unit.sums = Floats4{a.sum, b.sum, a.sum, b.sum};
      else unit.start = Ints4{a.start, b.start, a.start, b.start};
    }
  }

  X_DEVICE void openPanel(u64 row, u64 step, Rows* units) const {
    PanelUnit<Q> own[UNITS];
    openRows<Q>(p, row, step, own, 1);
    for (u32 u = 0; u < UNITS; ++u) {
      Rows& unit = units[u * STEPS];
#pragma unroll
      for (u32 e = 0; e < EIGHTS; ++e) {
        const Ints16 even = (Ints16)own[u].q[2 * e], odd = (Ints16)own[u].q[2 * e + 1];
        const Ints16 halves[2] = {inTurn<0>(even, odd), inTurn<1>(even, odd)};
#pragma unroll
        for (u32 r = 0; r < 8; ++r) unit.q[r][e] = loadAs<Bytes16>((const u8*)halves + 16 * r);
      }
      twice(own[u].scales, unit.scales);
      if constexpr (Q::MINS) twice(own[u].minima[0], unit.minima);
    }
  }
  static X_DEVICE void twice(Floats16 rows, Floats4* pairs) {
    const Floats16 halves[2] = {inTurn<0>(rows, rows), inTurn<1>(rows, rows)};
    __builtin_memcpy(pairs, halves, sizeof(halves));
  }

  X_DEVICE void addPanel(u64 row, u64 first, u64 steps, const Columns* opened) const {
    const u64 pairs = (columns + 1) / 2;
    Sums sums[COLUMNS / 2 / PAIRS][UNITS];
    for (u64 k0 = 0; k0 < steps; k0 += STEPS) {
      Rows panel[UNITS][STEPS];
      const u64 count = steps - k0 < STEPS ? steps - k0 : STEPS;
      for (u64 k = 0; k < count; ++k) openPanel(row, first + k0 + k, panel[0] + k);
      for (u64 c = 0; c < pairs; c += PAIRS) {
        const Columns* group[PAIRS];
        for (u64 i = 0; i < PAIRS; ++i) group[i] = opened + (c + i < pairs ? c + i : pairs - 1) * steps * UNITS + k0;
#pragma unroll 1
        for (u32 unit = 0; unit < UNITS; ++unit)
          multiply(panel[unit], count, group, unit * steps, k0 == 0, sums[c / PAIRS][unit]);
      }
    }
    for (u64 c = 0; c < columns; c += 2) store(sums[c / 2 / PAIRS], c / 2 % PAIRS, row, c, first > 0);
  }

  /** Adds the products of a unit of `count` steps with those of the group that are `from` on from where its columns begin. */
  static X_DEVICE void multiply(const Rows* steps, u64 count, const Columns* const (&group)[PAIRS], u64 from, bool first,
                                Sums& sums) {
    Sums acc;
#pragma unroll
    for (u32 i = 0; i < PAIRS * 8; ++i) acc[i / 8][i % 8] = first ? Floats4{} : sums[i / 8][i % 8];
    for (u64 k = 0; k < count; ++k) {
#pragma unroll
      for (u32 r = 0; r < 8; ++r) {
#pragma unroll
        for (u32 c = 0; c < PAIRS; ++c) {
          const Columns& y = group[c][from + k];
          Ints4 products = {};
          if constexpr (Step<Q>::OFFSET != 0) products = y.start;
#pragma unroll
          for (u32 e = 0; e < EIGHTS; ++e) products = addTwoByTwo(products, steps[k].q[r][e], y.values[e]);
          acc[c][r] += __builtin_convertvector(products, Floats4) * (steps[k].scales[r] * y.d);
          if constexpr (Q::MINS) acc[c][r] -= steps[k].minima[r] * y.sums;
        }
      }
    }
#pragma unroll
    for (u32 i = 0; i < PAIRS * 8; ++i) sums[i / 8][i % 8] = acc[i / 8][i % 8];
  }

  X_DEVICE void store(const Sums (&units)[UNITS], u64 pair, u64 row, u64 c, bool adds) const {
    const auto half = [&](u32 at) {
      return addedUnits<Q>([&](u32 unit, Floats16& own) { __builtin_memcpy(&own, &units[unit][pair][4 * at], sizeof(own)); });
    };
    const Floats16 low = half(0), high = half(1);
    float* out = p.dst + (column0 + c) * p.stride + row;
#define OF_COLUMN(c) c, c + 2, c + 4, c + 6, c + 8, c + 10, c + 12, c + 14, c + 16, c + 18, c + 20, c + 22, c + 24, c + 26, c + 28, c + 30
    storeRows(out, __builtin_shufflevector(low, high, OF_COLUMN(0)), p.end - row, adds);
    if (c + 1 < columns) storeRows(out + p.stride, __builtin_shufflevector(low, high, OF_COLUMN(1)), p.end - row, adds);
#undef OF_COLUMN
  }
};

}  // namespace quant
#else
#define QUANT_MMLA 0
#endif
