// How queries, keys and values of f32 reach the FMA units. Shared memory holds a tile's queries, its weights and two chunks,
// of which one is on its way while the other is used: NVIDIA copies it there, AMD has it in registers meanwhile.
#pragma once

#if !X_HOST
namespace attention {
namespace fma {

// LANES lanes have the same ROWS queries; each has COLUMNS of a slab's keys.
constexpr u32 LANES = 16, ROWS = X_NVPTX ? 8 : 4, COLUMNS = X_NVPTX ? 8 : 4, THREADS = X_NVPTX ? 128 : 256;
// Of a block's tile; and how many queries lie between two of a lane's.
constexpr u32 QUERIES = THREADS / LANES * ROWS, KEYS = LANES * COLUMNS, APART = WARP / LANES;
// A chunk is a slab's keys along DEPTH of the D dimensions, or as many values as fill the same room.
constexpr u32 DEPTH = 32, CHUNK = KEYS * DEPTH;

typedef Vec<float, 4> Piece;

/** Which of the queries APART each other a lane has, and which of the keys LANES apart. */
X_DEVICE u32 ownQuery() { return laneId() % APART; }
X_DEVICE u32 ownKey() { return laneId() / APART; }

template <u32 D>
struct Chunks {
  static constexpr u32 PARTS = D / DEPTH, VALUES = CHUNK / D, FLOATS = QUERIES * (D + KEYS) + 2 * CHUNK;
  static constexpr u32 COPIES = CHUNK / 4 / THREADS;
  const Spaced<float> keys, values;
  float *queries, *weights, *chunks;
  u32 end, key0, part;  // what is fetched next: of the slab from key0 on, first PARTS chunks of keys, then the values
  u32 arrived;          // offset of the chunk that is used
#if !X_NVPTX
  Piece held[COPIES];
#endif

  X_DEVICE Chunks(const Tile<float, Spaced<float>>& tile, u32 end_)
      : keys(tile.keys), values(tile.values), end(end_), key0(0), part(0), arrived(CHUNK) {
#if X_NVPTX
    queries = dynamicShared<float>();
#else
    X_SHARED(float, memory, FLOATS);
    queries = memory;
#endif
    weights = queries + QUERIES * D;
    chunks = weights + QUERIES * KEYS;
    fetchQueries(tile.q, tile.rows);
    fetch();
  }

  /** Waits for a chunk, of keys or of values, and begins to fetch the one after it. Threads meet here. */
  template <bool OF_KEYS>
  X_DEVICE const float* next() {
    arrived = CHUNK - arrived;
#if X_NVPTX
    mma::awaitCopies<0>();
#else
    float* to = chunks + arrived + slot<OF_KEYS>() * 4;
#pragma unroll
    for (u32 i = 0; i < COPIES; ++i) storeVec(to + i * THREADS * 4, held[i]);
#endif
    barrier();
    fetch();
    return chunks + arrived;
  }
  /** The next tile may be fetched. */
  X_DEVICE void finish() {
#if X_NVPTX
    mma::awaitCopies<0>();
#endif
    barrier();
  }

  // A lane's piece of its query i, its weight of that query for a key of the slab, and its piece of its key j in a chunk.
  // What lanes that read at once would find in the same bank is kept in an order of its own for each.
  X_DEVICE const float* query(u32 i, u32 piece) const { return queries + row(i) * D + (piece ^ ownQuery()) * 4; }
  X_DEVICE float* weight(u32 i, u32 key) const { return weights + row(i) * KEYS + (key ^ ownQuery() * 16); }
  static X_DEVICE const float* key(const float* chunk, u32 j, u32 piece) {
    return chunk + (j * LANES + ownKey()) * DEPTH + (piece ^ ownKey() % 8) * 4;
  }
  /** A lane's query i in the tile. */
  static X_DEVICE u32 row(u32 i) { return (warpId() * ROWS + i) * APART + ownQuery(); }

 private:
  X_DEVICE void fetchQueries(const Spaced<float>& from, u32 rows) {
    constexpr u32 PIECES = D / 4, STEP = THREADS / PIECES;
    const u32 piece = threadIndex() % PIECES, first = threadIndex() / PIECES;
#pragma unroll 4
    for (u32 row = first; row < QUERIES; row += STEP) {
      float* to = queries + row * D + (piece ^ row % APART) * 4;
      const float* piece0 = from.at(row) + piece * 4;
#if X_NVPTX
      mma::copyAsync(mma::sharedAddress(to), piece0, row < rows ? 16 : 0);
#else
      storeVec(to, row < rows ? loadVec<4>(piece0) : Piece{});
#endif
    }
#if X_NVPTX
    mma::commitCopies();
#endif
  }

  /** Begins to fetch the next chunk; rows from `end` on become zero. */
  X_DEVICE void fetch() {
    if (key0 >= end) return;
    if (part < PARTS) {
      fetchRows<true>(keys.data + part * DEPTH, keys.stride, key0);
      ++part;
    } else {
      const u32 value0 = key0 + (part - PARTS) * VALUES;
      fetchRows<false>(values.data, values.stride, value0);
      if (++part == 2 * PARTS || value0 + VALUES >= end) part = 0, key0 += KEYS;
    }
#if X_NVPTX
    mma::commitCopies();
#endif
  }

  /** Where a thread's first piece goes in a chunk; the others follow THREADS apart. */
  template <bool OF_KEYS>
  static X_DEVICE u32 slot() {
    return OF_KEYS ? threadIndex() ^ threadIndex() / (DEPTH / 4) % 8 : threadIndex();
  }

  template <bool OF_KEYS>
  X_DEVICE void fetchRows(const float* data, u64 stride, u32 row0) {
    constexpr u32 PIECES = (OF_KEYS ? DEPTH : D) / 4, STEP = THREADS / PIECES;
    const u32 first = row0 + threadIndex() / PIECES;
    const float* from = data + first * stride + threadIndex() % PIECES * 4;
#if X_NVPTX
    const u32 to = mma::sharedAddress(chunks + CHUNK - arrived + slot<OF_KEYS>() * 4);
#endif
#pragma unroll
    for (u32 i = 0; i < COPIES; ++i) {
      const bool inside = first + i * STEP < end;
#if X_NVPTX
      mma::copyAsync(to + i * THREADS * 16, from + i * STEP * stride, inside ? 16 : 0);
#else
      held[i] = inside ? loadVec<4>(from + i * STEP * stride) : Piece{};
#endif
    }
  }
};

}  // namespace fma
}  // namespace attention
#endif
