// Many columns times many quantised rows: mul_mat_*, int8 products over tiles of 64 rows x 64 columns. candle's kernels
// (ggml's first MMQ) fix the tile and 4 warps of 32 a format; here the tile is one for all formats, blocks take tiles
// grid-stride, and a thread takes 8 x 4 results, so that 128 threads, candle's launch, are exactly one tile.
#pragma once

namespace quant {

constexpr u32 TILE = 64;

#if X_HOST

struct Tiles {};

#else

// 64 elements of 64 rows and 64 columns, quants four to a word, words of neighbouring rows side by side.
struct Tiles {
  static constexpr u32 WORDS = 16, STRIDE = TILE + 4;
  alignas(16) i32 x[WORDS * STRIDE];
  alignas(16) i32 y[WORDS * STRIDE];
  alignas(16) float xd[4 * TILE], xm[4 * TILE];
  alignas(16) float yd[2 * TILE], ys[4 * TILE];
};

/** Quad e4 of block b as signed bytes, the offset taken off: no byte borrows, since quants stay below 0x80 and OFFSET is at most 32. */
template <class Q>
X_DEVICE u32 signedQuad(const u8* b, u32 e4) {
  const u32 quad = Q::quad(b, e4);
  return Q::OFFSET == 0 ? quad : ((quad | 0x80808080u) - (u32)Q::OFFSET * 0x01010101u) ^ 0x80808080u;
}

template <class Q>
X_DEVICE void loadTiles(Tiles& tile, const u8* x, u64 rowBytes, u32 row0, u32 rows, const u8* y, u64 columnBytes, u32 column0,
                        u32 columns, u32 word0, u32 words) {
  constexpr u32 QUADS = Q::SIZE / 4;
  X_FOR_BLOCK(i, TILE * Tiles::WORDS) {
    const u32 k = (u32)i % Tiles::WORDS, r = (u32)i / Tiles::WORDS, word = word0 + k;
    u32 quad = 0;
    if (row0 + r < rows && word < words)
      quad = signedQuad<Q>(x + (row0 + r) * rowBytes + (u64)(word / QUADS) * Q::BYTES, word % QUADS);
    tile.x[k * Tiles::STRIDE + r] = (i32)quad;
    u32 u = 0;
    if (column0 + r < columns && word < words) u = Q8_1::quad(y + (column0 + r) * columnBytes + (u64)(word / 8) * Q8_1::BYTES, word % 8);
    tile.y[k * Tiles::STRIDE + r] = (i32)u;
  }
  X_FOR_BLOCK(i, TILE * 4) {
    const u32 h = (u32)i / TILE, r = (u32)i % TILE, word = word0 + 4 * h;
    const bool inX = row0 + r < rows && word < words, inY = column0 + r < columns && word < words;
    const u8* b = x + (row0 + r) * rowBytes + (u64)(word / QUADS) * Q::BYTES;
    tile.xd[i] = inX ? Q::scale(b, word % QUADS / 4) : 0.0f;
    if (Q::MINS) tile.xm[i] = inX ? Q::minimum(b, word % QUADS / 4) : 0.0f;
    const u8* yb = y + (column0 + r) * columnBytes + (u64)(word / 8) * Q8_1::BYTES;
    const float d8 = inY ? Q8_1::scale(yb) : 0.0f;
    if (h % 2 == 0) tile.yd[h / 2 * TILE + r] = d8;
    if (Q::MINS) {
      i32 sum = 0;
      if (inY) {
#pragma unroll
        for (u32 j = 0; j < 4; ++j) sum = dp4a(0x01010101, (i32)Q8_1::quad(yb, word % 8 + j), sum);
      }
      tile.ys[i] = d8 * (float)sum;
    }
  }
}

// Eight rows from r0 and four columns from c0 of the tile in shared memory.
template <class Q>
X_DEVICE void multiplyTiles(const Tiles& tile, u32 r0, u32 c0, float (&acc)[4][8]) {
  constexpr u32 SPAN = Q::HALVES ? 1 : 2;  // halves of 16 elements that share a scale
#pragma unroll 1
  for (u32 h = 0; h < 4; h += SPAN) {
    i32 t[4][8] = {};
#pragma unroll
    for (u32 j = 0; j < 4 * SPAN; ++j) {
      i32 xv[8], yv[4];
#pragma unroll
      for (u32 r = 0; r < 8; ++r) xv[r] = tile.x[(4 * h + j) * Tiles::STRIDE + r0 + r];
#pragma unroll
      for (u32 c = 0; c < 4; ++c) yv[c] = tile.y[(4 * h + j) * Tiles::STRIDE + c0 + c];
#pragma unroll
      for (u32 c = 0; c < 4; ++c)
#pragma unroll
        for (u32 r = 0; r < 8; ++r) t[c][r] = dp4a(xv[r], yv[c], t[c][r]);
    }
#pragma unroll
    for (u32 c = 0; c < 4; ++c) {
      const float d8 = tile.yd[h / 2 * TILE + c0 + c];
#pragma unroll
      for (u32 r = 0; r < 8; ++r) acc[c][r] += tile.xd[h * TILE + r0 + r] * d8 * (float)t[c][r];
      if (Q::MINS) {
        float sum = tile.ys[h * TILE + c0 + c];
        if (SPAN == 2) sum += tile.ys[(h + 1) * TILE + c0 + c];
#pragma unroll
        for (u32 r = 0; r < 8; ++r) acc[c][r] -= tile.xm[h * TILE + r0 + r] * sum;
      }
    }
  }
}

/** A tile of rows from row0 and columns from column0, those below `rows` and `columns`. All threads of the block. */
template <class Q>
X_DEVICE void mulMatTile(const u8* x, u64 rowBytes, u32 row0, u32 rows, const u8* y, u64 columnBytes, u32 column0, u32 columns,
                         u32 words, float* dst, u32 dstRows, Tiles& tile) {
  for (u32 base = 0; base < 128; base += blockThreads()) {
    const u32 member = base + threadIndex();
    const u32 r0 = member % 8 * 8, c0 = member / 8 * 4;
    float acc[4][8] = {};
    for (u32 word0 = 0; word0 < words; word0 += Tiles::WORDS) {
      loadTiles<Q>(tile, x, rowBytes, row0, rows, y, columnBytes, column0, columns, word0, words);
      barrier();
      if (member < 128) multiplyTiles<Q>(tile, r0, c0, acc);
      barrier();
    }
    if (member >= 128) continue;
#pragma unroll
    for (u32 c = 0; c < 4; ++c)
#pragma unroll
      for (u32 r = 0; r < 8; ++r)
        if (row0 + r0 + r < rows && column0 + c0 + c < columns)
          dst[(u64)(column0 + c0 + c) * dstRows + row0 + r0 + r] = acc[c][r];
  }
}

#endif

/** dst[column * dstRows + row] = row . column; y holds q8_1 columns of paddedInner elements. */
template <class Q>
X_DEVICE void mulMat(const u8* x, const u8* y, float* dst, i32 innerSize, i32 rowCount, i32 columnCount, i32 paddedInner, i32 dstRows,
                     Tiles& tile) {
  const u32 rows = (u32)rowCount, columns = (u32)columnCount;
  const u64 columnBytes = (u64)paddedInner / 32 * Q8_1::BYTES;
#if X_HOST
  (void)tile;
  if (rows == 0 || columns == 0) return;
  // Columns are opened once for the rows of a tile, so these are many where every block has a tile all the same.
  const u32 longest = (rows + 8 * TILE - 1) / (8 * TILE), shortest = (rows + 2 * TILE - 1) / (2 * TILE);
  u32 most = (u32)hostColumns<Q>((u64)innerSize, columns);
  // Fewer columns where threads, which have eight blocks each, would have less than two tiles.
  while (most > HostTile<Q>::COLUMNS && 4 * (u64)shortest * ((columns + most - 1) / most) < split::blocks()) most /= 2;
  const u32 columnTiles = (columns + most - 1) / most, width = (columns + columnTiles - 1) / columnTiles;
  const u64 wanted = (split::blocks() + columnTiles - 1) / columnTiles;
  const u32 parts = wanted < longest ? longest : wanted < shortest ? (u32)wanted : shortest;
  const u32 tileRows = ((rows + parts - 1) / parts + 15) / 16 * 16, rowTiles = (rows + tileRows - 1) / tileRows;
  // Neighbouring tiles share their rows, which stay in the second cache.
  X_FOR_SPLIT(at, (u64)rowTiles * columnTiles) {
    const u64 row0 = at / columnTiles * tileRows, column0 = at % columnTiles * width;
    const u64 rowEnd = row0 + tileRows < rows ? row0 + tileRows : rows;
    const u64 count = column0 + width < columns ? width : columns - column0;
    hostProducts<Q>(x, row0, rowEnd, (u64)innerSize, y + column0 * columnBytes, columnBytes, count,
                    dst + column0 * (u32)dstRows, (u64)dstRows);
  }
#else
  const u32 rowTiles = (rows + TILE - 1) / TILE, columnTiles = (columns + TILE - 1) / TILE;
  const u64 rowBytes = (u64)(innerSize / (i32)Q::SIZE) * Q::BYTES;
  const u32 words = (u32)innerSize / 4;
  X_FOR_SPLIT(at, (u64)rowTiles * columnTiles) {
    const u32 row0 = (u32)(at % rowTiles) * TILE, column0 = (u32)(at / rowTiles) * TILE;
    mulMatTile<Q>(x, rowBytes, row0, rows, y, columnBytes, column0, columns, words, dst, (u32)dstRows, tile);
  }
#endif
}

/**
 * Columns in groups, each with the rows of an expert: tiles [tiles, 3] hold the expert, the first column and the one behind the
 * last, at most TILE of them; x is [experts, rowCount]. dst[column * rowCount + row].
 */
template <class Q>
X_DEVICE void mulMatGrouped(const u8* x, const u8* y, float* dst, i32 innerSize, i32 rowCount, const u32* tiles, i32 tileCount,
                            i32 paddedInner, Tiles& tile) {
  const u32 rows = (u32)rowCount;
  const u64 columnBytes = (u64)paddedInner / 32 * Q8_1::BYTES;
  const u64 rowBytes = (u64)(innerSize / (i32)Q::SIZE) * Q::BYTES;
  constexpr u32 ROWS = X_HOST ? 2 * TILE : TILE;
  const u32 rowTiles = (rows + ROWS - 1) / ROWS;
  X_FOR_SPLIT(at, (u64)rowTiles * (u32)tileCount) {
    const u32* own = tiles + at / rowTiles * 3;
    const u32 row0 = (u32)(at % rowTiles) * ROWS, column0 = own[1], columns = own[2];
    if (column0 >= columns) continue;
    const u8* weights = x + (u64)own[0] * rows * rowBytes;
#if X_HOST
    (void)tile;
    const u64 rowEnd = row0 + ROWS < rows ? row0 + ROWS : rows;
    hostProducts<Q>(weights, row0, rowEnd, (u64)innerSize, y + column0 * columnBytes, columnBytes, columns - column0,
                    dst + (u64)column0 * rows, (u64)rows);
#else
    mulMatTile<Q>(weights, rowBytes, row0, rows, y, columnBytes, column0, columns, (u32)innerSize / 4, dst, rows, tile);
#endif
  }
}

}  // namespace quant
