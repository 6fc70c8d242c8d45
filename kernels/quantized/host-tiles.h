// Quantised rows times many q8_1 columns on the host. Both sides of a tile are unpacked before they are multiplied: rows once for
// all of its columns, columns once for all of its rows. Pairs of rows then meet four columns at a time, whose steps the first
// cache holds. Sums are added in the order in which fewer columns add theirs, so with rows of up to 2048 values a column gives the
// same bits in any company: prompts that are read together give the texts that each gives alone.
#pragma once

#if X_HOST
namespace quant {

template <class Q>
struct HostTile {
  static constexpr u64 COLUMNS = 64, STEPS = 8, ROWS = 8;  // unpacked at once
  static constexpr u32 PAIR = 2, FOUR = 4;                 // rows and columns whose sums registers hold
  const HostProducts<Q>& p;
  u64 column0, columns;

  /** What steps `first` to `first + STEPS` add. */
  X_DEVICE void add(u64 first) const {
    const u64 count = p.steps() - first < STEPS ? p.steps() - first : STEPS;
    StepColumn<Q> opened[COLUMNS / FOUR][STEPS][FOUR];
    for (u64 c = 0; c < (columns + FOUR - 1) / FOUR * FOUR; ++c) {
      const u8* y = p.y + (column0 + (c < columns ? c : columns - 1)) * p.columnBytes;
      for (u64 k = 0; k < count; ++k) {
        const u64 at = 8 * (first + k), left = p.inner / 32 - at;
        opened[c / FOUR][k][c % FOUR].open(y + at * Q8_1::BYTES, (u32)(left < 8 ? left : 8));
      }
    }
    StepRow<Q> rows[ROWS][STEPS];
    for (u64 row = p.begin; row < p.end; row += ROWS) {
      const u64 most = p.end - row < ROWS ? p.end - row : ROWS;
      for (u64 r = 0; r < most; ++r) unpack(row + r, first, count, rows[r]);
      for (u64 c = 0; c < columns; c += FOUR)
        for (u64 r = 0; r < most; r += PAIR)
          multiply(rows[r], rows[r + 1 < most ? r + 1 : r], opened[c / FOUR], count, first > 0, row + r, c);
    }
  }

 private:
  X_DEVICE void unpack(u64 row, u64 first, u64 count, StepRow<Q>* steps) const {
    const u8* b = p.x + row * p.rowBytes() + first * Step<Q>::BYTES;
    const u64 whole = p.inner / 256 - first < count ? p.inner / 256 - first : count;
    for (u64 k = 0; k < whole; ++k) steps[k].open(b + k * Step<Q>::BYTES);
    if (Q::SIZE < 256 && whole < count) {
      alignas(64) u8 last[Step<Q>::BYTES];
      steps[whole].open(p.lastStep(b + whole * Step<Q>::BYTES, last));
    }
  }

  X_DEVICE void multiply(const StepRow<Q>* upper, const StepRow<Q>* lower, const StepColumn<Q> (*four)[FOUR], u64 count,
                         bool adds, u64 row, u64 column) const {
    Floats16 acc[PAIR * FOUR] = {};
    for (u64 k = 0; k < count; ++k) {
#pragma unroll
      for (u32 c = 0; c < FOUR; ++c) {
        upper[k].addTo(acc[c], four[k][c]);
        lower[k].addTo(acc[FOUR + c], four[k][c]);
      }
    }
    const Floats16 sums = laneSums(acc);
    const u64 pair = row + 1 < p.end ? PAIR : 1;
    for (u32 c = 0; c < FOUR && column + c < columns; ++c) {
      float* out = p.dst + (column0 + column + c) * p.stride + row;
      for (u64 r = 0; r < pair; ++r) out[r] = adds ? out[r] + sums[FOUR * r + c] : sums[FOUR * r + c];
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
