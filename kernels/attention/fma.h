// Attention of f32 on ordinary FMA units with the online softmax (FlashAttention-2): a block takes QUERIES queries of a head
// and walks the keys a slab at a time. A warp has queries of its own and all of the slab's keys, so that nothing but
// chunks (chunks.h) is shared between warps. A lane reads 16 bytes of shared memory for every 16 multiplications.
#pragma once

#if !X_HOST
namespace attention {
namespace fma {

/** A lane's queries: of each, D / LANES values, in pieces LANES apart. `top` is of products before they are scaled. */
template <u32 D>
struct Queries {
  static constexpr u32 PIECES = D / LANES / 4;
  Piece values[ROWS][PIECES];
  float top[ROWS], sum[ROWS];

  X_DEVICE void clear() {
#pragma unroll
    for (u32 i = 0; i < ROWS; ++i) {
      top[i] = lanes::lowest<float>(), sum[i] = 0.0f;
#pragma unroll
      for (u32 c = 0; c < PIECES; ++c) values[i][c] = {};
    }
  }

  /** Turns products into weights and takes the change of the tops into account; scale is positive and times log2(e). */
  X_DEVICE void weigh(float scale, const float (&scores)[ROWS][COLUMNS], const Chunks<D>& chunks) {
#pragma unroll
    for (u32 i = 0; i < ROWS; ++i) {
      float best = top[i];
#pragma unroll
      for (u32 j = 0; j < COLUMNS; ++j) best = Max::apply(best, scores[i][j]);
#pragma unroll
      for (u32 lane = APART; lane < WARP; lane *= 2) best = Max::apply(best, shuffleXor(best, lane));
      const float base = finite(best) * scale, kept = rough::exp2Normal(top[i] * scale - base);
      top[i] = best;
      float added = 0.0f;
#pragma unroll
      for (u32 j = 0; j < COLUMNS; ++j) {
        const float weight = rough::exp2Normal(scores[i][j] * scale - base);
        *chunks.weight(i, j * LANES + ownKey()) = weight;
        added += weight;
      }
      // Each lane sums its own keys; the lanes of a query are added up at the end.
      sum[i] = sum[i] * kept + added;
#pragma unroll
      for (u32 c = 0; c < PIECES; ++c)
#pragma unroll
        for (u32 e = 0; e < 4; ++e) values[i][c][e] *= kept;
    }
  }

  /** Adds a chunk of values times the weights of their keys, which begin at `key` of the slab. */
  X_DEVICE void add(const Chunks<D>& chunks, const float* chunk, u32 key) {
#pragma unroll 2
    for (u32 k = 0; k < Chunks<D>::VALUES; k += 4) {
      Piece weights[ROWS];
#pragma unroll
      for (u32 i = 0; i < ROWS; ++i) weights[i] = loadVec<4>(chunks.weight(i, key + k));
#pragma unroll
      for (u32 e = 0; e < 4; ++e)
#pragma unroll
        for (u32 c = 0; c < PIECES; ++c) {
          const Piece value = loadVec<4>(chunk + (k + e) * D + (c * LANES + ownKey()) * 4);
#pragma unroll
          for (u32 i = 0; i < ROWS; ++i)
#pragma unroll
            for (u32 x = 0; x < 4; ++x) values[i][c][x] += weights[i][e] * value[x];
        }
    }
  }

  X_DEVICE void store(const Tile<float, Spaced<float>>& tile) {
#pragma unroll
    for (u32 i = 0; i < ROWS; ++i) {
      float total = sum[i];
#pragma unroll
      for (u32 lane = APART; lane < WARP; lane *= 2) total += shuffleXor(total, lane);
      const u32 row = Chunks<D>::row(i);
      if (row >= tile.rows) continue;
      const float part = 1.0f / total;
#pragma unroll
      for (u32 c = 0; c < PIECES; ++c) {
#pragma unroll
        for (u32 e = 0; e < 4; ++e) values[i][c][e] *= part;
        storeVec(tile.out + row * tile.outRow + (c * LANES + ownKey()) * 4, values[i][c]);
      }
    }
  }
};

/** Adds products of queries and the first COUNT of a lane's keys along a chunk's dimensions, the first of which is `depth`. */
template <u32 COUNT, u32 D>
X_DEVICE void multiplyKeys(const Chunks<D>& chunks, const float* chunk, u32 depth, float (&scores)[ROWS][COLUMNS]) {
#pragma unroll 2
  for (u32 piece = 0; piece < DEPTH / 4; ++piece) {
    Piece q[ROWS];
#pragma unroll
    for (u32 i = 0; i < ROWS; ++i) q[i] = loadVec<4>(chunks.query(i, depth / 4 + piece));
#pragma unroll
    for (u32 j = 0; j < COUNT; ++j) {
      const Piece k = loadVec<4>(chunks.key(chunk, j, piece));
#pragma unroll
      for (u32 e = 0; e < 4; ++e)
#pragma unroll
        for (u32 i = 0; i < ROWS; ++i) scores[i][j] += q[i][e] * k[e];
    }
  }
}

/** Scores of a tile's queries and keys from key0; those that may not be seen are minus infinity. */
template <u32 D>
X_DEVICE void mask(const Tile<float, Spaced<float>>& tile, u32 key0, float (&scores)[ROWS][COLUMNS]) {
#pragma unroll
  for (u32 i = 0; i < ROWS; ++i) {
    const u32 end = tile.end(Chunks<D>::row(i));
#pragma unroll
    for (u32 j = 0; j < COLUMNS; ++j)
      if (key0 + j * LANES + ownKey() >= end) scores[i][j] = lanes::lowest<float>();
  }
}

/** Keys that some of `count` queries from `row` on see. */
X_DEVICE u32 seen(const Tile<float, Spaced<float>>& tile, u32 row, u32 count) {
  return row >= tile.rows ? 0 : tile.end(tile.rows - row < count ? tile.rows - 1 : row + count - 1);
}

template <u32 D>
X_DEVICE void attendTile(const Tile<float, Spaced<float>>& tile) {
  constexpr u32 OWN = ROWS * APART;
  const u32 own0 = warpId() * OWN, end = seen(tile, 0, QUERIES), ownEnd = seen(tile, own0, OWN), all = tile.end(own0);
  const float factor = tile.scale * rough::LOG2_E;
  Chunks<D> chunks(tile, end);
  Queries<D> queries;
  queries.clear();
#pragma unroll 1
  for (u32 key0 = 0; key0 < end; key0 += KEYS) {
    float scores[ROWS][COLUMNS] = {};
#pragma unroll 1
    for (u32 depth = 0; depth < D; depth += DEPTH) {
      const float* chunk = chunks.template next<true>();
      if (key0 + KEYS / 2 < ownEnd) multiplyKeys<COLUMNS>(chunks, chunk, depth, scores);
      else if (key0 < ownEnd) multiplyKeys<COLUMNS / 2>(chunks, chunk, depth, scores);
    }
    if (key0 + KEYS > all) mask<D>(tile, key0, scores);
    queries.weigh(factor, scores, chunks);
#pragma unroll 1
    for (u32 key = 0; key < KEYS && key0 + key < end; key += Chunks<D>::VALUES) {
      const float* chunk = chunks.template next<false>();
      if (key0 + key < ownEnd) queries.add(chunks, chunk, key);
    }
  }
  chunks.finish();
  queries.store(tile);
}

/**
 * Tiles by the keys that they have: a block takes the longest, then goes back and forth, so that all have as much to do;
 * the second half of the grid, which shares processors with the first, begins with the shorter ones.
 */
template <u32 D>
X_DEVICE void attendFma(const Problem<float>& p) {
  const u64 tiles = (p.seq + QUERIES - 1) / QUERIES, heads = p.b * p.heads, items = tiles * heads;
  const u64 blocks = split::blocks(), block = split::block();
  const u64 place = block < (blocks + 1) / 2 ? block : blocks - 1 - (block - (blocks + 1) / 2);
  bool back = false;
#pragma unroll 1
  for (u64 first = 0; first < items; first += blocks, back = !back) {
    const u64 at = first + (back ? blocks - 1 - place : place);
    if (at >= items) continue;
    const u64 turned = items - 1 - at;
    attendTile<D>(p.template tile<D>(turned % heads, (u32)(turned / heads) * QUERIES, QUERIES));
  }
}

}  // namespace fma
}  // namespace attention
#endif
