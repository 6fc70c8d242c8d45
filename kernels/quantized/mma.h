// Many columns times many quantised rows on int8 matrix units: mul_mat_mma_* (tiles of 64 rows x 128 columns) and
// mul_mat_mma_few_* (32 x 64), of 8 warps each. The parameters are those of mul_mat_*, whose tiles of dp4a take over on
// the host and in blocks of other sizes. A slab of 128 elements along k at a time:
//   - columns go to shared memory as they are: four q8_1 blocks are 144 bytes, a multiple of the 16 that a copy moves;
//   - rows are unpacked to int8 once, with a scale (and a minimum) for every 32 or 16 elements;
//   - a warp multiplies 32 elements at a time and adds the integer tiles, scaled, to its f32 results.
// ggml's later MMQ (mmq.cuh) works alike; it has activations in an order of their own and formats each in its own code.
#pragma once

namespace quant {

#if X_MMA

/** Threads that a block may have: 8 warps of any width; without matrix units what the tiles of dp4a have registers for. */
[[maybe_unused]] constexpr u32 MMA_BOUND = 512;

constexpr u32 SLAB = 128, SLAB_GROUPS = SLAB / 32, MMA_WARPS = 8;
// Rows of unpacked quants are padded so that neighbouring ones start in different banks.
constexpr u32 X_STRIDE = SLAB + 16, Y_STRIDE = SLAB_GROUPS * Q8_1::BYTES;

template <class Q, u32 ROWS, u32 COLUMNS>
struct Slab {
  static constexpr u32 PER_GROUP = Q::HALVES ? 2 : 1, SCALES = SLAB_GROUPS * PER_GROUP;
  // Strides with which the stores of a warp, of several scales and rows or columns, fall into different banks.
  static constexpr u32 WIDTH = Q::MINS ? 2 : 1, ROW_STRIDE = ROWS + (Q::MINS ? 4 : 8), COLUMN_STRIDE = COLUMNS + 8;
  alignas(16) u8 x[ROWS * X_STRIDE];
  alignas(16) u8 y[COLUMNS * Y_STRIDE];
  // [scale][row]: the scale, and the minimum where there is one; [scale][column]: d8 times the sum of the quants.
  alignas(16) float xd[SCALES * ROW_STRIDE * WIDTH], ys[Q::MINS ? SCALES * COLUMN_STRIDE : 4];
};

template <class Q, u32 ROWS, u32 COLUMNS>
constexpr u32 MmaMemory = sizeof(Slab<Q, ROWS, COLUMNS>) > sizeof(Tiles) ? sizeof(Slab<Q, ROWS, COLUMNS>) : sizeof(Tiles);

// Begins to copy groups [group0, group0 + SLAB_GROUPS) of columns from column0. Nothing is made of columns past the last,
// nor of groups past a column's end.
template <u32 COLUMNS>
X_DEVICE void copyColumns(u8* to, const u8* y, u64 columnBytes, u32 column0, u32 columns, u32 group0, bool aligned) {
  const u8* from = y + column0 * columnBytes + (u64)group0 * Q8_1::BYTES;
  const u32 count = columns - column0 < COLUMNS ? columns - column0 : COLUMNS;
  if (aligned) {
    // As many whole columns at a time as there are threads for.
    constexpr u32 PIECES = Y_STRIDE / 16, STEP = MMA_WARPS * WARP / PIECES;
    const u32 first = threadIndex() / PIECES, offset = threadIndex() % PIECES * 16;
    from += first * columnBytes + offset;
#pragma unroll
    for (u32 i = 0; i < COLUMNS; i += STEP) {
      if (first < STEP && i + first < count) {
        u8* piece = to + (i + first) * Y_STRIDE + offset;
#if X_MMA_NVIDIA
        mma::copyAsync(mma::sharedAddress(piece), from + i * columnBytes, 16);
#else
        storeVec((u32*)piece, loadVec<4>((const u32*)(from + i * columnBytes)));
#endif
      }
    }
  } else {
    constexpr u32 WORDS = Y_STRIDE / 4;
    const u64 words = columnBytes / 4 - (u64)group0 * (Q8_1::BYTES / 4);
#pragma unroll 1
    for (u32 i = threadIndex(); i < count * WORDS; i += MMA_WARPS * WARP)
      if (i % WORDS < words) ((u32*)to)[i] = load4(from + i / WORDS * columnBytes + i % WORDS * 4);
  }
}

// Groups [group0, groups) of rows from row0 as int8 with their scales, as many as a slab holds; rows past the last are the
// last again.
template <class Q, u32 ROWS, u32 COLUMNS>
X_DEVICE void unpackRows(Slab<Q, ROWS, COLUMNS>& slab, const u8* x, u64 rowBytes, u32 row0, u32 rows, u32 group0, u32 groups) {
  typedef Slab<Q, ROWS, COLUMNS> S;
  constexpr u32 PARTS = Q::SIZE / 32, WIDE = Q::RUN < 4 ? Q::RUN : 4;
#pragma unroll
  for (u32 i = threadIndex(); i < ROWS * SLAB_GROUPS; i += MMA_WARPS * WARP) {
    const u32 g = i % SLAB_GROUPS, r = i / SLAB_GROUPS, part = (group0 + g) % PARTS;
    if (group0 + g >= groups) continue;
    const u64 row = row0 + r < rows ? row0 + r : rows - 1;
    const u8* b = x + row * rowBytes + (u64)((group0 + g) / PARTS) * Q::BYTES;
    // All loads before the first store, so that words that quads share are loaded once.
    u32 quads[8];
    Vec<float, S::WIDTH> d[S::PER_GROUP];
#pragma unroll
    for (u32 j = 0; j < 8; ++j) quads[j] = signedQuad<Q>(b, Q::first(part, j / Q::RUN) + j % Q::RUN);
#pragma unroll
    for (u32 h = 0; h < S::PER_GROUP; ++h) {
      d[h][0] = Q::scale(b, part * 2 + h);
      if constexpr (Q::MINS) d[h][1] = Q::minimum(b, part * 2 + h);
    }
#if X_MMA_NVIDIA
    // Where the next slab of the row begins, a thread every 32 bytes, so that it comes no further than from the L2 cache.
    if (group0 + SLAB_GROUPS + g < groups)
      mma::prefetch(x + row * rowBytes + (u64)(group0 + SLAB_GROUPS) * Q::BYTES / PARTS + 32 * g);
#endif
    u32* to = (u32*)(slab.x + r * X_STRIDE);
#pragma unroll
    for (u32 j = 0; j < 8; j += WIDE) {
      Vec<u32, WIDE> v;
#pragma unroll
      for (u32 k = 0; k < WIDE; ++k) v[k] = quads[j + k];
      // Where the block's elements lie in the slab: a format of 256 fills two slabs, one of 32 a quarter.
      const u32 e4 = Q::first(part, j / Q::RUN) + j % Q::RUN;
      storeVec(to + (Q::SIZE > SLAB ? e4 % (SLAB / 4) : g * 8 + e4), v);
    }
#pragma unroll
    for (u32 h = 0; h < S::PER_GROUP; ++h)
      storeVec(slab.xd + ((g * S::PER_GROUP + h) * S::ROW_STRIDE + r) * S::WIDTH, d[h]);
  }
}

/** What the columns are multiplied with by minima: d8 times the sum of 32 or 16 quants. */
template <class Q, u32 ROWS, u32 COLUMNS>
X_DEVICE void sumColumns(Slab<Q, ROWS, COLUMNS>& slab) {
  typedef Slab<Q, ROWS, COLUMNS> S;
#pragma unroll
  for (u32 i = threadIndex(); i < COLUMNS * S::SCALES; i += MMA_WARPS * WARP) {
    const u32 s = i % S::SCALES, c = i / S::SCALES;
    const u8* b = slab.y + c * Y_STRIDE + s / S::PER_GROUP * Q8_1::BYTES;
    i32 sum = 0;
#pragma unroll
    for (u32 j = 0; j < 8 / S::PER_GROUP; ++j) sum = dp4a(0x01010101, (i32)Q8_1::quad(b, s % S::PER_GROUP * 4 + j), sum);
    slab.ys[s * S::COLUMN_STRIDE + c] = Q8_1::scale(b) * (float)sum;
  }
}

// 32 elements along k of 16 rows or columns.
struct Group {
  static constexpr u32 PARTS = 32 / mma::Unit<i8>::K;
  mma::Operand<i8> part[PARTS];

  /** WORDS: a left operand, aligned to 4 bytes only; else a right one. */
  template <bool WORDS>
  static X_DEVICE Group load(const u8* rows, u32 stride) {
    Group x;
#pragma unroll
    for (u32 p = 0; p < PARTS; ++p)
      x.part[p] = WORDS ? mma::loadWords<i8>(rows + p * (32 / PARTS), stride) : mma::load<i8, true>(rows + p * (32 / PARTS), stride);
    return x;
  }
};

// Conversions from integers are slow on NVIDIA. There sums start as the bits of 1.5 * 2^23, whose last place is a unit:
// sums of 32 products stay below 2^22, so that they are a float's mantissa. ABREAST: elements of a lane that lie in
// neighbouring columns of the tile, in the same row.
#if X_MMA_NVIDIA
constexpr i32 ZERO = 0x4b400000;
constexpr u32 ABREAST = 2;
X_DEVICE float sumOf(i32 v) { return bitCast<float>(v) - 12582912.0f; }
#else
constexpr i32 ZERO = 0;
constexpr u32 ABREAST = 1;
X_DEVICE float sumOf(i32 v) { return (float)v; }
#endif

/** The products of a whole group (PER_GROUP is 1), or of its half h. */
template <u32 PER_GROUP>
X_DEVICE mma::Tile<i8> product(const Group& a, const Group& b, u32 h) {
  mma::Tile<i8> t;
#if X_MMA_NVIDIA
  if constexpr (PER_GROUP == 1) mma::multiplyFrom(t, a.part[0], b.part[0], ZERO);
  else mma::multiplyPartFrom(t, a.part[0], b.part[0], h, ZERO);
#else
#pragma unroll
  for (u32 e = 0; e < mma::Tile<i8>::N; ++e) t.v[e] = ZERO;
  if constexpr (PER_GROUP == 1) {
#pragma unroll
    for (u32 p = 0; p < Group::PARTS; ++p) mma::multiply(t, a.part[p], b.part[p]);
  } else if constexpr (Group::PARTS == 2) {
    mma::multiply(t, a.part[h], b.part[h]);
  } else {
#if X_MMA_CDNA >= 3
    mma::multiplyPart(t, a.part[0], b.part[0], h);
#endif
  }
#endif
  return t;
}

/** Adds a slab's products to a warp's C x R tiles of 16 columns x 16 rows, from row and column of the slab. */
template <u32 C, u32 R, class Q, u32 ROWS, u32 COLUMNS>
X_DEVICE void multiplySlab(const Slab<Q, ROWS, COLUMNS>& slab, u32 row, u32 column, u32 groups,
                           float (&acc)[C][R][mma::Tile<i8>::N]) {
  typedef Slab<Q, ROWS, COLUMNS> S;
  constexpr u32 N = mma::Tile<i8>::N;
#pragma unroll 1
  for (u32 g = 0; g < groups; ++g) {
    Group x[R];
#pragma unroll
    for (u32 i = 0; i < R; ++i) x[i] = Group::load<false>(slab.x + (row + 16 * i) * X_STRIDE + 32 * g, X_STRIDE);
#pragma unroll
    for (u32 j = 0; j < C; ++j) {
      const u8* at = slab.y + (column + 16 * j) * Y_STRIDE + g * Q8_1::BYTES;
      const Group y = Group::load<true>(at + 4, Y_STRIDE);
      float d8[N];
#pragma unroll
      for (u32 e = 0; e < N; ++e) d8[e] = Q8_1::scale(at + mma::rowOf(e) * Y_STRIDE);
#pragma unroll
      for (u32 i = 0; i < R; ++i) {
#pragma unroll
        for (u32 h = 0; h < S::PER_GROUP; ++h) {
          const mma::Tile<i8> t = product<S::PER_GROUP>(y, x[i], h);
          const u32 s = g * S::PER_GROUP + h;
#pragma unroll
          for (u32 e = 0; e < N; e += ABREAST) {
            const u32 r = s * S::ROW_STRIDE + row + 16 * i + mma::columnOf(e);
            const Vec<float, S::WIDTH * ABREAST> d = loadVec<S::WIDTH * ABREAST>(slab.xd + r * S::WIDTH);
            float sum = 0.0f;
            if (Q::MINS) sum = slab.ys[s * S::COLUMN_STRIDE + column + 16 * j + mma::rowOf(e)];
#pragma unroll
            for (u32 k = 0; k < ABREAST; ++k) {
              acc[j][i][e + k] += d[k * S::WIDTH] * d8[e] * sumOf(t.v[e + k]);
              if (Q::MINS) acc[j][i][e + k] -= d[k * S::WIDTH + S::WIDTH - 1] * sum;
            }
          }
        }
      }
    }
  }
}

/** A tile of rows from row0 and columns from column0, those below `rows` and `columns`. All threads of the block. */
template <class Q, u32 ROWS, u32 COLUMNS>
X_DEVICE void mmaTile(Slab<Q, ROWS, COLUMNS>& slab, const u8* x, u64 rowBytes, u32 row0, u32 rows, const u8* y, u64 columnBytes,
                      u32 column0, u32 columns, u32 groups, bool aligned, float* dst, u32 dstRows) {
  constexpr u32 ACROSS = 4, R = ROWS / (MMA_WARPS / ACROSS) / 16, C = COLUMNS / ACROSS / 16, N = mma::Tile<i8>::N;
  const u32 row = warpId() / ACROSS * R * 16, column = warpId() % ACROSS * C * 16;
  float acc[C][R][N] = {};
#pragma unroll 1
  for (u32 group0 = 0; group0 < groups; group0 += SLAB_GROUPS) {
    barrier();
    copyColumns<COLUMNS>(slab.y, y, columnBytes, column0, columns, group0, aligned);
    unpackRows(slab, x, rowBytes, row0, rows, group0, groups);
#if X_MMA_NVIDIA
    mma::commitCopies();
    mma::awaitCopies<0>();
#endif
    barrier();
    if (Q::MINS) {
      sumColumns(slab);
      barrier();
    }
    const u32 left = groups - group0;
    if (column0 + column < columns && row0 + row < rows)
      multiplySlab(slab, row, column, left < SLAB_GROUPS ? left : SLAB_GROUPS, acc);
  }
#pragma unroll
  for (u32 j = 0; j < C; ++j)
#pragma unroll
    for (u32 i = 0; i < R; ++i)
#pragma unroll
      for (u32 e = 0; e < N; ++e) {
        const u32 r = row0 + row + 16 * i + mma::columnOf(e), c = column0 + column + 16 * j + mma::rowOf(e);
        if (r < rows && c < columns) dst[(u64)c * dstRows + r] = acc[j][i][e];
      }
}

#else

[[maybe_unused]] constexpr u32 MMA_BOUND = 256;
template <class Q, u32 ROWS, u32 COLUMNS>
constexpr u32 MmaMemory = sizeof(Tiles);

#endif

/** As mulMat; memory: MmaMemory bytes of shared memory, aligned to 16. */
template <class Q, u32 ROWS, u32 COLUMNS>
X_DEVICE void mulMatMma(const u8* x, const u8* y, float* dst, i32 innerSize, i32 rowCount, i32 columnCount, i32 paddedInner,
                        i32 dstRows, u8* memory) {
#if X_MMA
  if (blockThreads() == MMA_WARPS * WARP) {
    const u32 rows = (u32)rowCount, columns = (u32)columnCount, groups = (u32)innerSize / 32;
    const u64 rowBytes = (u64)((u32)innerSize / Q::SIZE) * Q::BYTES, columnBytes = (u64)paddedInner / 32 * Q8_1::BYTES;
    const bool aligned = aligned16(y) && paddedInner % (i32)SLAB == 0;
    const u32 rowTiles = (rows + ROWS - 1) / ROWS, columnTiles = (columns + COLUMNS - 1) / COLUMNS;
    Slab<Q, ROWS, COLUMNS>& slab = *(Slab<Q, ROWS, COLUMNS>*)memory;
    // Blocks that run together share their rows.
    X_FOR_SPLIT(at, (u64)rowTiles * columnTiles) {
      const u32 row0 = (u32)(at / columnTiles) * ROWS, column0 = (u32)(at % columnTiles) * COLUMNS;
      mmaTile(slab, x, rowBytes, row0, rows, y, columnBytes, column0, columns, groups, aligned, dst, (u32)dstRows);
    }
    return;
  }
#endif
  mulMat<Q>(x, y, dst, innerSize, rowCount, columnCount, paddedInner, dstRows, *(Tiles*)memory);
}

/** As mulMatGrouped, whose tiles it takes on the host and in blocks of other sizes. */
template <class Q>
X_DEVICE void mulMatMmaGrouped(const u8* x, const u8* y, float* dst, i32 innerSize, i32 rowCount, const u32* tiles,
                               i32 tileCount, i32 paddedInner, u8* memory) {
#if X_MMA
  if (blockThreads() == MMA_WARPS * WARP) {
    constexpr u32 ROWS = 32;
    const u32 rows = (u32)rowCount, groups = (u32)innerSize / 32;
    const u64 rowBytes = (u64)((u32)innerSize / Q::SIZE) * Q::BYTES, columnBytes = (u64)paddedInner / 32 * Q8_1::BYTES;
    const bool aligned = aligned16(y) && paddedInner % (i32)SLAB == 0;
    const u32 rowTiles = (rows + ROWS - 1) / ROWS;
    Slab<Q, ROWS, TILE>& slab = *(Slab<Q, ROWS, TILE>*)memory;
    X_FOR_SPLIT(at, (u64)rowTiles * (u32)tileCount) {
      const u32* own = tiles + at / rowTiles * 3;
      const u32 row0 = (u32)(at % rowTiles) * ROWS, column0 = own[1], columns = own[2];
      if (column0 >= columns) continue;
      mmaTile(slab, x + (u64)own[0] * rows * rowBytes, rowBytes, row0, rows, y, columnBytes, column0, columns, groups, aligned,
              dst, rows);
    }
    return;
  }
#endif
  mulMatGrouped<Q>(x, y, dst, innerSize, rowCount, tiles, tileCount, paddedInner, *(Tiles*)memory);
}

}  // namespace quant
