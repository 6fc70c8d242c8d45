// How queries, keys and values reach the matrix units: Slabs holds what a block has in shared memory.
#pragma once

#if X_MMA
namespace attention {

// WMMA of gfx11 holds operands twice, which leaves registers for fewer scores.
#if X_MMA_GFX11
constexpr u32 KEYS = 32;
#else
constexpr u32 KEYS = 64;
#endif
// Of a block's tile; and how many tiles of 16 queries a warp has.
constexpr u32 QUERIES = 128, THREADS = 256, ROWS_OF_WARP = QUERIES / 16 / (THREADS / WARP);

#if X_MMA_NVIDIA

/** COUNT rows of D elements, 64 of each after the other, in pieces that are turned so that no two meet in a bank (wgmma.h). */
template <u32 D, u32 COUNT>
struct Rows {
  static constexpr u32 BYTES = COUNT * D * 2, PIECES = D / 8, STEP = THREADS / PIECES, BLOCK = COUNT * 128;

  static X_DEVICE u32 at(u32 row, u32 piece) { return piece / 8 * BLOCK + row * 128 + (piece % 8 ^ row % 8) * 16; }

  /** Begins the copy of rows from `row`; those from `end` on become zero. */
  template <class Source>
  static X_DEVICE void fetch(u32 shared, const Source& source, u32 row, u32 end) {
    const u32 piece = threadIndex() % PIECES, first = threadIndex() / PIECES;
#pragma unroll
    for (u32 i = 0; i < COUNT / STEP; ++i) {
      const u32 own = first + i * STEP;
      mma::copyAsync(shared + at(own, piece), source.at(row + own) + piece * 8, row + own < end ? 16 : 0);
    }
  }
};

/** The queries and two slabs each of keys and values, of which one is on its way while the other is used. */
template <u32 D, class T, class Source>
struct Slabs {
  typedef Rows<D, QUERIES> QueryRows;
  typedef Rows<D, KEYS> KeyRows;
  const Source keys, values;
  u32 queries, reading, writing;

  /** Sends for the queries, and keys from key0 on. */
  X_DEVICE Slabs(const Tile<T, Source>& tile, u32 key0, u32 end) : keys(tile.keys), values(tile.values) {
    queries = mma::sharedAddress(dynamicShared<u8>());
    writing = queries + QueryRows::BYTES;
    reading = writing + 2 * KeyRows::BYTES;
    QueryRows::fetch(queries, tile.q, 0, tile.rows);
    fetch(key0, end);
  }

  X_DEVICE void fetch(u32 key0, u32 end) {
    KeyRows::fetch(writing, keys, key0, end);
    KeyRows::fetch(writing + KeyRows::BYTES, values, key0, end);
    mma::commitCopies();
  }
  /** Waits for the slab from key0 on and begins to fetch the one after it. */
  X_DEVICE void next(u32 key0, u32 end) {
    mma::awaitCopies<0>();
#if X_WGMMA
    wgmma::publish();
#endif
    barrier();
    const u32 arrived = writing;
    writing = reading, reading = arrived;
    if (key0 + KEYS < end) fetch(key0 + KEYS, end);
  }
  /** The next tile of queries may be fetched. */
  X_DEVICE void finish() {
    mma::awaitCopies<0>();
    barrier();
  }

#if X_WGMMA
  X_DEVICE void multiplyKeys(mma::Tile<T> (&scores)[ROWS_OF_WARP][KEYS / 16]) const {
    float(&sums)[KEYS / 2] = reinterpret_cast<float(&)[KEYS / 2]>(scores);
    const u32 row = warpId() / 4 * 64;
    wgmma::begin();
#pragma unroll
    for (u32 d = 0; d < D; d += 16) {
      const u64 q = wgmma::describe(queries + QueryRows::at(row, d / 64 * 8) + d % 64 * 2);
      const u64 k = wgmma::describe(reading + KeyRows::at(0, d / 64 * 8) + d % 64 * 2);
      wgmma::multiply<true, true>(sums, q, k, (T*)nullptr);
    }
    wgmma::commit();
    wgmma::await<0>();
  }

  X_DEVICE void multiplyValues(const mma::Tile<T> (&weights)[ROWS_OF_WARP][KEYS / 16], mma::Tile<T> (&out)[ROWS_OF_WARP][D / 16]) const {
    float(&sums)[D / 2] = reinterpret_cast<float(&)[D / 2]>(out);
    u32 words[KEYS / 16][4];
#pragma unroll
    for (u32 c = 0; c < KEYS / 16; ++c)
#pragma unroll
      for (u32 i = 0; i < 4; ++i) words[c][i] = mma::roundPair<T>(weights[0][c].v[2 * i], weights[0][c].v[2 * i + 1]);
    wgmma::begin();
#pragma unroll
    for (u32 c = 0; c < KEYS / 16; ++c) {
      const u64 v = wgmma::describe(reading + KeyRows::BYTES + KeyRows::at(c * 16, 0), KeyRows::BLOCK);
      wgmma::multiply<false>(sums, words[c], v, (T*)nullptr);
    }
    wgmma::commit();
    wgmma::await<0>();
  }
#else
  X_DEVICE void multiplyKeys(mma::Tile<T> (&scores)[ROWS_OF_WARP][KEYS / 16]) const {
    const u32 row = warpId() * ROWS_OF_WARP * 16 + mma::rowToLoad<false>(), half = mma::halfToLoad<false>();
#pragma unroll
    for (u32 d = 0; d < D; d += 16) {
      mma::Operand<T> q[ROWS_OF_WARP];
#pragma unroll
      for (u32 r = 0; r < ROWS_OF_WARP; ++r) mma::loadMatrices(q[r].word, queries + QueryRows::at(row + r * 16, d / 8 + half));
#pragma unroll
      for (u32 c = 0; c < KEYS / 16; ++c) {
        mma::Operand<T> k;
        mma::loadMatrices(k.word, reading + KeyRows::at(c * 16 + mma::rowToLoad<true>(), d / 8 + mma::halfToLoad<true>()));
#pragma unroll
        for (u32 r = 0; r < ROWS_OF_WARP; ++r) mma::multiply(scores[r][c], q[r], k);
      }
    }
  }

  X_DEVICE void multiplyValues(const mma::Tile<T> (&weights)[ROWS_OF_WARP][KEYS / 16], mma::Tile<T> (&out)[ROWS_OF_WARP][D / 16]) const {
#pragma unroll
    for (u32 c = 0; c < KEYS / 16; ++c) {
      // A result tile has the layout of a left operand: nothing moves between lanes.
      mma::Operand<T> w[ROWS_OF_WARP];
#pragma unroll
      for (u32 r = 0; r < ROWS_OF_WARP; ++r)
#pragma unroll
        for (u32 i = 0; i < 4; ++i)
          w[r].word[i] = mma::roundPair<T>(weights[r][c].v[2 * i], weights[r][c].v[2 * i + 1]);
#pragma unroll
      for (u32 d = 0; d < D; d += 16) {
        mma::Operand<T> v;
        // Turned: what are rows of the values are the columns of the operand.
        const u32 at = KeyRows::at(c * 16 + mma::rowToLoad<false>(), d / 8 + mma::halfToLoad<false>());
        mma::loadMatricesTransposed(v.word, reading + KeyRows::BYTES + at);
#pragma unroll
        for (u32 r = 0; r < ROWS_OF_WARP; ++r) mma::multiply(out[r][d / 16], w[r], v);
      }
    }
  }
#endif
};

#else

/** Keys by rows and values by columns in LDS, both padded; the queries in registers, weights turned through LDS. */
template <u32 D, class T, class Source>
struct Slabs {
  static constexpr u32 KEY_STRIDE = D + 8, VALUE_STRIDE = KEYS + 8, WEIGHT_STRIDE = KEYS + 8, K = mma::Unit<T>::K;
  const Source keys, values;
  mma::Operand<T> queries[ROWS_OF_WARP][D / K];
  T *keyRows, *valueColumns, *weightRows;

  X_DEVICE Slabs(const Tile<T, Source>& tile, u32, u32) : keys(tile.keys), values(tile.values) {
    X_SHARED(T, keySlab, KEYS * KEY_STRIDE);
    X_SHARED(T, valueSlab, D * VALUE_STRIDE);
    X_SHARED(T, weightSlab, QUERIES * WEIGHT_STRIDE);
    keyRows = keySlab, valueColumns = valueSlab;
    weightRows = weightSlab + warpId() * ROWS_OF_WARP * 16 * WEIGHT_STRIDE;
#pragma unroll
    for (u32 r = 0; r < ROWS_OF_WARP; ++r) {
      // Rows past the last are the last one again: what comes of them is not stored.
      const u32 row = (warpId() * ROWS_OF_WARP + r) * 16 + laneId() % 16;
      const T* from = tile.q.at(row < tile.rows ? row : tile.rows - 1);
#pragma unroll
      for (u32 d = 0; d < D / K; ++d) queries[r][d] = mma::loadRow<T>(from + d * K);
    }
  }


  /** Fetches the slab from key0 on, once all warps are done with the one before it. */
  X_DEVICE void next(u32 key0, u32 end) {
    constexpr u32 PIECES = D / 8;
    barrier();
#pragma unroll
    for (u32 i = threadIndex(); i < KEYS * PIECES; i += THREADS) {
      const u32 row = i / PIECES, piece = i % PIECES;
      storeVec(keyRows + row * KEY_STRIDE + piece * 8, fetchPiece(keys, key0 + row, end, piece));
    }
    // Two rows of values make one word of each column.
#pragma unroll
    for (u32 i = threadIndex(); i < KEYS / 2 * PIECES; i += THREADS) {
      const u32 row = i / PIECES * 2, piece = i % PIECES;
      const Vec<T, 8> even = fetchPiece(values, key0 + row, end, piece);
      const Vec<T, 8> odd = fetchPiece(values, key0 + row + 1, end, piece);
#pragma unroll
      for (u32 e = 0; e < 8; ++e)
        *(u32*)(valueColumns + (piece * 8 + e) * VALUE_STRIDE + row) = bitCast<u16>(even[e]) | (u32)bitCast<u16>(odd[e]) << 16;
    }
    barrier();
  }
  static X_DEVICE Vec<T, 8> fetchPiece(const Source& source, u32 row, u32 end, u32 piece) {
    if (row < end) return loadVec<8>(source.at(row) + piece * 8);
    Vec<T, 8> zero;
#pragma unroll
    for (u32 e = 0; e < 8; ++e) zero[e] = from_acc<T>(0.0f);
    return zero;
  }
  X_DEVICE void finish() { barrier(); }

  X_DEVICE void multiplyKeys(mma::Tile<T> (&scores)[ROWS_OF_WARP][KEYS / 16]) const {
#pragma unroll
    for (u32 d = 0; d < D / K; ++d)
#pragma unroll
      for (u32 c = 0; c < KEYS / 16; ++c) {
        const mma::Operand<T> k = mma::load<T, true>(keyRows + c * 16 * KEY_STRIDE + d * K, KEY_STRIDE * 2);
#pragma unroll
        for (u32 r = 0; r < ROWS_OF_WARP; ++r) mma::multiply(scores[r][c], queries[r][d], k);
      }
  }

  X_DEVICE void multiplyValues(const mma::Tile<T> (&weights)[ROWS_OF_WARP][KEYS / 16], mma::Tile<T> (&out)[ROWS_OF_WARP][D / 16]) const {
    // Its own part of the slab: the warp's lanes write and read it in step.
#pragma unroll
    for (u32 r = 0; r < ROWS_OF_WARP; ++r)
#pragma unroll
      for (u32 c = 0; c < KEYS / 16; ++c)
#pragma unroll
        for (u32 i = 0; i < 256 / WARP; ++i)
          weightRows[(r * 16 + mma::rowOf(i)) * WEIGHT_STRIDE + c * 16 + mma::columnOf(i)] = from_acc<T>(weights[r][c].v[i]);
    warpBarrier();
#pragma unroll
    for (u32 k = 0; k < KEYS; k += K) {
      mma::Operand<T> w[ROWS_OF_WARP];
#pragma unroll
      for (u32 r = 0; r < ROWS_OF_WARP; ++r) w[r] = mma::load<T>(weightRows + r * 16 * WEIGHT_STRIDE + k, WEIGHT_STRIDE * 2);
#pragma unroll
      for (u32 d = 0; d < D; d += 16) {
        const mma::Operand<T> v = mma::load<T, true>(valueColumns + d * VALUE_STRIDE + k, VALUE_STRIDE * 2);
#pragma unroll
        for (u32 r = 0; r < ROWS_OF_WARP; ++r) mma::multiply(out[r][d / 16], w[r], v);
      }
    }
    warpBarrier();
  }
};

#endif

}  // namespace attention
#endif
