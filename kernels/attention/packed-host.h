// Packed attention of f32 on the host: a tile's queries lie turned, as those of host.h, whose products it uses. Queries are lanes,
// as many vectors as there are, so that short sequences do not pay for whole tiles.
#pragma once

namespace packed {

#if X_HOST

using attention::TILE_LANES;
using attention::TILE_VECTORS;
using attention::TileLoose;
using attention::TileVector;

/** Keys that a tile meets at once. */
constexpr u32 KEYS = 64;

/** A tile's queries and what it has come to so far. */
struct TileState {
  alignas(64) float queries[MAX_HEAD * ROWS];  // by elements, times the scale
  alignas(64) float values[ROWS * MAX_HEAD];   // weighted, rows of d
  alignas(64) float scores[KEYS * ROWS];       // by keys
  alignas(64) float top[ROWS], sum[ROWS], kept[ROWS];
};

X_DEVICE u32 lanesOf(u32 rows) { return (rows + TILE_LANES - 1) / TILE_LANES * TILE_LANES; }

template <class V, u32 N>
X_DEVICE void turnSquare(V (&v)[N]) {
  if constexpr (N == 16) turnSixteen(v);
  else turnEight(v);
}

/** Lanes without a query have the last one's. */
X_DEVICE void turnQueries(const Problem<float>& p, const Tile<float>& tile, TileState& s) {
  const u64 first = tile.start + tile.row0;
  const auto query = [&](u32 r) { return p.q.at(first + (r < tile.rows ? r : tile.rows - 1), tile.head); };
  for (u32 r = 0, lanes = lanesOf(tile.rows); r < lanes; r += TILE_LANES) {
    u32 c = 0;
#if defined(__AVX__)
    for (; c + TILE_LANES <= p.d; c += TILE_LANES) {
      TileVector square[TILE_LANES];
#pragma unroll
      for (u32 i = 0; i < TILE_LANES; ++i) square[i] = *(const TileLoose*)(query(r + i) + c) * p.scale;
      turnSquare(square);
#pragma unroll
      for (u32 i = 0; i < TILE_LANES; ++i) *(TileVector*)(s.queries + (c + i) * ROWS + r) = square[i];
    }
#endif
    for (u32 i = 0; i < TILE_LANES; ++i)
      for (u32 e = c; e < p.d; ++e) s.queries[e * ROWS + r + i] = query(r + i)[e] * p.scale;
  }
}

/** What distance takes from the scores of keys key0 to key0 + n, and those that queries do not see. */
X_DEVICE void limitScores(const Problem<float>& p, const Tile<float>& tile, TileState& s, u32 key0, u32 n) {
  if (tile.slope != 0.0f)
    for (u32 j = 0; j < n; ++j)
      for (u32 r = 0; r < ROWS; ++r)
        s.scores[j * ROWS + r] -= tile.slope * __builtin_fabsf((float)(i32)(key0 + j - tile.row0 - r));
  if (tile.first(p, tile.row0 + tile.rows - 1) <= key0 && tile.end(p, tile.row0, 1) >= key0 + n) return;
  for (u32 r = 0; r < tile.rows; ++r) {
    const u32 first = tile.first(p, tile.row0 + r), end = tile.end(p, tile.row0 + r, 1);
    for (u32 j = 0; j < n; ++j)
      if (key0 + j < first || key0 + j >= end) s.scores[j * ROWS + r] = lanes::lowest<float>();
  }
}

/** Scores become weights; what is known of the queries goes on by n keys. */
__attribute__((noinline)) void weigh(TileState& s, u32 n, u32 lanes) {
  for (u32 r = 0; r < lanes; r += TILE_LANES) {
    float* scores = s.scores + r;
    const TileVector before = *(const TileVector*)(s.top + r);
    TileVector top = before, sum = {};
    for (u32 j = 0; j < n; ++j) {
      const TileVector score = *(const TileVector*)(scores + j * ROWS);
      top = score > top ? score : top;
    }
    *(TileVector*)(s.top + r) = top;
    // Nothing is seen yet: no weight, and no NaN.
    const TileVector base = top == lanes::lowest<float>() ? TileVector{} : top;
    *(TileVector*)(s.kept + r) = before - base;
    for (u32 j = 0; j < n; ++j) *(TileVector*)(scores + j * ROWS) -= base;
    for (u32 j = 0; j < n; ++j) {
#pragma clang loop vectorize(enable) interleave_count(1)
      for (u32 i = 0; i < TILE_LANES; ++i) scores[j * ROWS + i] = m::exp(scores[j * ROWS + i]);
      sum += *(const TileVector*)(scores + j * ROWS);
    }
    for (u32 i = 0; i < TILE_LANES; ++i) s.kept[r + i] = m::exp(s.kept[r + i]);
    *(TileVector*)(s.sum + r) = *(const TileVector*)(s.sum + r) * *(const TileVector*)(s.kept + r) + sum;
  }
}

/** A tile, `s.values` being what it gives but for the sums. */
X_DEVICE void attendTile(const Problem<float>& p, const Tile<float>& tile, TileState& s) {
  const u32 rows = tile.rows, lanes = lanesOf(rows), d = p.d;
  turnQueries(p, tile, s);
  for (u32 r = 0; r < ROWS; ++r) s.top[r] = lanes::lowest<float>(), s.sum[r] = 0.0f;
  for (u32 i = 0; i < rows * d; ++i) s.values[i] = 0.0f;
  const u32 end = tile.end(p, tile.row0, rows);
  for (u32 key0 = tile.first(p, tile.row0); key0 < end; key0 += KEYS) {
    const u32 n = end - key0 < KEYS ? end - key0 : KEYS;
    attention::multiplyTile<false>({tile.k + key0 * p.k.row, p.k.row, 1}, n, s.queries, ROWS, d, s.scores, ROWS, lanes);
    limitScores(p, tile, s, key0, n);
    weigh(s, n, lanes);
    for (u32 r = 0; r < rows; ++r)
      if (s.kept[r] != 1.0f)
        for (u32 c = 0; c < d; ++c) s.values[r * d + c] *= s.kept[r];
    attention::multiplyTile<true>({s.scores, 1, ROWS}, rows, tile.v + key0 * p.v.row, p.v.row, n, s.values, d, d);
  }
}

X_DEVICE void attendTiles(const Problem<float>& p) {
  TileState s;
  X_FOR_SPLIT(item, p.count * p.heads) {
    const Tile<float> tile(p, item);
    attendTile(p, tile, s);
    for (u32 r = 0; r < tile.rows; ++r) {
      float* out = p.out + ((tile.start + tile.row0 + r) * p.heads + tile.head) * p.d;
      const float part = 1.0f / s.sum[r];
      for (u32 c = 0; c < p.d; ++c) out[c] = s.values[r * p.d + c] * part;
    }
  }
}

#endif

template <class T>
X_DEVICE void attend(const Problem<T>& p) {
#if X_HOST
  if constexpr (sameType<T, float>) return attendTiles(p);
#endif
  attendPlain(p);
}

}  // namespace packed
