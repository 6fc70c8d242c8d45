// Attention of bf16 in a host's tile registers (AMX-BF16). Scores are keys times queries: keys are loaded from where they lie, and a
// tile's queries are turned to pairs of elements once. Weights are rounded to bf16, as on GPUs' matrix units, and lie by queries for
// their product with pairs of values. What lies between is that of host.h, in f32.
#pragma once

#if X_AMX
namespace attention::tiles {

/** Sides of a register, and what goes into one along a product. */
constexpr u32 SIDE = 16, STEP = 32;
/** Queries from which tiles are worth their turning. */
constexpr u32 LEAST = 16;
/** Elements of a head at most. */
constexpr u32 MOST = 128;

struct Operands {
  alignas(64) u32 queries[MOST / 2 * TILE_QUERIES];  // by pairs of elements
  alignas(64) bf16 weights[TILE_QUERIES * TILE_KEYS];
  alignas(64) u32 values[TILE_KEYS / 2 * MOST];  // by pairs of keys
  alignas(64) bf16 keys[TILE_KEYS * MOST];       // of a last block, zeros behind them
};

X_DEVICE bool pay(u32 queries) { return x_amx && pairs::supported() && queries >= LEAST; }
X_DEVICE u32 wholeSteps(u32 n) { return (n + STEP - 1) / STEP * STEP; }
X_DEVICE u32 pairOf(bf16 first, bf16 second) { return first.bits | (u32)second.bits << 16; }

/**
 * out [2 * SIDE][2 * SIDE] = what it was, or `first` nothing, + left [2 * SIDE][steps * STEP] times pairs of the right matrix; rows lie
 * so many bytes apart.
 */
inline __attribute__((noinline)) void multiply(const bf16* left, u64 apart, const u32* right, u64 pitch, u32 steps, float* out,
                                               u64 row, bool first) {
  amx::loadSums<true, true>(out, row, first);
  for (u32 step = 0; step < steps; ++step, left += STEP, right += SIDE * pitch / sizeof(u32)) {
    amx::load<4>(left, apart);
    amx::load<6>(right, pitch);
    amx::multiplyBf16<0, 4, 6>();
    amx::load<5>((const u8*)left + SIDE * apart, apart);
    amx::multiplyBf16<1, 5, 6>();
    amx::load<7>(right + SIDE, pitch);
    amx::multiplyBf16<2, 4, 7>();
    amx::multiplyBf16<3, 5, 7>();
  }
  amx::storeSums<true, true>(out, row);
}

/** weights [query][key] in bf16 from `n` scores by keys, a multiple of SIDE. */
X_PAIRS_TARGET inline __attribute__((noinline)) void turnWeights(const float* scores, u32 n, bf16* weights) {
  for (u32 key = 0; key < n; key += SIDE)
    for (u32 query = 0; query < TILE_QUERIES; query += SIDE) {
      TileVector square[SIDE];
#pragma unroll
      for (u32 j = 0; j < SIDE; ++j) square[j] = *(const TileLoose*)(scores + (key + j) * TILE_QUERIES + query);
      turnSixteen(square);
#pragma unroll
      for (u32 r = 0; r < SIDE; ++r) {
        const pairs::Narrow row = pairs::narrow(square[r]);
        __builtin_memcpy(weights + (query + r) * TILE_KEYS + key, &row, sizeof(row));
      }
    }
}

/** Pairs of rows of d values; zeros behind n rows up to whole steps. */
X_DEVICE void pairRows(const bf16* rows, u64 stride, u32 n, u32 d, u32* pairs) {
  u32 j = 0;
  for (; j + 1 < n; j += 2, pairs += d) {
    const bf16 *first = rows + j * stride, *second = first + stride;
#pragma clang loop unroll(disable)
    for (u32 c = 0; c < d; ++c) pairs[c] = pairOf(first[c], second[c]);
  }
  __builtin_memset(pairs, 0, (wholeSteps(n) - j) / 2 * d * sizeof(u32));
  if (j == n) return;
#pragma clang loop vectorize(disable) unroll(disable)
  for (u32 c = 0; c < d; ++c) pairs[c] = pairOf(rows[j * stride + c], bf16{});
}

/** As attention::attendTiles, of heads of d elements: whole steps. One piece of code for all sizes. */
inline __attribute__((noinline)) void attendTiles(const Problem<bf16>& p, u32 d) {
  TileState<MOST> s;
  Operands own;
  amx::Shape shape;
  for (u32 i = 0; i < 8; ++i) shape.set(i, SIDE, 64);
  const amx::Registers registers(shape);
  const u64 tiles = ((u64)p.seq + TILE_QUERIES - 1) / TILE_QUERIES;
  X_FOR_SPLIT(item, p.b * p.heads * tiles) {
    const auto tile = p.tile(item / tiles, (u32)(item % tiles) * TILE_QUERIES, TILE_QUERIES, d);
    const u32 rows = tile.rows;
    __builtin_memset(own.queries, 0, sizeof(own.queries));
    for (u32 r = 0; r < rows; ++r) {
      const bf16* query = tile.q.at(r);
#pragma clang loop vectorize(disable) unroll(disable)
      for (u32 c = 0; c < d; c += 2) own.queries[c / 2 * TILE_QUERIES + r] = pairOf(query[c], query[c + 1]);
    }
    begin(s, d);
    const u32 first = tile.end(0), end = tile.end(rows - 1);
    for (u32 key0 = 0; key0 < end; key0 += TILE_KEYS) {
      const u32 n = end - key0 < TILE_KEYS ? end - key0 : TILE_KEYS;
      const bf16* keys = tile.keys.at(key0);
      u64 apart = p.k.row * sizeof(bf16);
      if (n < TILE_KEYS) {
        for (u32 j = 0; j < n; ++j) __builtin_memcpy(own.keys + j * d, keys + j * p.k.row, d * sizeof(bf16));
        __builtin_memset(own.keys + n * d, 0, (TILE_KEYS - n) * d * sizeof(bf16));
        keys = own.keys, apart = d * sizeof(bf16);
      }
      constexpr u64 PITCH = TILE_QUERIES * sizeof(float);
      for (u32 j = 0; j < n; j += STEP)
        for (u32 r = 0; r < TILE_QUERIES; r += STEP)
          multiply((const bf16*)((const u8*)keys + j * apart), apart, own.queries + r, PITCH, d / STEP,
                   s.scores + j * TILE_QUERIES + r, PITCH, true);
#pragma clang loop unroll(disable)
      for (u32 i = 0; i < n * TILE_QUERIES; ++i) s.scores[i] *= tile.scale;
      if (key0 + n > first) hide(tile, key0, n, s);
      weigh(s, n);
      keep(s, rows, d);
      __builtin_memset(s.scores + n * TILE_QUERIES, 0, (wholeSteps(n) - n) * TILE_QUERIES * sizeof(float));
      turnWeights(s.scores, wholeSteps(n), own.weights);
      pairRows(tile.values.at(key0), p.v.row, n, d, own.values);
      for (u32 r = 0; r < TILE_QUERIES; r += STEP)
        for (u32 c = 0; c < d; c += STEP)
          multiply(own.weights + r * TILE_KEYS, TILE_KEYS * sizeof(bf16), own.values + c, d * sizeof(u32), wholeSteps(n) / STEP,
                   s.values + r * d + c, d * sizeof(float), false);
    }
    finish(s, rows, d, tile.out);
  }
}

}  // namespace attention::tiles
#endif
