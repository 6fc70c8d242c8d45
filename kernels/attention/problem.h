// What attention is asked for, in tiles of queries, and the plain form of it, a warp a query: for the host and for GPUs without
// matrix units.
#pragma once

namespace attention {

/** [b, heads, rows, d] whose last dimension is contiguous; strides in elements. */
template <class T>
struct Heads {
  const T* data;
  u64 batch, head, row;
  X_DEVICE const T* at(u64 b, u64 h) const { return data + b * batch + h * head; }
};

/** Rows of one head that lie at equal distances. */
template <class T>
struct Spaced {
  /** What a query that sees no key gives: zeros, or 0 / 0, which is NaN. */
  static constexpr bool ZEROS = false;
  /** Whether heads may have fewer values than a kernel is made for. */
  static constexpr bool NARROW = false;
  const T* data;
  u64 stride;
  X_DEVICE const T* at(u32 row) const { return data + (u64)row * stride; }
};

/** Queries of one head, one after the other, and the keys that they look at. */
template <class T, class Rows>
struct Tile {
  Spaced<T> q;
  u32 rows;
  i32 seen;  // keys that the first query sees at most, each further one sees one more; below 0 so many queries see none
  u32 kv;    // keys that there are
  Rows keys, values;
  T* out;
  u64 outRow;
  float scale;
  u32 window = 0;               // keys that a query sees at most, the last ones; 0: all
  const float* sink = nullptr;  // a score that has no value
  u32 d = 0, dv = 0;            // values of a head of queries and keys, and of one of values, where they may be NARROW
  float softcap = 0.0f;         // scores become softcap * tanh(score / softcap); 0: they stay

  /** Query `row` looks at keys [first, end). */
  X_DEVICE u32 end(u32 row) const {
    const u32 most = (u32)seen + row;  // may be 2^31, and a bit more
    return seen < 0 && (i32)most < 0 ? 0 : most < kv ? most : kv;
  }
  X_DEVICE u32 first(u32 row) const {
    const u32 last = end(row);
    return window != 0 && last > window ? last - window : 0;
  }
};

template <class T>
struct Problem {
  u64 b, heads, kvHeads;
  u32 seq, kv;
  Heads<T> q, k, v;
  T* out;  // [b, heads, seq, d]
  float scale;
  bool causal;

  /** Up to `most` queries from row0 of one of b * heads heads. The last query of all sees all keys, the one before it one fewer. */
  X_DEVICE Tile<T, Spaced<T>> tile(u64 head, u32 row0, u32 most, u32 d) const {
    const u64 at = head / heads, h = head % heads, kvHead = h / (heads / kvHeads);
    const u32 rows = seq - row0 < most ? seq - row0 : most;
    const i32 seen = (i32)(causal ? kv - (seq - 1 - row0) : kv);
    return {{q.at(at, h) + row0 * q.row, q.row}, rows, seen, kv, {k.at(at, kvHead), k.row}, {v.at(at, kvHead), v.row},
            out + (head * seq + row0) * d, d, scale};
  }
  template <u32 D>
  X_DEVICE Tile<T, Spaced<T>> tile(u64 head, u32 row0, u32 most) const {
    return tile(head, row0, most, D);
  }
};

/** Values of a head whose keys have D: in latent attention they are the first columns of the keys. */
template <u32 D>
constexpr u32 VALUES = D == 576 ? 512 : D;

// A score of minus infinity leaves no weight, and no NaN where nothing is seen yet.
X_DEVICE float finite(float top) { return top == lanes::lowest<float>() ? 0.0f : top; }

/** Query `row` of a tile, by a warp. */
template <u32 D, class T, class Rows>
X_DEVICE void attendRow(const Tile<T, Rows>& tile, u32 row) {
  constexpr u32 EACH = (D + WARP - 1) / WARP;
  const u32 width = Rows::NARROW ? tile.d : D, valueWidth = Rows::NARROW ? tile.dv : VALUES<D>;
  const T* q = tile.q.at(row);
  float values[EACH] = {};
  float top = lanes::lowest<float>(), sum = 0.0f;
  for (u32 j = tile.first(row), end = tile.end(row); j < end; ++j) {
    const T *k = tile.keys.at(j), *v = tile.values.at(j);
    float dot = 0.0f;
    for (u32 d = laneId(); d < width; d += WARP) dot += to_acc(q[d]) * to_acc(k[d]);
    float score = warpReduce<Sum>(dot) * tile.scale;
    if (tile.softcap > 0.0f) score = tile.softcap * m::tanh(score / tile.softcap);
    const float before = top;
    top = score > top ? score : top;
    const float kept = m::exp(before - finite(top)), weight = m::exp(score - finite(top));
    sum = sum * kept + weight;
    for (u32 d = laneId(), e = 0; d < valueWidth; d += WARP, ++e) values[e] = values[e] * kept + weight * to_acc(v[d]);
  }
  if (tile.sink) sum += m::exp(*tile.sink - finite(top));
  const float total = Rows::ZEROS && sum == 0.0f ? 1.0f : sum;
  T* out = tile.out + row * tile.outRow;
  for (u32 d = laneId(), e = 0; d < valueWidth; d += WARP, ++e) out[d] = from_acc<T>(values[e] / total);
}

/** Blocks are whole warps. */
template <u32 D, class T>
X_DEVICE void attendPlain(const Problem<T>& p) {
  const u64 warps = split::blocks() * warpsInBlock();
  for (u64 i = split::block() * warpsInBlock() + warpId(); i < p.b * p.heads * p.seq; i += warps)
    attendRow<D>(p.template tile<D>(i / p.seq, (u32)(i % p.seq), 1), 0);
}

}  // namespace attention
