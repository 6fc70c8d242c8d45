// Quantised rows times the q8_1 columns of a prompt in tile registers of bf16 (AMX-BF16): both are turned into numbers of 16 bits, a
// slab of values at a time, and their products are added up in the registers. Scales are in the numbers, so that no unit leaves the
// registers before the next one, which takes most of the time of host-amx.h; but a column's bits are not those of dot products.
#pragma once

#if QUANT_AMX
namespace quant {

/** `p` for columns `column0` to `column0 + columns`. */
template <class Q>
struct AmxPairs {
  /** Columns from which on this is done, and at most: both operands are turned once for all of the other. */
  static constexpr u64 LEAST = 32, COLUMNS = 256;
  const HostProducts<Q>& p;
  u64 column0, columns;

  X_DEVICE void run() const {
    // 0 to 3 hold sums, 4 and 5 columns, 6 and 7 rows: 32 of both.
    amx::Shape shape;
    for (u32 i = 0; i < 8; ++i) shape.set(i, 16, 64);
    const amx::Registers registers(shape);
    Columns opened;
    Rows rows;
    // Results lie far apart, in few places of the caches.
    alignas(64) Sums sums[ROWS / SIDE];
    for (u64 row0 = p.begin; row0 < p.end; row0 += ROWS) {
      const u64 end = p.end - row0 < ROWS ? p.end : row0 + ROWS;
      for (u64 first = 0; first < p.steps(); first += STEPS) {
        const u64 steps = p.steps() - first < STEPS ? p.steps() - first : STEPS;
        for (u64 c = 0; c < columns; c += SIDE) openColumns(c, first, steps, opened);
        for (u64 row = row0; row < end; row += SIDE) {
          openRows(row, first, steps, rows[0]);
          openRows(row + 16, first, steps, rows[1]);
          for (u64 c = 0; c < columns; c += SIDE)
            multiply(opened[c], rows, 8 * steps, sums[(row - row0) / SIDE][c], first > 0);
        }
      }
      for (u64 row = row0; row < end; row += SIDE) store(sums[(row - row0) / SIDE], row, end);
    }
  }

 private:
  typedef u32 Words __attribute__((vector_size(64)));
  /** Rows and columns of the registers' sums, rows at once, and steps of 256 values in a slab: what the second cache holds. */
  static constexpr u64 SIDE = 32, ROWS = 512, STEPS = 4, DEPTH = 256 * STEPS;
  /** Pairs of a column, and what keeps columns out of each other's place in the cache. */
  static constexpr u64 PAIRS = DEPTH / 2 + 16;
  typedef u32 Columns[COLUMNS][PAIRS];
  /** Of 32 values of sixteen rows: those 16 apart are a pair. */
  typedef u32 Tile[16][16];
  typedef Tile Rows[2][DEPTH / 32];
  typedef float Sums[COLUMNS][SIDE];

  /** Those of 16 bits that are nearest, but for halves, one vector's in the lower halves of the words. */
  static X_DEVICE Words pairs(Floats16 low, Floats16 high) {
    return ((Words)low + 0x8000u) >> 16 | (((Words)high + 0x8000u) & 0xffff0000u);
  }

  /** 32 columns; those beyond the last, and values beyond a column's, are zero. */
  X_DEVICE void openColumns(u64 c0, u64 first, u64 steps, Columns& opened) const {
    typedef i8 Sixteen __attribute__((vector_size(16)));
    for (u64 c = c0; c < c0 + SIDE; ++c) {
      const u64 left = c < columns && p.inner / 32 > 8 * first ? p.inner / 32 - 8 * first : 0;
      const u64 count = left < 8 * steps ? left : 8 * steps;
      const u8* y = p.y + (column0 + c) * p.columnBytes + 8 * first * Q8_1::BYTES;
      u32* to = opened[c];
      for (u64 g = 0; g < count; ++g, y += Q8_1::BYTES, to += 16) {
        const float d = Q8_1::scale(y);
        const auto values = [&](u32 from) { return __builtin_convertvector(loadAs<Sixteen>(y + 4 + from), Floats16) * d; };
        const Words pair = pairs(values(0), values(16));
        __builtin_memcpy(to, &pair, 64);
      }
      __builtin_memset(to, 0, 64 * (8 * steps - count));
    }
  }

  /** Sixteen rows from `row` on; of those beyond the last one the last one's values. */
  X_DEVICE void openRows(u64 row, u64 first, u64 steps, Tile* tiles) const {
    constexpr u32 COUNT = Units<Q>::COUNT, SIZE = Units<Q>::SIZE;
    PanelUnit<Q> units[COUNT];
    for (u64 k = 0; k < steps; ++k) {
      quant::openRows<Q>(p, row < p.end ? row : p.end - 1, first + k, units, 1);
      for (u32 g = 0; g < 8; ++g) {
        const Half low = halfOf(units[32 * g / SIZE], 0), high = halfOf(units[(32 * g + 16) / SIZE], SIZE / 4 - 4);
        for (u32 dword = 0; dword < 4; ++dword) {
#pragma unroll
          for (u32 i = 0; i < 4; ++i) {
            const Words pair = pairs(low.value(dword, i), high.value(dword, i));
            __builtin_memcpy(tiles[8 * k + g][4 * dword + i], &pair, 64);
          }
        }
      }
    }
  }
  /** Sixteen values of sixteen rows. */
  struct Half {
    const Bytes64* dwords;
    Floats16 scales, least;  // of quants, and what one of -LARGER stands for
    /** Exact in a float whose last bits they are. */
    static constexpr i32 LARGER = 256;

    X_DEVICE Floats16 value(u32 dword, u32 i) const {
      const Words quads = (Words)dwords[dword], moved = i < 2 ? quads << (15 - 8 * i) : quads >> (8 * i - 15);
      return (Floats16)((moved & 0xffu << 15) | 0x43800000u) * scales + least;
    }
  };
  static X_DEVICE Half halfOf(const PanelUnit<Q>& unit, u32 dword) {
    Floats16 least = unit.scales * (float)-(Half::LARGER + Step<Q>::OFFSET);
    if constexpr (Q::MINS) least -= unit.minima[0];
    return {unit.q + dword, unit.scales, least};
  }

  /** Adds `count` 32s of 32 columns and rows to `sums`, or what there is of them if it `continues`. */
  static X_DEVICE void multiply(const u32* column, const Rows& rows, u64 count, float* sums, bool continues) {
    constexpr u64 APART = 4 * SIDE;
    if (continues) {
      amx::load<0>(sums, APART);
      amx::load<1>(sums + 16, APART);
      amx::load<2>(sums + 16 * SIDE, APART);
      amx::load<3>(sums + 16 * SIDE + 16, APART);
    } else {
      amx::zero<0>();
      amx::zero<1>();
      amx::zero<2>();
      amx::zero<3>();
    }
    for (u64 k = 0; k < count; ++k, column += 16) {
      amx::load<4>(column, 4 * PAIRS);
      amx::load<6>(rows[0][k], 64);
      amx::multiplyBf16<0, 4, 6>();
      amx::load<7>(rows[1][k], 64);
      amx::multiplyBf16<1, 4, 7>();
      amx::load<5>(column + 16 * PAIRS, 4 * PAIRS);
      amx::multiplyBf16<2, 5, 6>();
      amx::multiplyBf16<3, 5, 7>();
    }
    amx::store<0>(sums, APART);
    amx::store<1>(sums + 16, APART);
    amx::store<2>(sums + 16 * SIDE, APART);
    amx::store<3>(sums + 16 * SIDE + 16, APART);
  }

  X_DEVICE void store(const Sums& sums, u64 row, u64 end) const {
    const u64 width = end - row < SIDE ? end - row : SIDE;
    for (u64 c = 0; c < columns; ++c) {
      float* out = p.dst + (column0 + c) * p.stride + row;
      if (width == SIDE) __builtin_memcpy(out, sums[c], 4 * SIDE);
      else __builtin_memcpy(out, sums[c], 4 * width);
    }
  }
};

}  // namespace quant
#endif
