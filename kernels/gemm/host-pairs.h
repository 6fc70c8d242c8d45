// Products of bf16 on hosts with dot products of pairs (shared/pairs.h): both operands are packed as pairs of neighbours along k.
// Twice the products of f32 in the same time.
#pragma once

#if X_HOST && defined(__AVX512F__)
namespace gemm::pairs {

using ::pairs::LooseWords;
using ::pairs::Sums;
using ::pairs::Words;

/** Of a tile: results, and elements along k at a time. */
constexpr u32 HEIGHT = 192, WIDTH = 384, DEPTH = 192;
/** Of a product in registers: rows, and vectors of columns. */
constexpr u32 LANES = 16, ROWS = 8, MOST_VECTORS = 3, MOST_COLUMNS = MOST_VECTORS * LANES;

/** The pair at k of a line whose elements lie `step` apart; zeros from `depth` on. */
X_DEVICE u32 pairAt(const bf16* line, u64 step, u64 k, u64 depth) {
  if (k >= depth) return 0;
  const u32 low = bitCast<u16>(line[k * step]);
  return k + 1 < depth ? low | (u32)bitCast<u16>(line[(k + 1) * step]) << 16 : low;
}

/**
 * packed[k / 2][GROUP] of `count` lines, at most GROUP, that lie `apart`, with zeros beside and below: GROUP lines of `depth`
 * elements, `step` apart.
 */
template <u32 GROUP>
X_DEVICE void packColumns(u32* packed, const bf16* lines, u64 apart, u64 step, u64 count, u64 depth) {
  u64 k = 0;
  if (step == 1 && count == GROUP) {
    for (; k + 32 <= depth; k += 32) {
      for (u32 first = 0; first < GROUP; first += 16) {
        Words v[16];
        for (u32 j = 0; j < 16; ++j) v[j] = *(const LooseWords*)(lines + (first + j) * apart + k);
        turnSixteen(v);
        for (u32 j = 0; j < 16; ++j) *(LooseWords*)(packed + (k / 2 + j) * GROUP + first) = v[j];
      }
    }
  } else if (apart == 1 && count == GROUP) {
    for (; k + 2 <= depth; k += 2) {
      const bf16 *even = lines + k * step, *odd = even + step;
      u32* to = packed + k / 2 * GROUP;
      for (u32 j = 0; j < GROUP; ++j) to[j] = bitCast<u16>(even[j]) | (u32)bitCast<u16>(odd[j]) << 16;
    }
  }
  for (; k < depth; k += 2)
    for (u32 j = 0; j < GROUP; ++j) packed[k / 2 * GROUP + j] = j < count ? pairAt(lines + j * apart, step, k, depth) : 0;
}

/** packed[line][k / 2] of `count` lines as above, and zeros below. */
X_DEVICE void packRows(u32* packed, const bf16* lines, u64 apart, u64 step, u64 count, u64 depth) {
  const u64 pairs = (depth + 1) / 2;
  for (u64 j = 0; j < count; ++j, packed += pairs, lines += apart) {
    u64 k = 0;
    if (step == 1)
      for (; k + 32 <= depth; k += 32) *(LooseWords*)(packed + k / 2) = *(const LooseWords*)(lines + k);
    for (; k < depth; k += 2) packed[k / 2] = pairAt(lines, step, k, depth);
  }
}

/** Asks for lines [begin, end) of so many elements, `apart`, before they are packed: one behind the other they lie elsewhere. */
X_DEVICE void fetch(const bf16* lines, u64 apart, u64 begin, u64 end, u64 elements) {
  for (u64 i = begin; i < end; ++i)
    for (u64 e = 0; e < elements; e += 32) __builtin_prefetch(lines + i * apart + e, 0, 2);
}

/** sums[ROWS][VECTORS of lanes], rows WIDTH apart, = what they were, or `first` nothing, + strip [ROWS][count] . panel. */
template <u32 VECTORS>
X_PAIRS_TARGET inline __attribute__((noinline)) void multiply(const u32* strip, const u32* panel, u64 count, float* sums, bool first) {
  Sums acc[ROWS][VECTORS] = {};
  if (!first) {
#pragma unroll
    for (u32 r = 0; r < ROWS; ++r)
#pragma unroll
      for (u32 c = 0; c < VECTORS; ++c) acc[r][c] = *(const Sums*)(sums + r * WIDTH + c * LANES);
  }
  for (u64 k = 0; k < count; ++k, panel += VECTORS * LANES) {
    Words right[VECTORS];
#pragma unroll
    for (u32 c = 0; c < VECTORS; ++c) right[c] = *(const Words*)(panel + c * LANES);
#pragma unroll
    for (u32 r = 0; r < ROWS; ++r) {
      const Words left = Words{} + strip[r * count + k];
#pragma unroll
      for (u32 c = 0; c < VECTORS; ++c) acc[r][c] = ::pairs::add(acc[r][c], left, right[c]);
    }
  }
#pragma unroll
  for (u32 r = 0; r < ROWS; ++r)
#pragma unroll
    for (u32 c = 0; c < VECTORS; ++c) *(Sums*)(sums + r * WIDTH + c * LANES) = acc[r][c];
}

/**
 * f(sums, batch, row, rows, column, columns) for each tile of out [batches, m, n] that this block has: it makes sums [HIGHEST,
 * WIDEST], which are written behind it. Where there are fewer tiles than blocks they are half as wide, or half as high.
 */
template <u32 HIGHEST, u32 WIDEST, u32 LEAST_WIDTH, class O, class F>
X_DEVICE void eachTile(u64 batches, u64 m, u64 n, O* out, F f) {
  alignas(64) float sums[HIGHEST * WIDEST];
  u64 high = HIGHEST, wide = WIDEST;
  const auto few = [&] { return tilesOf(m, high) * tilesOf(n, wide) * batches < split::blocks(); };
  if (few() && wide / 2 >= LEAST_WIDTH) wide /= 2;
  if (few()) high /= 2;
  const u64 across = tilesOf(n, wide), down = tilesOf(m, high);
  X_FOR_SPLIT(item, across * down * batches) {
    const u64 n0 = item % across * wide, m0 = item / across % down * high, b = item / across / down;
    const u64 width = n - n0 < wide ? n - n0 : wide, height = m - m0 < high ? m - m0 : high;
    f(sums, b, m0, height, n0, width);
    for (u64 i = 0; i < height; ++i)
      for (u64 c = 0; c < width; ++c) out[(b * m + m0 + i) * n + n0 + c] = from_acc<O>(sums[i * WIDEST + c]);
  }
}

/** As gemm::multiply (gemm/host.h). */
template <class O>
X_DEVICE void multiplyAll(u64 batches, u64 m, u64 n, u64 k, const Operand<bf16>& lhs, const Operand<bf16>& rhs, O* out) {
  alignas(64) u32 panel[DEPTH / 2 * MOST_COLUMNS], left[DEPTH / 2 * HEIGHT];
  eachTile<HEIGHT, WIDTH, WIDTH / 2>(batches, m, n, out, [&](float* sums, u64 b, u64 m0, u64 height, u64 n0, u64 width) {
    const Operand<bf16> l = lhs.of(b), r = rhs.of(b);
    if (k == 0) __builtin_memset(sums, 0, HEIGHT * WIDTH * sizeof(float));
    for (u64 k0 = 0; k0 < k; k0 += DEPTH) {
      const u64 depth = k - k0 < DEPTH ? k - k0 : DEPTH, count = (depth + 1) / 2;
      packRows(left, l.at(m0, k0), l.row, l.column, height, depth);
      const u64 after = k - k0 - depth < DEPTH ? k - k0 - depth : DEPTH, strips = (height + ROWS - 1) / ROWS;
      for (u64 c = 0; c < width; c += MOST_COLUMNS) {
        withVectors<MOST_VECTORS, LANES>(width - c, [&](auto v) {
          const u64 columns = width - c < v.columns ? width - c : v.columns;
          packColumns<v.columns>(panel, r.at(k0, n0 + c), r.column, r.row, columns, depth);
          // Of the right matrix's next slab, for the time of each product some lines.
          const bool across = r.column == 1;
          const u64 lines = across ? after : r.row == 1 && after > 0 ? columns : 0, each = (lines + strips - 1) / strips;
          for (u64 i = 0, line = 0; i < height; i += ROWS) {
            const u64 next = line + each < lines ? line + each : lines;
            fetch(r.at(k0 + depth, n0 + c), across ? r.row : r.column, line, next, across ? columns : after);
            line = next;
            multiply<v.value>(left + i * count, panel, count, sums + i * WIDTH + c, k0 == 0);
          }
        });
      }
    }
  });
}

}  // namespace gemm::pairs
#endif
