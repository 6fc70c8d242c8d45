// Quantised rows times many q8_1 columns on the host. Sixteen rows are a panel: unpacked once for all columns of a tile, and turned so
// that a lane is a row. Four activations of a column then meet a dword of each row at once, sums need no adding across lanes, and
// scales of rows are vectors. Units are what a lane of host-products.h has, and are added up in its order.
#pragma once

#if X_HOST
namespace quant {

/** A unit of `size` values of sixteen rows, each a lane. */
template <u32 size, bool mins>
struct alignas(64) UnitOfRows {
  Bytes64 q[size / 4];  // dwords, in the format's order
  Floats16 scales;
  Floats16 minima[mins ? 1 : 0];
};
template <class Q>
using PanelUnit = UnitOfRows<Units<Q>::SIZE, Q::MINS>;

/** The same of a column: what a panel's lanes have in common. */
template <u32 size>
struct UnitOfColumn {
  u32 dwords[size / 4];
  float d;
  union {
    i32 start;  // what products begin with: minus their sum times what quants are too large by
    float sum;  // where there are minima: d times their sum
  };
};
template <class Q>
using ColumnUnit = UnitOfColumn<Units<Q>::SIZE>;

/** turnSixteen, once for all formats where registers do not hold what is turned. */
QUANT_NARROW_CALL void turnPanel(Ints16 (&v)[16]) { turnSixteen(v); }

X_DEVICE Floats16 sixteen(Floats16 v) { return v; }
X_DEVICE Floats16 sixteen(Floats v) {
  return __builtin_shufflevector(v, v, 0, 1, 2, 3, 4, 5, 6, 7, 0, 1, 2, 3, 4, 5, 6, 7);
}

/** Writes the units of a step of sixteen rows, `apart` from each other; the step of row r begins at rows[r]. */
template <class Q>
QUANT_CALL void openPanel(const u8* const (&rows)[16], PanelUnit<Q>* units, u64 apart) {
  constexpr u32 SIXTEENS = Units<Q>::SIZE / 16;
  Ints16 quants[4][16], scales[16], minima[16];
  for (u32 r = 0; r < 16; ++r) {
    const u8* b = rows[r];
    Bytes64 step[4];
    Step<Q>::unpack(b, step);
#pragma unroll
    for (u32 v = 0; v < 4; ++v) quants[v][r] = (Ints16)step[v];
    scales[r] = (Ints16)sixteen(Units<Q>::scales(b));
    if constexpr (Q::MINS) minima[r] = (Ints16)sixteen(Units<Q>::minima(b));
  }
#pragma unroll
  for (u32 v = 0; v < 4; ++v) {
    turnPanel(quants[v]);
#pragma unroll
    for (u32 i = 0; i < 16; ++i) {
      // What was dword i of vector v: a dword of a sixteen, or of a lane.
      const u32 lane = Step<Q>::HAS_SIXTEENS ? i / 4 * 4 + v : i, dword = Step<Q>::HAS_SIXTEENS ? i % 4 : v;
      const u32 sixteen = Step<Q>::valueOfLane(lane) / 16;
      units[sixteen / SIXTEENS * apart].q[4 * (sixteen % SIXTEENS) + dword] = (Bytes64)quants[v][i];
    }
  }
  turnPanel(scales);
  if constexpr (Q::MINS) turnPanel(minima);
#pragma unroll
  for (u32 u = 0; u < Units<Q>::COUNT; ++u) {
    units[u * apart].scales = (Floats16)scales[u];
    if constexpr (Q::MINS) units[u * apart].minima[0] = (Floats16)minima[u];
  }
}

/** The same of a step of the rows of `p` from `row` on; of those beyond the last it is the last one's. */
template <class Q>
X_DEVICE void openRows(const HostProducts<Q>& p, u64 row, u64 step, PanelUnit<Q>* units, u64 apart) {
  const bool whole = Q::SIZE == 256 || step < p.inner / 256;
  alignas(64) u8 last[16][Step<Q>::BYTES];
  const u8* rows[16];
  for (u64 r = 0; r < 16; ++r) {
    const u64 own = row + r < p.end ? row + r : p.end - 1;
    rows[r] = p.x + own * p.rowBytes() + step * Step<Q>::BYTES;
    if (!whole) rows[r] = p.lastStep(rows[r], last[r]);
  }
  openPanel<Q>(rows, units, apart);
}

/** Writes the units of a step of a column, of which there are `groups` 32s from y, then zeros. */
template <class Q>
QUANT_CALL void openColumn(const u8* y, u32 groups, ColumnUnit<Q>* units, u64 apart) {
  constexpr u32 SIXTEENS = Units<Q>::SIZE / 16;
  StepColumn<Q> lanes;
  lanes.open(y, groups);
  const Ints16 starts = ofUnits<Q>(lanes.start);
  transpose(lanes.u);
#pragma unroll
  for (u32 lane = 0; lane < 16; ++lane) {
    const u32 sixteen = Step<Q>::valueOfLane(lane) / 16;
    ColumnUnit<Q>& unit = units[sixteen / SIXTEENS * apart];
    __builtin_memcpy(unit.dwords + 4 * (sixteen % SIXTEENS), (const u8*)&lanes.u[lane % 4] + lane / 4 * 16, 16);
    unit.d = lanes.d[lane];
    if constexpr (Q::MINS) unit.sum = lanes.sums[lane];
    else unit.start = starts[lane];
  }
}

/** A column's sums of sixteen rows from those of its units, which `read` copies, added in the order of host-products.h. */
template <class Q, class Read>
X_DEVICE Floats16 addedUnits(Read read) {
  Floats16 lanes[16];
#pragma unroll
  for (u32 lane = 0; lane < 16; ++lane) read(Step<Q>::valueOfLane(lane) / Units<Q>::SIZE, lanes[lane]);
#pragma unroll
  for (u32 apart = 8; apart > 0; apart /= 2)
#pragma unroll
    for (u32 lane = 0; lane < apart; ++lane) lanes[lane] += lanes[lane + apart];
  return lanes[0] * LANE_SHARE<Q>;
}
/** Writes, or adds, sixteen rows' sums from `out` on: the first `rows` where there are fewer. */
X_DEVICE void storeRows(float* out, Floats16 sums, u64 rows, bool adds) {
  if (rows >= 16) {
    if (adds) sums = loadAs<Floats16>((const u8*)out) + sums;
    __builtin_memcpy(out, &sums, 64);
  } else {
    for (u64 r = 0; r < rows; ++r) out[r] = adds ? out[r] + sums[r] : sums[r];
  }
}

// Columns whose sums registers hold.
constexpr u32 PANEL_COLUMNS = 8 / REGISTERS;

/**
 * Adds the products of a unit of `count` steps with those of a group of columns that are `from` on from where these begin. Formats
 * share it that differ only in how their rows are unpacked.
 */
template <u32 size, bool mins, bool starts, bool isSigned, u32 LARGEST>
QUANT_CALL void addUnits(const UnitOfRows<size, mins>* steps, u64 count,
                         const UnitOfColumn<size>* const (&group)[PANEL_COLUMNS], u64 from, bool first,
                         Floats16 (&sums)[PANEL_COLUMNS]) {
  constexpr u32 SIXTEENS = size / 16;
  const UnitOfColumn<size>* own[PANEL_COLUMNS];
  Floats16 acc[PANEL_COLUMNS];
#pragma unroll
  for (u32 c = 0; c < PANEL_COLUMNS; ++c) {
    own[c] = group[c] + from;
    acc[c] = first ? Floats16{} : sums[c];
  }
  for (u64 k = 0; k < count; ++k) {
    const Bytes64(*q)[4] = (const Bytes64(*)[4])steps[k].q;
    Bytes64 kept[SIXTEENS][4];
    if constexpr (SIXTEENS * REGISTERS <= 2) {  // else registers do not hold them
      __builtin_memcpy(kept, q, sizeof(kept));
      q = kept;
    }
#pragma unroll
    for (u32 c = 0; c < PANEL_COLUMNS; ++c) {
      const UnitOfColumn<size>& y = own[c][k];
      Ints16 products = Ints16{} + (starts ? y.start : 0);
#pragma unroll
      for (u32 s = 0; s < SIXTEENS; ++s) {
        Bytes64 u[4];
#pragma unroll
        for (u32 v = 0; v < 4; ++v) u[v] = (Bytes64)(Ints16{} + (i32)y.dwords[4 * s + v]);
        products = dots<isSigned, LARGEST>(q[s], u, products);
      }
      acc[c] += __builtin_convertvector(products, Floats16) * (steps[k].scales * y.d);
      if constexpr (mins) acc[c] -= steps[k].minima[0] * y.sum;
      // One column after the other: together they would need more registers than there are.
      asm volatile("" ::: "memory");
    }
  }
#pragma unroll
  for (u32 c = 0; c < PANEL_COLUMNS; ++c) sums[c] = acc[c];
}

/** Rows of `p` times columns `column0` to `column0 + columns`, with at most as many steps as HostProducts adds up at once. */
template <class Q>
struct HostTile {
  // Columns at most: unpacking a panel costs what its products with some 16 take. Up to WIDEST where they have OPENED steps in all,
  // which the second cache holds.
  static constexpr u64 COLUMNS = 64, WIDEST = 256, OPENED = 1536;
  static constexpr u64 STEPS = 8;     // of a panel, unpacked at once
  static constexpr u32 GROUP = PANEL_COLUMNS;
  static constexpr u32 UNITS = Units<Q>::COUNT;
  const HostProducts<Q>& p;
  u64 column0, columns;

  /** What steps `first` to `first + HostProducts::STEPS` add. */
  X_DEVICE void add(u64 first) const {
    constexpr u64 MOST = HostProducts<Q>::STEPS;
    const u64 steps = p.steps() - first < MOST ? p.steps() - first : MOST;
    static_assert(OPENED <= COLUMNS * MOST, "no more units than of fewer columns");
    ColumnUnit<Q> opened[COLUMNS * MOST * UNITS];
    for (u64 c = 0; c < columns; ++c)
      for (u64 k = 0; k < steps; ++k) {
        const u64 at = 8 * (first + k), left = p.inner / 32 - at;
        const u8* y = p.y + (column0 + c) * p.columnBytes + at * Q8_1::BYTES;
        openColumn<Q>(y, (u32)(left < 8 ? left : 8), opened + c * steps * UNITS + k, steps);
      }
    for (u64 row = p.begin; row < p.end; row += 16) addPanel(row, first, steps, opened);
  }

 private:
  X_DEVICE void addPanel(u64 row, u64 first, u64 steps, const ColumnUnit<Q>* opened) const {
    Floats16 sums[WIDEST / GROUP][UNITS][GROUP];
    for (u64 k0 = 0; k0 < steps; k0 += STEPS) {
      PanelUnit<Q> panel[UNITS][STEPS];
      const u64 count = steps - k0 < STEPS ? steps - k0 : STEPS;
      for (u64 k = 0; k < count; ++k) openRows<Q>(p, row, first + k0 + k, panel[0] + k, STEPS);
      for (u64 c = 0; c < columns; c += GROUP) {
        const ColumnUnit<Q>* group[GROUP];
        for (u32 i = 0; i < GROUP; ++i) group[i] = opened + (c + i < columns ? c + i : columns - 1) * steps * UNITS + k0;
        Floats16(&own)[UNITS][GROUP] = sums[k0 == 0 && count == steps ? 0 : c / GROUP];
#pragma unroll 1
        for (u32 unit = 0; unit < UNITS; ++unit)
          addUnits<Units<Q>::SIZE, Q::MINS, Step<Q>::OFFSET != 0, Q::SIGNED, pairsOf<Q>()>(panel[unit], count, group, unit * steps,
                                                                                         k0 == 0, own[unit]);
        if (k0 + count < steps) continue;
        for (u64 i = 0; i < GROUP && c + i < columns; ++i) store(own, i, row, column0 + c + i, first > 0);
      }
    }
  }

  X_DEVICE void store(const Floats16 (&units)[UNITS][GROUP], u64 c, u64 row, u64 column, bool adds) const {
    const Floats16 sums = addedUnits<Q>([&](u32 unit, Floats16& own) { own = units[unit][c]; });
    storeRows(p.dst + column * p.stride + row, sums, p.end - row, adds);
  }
};

}  // namespace quant
#endif
