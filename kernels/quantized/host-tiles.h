// Quantised rows times many q8_1 columns on the host. Sixteen rows are a panel: unpacked once for all columns of a tile, and turned so
// that a lane is a row. Four activations of a column then meet a dword of each row at once, sums need no adding across lanes, and
// scales of rows are vectors. What is unpacked stays in the first cache, columns in the second.
#pragma once

#if X_HOST
namespace quant {

/** A step of sixteen rows, each a lane. */
template <class Q>
struct alignas(64) Panel {
  static constexpr u32 UNITS = Units<Q>::COUNT, SIXTEENS = 16 / UNITS;
  Bytes64 q[UNITS][4 * SIXTEENS];  // dwords of a unit, in the format's order
  Floats16 scales[UNITS];
  Floats16 minima[Q::MINS ? UNITS : 1];

  /** @param rowAt where the step of a row begins */
  template <class At>
  X_DEVICE void open(At rowAt) {
    Ints16 quants[4][16], units[16], more[16];
    for (u32 r = 0; r < 16; ++r) {
      const u8* b = rowAt(r);
      Bytes64 step[4];
      Step<Q>::quants(b, step);
#pragma unroll
      for (u32 v = 0; v < 4; ++v) quants[v][r] = (Ints16)step[v];
      units[r] = (Ints16)wide(Units<Q>::scales(b));
      if constexpr (Q::MINS) more[r] = (Ints16)wide(Units<Q>::minima(b));
    }
#pragma unroll
    for (u32 v = 0; v < 4; ++v) {
      turnSixteen(quants[v]);
#pragma unroll
      for (u32 lane = 0; lane < 16; ++lane) {
        const u32 sixteen = Step<Q>::valueOfLane(lane) / 16;
        q[sixteen / SIXTEENS][4 * (sixteen % SIXTEENS) + v] = (Bytes64)quants[v][lane];
      }
    }
    turnSixteen(units);
#pragma unroll
    for (u32 u = 0; u < UNITS; ++u) scales[u] = (Floats16)units[u];
    if constexpr (Q::MINS) {
      turnSixteen(more);
#pragma unroll
      for (u32 u = 0; u < UNITS; ++u) minima[u] = (Floats16)more[u];
    }
  }

 private:
  static X_DEVICE Floats16 wide(typename Units<Q>::Floats units) {
    if constexpr (UNITS == 16) return units;
    else return __builtin_shufflevector(units, units, 0, 1, 2, 3, 4, 5, 6, 7, 0, 1, 2, 3, 4, 5, 6, 7);
  }
};

/** A step of a column: what lanes of a panel have in common. */
template <class Q>
struct alignas(64) PanelColumn {
  static constexpr u32 UNITS = Units<Q>::COUNT;
  u32 dwords[16][4];  // of each sixteen, in the format's order
  float d[8];         // scales of 32s
  union {
    i32 start[UNITS];   // what products begin with: minus their sum times what quants are too large by
    float sums[UNITS];  // where there are minima: d times their sum
  };

  /** The first `groups` 32s from y, then zeros. */
  X_DEVICE void open(const u8* y, u32 groups) {
    alignas(64) u8 values[256] = {};
    for (u32 g = 0; g < 8; ++g) d[g] = 0.0f;
    for (u32 g = 0; g < groups; ++g) {
      __builtin_memcpy(values + 32 * g, y + g * Q8_1::BYTES + 4, 32);
      d[g] = Q8_1::scale(y + g * Q8_1::BYTES);
    }
    Bytes64 u[4];
#pragma unroll
    for (u32 v = 0; v < 4; ++v) {
      u[v] = loadAs<Bytes64>(values + 64 * v);
      const Bytes64 ordered = inOrder(u[v]);
      __builtin_memcpy(dwords[4 * v], &ordered, 64);
    }
    transpose(u);
    const Ints16 lanes = sumsOf(u);
    i32 sum[16];
#pragma unroll
    for (u32 s = 0; s < 16; ++s) sum[s] = lanes[4 * (s % 4) + s / 4];
#pragma unroll
    for (u32 i = 0; i < UNITS; ++i) {
      const i32 own = UNITS == 16 ? sum[i] : sum[2 * i % 16] + sum[(2 * i + 1) % 16];
      if constexpr (Q::MINS) sums[i] = (float)own * d[i * 8 / UNITS];
      else start[i] = own * -Step<Q>::OFFSET;
    }
  }

 private:
  // Of every sixteen values those that a dword of codebooks has (codebookOrder).
  static X_DEVICE Bytes64 inOrder(Bytes64 u) {
    if constexpr (Step<Q>::ORDER != Order::Entries) return u;
    constexpr bool eight = codebookOf<Q>() == Codebook::Eight;
    Bytes64 ordered;
#pragma unroll
    for (u32 i = 0; i < 64; ++i) {
      const u32 dword = i % 16 / 4, byte = i % 4;
      ordered[i] = u[i / 16 * 16 + (eight ? 4 * byte + dword : byte / 2 * 8 + dword / 2 * 4 + dword % 2 + byte % 2 * 2)];
    }
    return ordered;
  }
};

template <class Q>
struct HostTile {
  static constexpr u64 COLUMNS = 256, STEPS = 2, ROWS = 16;  // unpacked at once
  static constexpr u32 EIGHT = 8;                            // columns whose sums registers hold
  const HostProducts<Q>& p;
  u64 column0, columns;

  /** What steps `first` to `first + STEPS` add. */
  X_DEVICE void add(u64 first) const {
    const u64 count = p.steps() - first < STEPS ? p.steps() - first : STEPS;
    PanelColumn<Q> opened[COLUMNS][STEPS];
    for (u64 c = 0; c < columns; ++c)
      for (u64 k = 0; k < count; ++k) {
        const u64 at = 8 * (first + k), left = p.inner / 32 - at;
        opened[c][k].open(p.y + (column0 + c) * p.columnBytes + at * Q8_1::BYTES, (u32)(left < 8 ? left : 8));
      }
    Panel<Q> panel[STEPS];
    for (u64 row = p.begin; row < p.end; row += ROWS) {
      for (u64 k = 0; k < count; ++k) open(row, first + k, panel[k]);
      for (u64 c = 0; c < columns; c += EIGHT) {
        const u64 most = columns - c < EIGHT ? columns - c : EIGHT;
        const PanelColumn<Q>* eight[EIGHT];
        for (u32 i = 0; i < EIGHT; ++i) eight[i] = opened[c + (i < most ? i : most - 1)];
        // Results a power of two apart share a set of the caches, and are there no more.
        for (u64 i = 0; i < most; ++i) __builtin_prefetch(resultsAt(row, c + i), 1);
        Floats16 sums[EIGHT] = {};
        for (u64 k = 0; k < count; ++k) multiply(panel[k], k, eight, sums);
        for (u64 i = 0; i < most; ++i) store(sums[i], row, c + i, first > 0);
      }
    }
  }

 private:
  X_DEVICE float* resultsAt(u64 row, u64 column) const { return p.dst + (column0 + column) * p.stride + row; }

  X_DEVICE void open(u64 row, u64 step, Panel<Q>& panel) const {
    const auto at = [&](u64 r) {
      return p.x + (row + r < p.end ? row + r : p.end - 1) * p.rowBytes() + step * Step<Q>::BYTES;
    };
    if (Q::SIZE == 256 || step < p.inner / 256) return panel.open(at);
    alignas(64) u8 last[ROWS][Step<Q>::BYTES];
    for (u32 r = 0; r < ROWS; ++r) p.lastStep(at(r), last[r]);
    panel.open([&](u64 r) { return last[r]; });
  }

  static X_DEVICE void multiply(const Panel<Q>& panel, u64 k, const PanelColumn<Q>* const (&eight)[EIGHT],
                                Floats16 (&sums)[EIGHT]) {
    constexpr u32 UNITS = Panel<Q>::UNITS, SIXTEENS = Panel<Q>::SIXTEENS;
#pragma unroll 1
    for (u32 unit = 0; unit < UNITS; ++unit) {
      Bytes64 q[SIXTEENS][4];
      __builtin_memcpy(q, panel.q[unit], sizeof(q));
#pragma unroll
      for (u32 c = 0; c < EIGHT; ++c) {
        const PanelColumn<Q>& y = eight[c][k];
        Ints16 sum = Ints16{} + (Step<Q>::OFFSET != 0 ? y.start[unit] : 0);
#pragma unroll
        for (u32 s = 0; s < SIXTEENS; ++s) {
          Bytes64 u[4];
#pragma unroll
          for (u32 v = 0; v < 4; ++v) u[v] = (Bytes64)(Ints16{} + (i32)y.dwords[unit * SIXTEENS + s][v]);
          sum = dots<Q::SIGNED, largestOf<Q>()>(q[s], u, sum);
        }
        sums[c] += __builtin_convertvector(sum, Floats16) * (panel.scales[unit] * y.d[unit * 8 / UNITS]);
        if constexpr (Q::MINS) sums[c] -= panel.minima[unit] * y.sums[unit];
        // One column after the other: together they would need more registers than there are.
        asm volatile("" ::: "memory");
      }
    }
  }

  X_DEVICE void store(Floats16 sums, u64 row, u64 column, bool adds) const {
    float* out = resultsAt(row, column);
    if (p.end - row >= ROWS) {
      if (adds) sums += loadAs<Floats16>((const u8*)out);
      __builtin_memcpy(out, &sums, 64);
    } else {
      for (u64 r = 0; r < p.end - row; ++r) out[r] = adds ? out[r] + sums[r] : sums[r];
    }
  }
};

/** dst[c * stride + row] = row . column c for rows begin to end and any number of columns. */
template <class Q>
QUANT_CALL void hostProducts(const u8* x, u64 begin, u64 end, u64 inner, const u8* y, u64 columnBytes, u64 columns,
                             float* dst, u64 stride) {
  const HostProducts<Q> products{x, begin, end, inner, y, columnBytes, dst, stride};
  u64 tiled = 0;
  for (u64 left; left = columns - tiled, left > 8; tiled += left) {
    left = left < HostTile<Q>::COLUMNS ? left : HostTile<Q>::COLUMNS;
    const HostTile<Q> tile{products, tiled, left};
    for (u64 first = 0; first < products.steps(); first += HostTile<Q>::STEPS) tile.add(first);
  }
  for (u64 first = 0; first < products.steps(); first += HostProducts<Q>::STEPS) {
    for (u64 c = tiled; c < columns;) {
      const u64 left = columns - c;
      if (left == 1) {
        products.template add<1>(first, c, 1);
        c += 1;
      } else if (left < 8) {
        products.template add<4>(first, c, left);
        c += 4;
      } else {
        products.template add<8>(first, c, 8);
        c += 8;
      }
    }
  }
}

}  // namespace quant
#endif
