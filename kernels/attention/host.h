// Attention on the host, in f32: tiles of queries that lie turned, so that neighbouring queries are the lanes of a vector and
// the softmax needs no sums over lanes. Blocks of keys and values are read where they lie, or are widened once a tile.
#pragma once

#if X_HOST
namespace attention {

constexpr u32 TILE_QUERIES = 64, TILE_KEYS = 64;
/** Rows and vectors of a product: as many sums as registers hold. */
#if defined(__AVX512F__)
constexpr u32 TILE_LANES = 16, TILE_ROWS = 6, TILE_VECTORS = 4;
#elif defined(__AVX__)
constexpr u32 TILE_LANES = 8, TILE_ROWS = 6, TILE_VECTORS = 2;
#else
constexpr u32 TILE_LANES = 4, TILE_ROWS = 6, TILE_VECTORS = 2;
#endif
typedef float TileVector __attribute__((vector_size(TILE_LANES * 4)));
typedef float TileLoose __attribute__((vector_size(TILE_LANES * 4), aligned(4), may_alias));

/** Rows and columns of a matrix by their distances. */
struct TileLeft {
  const float* data;
  u64 row, step;
};

/** ROWS rows of VECTORS vectors of out (+)= left [ROWS, depth] . right [depth, ...], whose rows lie `stride` and `pitch` apart. */
template <bool adding, u32 ROWS, u32 VECTORS>
X_DEVICE void multiplyVectors(TileLeft left, const float* right, u64 stride, u32 depth, float* out, u64 pitch) {
  TileVector sums[ROWS][VECTORS];
#pragma unroll
  for (u32 r = 0; r < ROWS; ++r)
#pragma unroll
    for (u32 c = 0; c < VECTORS; ++c) sums[r][c] = adding ? *(const TileLoose*)(out + r * pitch + c * TILE_LANES) : TileVector{};
  const float* l = left.data;
  for (u32 k = 0; k < depth; ++k, l += left.step, right += stride) {
    TileVector row[VECTORS];
#pragma unroll
    for (u32 c = 0; c < VECTORS; ++c) row[c] = *(const TileLoose*)(right + c * TILE_LANES);
#pragma unroll
    for (u32 r = 0; r < ROWS; ++r)
#pragma unroll
      for (u32 c = 0; c < VECTORS; ++c) sums[r][c] += l[r * left.row] * row[c];
  }
#pragma unroll
  for (u32 r = 0; r < ROWS; ++r)
#pragma unroll
    for (u32 c = 0; c < VECTORS; ++c) *(TileLoose*)(out + r * pitch + c * TILE_LANES) = sums[r][c];
}

/** The same of any number of columns. */
template <bool adding, u32 ROWS>
__attribute__((noinline)) void multiplyRows(TileLeft left, const float* right, u64 stride, u32 depth, float* out, u64 pitch,
                                            u32 columns) {
  u32 at = 0;
  for (; at + TILE_VECTORS * TILE_LANES <= columns; at += TILE_VECTORS * TILE_LANES)
    multiplyVectors<adding, ROWS, TILE_VECTORS>(left, right + at, stride, depth, out + at, pitch);
  if constexpr (TILE_VECTORS > 2)
    for (; at + 2 * TILE_LANES <= columns; at += 2 * TILE_LANES)
      multiplyVectors<adding, ROWS, 2>(left, right + at, stride, depth, out + at, pitch);
  for (; at + TILE_LANES <= columns; at += TILE_LANES)
    multiplyVectors<adding, ROWS, 1>(left, right + at, stride, depth, out + at, pitch);
  for (; at < columns; ++at)
    for (u32 r = 0; r < ROWS; ++r) {
      float sum = adding ? out[r * pitch + at] : 0.0f;
      for (u32 k = 0; k < depth; ++k) sum += left.data[r * left.row + k * left.step] * right[k * stride + at];
      out[r * pitch + at] = sum;
    }
}

/** The same of any number of rows. */
template <bool adding, u32 ROWS = TILE_ROWS>
X_DEVICE void multiplyTile(TileLeft left, u32 rows, const float* right, u64 stride, u32 depth, float* out, u64 pitch, u32 columns) {
  u32 i = 0;
  for (; i + ROWS <= rows; i += ROWS)
    multiplyRows<adding, ROWS>({left.data + i * left.row, left.row, left.step}, right, stride, depth, out + i * pitch, pitch, columns);
  if constexpr (ROWS > 1)
    if (i < rows)
      multiplyTile<adding, ROWS / 2>({left.data + i * left.row, left.row, left.step}, rows - i, right, stride, depth,
                                     out + i * pitch, pitch, columns);
}

/** A tile's queries and what it has come to so far. */
template <u32 D>
struct TileState {
  alignas(64) float queries[D * TILE_QUERIES];          // by elements, times the scale
  alignas(64) float values[TILE_QUERIES * D];           // weighted
  alignas(64) float scores[TILE_KEYS * TILE_QUERIES];   // by keys
  alignas(64) float top[TILE_QUERIES], sum[TILE_QUERIES], kept[TILE_QUERIES];
};

/** Scores become weights; what is known of the queries goes on by n keys. */
template <u32 D>
__attribute__((noinline)) void weigh(TileState<D>& s, u32 n) {
  float best[TILE_QUERIES], sum[TILE_QUERIES];
  for (u32 r = 0; r < TILE_QUERIES; ++r) best[r] = s.top[r];
  for (u32 j = 0; j < n; ++j) {
    const float* row = s.scores + j * TILE_QUERIES;
    for (u32 r = 0; r < TILE_QUERIES; ++r) best[r] = row[r] > best[r] ? row[r] : best[r];
  }
  for (u32 r = 0; r < TILE_QUERIES; ++r) {
    const float base = finite(best[r]);
    s.kept[r] = m::exp(s.top[r] - base);
    s.top[r] = best[r];
    best[r] = base;
    sum[r] = 0.0f;
  }
  for (u32 j = 0; j < n; ++j) {
    float* row = s.scores + j * TILE_QUERIES;
    for (u32 r = 0; r < TILE_QUERIES; ++r) {
      row[r] = m::exp(row[r] - best[r]);
      sum[r] += row[r];
    }
  }
  for (u32 r = 0; r < TILE_QUERIES; ++r) s.sum[r] = s.sum[r] * s.kept[r] + sum[r];
}

/** n rows as f32: themselves, or a copy. */
template <u32 D, class T>
X_DEVICE const float* tileRows(const T* rows, u64 stride, u32 n, float* copy, u64& pitch) {
  if constexpr (sameType<T, float>) {
    pitch = stride;
    return rows;
  } else {
    for (u32 j = 0; j < n; ++j)
      for (u32 c = 0; c < D; ++c) copy[j * D + c] = to_acc(rows[j * stride + c]);
    pitch = D;
    return copy;
  }
}

/** Nothing is known of the queries yet. */
template <u32 D>
__attribute__((noinline)) void begin(TileState<D>& s, u32 d) {
  for (u32 r = 0; r < TILE_QUERIES; ++r) s.top[r] = lanes::lowest<float>(), s.sum[r] = 0.0f;
  for (u32 i = 0; i < TILE_QUERIES * d; ++i) s.values[i] = 0.0f;
}

/** Scores of the n keys from key0 on that queries do not see. */
template <u32 D, class Queries>
__attribute__((noinline)) void hide(const Queries& tile, u32 key0, u32 n, TileState<D>& s) {
  for (u32 r = 0; r < tile.rows; ++r)
    for (u32 j = tile.end(r) > key0 ? tile.end(r) - key0 : 0; j < n; ++j) s.scores[j * TILE_QUERIES + r] = lanes::lowest<float>();
}

/** What was weighted before, rows of d, where the largest score has changed. */
template <u32 D>
__attribute__((noinline)) void keep(TileState<D>& s, u32 rows, u32 d) {
  for (u32 r = 0; r < rows; ++r) {
    // Read once: to the compiler it might be one of the values.
    const float kept = s.kept[r];
    if (kept == 1.0f) continue;
    float* values = s.values + r * d;
    for (u32 c = 0; c < d; ++c) values[c] *= kept;
  }
}

template <u32 D, class T>
__attribute__((noinline)) void finish(const TileState<D>& s, u32 rows, u32 d, T* out) {
  for (u32 r = 0; r < rows; ++r)
    for (u32 c = 0; c < d; ++c) out[r * d + c] = from_acc<T>(s.values[r * d + c] / s.sum[r]);
}

template <u32 D, class T>
X_DEVICE void attendTiles(const Problem<T>& p) {
  TileState<D> s;
  alignas(64) float keyCopy[sameType<T, float> ? 1 : TILE_KEYS * D], valueCopy[sameType<T, float> ? 1 : TILE_KEYS * D];
  const u64 tiles = ((u64)p.seq + TILE_QUERIES - 1) / TILE_QUERIES;
  X_FOR_SPLIT(item, p.b * p.heads * tiles) {
    const auto tile = p.template tile<D>(item / tiles, (u32)(item % tiles) * TILE_QUERIES, TILE_QUERIES);
    const u32 rows = tile.rows;
    for (u32 r = 0; r < TILE_QUERIES; ++r)
      for (u32 c = 0; c < D; ++c) s.queries[c * TILE_QUERIES + r] = r < rows ? to_acc(tile.q.at(r)[c]) * p.scale : 0.0f;
    begin(s, D);
    const u32 first = tile.end(0), end = tile.end(rows - 1);
    for (u32 key0 = 0; key0 < end; key0 += TILE_KEYS) {
      const u32 n = end - key0 < TILE_KEYS ? end - key0 : TILE_KEYS;
      u64 pitch;
      const float* keys = tileRows<D>(tile.keys.at(key0), p.k.row, n, keyCopy, pitch);
      multiplyTile<false>({keys, pitch, 1}, n, s.queries, TILE_QUERIES, D, s.scores, TILE_QUERIES, TILE_QUERIES);
      if (key0 + n > first) hide(tile, key0, n, s);
      weigh(s, n);
      keep(s, rows, D);
      const float* values = tileRows<D>(tile.values.at(key0), p.v.row, n, valueCopy, pitch);
      multiplyTile<true>({s.scores, 1, TILE_QUERIES}, rows, values, pitch, n, s.values, D, D);
    }
    finish(s, rows, D, tile.out);
  }
}

}  // namespace attention
#endif
