// Few columns times many quantised rows on int8 matrix units: mul_mat_stream_{type}_{8,16,32}, for batches of sequences that
// decode together, where a product is bound by the bytes of its weights. The parameters are those of mul_mat_*. What differs
// from mma.h: rows are not unpacked to shared memory for a whole block. Each warp has 16 rows of its own, copies their blocks
// as they lie in memory, the next ones while it computes, and unpacks them on their way into matrix operands; so the only
// thing that warps wait for is the columns, which they share.
//   - a warp takes a span of a row at a time; ACROSS warps are beside each other along the rows, ALONG along the spans, whose
//     sums are added at the end, in order
//   - scales become f32 once for a span and warp, columns' scales once for a block
//   - integer sums of 32 elements (16 in q2_K, q3_K and q6_K) are exact, so that results are those of mul_mat_vec_* but for
//     the order of f32 sums
// A block is 8 warps on NVIDIA and 4 on AMD, with StreamMemory bytes of dynamic shared memory; columns begin at multiples of
// 16 bytes and are padded to 128 elements.
#pragma once

namespace quant {

#if X_MMA

#if X_MMA_NVIDIA
constexpr u32 STREAM_WARPS = 8, STREAM_STAGES = 2;
/** Two blocks on a multiprocessor of compute capability 8.0 and 9.0. */
constexpr u32 StreamMemory = 110592;
#else
constexpr u32 STREAM_WARPS = 4, STREAM_STAGES = 1;
constexpr u32 StreamMemory = 65536;
#endif
[[maybe_unused]] constexpr u32 STREAM_BOUND = STREAM_WARPS * WARP;

template <class Q, u32 COLUMNS_>
struct Stream {
  static constexpr u32 ACROSS = COLUMNS_ > 16 ? STREAM_WARPS / 2 : STREAM_WARPS / 4, ALONG = STREAM_WARPS / ACROSS;
  static constexpr u32 ROWS = 16 * ACROSS;
  // Units that take 16 columns at least; NVIDIA's results of the upper 8 are left out.
  static constexpr bool HALF = X_MMA_NVIDIA && COLUMNS_ == 8;
  static constexpr u32 COLUMNS = HALF || COLUMNS_ > 8 ? COLUMNS_ : 16, C = (COLUMNS + 15) / 16;
  // A span of a row: its elements, and the 16-byte pieces that hold them wherever they begin.
  static constexpr u32 SPAN = 256 / Q::SIZE * Q::BYTES > 240 ? 128 : 256, GROUPS = SPAN / 32, QUARTERS = SPAN / SLAB;
  static constexpr u32 SPAN_BYTES = SPAN / Q::SIZE * Q::BYTES;
  static constexpr u32 SKEW = Q::BYTES % 16 == 0 ? 0 : Q::BYTES % 4 == 0 ? 12 : 14, PIECES = (SPAN_BYTES + SKEW + 15) / 16;
  // An odd number of pieces apart, the same word of eight rows lies in different banks.
  static constexpr u32 STRIDE = (PIECES | 1) * 16;
  static constexpr u32 PER_GROUP = Q::HALVES ? 2 : 1, SCALES = GROUPS * PER_GROUP, WIDTH = Q::MINS ? 2 : 1;
  static constexpr u32 SLAB_QUARTERS = ALONG * QUARTERS;

  /** What a warp has to itself: its rows' blocks, and of those at hand [scale][row] the scale and the minimum. */
  struct Own {
    alignas(16) u8 rows[STREAM_STAGES][16 * STRIDE];
    alignas(16) float scales[SCALES * 16 * WIDTH];
  };
  Own own[STREAM_WARPS];
  // Columns, 128 elements of all of them after the other; [group][column] their scale and [scale][column] the scale times
  // the sum of the quants.
  alignas(16) u8 y[STREAM_STAGES][SLAB_QUARTERS * COLUMNS * Y_STRIDE];
  alignas(16) float d8[ALONG * GROUPS * COLUMNS], sums[Q::MINS ? ALONG * SCALES * COLUMNS : 4];
};

/** A product's operands, and the tile of rows and columns that a block is at. */
struct StreamAt {
  const u8* x;
  u64 rowBytes;
  u32 row0, rows;
  const u8* y;
  u64 columnBytes;
  u32 column0, columns;
  u32 groups;

  /** Row r of the tile; those past the last are the last again. */
  X_DEVICE const u8* row(u32 r) const { return x + (row0 + r < rows ? row0 + r : rows - 1) * rowBytes; }
};

X_DEVICE void copyPiece(u8* to, const u8* from) {
#if X_MMA_NVIDIA
  mma::copyAsync(mma::sharedAddress(to), from, 16);
#else
  storeVec((u32*)to, loadVec<4>((const u32*)from));
#endif
}

/** Where a row's span begins within the 16 bytes that hold its first one. */
template <class S>
X_DEVICE u32 skewOf(const u8* row, u32 span) {
  return S::SKEW == 0 ? 0 : (u32)((u64)row + (u64)span * S::SPAN_BYTES) & 15;
}

/** Begins to copy a span of a warp's rows, from row `first` of the tile on. */
template <class S>
X_DEVICE void copyRows(u8* to, const StreamAt& at, u32 first, u32 span) {
#pragma unroll 1
  for (u32 i = laneId(); i < 16 * S::PIECES; i += WARP) {
    const u32 r = i / S::PIECES, piece = i % S::PIECES;
    const u8* row = at.row(first + r);
    const u8* begin = row + (u64)span * S::SPAN_BYTES - skewOf<S>(row, span);
    copyPiece(to + r * S::STRIDE + 16 * piece, begin + 16 * piece);
  }
}

/** Begins to copy a slab of the columns, as far as they go. */
template <class S>
X_DEVICE void copyColumnSlab(u8* to, const StreamAt& at, u32 slab) {
  constexpr u32 PIECES = Y_STRIDE / 16;
#pragma unroll 1
  for (u32 i = threadIndex(); i < S::SLAB_QUARTERS * S::COLUMNS * PIECES; i += STREAM_BOUND) {
    const u32 line = i / PIECES, column = line % S::COLUMNS;
    const u64 offset = (u64)(slab * S::SLAB_QUARTERS + line / S::COLUMNS) * Y_STRIDE + i % PIECES * 16;
    if (at.column0 + column < at.columns && offset < at.columnBytes)
      copyPiece(to + 16 * i, at.y + (at.column0 + column) * at.columnBytes + offset);
  }
}

/** A slab's columns' scales and sums as numbers; those of groups past the end are nothing. */
template <class Q, class S>
X_DEVICE void scaleColumns(S& s, const u8* y, u32 group0, u32 groups) {
#pragma unroll 1
  for (u32 i = threadIndex(); i < S::ALONG * S::GROUPS * S::COLUMNS; i += STREAM_BOUND) {
    const u32 g = i / S::COLUMNS, column = i % S::COLUMNS;
    const u8* b = y + (g / SLAB_GROUPS * S::COLUMNS + column) * Y_STRIDE + g % SLAB_GROUPS * Q8_1::BYTES;
    const float d = group0 + g < groups ? Q8_1::scale(b) : 0.0f;
    s.d8[i] = d;
    if constexpr (Q::MINS) {
#pragma unroll
      for (u32 h = 0; h < S::PER_GROUP; ++h) {
        i32 sum = 0;
#pragma unroll
        for (u32 j = 0; j < 8 / S::PER_GROUP; ++j)
          sum = dp4a(0x01010101, (i32)Q8_1::quad(b, h * (8 / S::PER_GROUP) + j), sum);
        s.sums[(g * S::PER_GROUP + h) * S::COLUMNS + column] = d * (float)sum;
      }
    }
  }
}

/** A warp's rows' scales and minima as numbers; those of groups past the end are nothing. */
template <class Q, class S>
X_DEVICE void scaleRows(typename S::Own& own, const u8* rows, const StreamAt& at, u32 first, u32 span) {
  const u32 r = laneId() % 16;
  const u8* row = rows + r * S::STRIDE + skewOf<S>(at.row(first + r), span);
#pragma unroll
  for (u32 i = laneId() / 16; i < S::SCALES; i += WARP / 16) {
    const u32 g = i / S::PER_GROUP, e16 = g % (Q::SIZE / 32) * 2 + i % S::PER_GROUP;
    const u8* b = row + g * 32 / Q::SIZE * Q::BYTES;
    const bool inside = span * S::GROUPS + g < at.groups;
    Vec<float, S::WIDTH> d;
    d[0] = inside ? Q::scale(b, e16) : 0.0f;
    if constexpr (Q::MINS) d[1] = inside ? Q::minimum(b, e16) : 0.0f;
    storeVec(own.scales + (i * 16 + r) * S::WIDTH, d);
  }
}

/** 32 elements of 16 rows as a right operand, unpacked; `own`: where the span begins of the rows that this lane holds. */
template <class Q, class S>
X_DEVICE Group unpackGroup(const u8* const (&own)[X_MMA_NVIDIA ? 2 : 1], u32 g) {
  constexpr u32 WORDS = mma::Unit<i8>::WORDS;
  const u32 quad0 = g % (Q::SIZE / 32) * 8;
  Group x;
#pragma unroll
  for (u32 p = 0; p < Group::PARTS; ++p)
#pragma unroll
    for (u32 w = 0; w < WORDS; ++w) {
#if X_MMA_NVIDIA
      const u32 r = w / 2, quad = laneId() % 4 + w % 2 * 4;
#elif X_MMA_GFX11
      const u32 r = 0, quad = p * WORDS + w;
#else
      const u32 r = 0, quad = p * (8 / Group::PARTS) + laneId() / 16 * WORDS + w;
#endif
      x.part[p].word[w] = signedQuad<Q>(own[r] + g * 32 / Q::SIZE * Q::BYTES, quad0 + quad);
    }
  return x;
}

/** 32 elements of 16 columns, or of 8 beside nothing, as a left operand. */
template <class S>
X_DEVICE Group loadColumns(const u8* quants) {
#if X_MMA_NVIDIA
  if constexpr (S::HALF) {
    const u32* words = (const u32*)(quants + laneId() / 4 * Y_STRIDE) + laneId() % 4;
    Group y;
    y.part[0].word[0] = words[0];
    y.part[0].word[1] = 0;
    y.part[0].word[2] = words[4];
    y.part[0].word[3] = 0;
    return y;
  }
#endif
  return Group::load<true>(quants, Y_STRIDE);
}

/** Adds the products of a span of a warp's rows with the block's columns. */
template <class Q, class S>
X_DEVICE void multiplySpan(const S& s, const typename S::Own& own, const u8* rows, const u8* y, const StreamAt& at, u32 first,
                           u32 span, u32 along, float (&acc)[S::C][mma::Tile<i8>::N]) {
  constexpr u32 N = mma::Tile<i8>::N, HELD = X_MMA_NVIDIA ? 2 : 1;
  const u8* held[HELD];
#pragma unroll
  for (u32 i = 0; i < HELD; ++i) {
    const u32 r = X_MMA_NVIDIA ? laneId() / 4 + 8 * i : laneId() % 16;
    held[i] = rows + r * S::STRIDE + skewOf<S>(at.row(first + r), span);
  }
#pragma unroll Q::HALVES ? 4 : 2
  for (u32 g = 0; g < S::GROUPS; ++g) {
    const Group x = unpackGroup<Q, S>(held, g);
    const u32 group = along * S::GROUPS + g;
    const u8* columns = y + group / SLAB_GROUPS * S::COLUMNS * Y_STRIDE + group % SLAB_GROUPS * Q8_1::BYTES + 4;
#pragma unroll
    for (u32 j = 0; j < S::C; ++j) {
      const Group left = loadColumns<S>(columns + 16 * j * Y_STRIDE);
#pragma unroll
      for (u32 h = 0; h < S::PER_GROUP; ++h) {
        const mma::Tile<i8> t = product<S::PER_GROUP>(left, x, h);
#pragma unroll
        for (u32 e = 0; e < N; e += ABREAST) {
          if (S::HALF && e / 2 % 2 == 1) continue;
          const u32 column = 16 * j + mma::rowOf(e);
          const float d8 = s.d8[group * S::COLUMNS + column];
          float sum = 0.0f;
          if constexpr (Q::MINS) sum = s.sums[(group * S::PER_GROUP + h) * S::COLUMNS + column];
          const float* scales = own.scales + ((g * S::PER_GROUP + h) * 16 + mma::columnOf(e)) * S::WIDTH;
          const Vec<float, S::WIDTH * ABREAST> d = loadVec<S::WIDTH * ABREAST>(scales);
#pragma unroll
          for (u32 k = 0; k < ABREAST; ++k) {
            acc[j][e + k] += d[k * S::WIDTH] * d8 * sumOf(t.v[e + k]);
            if constexpr (Q::MINS) acc[j][e + k] -= d[k * S::WIDTH + 1] * sum;
          }
        }
      }
    }
  }
}

/** Writes a tile: what the warps along the spans have, added in their order. */
template <class S>
X_DEVICE void storeStream(float* partial, const StreamAt& at, u32 across, u32 along,
                          const float (&acc)[S::C][mma::Tile<i8>::N], float* dst, u32 dstRows) {
  constexpr u32 STRIDE = S::ROWS + 4, COLUMNS = 16 * S::C;
  barrier();
#pragma unroll
  for (u32 j = 0; j < S::C; ++j)
#pragma unroll
    for (u32 e = 0; e < mma::Tile<i8>::N; ++e) {
      if (S::HALF && e / 2 % 2 == 1) continue;
      partial[(along * COLUMNS + 16 * j + mma::rowOf(e)) * STRIDE + 16 * across + mma::columnOf(e)] = acc[j][e];
    }
  barrier();
#pragma unroll 1
  for (u32 i = threadIndex(); i < S::COLUMNS * S::ROWS; i += STREAM_BOUND) {
    const u32 r = i % S::ROWS, c = i / S::ROWS;
    if (at.row0 + r >= at.rows || at.column0 + c >= at.columns) continue;
    float sum = 0.0f;
#pragma unroll
    for (u32 k = 0; k < S::ALONG; ++k) sum += partial[(k * COLUMNS + c) * STRIDE + r];
    dst[(u64)(at.column0 + c) * dstRows + at.row0 + r] = sum;
  }
}

template <class Q, class S>
X_DEVICE void streamTile(S& s, const StreamAt& at, float* dst, u32 dstRows) {
  const u32 across = warpId() % S::ACROSS, along = warpId() / S::ACROSS, first = 16 * across;
  const u32 spans = (at.groups + S::GROUPS - 1) / S::GROUPS, slabs = (spans + S::ALONG - 1) / S::ALONG;
  typename S::Own& own = s.own[warpId()];
  float acc[S::C][mma::Tile<i8>::N] = {};
  const auto copy = [&](u32 slab) {
    const u32 stage = slab % STREAM_STAGES, span = slab * S::ALONG + along;
    copyColumnSlab<S>(s.y[stage], at, slab);
    if (span < spans) copyRows<S>(own.rows[stage], at, first, span);
#if X_MMA_NVIDIA
    mma::commitCopies();
#endif
  };
  barrier();
  copy(0);
#pragma unroll 1
  for (u32 slab = 0; slab < slabs; ++slab) {
    const u32 stage = slab % STREAM_STAGES, span = slab * S::ALONG + along;
#if X_MMA_NVIDIA
    mma::awaitCopies<0>();
    barrier();
    if (slab + 1 < slabs) copy(slab + 1);
#else
    if (slab > 0) {
      barrier();
      copy(slab);
    }
    barrier();
#endif
    scaleColumns<Q>(s, s.y[stage], slab * S::ALONG * S::GROUPS, at.groups);
    if (span < spans) scaleRows<Q, S>(own, own.rows[stage], at, first, span);
    barrier();
    if (span < spans) multiplySpan<Q>(s, own, own.rows[stage], s.y[stage], at, first, span, along, acc);
  }
  storeStream<S>((float*)s.own, at, across, along, acc, dst, dstRows);
}

#else

[[maybe_unused]] constexpr u32 STREAM_BOUND = 256;

#endif

/** As mulMat, which computes it on targets without such units. */
template <class Q, u32 COLUMNS>
X_DEVICE void mulMatStream(const u8* x, const u8* y, float* dst, i32 innerSize, i32 rowCount, i32 columnCount,
                           i32 paddedInner, i32 dstRows) {
#if X_MMA
  typedef Stream<Q, COLUMNS> S;
  static_assert(sizeof(S) <= StreamMemory, "more than a launch gives");
  static_assert(sizeof(typename S::Own) * STREAM_WARPS >= S::ALONG * S::C * 16 * (S::ROWS + 4) * 4, "no room for sums");
  S& s = *dynamicShared<S>();
  const u64 rowBytes = (u64)((u32)innerSize / Q::SIZE) * Q::BYTES, columnBytes = (u64)paddedInner / 32 * Q8_1::BYTES;
  const u32 rows = (u32)rowCount, columns = (u32)columnCount, groups = (u32)innerSize / 32;
  const u32 rowTiles = (rows + S::ROWS - 1) / S::ROWS, columnTiles = (columns + COLUMNS - 1) / COLUMNS;
  early::letNextBegin();
  early::await();
  // Blocks that run together share their rows.
  X_FOR_SPLIT(tile, (u64)rowTiles * columnTiles) {
    const u32 row0 = (u32)(tile / columnTiles) * S::ROWS, column0 = (u32)(tile % columnTiles) * COLUMNS;
    const StreamAt at{x, rowBytes, row0, rows, y, columnBytes, column0, columns, groups};
    streamTile<Q>(s, at, dst, (u32)dstRows);
  }
#else
  X_SHARED(Tiles, tile, 1);
  mulMat<Q>(x, y, dst, innerSize, rowCount, columnCount, paddedInner, dstRows, tile[0]);
#endif
}

}  // namespace quant
