// Products of bf16 in a host's tile registers (AMX-BF16): 32 rows times 32 columns at a time, whose sums stay in four registers over a
// slab of k. Columns are packed as pairs (gemm/host-pairs.h), once for all rows of a tile; rows are loaded from where they lie, or
// packed where they are no whole tiles.
#pragma once

#if X_AMX
namespace gemm::tiles {

/** Of a tile: results, and elements along k at a time. */
constexpr u32 HEIGHT = 512, WIDTH = 128, DEPTH = 1024;
constexpr u32 STRIP = 32, GROUP = 32, LANES = 16;

/** Elements from a row of a strip to the next, which share no places of the cache. */
constexpr u32 PITCH = DEPTH + 32;

/** strip[row][PITCH] from `count` rows of `depth` elements, zeros below, and beside up to a multiple of 32. */
X_DEVICE void packRows(bf16* strip, const Operand<bf16>& l, u64 row, u64 k0, u64 count, u64 depth) {
  for (u64 i = 0; i < STRIP; ++i) {
    bf16* to = strip + i * PITCH;
    u64 k = 0;
    if (i < count) {
      if (l.column == 1) {
        __builtin_memcpy(to, l.at(row + i, k0), depth * sizeof(bf16));
        k = depth;
      }
      for (; k < depth; ++k) to[k] = *l.at(row + i, k0 + k);
    }
    __builtin_memset(to + k, 0, ((depth + 31) / 32 * 32 - k) * sizeof(bf16));
  }
}

/**
 * sums[STRIP][COLUMNS], rows WIDTH apart, = what they were, or `first` nothing, + rows, `apart` bytes from each other, . panel of
 * COLUMNS pairs a row, over `steps` of 32 along k.
 */
template <u32 COLUMNS>
inline __attribute__((noinline)) void multiply(const bf16* rows, u64 apart, const u32* panel, u64 steps, float* sums, bool first) {
  constexpr u64 ROW = WIDTH * sizeof(float);
  constexpr bool WIDE = COLUMNS == GROUP;
  // Registers 4 and 5 hold rows, 6 and 7 columns.
  amx::loadSums<true, WIDE>(sums, ROW, first);
  for (u64 k = 0; k < steps; ++k, rows += 32, panel += LANES * COLUMNS) {
    amx::load<4>(rows, apart);
    amx::load<6>(panel, COLUMNS * sizeof(u32));
    amx::multiplyBf16<0, 4, 6>();
    if constexpr (WIDE) {
      amx::load<7>(panel + LANES, COLUMNS * sizeof(u32));
      amx::multiplyBf16<2, 4, 7>();
    }
    amx::load<5>((const u8*)rows + LANES * apart, apart);
    amx::multiplyBf16<1, 5, 6>();
    if constexpr (WIDE) amx::multiplyBf16<3, 5, 7>();
  }
  amx::storeSums<true, WIDE>(sums, ROW);
}

/** As gemm::multiply (gemm/host.h). */
template <class O>
X_DEVICE void multiplyAll(u64 batches, u64 m, u64 n, u64 k, const Operand<bf16>& lhs, const Operand<bf16>& rhs, O* out) {
  alignas(64) u32 panel[DEPTH / 2 * WIDTH];
  alignas(64) bf16 strip[STRIP * PITCH];
  amx::Shape shape;
  for (u32 i = 0; i < 8; ++i) shape.set(i, 16, 64);
  const amx::Registers registers(shape);
  pairs::eachTile<HEIGHT, WIDTH, WIDTH / 2>(batches, m, n, out, [&](float* sums, u64 b, u64 m0, u64 height, u64 n0, u64 width) {
    const Operand<bf16> l = lhs.of(b), r = rhs.of(b);
    if (k == 0) __builtin_memset(sums, 0, HEIGHT * WIDTH * sizeof(float));
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
        const bf16* rows = l.at(m0 + i, k0);
        u64 apart = l.row * sizeof(bf16);
        if (l.column != 1 || height - i < STRIP || depth % 32 != 0) {
          packRows(strip, l, m0 + i, k0, height - i < STRIP ? height - i : STRIP, depth);
          rows = strip, apart = PITCH * sizeof(bf16);
        }
        for (u64 c = 0; c < width; c += GROUP)
          withVectors<GROUP / LANES, LANES>(width - c, [&](auto v) {
            multiply<v.columns>(rows, apart, panel + c * count, steps, sums + i * WIDTH + c, k0 == 0);
          });
      }
    }
  });
}

}  // namespace gemm::tiles
#endif
