// How queries, keys and values reach the matrix units: Cut says how large a block's tile is, Slabs holds what a block has of it in
// shared memory.
#pragma once

#if X_MMA
namespace attention {

[[maybe_unused]] constexpr u32 THREADS = 256;
/** Rows of a tile that a table names, which are cut again for long heads. */
[[maybe_unused]] constexpr u32 TILE_ROWS_AT_MOST = 128;

/**
 * A block's tile of heads of up to D values, in registers and shared memory: 128 queries and 64 keys at a time, fewer of long heads.
 * Where SPLIT is 2, two warps have the same queries, each half of the values' columns, and both make the scores.
 */
template <u32 D>
struct Cut {
  /** Latent attention: values are the first columns of the keys. */
  static constexpr bool IN_KEYS = D == 576, LONG = D > 128;
  static constexpr u32 VALUES = attention::VALUES<D>;
  /** On AMD: whether warps have their queries in registers; else these lie in LDS. */
#if X_MMA_CDNA
  static constexpr bool HELD = true;
#else
  static constexpr bool HELD = !LONG;
#endif
#if X_WGMMA
  static constexpr u32 QUERIES = IN_KEYS ? 64 : 128, KEYS = 64, SPLIT = IN_KEYS ? 2 : 1;
#elif X_MMA_NVIDIA
  static constexpr u32 QUERIES = LONG ? 64 : 128, KEYS = LONG ? 32 : 64, SPLIT = LONG ? 2 : 1;
#elif X_MMA_CDNA
  static constexpr u32 QUERIES = LONG ? 64 : 128, KEYS = IN_KEYS && X_MMA_CDNA < 4 ? 16 : LONG ? 32 : 64, SPLIT = 1;
#else
#if X_MMA_GFX11
  // WMMA of gfx11 holds operands twice, which leaves registers for fewer scores.
  static constexpr u32 SHORT_KEYS = 32;
#else
  static constexpr u32 SHORT_KEYS = 64;
#endif
  static constexpr u32 QUERIES = LONG ? 64 : 128, KEYS = LONG ? 16 : SHORT_KEYS, SPLIT = LONG ? 2 : 1;
#endif
  /** Warps with queries of their own, tiles of 16 that each has, and its columns of the values. */
  static constexpr u32 DOWN = THREADS / WARP / SPLIT, ROWS = QUERIES / 16 / DOWN, COLUMNS = VALUES / SPLIT;
  /** Tiles of scores along the keys, and of values. */
  static constexpr u32 SCORES = KEYS / 16, PARTS = COLUMNS / 16;

  /** The warp's first query in the tile, and first column of the values. */
  static X_DEVICE u32 row() { return warpId() % DOWN * ROWS * 16; }
  static X_DEVICE u32 column() { return SPLIT == 1 ? 0 : warpId() / DOWN * COLUMNS; }
};

/** Scores of a warp, and what it has of values. */
template <u32 D, class T>
using Scores = mma::Tile<T>[Cut<D>::ROWS][Cut<D>::SCORES];
template <u32 D, class T>
using Values = mma::Tile<T>[Cut<D>::ROWS][Cut<D>::PARTS];

#if X_MMA_NVIDIA

/** Queries, which are as narrow as the keys. */
template <class T, class Source>
struct QueryRows {
  static constexpr bool NARROW = Source::NARROW;
  Spaced<T> rows;
  X_DEVICE const T* at(u32 row) const { return rows.at(row); }
};

/** COUNT rows of D elements, 64 of each after the other, in pieces that are turned so that no two meet in a bank (wgmma.h). */
template <u32 D, u32 COUNT>
struct Rows {
  static constexpr u32 BYTES = COUNT * D * 2, PIECES = D / 8, BLOCK = COUNT * 128;

  static X_DEVICE u32 at(u32 row, u32 piece) { return piece / 8 * BLOCK + row * 128 + (piece % 8 ^ row % 8) * 16; }

  /** Begins the copy of rows from `row`; those from `end` on become zero, and what lies behind `width` elements. */
  template <class Source>
  static X_DEVICE void fetch(u32 shared, const Source& source, u32 row, u32 end, u32 width) {
    const u32 own = threadIndex() % PIECES, first = threadIndex() / PIECES;
#pragma unroll
    for (u32 i = 0; i < COUNT * PIECES / THREADS; ++i) {
      // Of most widths a thread has the same piece of each row.
      constexpr bool ALIKE = THREADS % PIECES == 0;
      const u32 at0 = threadIndex() + i * THREADS;
      const u32 piece = ALIKE ? own : at0 % PIECES, line = ALIKE ? first + i * (THREADS / PIECES) : at0 / PIECES;
      const bool inside = row + line < end && (!Source::NARROW || piece * 8 < width);
      mma::copyAsync(shared + at(line, piece), source.at(row + line) + piece * 8, inside ? 16 : 0);
    }
  }
};

/** The queries and two slabs each of keys and values, of which one is on its way while the other is used. */
template <u32 D, class T, class Source>
struct Slabs {
  typedef attention::Cut<D> Cut;
  typedef Rows<D, Cut::QUERIES> OwnRows;
  typedef Rows<D, Cut::KEYS> KeyRows;
  typedef Rows<Cut::VALUES, Cut::KEYS> ValueRows;
  /** Where values lie behind a slab's keys, and where the next slab begins. */
  static constexpr u32 VALUES = Cut::IN_KEYS ? 0 : KeyRows::BYTES, SLAB = KeyRows::BYTES + (Cut::IN_KEYS ? 0 : ValueRows::BYTES);
  const Source keys, values;
  const u32 width, valueWidth;
  u32 queries, reading, writing;

  /** Sends for the queries, and keys from key0 on. */
  X_DEVICE Slabs(const Tile<T, Source>& tile, u32 key0, u32 end)
      : keys(tile.keys), values(tile.values), width(tile.d), valueWidth(tile.dv) {
    queries = mma::sharedAddress(dynamicShared<u8>());
    writing = queries + OwnRows::BYTES;
    reading = writing + SLAB;
    OwnRows::fetch(queries, QueryRows<T, Source>{tile.q}, 0, tile.rows, width);
    fetch(key0, end);
  }

  X_DEVICE void fetch(u32 key0, u32 end) {
    KeyRows::fetch(writing, keys, key0, end, width);
    if constexpr (!Cut::IN_KEYS) ValueRows::fetch(writing + VALUES, values, key0, end, valueWidth);
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
    if (key0 + Cut::KEYS < end) fetch(key0 + Cut::KEYS, end);
  }
  /** The next tile of queries may be fetched. */
  X_DEVICE void finish() {
    mma::awaitCopies<0>();
    barrier();
  }

#if X_WGMMA
  X_DEVICE void multiplyKeys(Scores<D, T>& scores) const {
    float(&sums)[Cut::KEYS / 2] = reinterpret_cast<float(&)[Cut::KEYS / 2]>(scores);
    const u32 row = Cut::row() / 64 * 64;
    wgmma::begin();
#pragma unroll
    for (u32 d = 0; d < D; d += 16) {
      const u64 q = wgmma::describe(queries + OwnRows::at(row, d / 64 * 8) + d % 64 * 2);
      const u64 k = wgmma::describe(reading + KeyRows::at(0, d / 64 * 8) + d % 64 * 2);
      wgmma::multiply<true, true>(sums, q, k, (T*)nullptr);
    }
    wgmma::commit();
    wgmma::await<0>();
  }

  X_DEVICE void multiplyValues(const Scores<D, T>& weights, Values<D, T>& out) const {
    float(&sums)[Cut::COLUMNS / 2] = reinterpret_cast<float(&)[Cut::COLUMNS / 2]>(out);
    const u32 from = reading + VALUES + Cut::column() / 64 * ValueRows::BLOCK;
    u32 words[Cut::SCORES][4];
#pragma unroll
    for (u32 c = 0; c < Cut::SCORES; ++c)
#pragma unroll
      for (u32 i = 0; i < 4; ++i) words[c][i] = mma::roundPair<T>(weights[0][c].v[2 * i], weights[0][c].v[2 * i + 1]);
    wgmma::begin();
#pragma unroll
    for (u32 c = 0; c < Cut::SCORES; ++c) {
      const u64 v = wgmma::describe(from + ValueRows::at(c * 16, 0), ValueRows::BLOCK);
      wgmma::multiply<false>(sums, words[c], v, (T*)nullptr);
    }
    wgmma::commit();
    wgmma::await<0>();
  }
#else
  X_DEVICE void multiplyKeys(Scores<D, T>& scores) const {
    const u32 row = Cut::row() + mma::rowToLoad<false>(), half = mma::halfToLoad<false>();
#pragma unroll
    for (u32 d = 0; d < D; d += 16) {
      mma::Operand<T> q[Cut::ROWS];
#pragma unroll
      for (u32 r = 0; r < Cut::ROWS; ++r) mma::loadMatrices(q[r].word, queries + OwnRows::at(row + r * 16, d / 8 + half));
#pragma unroll
      for (u32 c = 0; c < Cut::SCORES; ++c) {
        mma::Operand<T> k;
        mma::loadMatrices(k.word, reading + KeyRows::at(c * 16 + mma::rowToLoad<true>(), d / 8 + mma::halfToLoad<true>()));
#pragma unroll
        for (u32 r = 0; r < Cut::ROWS; ++r) mma::multiply(scores[r][c], q[r], k);
      }
    }
  }

  X_DEVICE void multiplyValues(const Scores<D, T>& weights, Values<D, T>& out) const {
#pragma unroll
    for (u32 c = 0; c < Cut::SCORES; ++c) {
      // A result tile has the layout of a left operand: nothing moves between lanes.
      mma::Operand<T> w[Cut::ROWS];
#pragma unroll
      for (u32 r = 0; r < Cut::ROWS; ++r)
#pragma unroll
        for (u32 i = 0; i < 4; ++i)
          w[r].word[i] = mma::roundPair<T>(weights[r][c].v[2 * i], weights[r][c].v[2 * i + 1]);
#pragma unroll
      for (u32 d = 0; d < Cut::COLUMNS; d += 16) {
        mma::Operand<T> v;
        // Turned: what are rows of the values are the columns of the operand.
        const u32 piece = (Cut::column() + d) / 8 + mma::halfToLoad<false>();
        mma::loadMatricesTransposed(v.word, reading + VALUES + ValueRows::at(c * 16 + mma::rowToLoad<false>(), piece));
#pragma unroll
        for (u32 r = 0; r < Cut::ROWS; ++r) mma::multiply(out[r][d / 16], w[r], v);
      }
    }
  }
#endif
};

#else

/** Keys by rows and values by columns in LDS, both padded; the queries in registers or there, weights turned through LDS. */
template <u32 D, class T, class Source>
struct Slabs {
  typedef attention::Cut<D> Cut;
  static constexpr u32 KEYS = Cut::KEYS, ROWS = Cut::ROWS, K = mma::Unit<T>::K;
  static constexpr u32 KEY_STRIDE = D + 8, VALUE_STRIDE = KEYS + 8, WEIGHT_STRIDE = KEYS + 8;
  const Source keys, values;
  mma::Operand<T> queries[ROWS][Cut::HELD ? D / K : 1];
  T *queryRows, *keyRows, *valueColumns, *weightRows;

  X_DEVICE Slabs(const Tile<T, Source>& tile, u32, u32) : keys(tile.keys), values(tile.values) {
    X_SHARED(T, keySlab, KEYS * KEY_STRIDE);
    X_SHARED(T, valueSlab, Cut::VALUES * VALUE_STRIDE);
    X_SHARED(T, weightSlab, Cut::SPLIT * Cut::QUERIES * WEIGHT_STRIDE);
    keyRows = keySlab, valueColumns = valueSlab;
    weightRows = weightSlab + warpId() * ROWS * 16 * WEIGHT_STRIDE;
    if constexpr (!Cut::HELD) {
      X_SHARED(T, querySlab, Cut::QUERIES * KEY_STRIDE);
      queryRows = querySlab;
      constexpr u32 PIECES = D / 8;
#pragma unroll 1
      for (u32 i = threadIndex(); i < Cut::QUERIES * PIECES; i += THREADS) {
        const u32 row = i / PIECES, piece = i % PIECES;
        const T* from = tile.q.at(row < tile.rows ? row : tile.rows - 1);
        storeVec(queryRows + row * KEY_STRIDE + piece * 8, loadVec<8>(from + piece * 8));
      }
      return;
    }
#pragma unroll
    for (u32 r = 0; r < ROWS; ++r) {
      // Rows past the last are the last one again: what comes of them is not stored.
      const u32 row = Cut::row() + r * 16 + laneId() % 16;
      const T* from = tile.q.at(row < tile.rows ? row : tile.rows - 1);
#pragma unroll
      for (u32 d = 0; d < (Cut::HELD ? D / K : 0); ++d) queries[r][d] = mma::loadRow<T>(from + d * K);
    }
  }
  X_DEVICE mma::Operand<T> query(u32 r, u32 d) const {
    if constexpr (Cut::HELD) return queries[r][d];
    else return mma::load<T>(queryRows + (Cut::row() + r * 16) * KEY_STRIDE + d * K, KEY_STRIDE * 2);
  }

  /** Fetches the slab from key0 on, once all warps are done with the one before it. */
  X_DEVICE void next(u32 key0, u32 end) {
    constexpr u32 KEY_PIECES = D / 8, VALUE_PIECES = Cut::VALUES / 8;
    barrier();
#pragma unroll
    for (u32 i = threadIndex(); i < KEYS * KEY_PIECES; i += THREADS) {
      const u32 row = i / KEY_PIECES, piece = i % KEY_PIECES;
      storeVec(keyRows + row * KEY_STRIDE + piece * 8, fetchPiece(keys, key0 + row, end, piece));
    }
    // Two rows of values make one word of each column.
#pragma unroll
    for (u32 i = threadIndex(); i < KEYS / 2 * VALUE_PIECES; i += THREADS) {
      const u32 row = i / VALUE_PIECES * 2, piece = i % VALUE_PIECES;
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

  X_DEVICE void multiplyKeys(Scores<D, T>& scores) const {
#pragma unroll
    for (u32 d = 0; d < D / K; ++d)
#pragma unroll
      for (u32 c = 0; c < Cut::SCORES; ++c) {
        const mma::Operand<T> k = mma::load<T, true>(keyRows + c * 16 * KEY_STRIDE + d * K, KEY_STRIDE * 2);
#pragma unroll
        for (u32 r = 0; r < ROWS; ++r) mma::multiply(scores[r][c], query(r, d), k);
      }
  }

  X_DEVICE void multiplyValues(const Scores<D, T>& weights, Values<D, T>& out) const {
    // Its own part of the slab: the warp's lanes write and read it in step.
#pragma unroll
    for (u32 r = 0; r < ROWS; ++r)
#pragma unroll
      for (u32 c = 0; c < Cut::SCORES; ++c)
#pragma unroll
        for (u32 i = 0; i < 256 / WARP; ++i)
          weightRows[(r * 16 + mma::rowOf(i)) * WEIGHT_STRIDE + c * 16 + mma::columnOf(i)] = from_acc<T>(weights[r][c].v[i]);
    warpBarrier();
    const T* own = valueColumns + Cut::column() * VALUE_STRIDE;
#pragma unroll
    for (u32 k = 0; k < KEYS; k += K) {
      mma::Operand<T> w[ROWS];
#pragma unroll
      for (u32 r = 0; r < ROWS; ++r) w[r] = mma::load<T>(weightRows + r * 16 * WEIGHT_STRIDE + k, WEIGHT_STRIDE * 2);
#pragma unroll
      for (u32 d = 0; d < Cut::COLUMNS; d += 16) {
        const mma::Operand<T> v = mma::load<T, true>(own + d * VALUE_STRIDE + k, VALUE_STRIDE * 2);
#pragma unroll
        for (u32 r = 0; r < ROWS; ++r) mma::multiply(out[r][d / 16], w[r], v);
      }
    }
    warpBarrier();
  }
};

#endif

}  // namespace attention
#endif
