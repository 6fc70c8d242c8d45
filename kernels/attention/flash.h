// Attention on matrix units with the online softmax (FlashAttention-2): a block takes up to 128 queries of a head and walks the
// keys up to 64 at a time; scores live in registers only. How queries and keys are cut, and what differs between units in how slabs
// get into shared memory, is in slabs.h: 8 warps of 32 lanes on NVIDIA and RDNA, 4 of 64 lanes on CDNA.
#pragma once

#if X_MMA
namespace attention {

// Elements of a result tile in a lane, how many rows of the tile they lie in, and how many lanes share such a row.
constexpr u32 ELEMENTS = 256 / WARP, TILE_ROWS = X_MMA_NVIDIA ? 2 : ELEMENTS, ROW_LANES = X_MMA_NVIDIA ? 4 : 16;

/** Which of a lane's TILE_ROWS rows element i lies in. */
X_DEVICE constexpr u32 ownRow(u32 i) { return X_MMA_NVIDIA ? i / 2 % 2 : i; }

/** A warp's queries. `top` is of products before they are scaled; scales are positive and times log2(e). */
template <u32 D, class T>
struct Queries {
  typedef attention::Cut<D> Cut;
  Values<D, T> values;
  float top[Cut::ROWS][TILE_ROWS], sum[Cut::ROWS][TILE_ROWS];

  X_DEVICE void clear() {
#pragma unroll
    for (u32 r = 0; r < Cut::ROWS; ++r) {
#pragma unroll
      for (u32 i = 0; i < TILE_ROWS; ++i) top[r][i] = lanes::lowest<float>(), sum[r][i] = 0.0f;
#pragma unroll
      for (u32 c = 0; c < Cut::PARTS; ++c)
#pragma unroll
        for (u32 i = 0; i < ELEMENTS; ++i) values[r][c].v[i] = 0.0f;
    }
  }

  /** Makes products of queries and keys weights, in place, and takes the change of the rows' tops into account. */
  X_DEVICE void weigh(u32 r, float scale, mma::Tile<T> (&scores)[Cut::SCORES]) {
#pragma unroll
    for (u32 own = 0; own < TILE_ROWS; ++own) {
      float best = top[r][own];
#pragma unroll
      for (u32 c = 0; c < Cut::SCORES; ++c)
#pragma unroll
        for (u32 i = 0; i < ELEMENTS; ++i)
          if (ownRow(i) == own) best = rough::greater(best, scores[c].v[i]);
#pragma unroll
      for (u32 lane = 1; lane < ROW_LANES; lane *= 2) {
        best = rough::greater(best, shuffleXor(best, lane));
      }
      const float base = finite(best) * scale, kept = rough::exp2Normal(top[r][own] * scale - base);
      top[r][own] = best;
      float added = 0.0f;
#pragma unroll
      for (u32 c = 0; c < Cut::SCORES; ++c)
#pragma unroll
        for (u32 i = 0; i < ELEMENTS; ++i)
          if (ownRow(i) == own) {
            scores[c].v[i] = rough::exp2Normal(scores[c].v[i] * scale - base);
            added += scores[c].v[i];
          }
      // Each lane sums its own columns; the lanes of a row are added up at the end.
      sum[r][own] = sum[r][own] * kept + added;
#pragma unroll
      for (u32 c = 0; c < Cut::PARTS; ++c)
#pragma unroll
        for (u32 i = 0; i < ELEMENTS; ++i)
          if (ownRow(i) == own) values[r][c].v[i] *= kept;
    }
  }

  /** @param row0 the warp's first in the tile @param factor scores are products times it, in powers of two */
  template <class Rows>
  X_DEVICE void store(const Tile<T, Rows>& tile, u32 row0, float factor) {
#pragma unroll
    for (u32 r = 0; r < Cut::ROWS; ++r)
#pragma unroll
      for (u32 i = 0; i < ELEMENTS; i += X_MMA_NVIDIA ? 2 : 1) {
        float total = sum[r][ownRow(i)];
#pragma unroll
        for (u32 lane = 1; lane < ROW_LANES; lane *= 2) total += shuffleXor(total, lane);
        if (tile.sink) total += rough::exp2Normal(*tile.sink * rough::LOG2_E - finite(top[r][ownRow(i)]) * factor);
        if (Rows::ZEROS && total == 0.0f) total = 1.0f;
        const u32 row = row0 + r * 16 + mma::rowOf(i), column = Cut::column();
        const float part = 1.0f / total;
        T* out = tile.out + row * tile.outRow + column + mma::columnOf(i);
        if (row >= tile.rows) continue;
#pragma unroll
        for (u32 c = 0; c < Cut::PARTS; ++c) {
          if (Rows::NARROW && column + c * 16 >= tile.dv) continue;
#if X_MMA_NVIDIA
          *(u32*)(out + c * 16) = mma::roundPair<T>(values[r][c].v[i] * part, values[r][c].v[i + 1] * part);
#else
          out[c * 16] = from_acc<T>(values[r][c].v[i] * part);
#endif
        }
      }
  }
};

/** Scores of queries from row0 of a tile and keys from key0; those that may not be seen are minus infinity. */
template <u32 COUNT, class T, class Rows>
X_DEVICE void mask(const Tile<T, Rows>& tile, u32 row0, u32 key0, mma::Tile<T> (&scores)[COUNT]) {
#pragma unroll
  for (u32 i = 0; i < ELEMENTS; ++i) {
    const u32 row = row0 + mma::rowOf(i), first = tile.first(row), end = tile.end(row);
#pragma unroll
    for (u32 c = 0; c < COUNT; ++c) {
      const u32 key = key0 + c * 16 + mma::columnOf(i);
      if (key < first || key >= end) scores[c].v[i] = lanes::lowest<float>();
    }
  }
}

/** Products of queries and keys such that times `scale` they are capped scores. */
template <u32 COUNT, class T>
X_DEVICE void cap(float scale, float softcap, mma::Tile<T> (&scores)[COUNT]) {
  const float most = softcap / scale, into = 2.0f * rough::LOG2_E / most;
#pragma unroll
  for (u32 c = 0; c < COUNT; ++c)
#pragma unroll
    for (u32 i = 0; i < ELEMENTS; ++i)
      scores[c].v[i] = most - 2.0f * most * rough::reciprocal(1.0f + rough::exp2Normal(scores[c].v[i] * into));
}

template <u32 D, class T, class Rows>
X_DEVICE void attendTile(const Tile<T, Rows>& tile) {
  typedef attention::Cut<D> Cut;
  constexpr u32 KEYS = Cut::KEYS;
  const u32 end = tile.end(tile.rows - 1), begin = tile.first(0) / KEYS * KEYS;
  Slabs<D, T, Rows> slabs(tile, begin, end);
  Queries<D, T> queries;
  queries.clear();
  // Between them all queries see all keys.
  const u32 from = tile.first(tile.rows - 1), to = tile.end(0);
  const u32 own0 = Cut::row();
  const float factor = tile.scale * rough::LOG2_E;
#pragma unroll 1
  for (u32 key0 = begin; key0 < end; key0 += KEYS) {
    slabs.next(key0, end);
    Scores<D, T> scores = {};
    slabs.multiplyKeys(scores);
#pragma unroll
    for (u32 r = 0; r < Cut::ROWS; ++r) {
      if (Rows::ZEROS && tile.softcap > 0.0f) cap(tile.scale, tile.softcap, scores[r]);
      if (key0 < from || key0 + KEYS > to) mask(tile, own0 + r * 16, key0, scores[r]);
      queries.weigh(r, factor, scores[r]);
    }
    slabs.multiplyValues(scores, queries.values);
  }
  slabs.finish();
  // Not known before: addresses of results would be kept in registers all along.
  queries.store(tile, opaque(own0), factor);
}

/** Tiles are handed out so that those with many keys begin first and those with few share processors with them, or follow. */
template <u32 D, class T>
X_DEVICE void attendMma(const Problem<T>& p) {
  constexpr bool ALONE = X_WGMMA && D > 64;  // on a processor
  constexpr u32 QUERIES = Cut<D>::QUERIES;
  const u64 tiles = (p.seq + QUERIES - 1) / QUERIES, heads = p.b * p.heads, items = tiles * heads;
  X_FOR_SPLIT(at, items) {
    const u64 turned = ALONE || at < items / 2 ? items - 1 - at : at - items / 2;
    attendTile<D>(p.template tile<D>(turned % heads, (u32)(turned / heads) * QUERIES, QUERIES));
  }
}

}  // namespace attention
#endif
