// Attention of sequences that lie one after the other, each within itself, in tiles of queries that a table names: its
// sequence's first token and length, and the tile's first query. Keys may be limited to a window, and scores lose slope times
// distance (ALiBi). On the host f32 goes by tiles of keys as well; elsewhere a warp has a query.
#pragma once

namespace packed {

/** Queries of a tile. */
constexpr u32 ROWS = 64;
/** Elements of a head at most. */
constexpr u32 MAX_HEAD = 256;

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

#if X_HOST
#if defined(__AVX512F__)
constexpr u32 LANES = 16, MOST_VECTORS = 4;
#else
constexpr u32 LANES = 8, MOST_VECTORS = 2;
#endif
/** Queries that a product takes at once. */
constexpr u32 GROUP = 4;
typedef float Lanes __attribute__((vector_size(LANES * 4)));
typedef float Loose __attribute__((vector_size(LANES * 4), aligned(4), may_alias));

/** to[row][V vectors] (+)= from[row][depth] . right[depth][V vectors]; rows of right begin every `stride`. */
template <bool adding, u32 R, u32 V>
X_DEVICE void multiply(const float* const (&from)[R], const float* right, u64 stride, u32 depth, float* const (&to)[R], u32 at) {
  Lanes sums[R][V];
#pragma unroll
  for (u32 r = 0; r < R; ++r)
#pragma unroll
    for (u32 c = 0; c < V; ++c) sums[r][c] = adding ? *(const Loose*)(to[r] + at + c * LANES) : Lanes{};
  for (u32 k = 0; k < depth; ++k, right += stride) {
    Lanes row[V];
#pragma unroll
    for (u32 c = 0; c < V; ++c) row[c] = *(const Loose*)(right + at + c * LANES);
#pragma unroll
    for (u32 r = 0; r < R; ++r)
#pragma unroll
      for (u32 c = 0; c < V; ++c) sums[r][c] += from[r][k] * row[c];
  }
#pragma unroll
  for (u32 r = 0; r < R; ++r)
#pragma unroll
    for (u32 c = 0; c < V; ++c) *(Loose*)(to[r] + at + c * LANES) = sums[r][c];
}

/** The same of any number of columns. */
template <bool adding, u32 R>
X_DEVICE void multiplyRows(const float* const (&from)[R], const float* right, u64 stride, u32 depth, float* const (&to)[R], u32 columns) {
  u32 at = 0;
  for (; at + MOST_VECTORS * LANES <= columns; at += MOST_VECTORS * LANES) multiply<adding, R, MOST_VECTORS>(from, right, stride, depth, to, at);
  for (; at + LANES <= columns; at += LANES) multiply<adding, R, 1>(from, right, stride, depth, to, at);
  for (; at < columns; ++at) {
    for (u32 r = 0; r < R; ++r) {
      float sum = adding ? to[r][at] : 0.0f;
      for (u32 k = 0; k < depth; ++k) sum += from[r][k] * right[k * stride + at];
      to[r][at] = sum;
    }
  }
}

/** What a tile remembers between blocks of keys; weighted values lie in the result meanwhile. */
struct Softmax {
  float top[ROWS], sum[ROWS];
};

/** Elements of a turned copy of keys: 32 KiB, for which a thread's stack has room. */
constexpr u32 COPY = MAX_HEAD * 32;
X_DEVICE u32 keysAtOnce(u32 d) { return d <= MAX_HEAD / 2 ? 64 : 32; }

/** Queries [i, i + R) of a tile and n keys from key0 on, whose turned copy has rows of `width`. */
template <u32 R>
X_DEVICE void attendRows(const Problem<float>& p, const Tile<float>& tile, Softmax& state, const float* turned, u32 width, u32 key0, u32 n, u32 i) {
  alignas(64) float scores[R][64];
  const float* queries[R];
  float *rows[R], *out[R];
  const float* weights[R];
  for (u32 r = 0; r < R; ++r) {
    const u64 token = tile.start + tile.row0 + i + r;
    queries[r] = p.q.at(token, tile.head);
    rows[r] = scores[r], weights[r] = scores[r];
    out[r] = p.out + (token * p.heads + tile.head) * p.d;
  }
  multiplyRows<false>(queries, turned, width, p.d, rows, width);
  for (u32 r = 0; r < R; ++r) {
    const u32 row = tile.row0 + i + r;
    float *s = scores[r], top = state.top[i + r], sum = 0.0f;
    for (u32 j = 0; j < n; ++j) s[j] *= p.scale;
    if (tile.slope != 0.0f)
      for (u32 j = 0; j < n; ++j) s[j] -= tile.slope * __builtin_fabsf((float)(i32)(key0 + j - row));
    const u32 from = tile.first(p, row), end = tile.end(p, row, 1);
    if (key0 < from || key0 + n > end)
      for (u32 j = 0; j < n; ++j) s[j] = key0 + j < from || key0 + j >= end ? lanes::lowest<float>() : s[j];
    const float before = top;
    for (u32 j = 0; j < n; ++j) top = s[j] > top ? s[j] : top;
    // Nothing is seen yet: no weight, and no NaN.
    const float base = top == lanes::lowest<float>() ? 0.0f : top, kept = m::exp(before - base);
    for (u32 j = 0; j < n; ++j) {
      s[j] = m::exp(s[j] - base);
      sum += s[j];
    }
    state.top[i + r] = top;
    state.sum[i + r] = state.sum[i + r] * kept + sum;
    if (kept != 1.0f)
      for (u32 c = 0; c < p.d; ++c) out[r][c] *= kept;
  }
  multiplyRows<true>(weights, tile.v + key0 * p.v.row, p.v.row, n, out, p.d);
}

/** Tiles of f32: some keys at a time are turned, so that neighbouring keys are neighbours in memory. */
X_DEVICE void attendTiles(const Problem<float>& p) {
  alignas(64) float turned[COPY];
  Softmax state;
  const u32 width = keysAtOnce(p.d);
  X_FOR_SPLIT(item, p.count * p.heads) {
    const Tile<float> tile(p, item);
    for (u32 i = 0; i < tile.rows; ++i) {
      state.top[i] = lanes::lowest<float>(), state.sum[i] = 0.0f;
      float* out = p.out + ((tile.start + tile.row0 + i) * p.heads + tile.head) * p.d;
      for (u32 c = 0; c < p.d; ++c) out[c] = 0.0f;
    }
    const u32 end = tile.end(p, tile.row0, tile.rows);
    for (u32 key0 = tile.first(p, tile.row0); key0 < end; key0 += width) {
      const u32 n = end - key0 < width ? end - key0 : width;
      for (u32 j = 0; j < width; ++j) {
        // Behind the last key its own values stand in: their scores are never read.
        const float* key = tile.k + (key0 + (j < n ? j : n - 1)) * p.k.row;
        for (u32 c = 0; c < p.d; ++c) turned[c * width + j] = key[c];
      }
      u32 i = 0;
      for (; i + GROUP <= tile.rows; i += GROUP) attendRows<GROUP>(p, tile, state, turned, width, key0, n, i);
      for (; i < tile.rows; ++i) attendRows<1>(p, tile, state, turned, width, key0, n, i);
    }
    for (u32 i = 0; i < tile.rows; ++i) {
      float* out = p.out + ((tile.start + tile.row0 + i) * p.heads + tile.head) * p.d;
      const float part = 1.0f / state.sum[i];
      for (u32 c = 0; c < p.d; ++c) out[c] *= part;
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
