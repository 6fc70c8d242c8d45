// Products of bf16 in a host's tile registers (AMX-BF16): 32 rows times 32 columns at a time, whose sums stay in four registers over a
// slab of k. Rows are packed as they lie, columns as pairs (gemm/host-pairs.h).
#pragma once

#if X_AMX
namespace gemm::tiles {

/** Of a tile: results, and elements along k at a time. */
constexpr u32 HEIGHT = 192, WIDTH = 192, DEPTH = 256;
constexpr u32 STRIP = 32, GROUP = 32, LANES = 16;

/** strip[row][DEPTH] from `count` rows of `depth` elements, zeros beside and below. */
X_DEVICE void packRows(bf16* strip, const Operand<bf16>& l, u64 row, u64 k0, u64 count, u64 depth) {
  for (u64 i = 0; i < STRIP; ++i) {
    bf16* to = strip + i * DEPTH;
    u64 k = 0;
    if (i < count) {
      if (l.column == 1) {
        __builtin_memcpy(to, l.at(row + i, k0), depth * sizeof(bf16));
        k = depth;
      }
      for (; k < depth; ++k) to[k] = *l.at(row + i, k0 + k);
    }
    __builtin_memset(to + k, 0, (DEPTH - k) * sizeof(bf16));
  }
}

/** sums[STRIP][COLUMNS], rows WIDTH apart, += strip . panel of COLUMNS pairs a row, over `steps` of 32 along k. */
template <u32 COLUMNS>
X_DEVICE void multiply(const bf16* strip, const u32* panel, u64 steps, float* sums) {
  constexpr u64 ROW = WIDTH * sizeof(float);
  // Registers 0 to 3 hold sums, 4 and 5 rows, 6 and 7 columns.
  amx::load<0>(sums, ROW);
  amx::load<1>(sums + LANES * WIDTH, ROW);
  if constexpr (COLUMNS == GROUP) {
    amx::load<2>(sums + LANES, ROW);
    amx::load<3>(sums + LANES * WIDTH + LANES, ROW);
  }
  for (u64 k = 0; k < steps; ++k, strip += 32, panel += LANES * COLUMNS) {
    amx::load<4>(strip, DEPTH * sizeof(bf16));
    amx::load<5>(strip + LANES * DEPTH, DEPTH * sizeof(bf16));
    amx::load<6>(panel, COLUMNS * sizeof(u32));
    amx::multiplyBf16<0, 4, 6>();
    amx::multiplyBf16<1, 5, 6>();
    if constexpr (COLUMNS == GROUP) {
      amx::load<7>(panel + LANES, COLUMNS * sizeof(u32));
      amx::multiplyBf16<2, 4, 7>();
      amx::multiplyBf16<3, 5, 7>();
    }
  }
  amx::store<0>(sums, ROW);
  amx::store<1>(sums + LANES * WIDTH, ROW);
  if constexpr (COLUMNS == GROUP) {
    amx::store<2>(sums + LANES, ROW);
    amx::store<3>(sums + LANES * WIDTH + LANES, ROW);
  }
}

/** As gemm::multiply (gemm/host.h). */
template <class O>
X_DEVICE void multiplyAll(u64 batches, u64 m, u64 n, u64 k, const Operand<bf16>& lhs, const Operand<bf16>& rhs, O* out) {
  alignas(64) u32 panel[DEPTH / 2 * WIDTH];
  alignas(64) bf16 strip[STRIP * DEPTH];
  amx::Shape shape;
  for (u32 i = 0; i < 8; ++i) shape.set(i, 16, 64);
  const amx::Registers registers(shape);
  pairs::eachTile<HEIGHT, WIDTH, WIDTH>(batches, m, n, out, [&](float* sums, u64 b, u64 m0, u64 height, u64 n0, u64 width) {
    const Operand<bf16> l = lhs.of(b), r = rhs.of(b);
    __builtin_memset(sums, 0, HEIGHT * WIDTH * sizeof(float));
    for (u64 k0 = 0; k0 < k; k0 += DEPTH) {
      const u64 depth = k - k0 < DEPTH ? k - k0 : DEPTH, steps = (depth + 31) / 32, count = steps * LANES;
      for (u64 c = 0; c < width; c += GROUP)
        withVectors<GROUP / LANES, LANES>(width - c, [&](auto v) {
          const u64 columns = width - c < v.columns ? width - c : v.columns, packed = (depth + 1) / 2;
          u32* to = panel + c * count;
          pairs::packColumns<v.columns>(to, r.at(k0, n0 + c), r.column, r.row, columns, depth);
          __builtin_memset(to + packed * v.columns, 0, (count - packed) * v.columns * sizeof(u32));
        });
      for (u64 i = 0; i < height; i += STRIP) {
        packRows(strip, l, m0 + i, k0, height - i < STRIP ? height - i : STRIP, depth);
        for (u64 c = 0; c < width; c += GROUP)
          withVectors<GROUP / LANES, LANES>(
              width - c, [&](auto v) { multiply<v.columns>(strip, panel + c * count, steps, sums + i * WIDTH + c); });
      }
    }
  });
}

}  // namespace gemm::tiles
#endif
