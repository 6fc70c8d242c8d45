// Attention of sequences that lie one after the other, each within itself, in tiles of queries that a table names: its
// sequence's first token and length, and the tile's first query. Keys may be limited to a window, and scores lose slope times
// distance (ALiBi). A warp has a query; on the host f32 goes by tiles of keys as well (packed-host.h).
#pragma once

namespace packed {

/** Queries of a tile. */
constexpr u32 ROWS = 64;  // launchers: PACKED_ROWS
/** Elements of a head at most. */
constexpr u32 MAX_HEAD = 256;  // launchers: PACKED_MAX_HEAD

/** [tokens, heads, d] whose last dimension is contiguous; strides in elements. */
template <class T>
struct Rows {
  const T* data;
  u64 row, head;
  X_DEVICE const T* at(u64 token, u64 h) const { return data + token * row + h * head; }
};

template <class T>
struct Problem {
  const u32* tiles;
  u64 count, heads, kvHeads;
  u32 d, before, after;  // keys that a query sees at most in front of it and behind
  float scale;
  const float* slopes;
  Rows<T> q, k, v;
  T* out;  // [tokens, heads, d]
};

/** A tile of one head. */
template <class T>
struct Tile {
  u64 start, head;
  u32 length, row0, rows;
  const T *k, *v;
  float slope;

  X_DEVICE Tile(const Problem<T>& p, u64 item) {
    const u32* entry = p.tiles + item / p.heads * 3;
    start = entry[0], head = item % p.heads, length = entry[1], row0 = entry[2];
    rows = length - row0 < ROWS ? length - row0 : ROWS;
    const u64 kvHead = head / (p.heads / p.kvHeads);
    k = p.k.at(start, kvHead), v = p.v.at(start, kvHead);
    slope = p.slopes ? p.slopes[head] : 0.0f;
  }
  /** Keys [first, end) that queries [row, row + count) see some of. */
  X_DEVICE u32 first(const Problem<T>& p, u32 row) const { return row > p.before ? row - p.before : 0; }
  X_DEVICE u32 end(const Problem<T>& p, u32 row, u32 count) const {
    const u64 last = (u64)row + count + p.after;
    return last < length ? (u32)last : length;
  }
};

template <class T>
X_DEVICE void attendPlain(const Problem<T>& p) {
  constexpr u32 EACH = (MAX_HEAD + WARP - 1) / WARP;
  // Elements of a lane: the host, where one has all, goes through those that are there.
  const u32 own = X_HOST && p.d < EACH ? p.d : EACH;
  X_FOR_SPLIT(item, p.count * p.heads) {
    const Tile<T> tile(p, item);
    for (u32 i = warpId(); i < tile.rows; i += warpsInBlock()) {
      const u32 row = tile.row0 + i;
      const T* q = p.q.at(tile.start + row, tile.head);
      float query[EACH], values[EACH] = {};
#pragma unroll EACH > 16 ? 1 : EACH
      for (u32 e = 0; e < own; ++e) query[e] = laneId() + e * WARP < p.d ? to_acc(q[laneId() + e * WARP]) : 0.0f;
      float top = lanes::lowest<float>(), sum = 0.0f;
      for (u32 j = tile.first(p, row), end = tile.end(p, row, 1); j < end; ++j) {
        const T *k = tile.k + j * p.k.row, *v = tile.v + j * p.v.row;
        float dot = opaque(0.0f);  // a zero that is seen would look like a product that is rounded (tools/kernels/roundings.ts)
#pragma unroll EACH > 16 ? 1 : EACH
        for (u32 e = 0; e < own; ++e)
          if (laneId() + e * WARP < p.d) dot += query[e] * to_acc(k[laneId() + e * WARP]);
        const float distance = j > row ? (float)(j - row) : (float)(row - j);
        const float score = warpReduce<Sum>(dot) * p.scale - tile.slope * distance, before = top;
        top = score > top ? score : top;
        const float kept = m::exp(before - top), weight = m::exp(score - top);
        sum = sum * kept + weight;
#pragma unroll EACH > 16 ? 1 : EACH
        for (u32 e = 0; e < own; ++e)
          if (laneId() + e * WARP < p.d) values[e] = values[e] * kept + weight * to_acc(v[laneId() + e * WARP]);
      }
      T* out = p.out + ((tile.start + row) * p.heads + tile.head) * p.d;
#pragma unroll EACH > 16 ? 1 : EACH
      for (u32 e = 0; e < own; ++e)
        if (laneId() + e * WARP < p.d) out[laneId() + e * WARP] = from_acc<T>(values[e] / sum);
    }
  }
}

}  // namespace packed
