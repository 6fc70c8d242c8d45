// Few columns times many quantised rows on int8 matrix units: mul_mat_stream_{type}_{8,16,32}, for batches of sequences that
// decode together, where a product is bound by the bytes of its weights. The parameters are those of mul_mat_*. What differs
// from mma.h: rows are not unpacked to shared memory for a whole block. Each warp has 16 rows of its own, copies their blocks
// as they lie in memory, the next ones while it computes, and unpacks them on their way into matrix operands; so the only
// thing that warps wait for is the columns, which they share.
//   - a warp takes a span of a row at a time; ACROSS warps are beside each other along the rows, ALONG along the spans, whose
//     sums are added at the end, in order
//   - a slab is what all warps take at a time; a block goes through the slabs of all of its tiles without a break
//   - scales become f32 once for a span and warp, columns' scales once for a block
//   - integer sums of 32 elements (16 in q2_K, q3_K and q6_K) are exact, so that results are those of mul_mat_vec_* but for
//     the order of f32 sums
// A block is 8 warps on NVIDIA and 4 on AMD, with sizeof(Stream) bytes of dynamic shared memory, which
// packages/rocm-backend/src/ops/quantized-stream.ts knows too; columns begin at multiples of 16 bytes and are padded to 128
// elements.
#pragma once

namespace quant {

#if X_MMA

#if X_MMA_NVIDIA
// Copies are asynchronous: columns two slabs ahead, rows one.
constexpr u32 STREAM_WARPS = 8, ROW_STAGES = 2, COLUMN_STAGES = 3, SCALE_STAGES = 2;
#else
constexpr u32 STREAM_WARPS = 4, ROW_STAGES = 1, COLUMN_STAGES = 1, SCALE_STAGES = 1;
#endif
[[maybe_unused]] constexpr u32 STREAM_BOUND = STREAM_WARPS * WARP;
/** Lanes that copy a row together. */
constexpr u32 ROW_LANES = WARP / 8;

template <class Q, u32 COLUMNS_>
struct Stream {
  static constexpr u32 ACROSS = COLUMNS_ > 16 ? STREAM_WARPS / 2 : STREAM_WARPS / 4, ALONG = STREAM_WARPS / ACROSS;
  static constexpr u32 ROWS = 16 * ACROSS;
  // Units take 16 columns at least; of NVIDIA's results the upper 8 are left out.
  static constexpr bool HALF = X_MMA_NVIDIA && COLUMNS_ == 8;
  static constexpr u32 COLUMNS = HALF || COLUMNS_ > 8 ? COLUMNS_ : 16, C = (COLUMNS + 15) / 16;
  // A span of a row: its elements, and the 16-byte pieces that hold them wherever they begin.
  static constexpr u32 SPAN = 256, GROUPS = SPAN / 32, QUARTERS = SPAN / SLAB;
  static constexpr u32 SPAN_BYTES = SPAN / Q::SIZE * Q::BYTES;
  static constexpr u32 SKEW = Q::BYTES % 16 == 0 ? 0 : Q::BYTES % 4 == 0 ? 12 : 14, PIECES = (SPAN_BYTES + SKEW + 15) / 16;
  // An odd number of pieces apart, the same word of eight rows lies in different banks.
  static constexpr u32 STRIDE = (PIECES | 1) * 16;
  static constexpr u32 PER_GROUP = Q::HALVES ? 2 : 1, SCALES = GROUPS * PER_GROUP, WIDTH = Q::MINS ? 2 : 1;
  static constexpr u32 SLAB_QUARTERS = ALONG * QUARTERS, SLAB_COLUMNS = ALONG * GROUPS * COLUMNS;
  /** Of a group of a column: its scale and, where there are minima, the scale times the sum of the quants of each part. */
  static constexpr u32 RECORD = Q::MINS ? 2 * PER_GROUP : 1;

  /** What a warp has to itself: its rows' blocks, and of those at hand [scale][row] the scale and the minimum. */
  struct Own {
    alignas(16) u8 rows[ROW_STAGES][16 * STRIDE];
    alignas(16) float scales[SCALES * 16 * WIDTH];
  };
  Own own[STREAM_WARPS];
  // Columns, 128 elements of all of them after the other, and [group][column] their records.
  alignas(16) u8 y[COLUMN_STAGES][SLAB_QUARTERS * COLUMNS * Y_STRIDE];
  alignas(16) float records[SCALE_STAGES][SLAB_COLUMNS * RECORD];

  /** Where a tile's sums meet, in the columns that were the last ones of it. */
  static constexpr u32 SUM_STRIDE = ROWS + 4;
};

/** A product's operands. */
struct StreamProduct {
  const u8* x;
  u64 rowBytes;
  const u8* y;
  u64 columnBytes;
  u32 rows, columns, groups, columnTiles;
};

/** Rows, those past the last being the last again, and columns from the first one of a tile on. */
template <class S>
X_DEVICE const u8* rowOf(const StreamProduct& p, u32 tile, u32 r) {
  const u32 row = tile / p.columnTiles * S::ROWS + r;
  return p.x + (row < p.rows ? row : p.rows - 1) * p.rowBytes;
}
template <class S>
X_DEVICE u32 columnOf(const StreamProduct& p, u32 tile) {
  return tile % p.columnTiles * S::COLUMNS;
}

X_DEVICE void copyPiece(u8* to, const u8* from) {
#if X_MMA_NVIDIA
  mma::copyAsync(mma::sharedAddress(to), from, 16);
#else
  storeVec((u32*)to, loadVec<4>((const u32*)from));
#endif
}

/** Where a row's span begins within the 16 bytes that hold its first one. */
template <class S>
X_DEVICE u32 skewOf(const u8* begin) {
  return S::SKEW == 0 ? 0 : (u32)(u64)begin & 15;
}

/** Begins to copy a span of a warp's rows, from row `first` of the tile on: ROW_LANES lanes a row, eight rows at a time. */
template <class S>
X_DEVICE void copyRows(u8* to, const StreamProduct& p, u32 tile, u32 first, u32 span) {
  const u32 lane = laneId() % ROW_LANES;
#pragma unroll
  for (u32 r = laneId() / ROW_LANES; r < 16; r += 8) {
    const u8* begin = rowOf<S>(p, tile, first + r) + (u64)span * S::SPAN_BYTES;
    const u8* from = begin - skewOf<S>(begin) + 16 * lane;
    u8* own = to + r * S::STRIDE + 16 * lane;
#pragma unroll
    for (u32 piece = 0; piece < S::PIECES; piece += ROW_LANES)
      if (piece + ROW_LANES <= S::PIECES || piece + lane < S::PIECES) copyPiece(own + 16 * piece, from + 16 * piece);
  }
}

/** Begins to copy a slab of the columns, as far as they go. */
template <class S>
X_DEVICE void copySlab(u8* to, const StreamProduct& p, u32 tile, u32 slab) {
  constexpr u32 PIECES = Y_STRIDE / 16;
  const u32 column0 = columnOf<S>(p, tile);
#pragma unroll 2
  for (u32 i = threadIndex(); i < S::SLAB_QUARTERS * S::COLUMNS * PIECES; i += STREAM_BOUND) {
    const u32 line = i / PIECES, column = column0 + line % S::COLUMNS;
    const u64 offset = (u64)(slab * S::SLAB_QUARTERS + line / S::COLUMNS) * Y_STRIDE + i % PIECES * 16;
    if (column < p.columns && offset < p.columnBytes) copyPiece(to + 16 * i, p.y + column * p.columnBytes + offset);
  }
}

/** The records of a slab's columns; those of groups past the end are nothing. */
template <class Q, class S>
X_DEVICE void recordColumns(float* records, const u8* y, u32 group0, u32 groups) {
#pragma unroll 1
  for (u32 i = threadIndex(); i < S::SLAB_COLUMNS; i += STREAM_BOUND) {
    const u32 g = i / S::COLUMNS, column = i % S::COLUMNS;
    const u8* b = y + (g / SLAB_GROUPS * S::COLUMNS + column) * Y_STRIDE + g % SLAB_GROUPS * Q8_1::BYTES;
    const float d = group0 + g < groups ? Q8_1::scale(b) : 0.0f;
    Vec<float, S::RECORD> record;
    record[0] = d;
    if constexpr (Q::MINS) {
#pragma unroll
      for (u32 h = 0; h < S::PER_GROUP; ++h) {
        i32 sum = 0;
#pragma unroll
        for (u32 j = 0; j < 8 / S::PER_GROUP; ++j)
          sum = dp4a(0x01010101, (i32)Q8_1::quad(b, h * (8 / S::PER_GROUP) + j), sum);
        record[1 + h] = d * (float)sum;
      }
      if constexpr (S::PER_GROUP == 2) record[3] = 0.0f;
    }
    storeVec(records + i * S::RECORD, record);
  }
}

/** A warp's rows' scales and minima as numbers; those of groups past the end are nothing. `span`: of row laneId() % 16. */
template <class Q, class S>
X_DEVICE void scaleRows(float* scales, const u8* span, u32 group0, u32 groups) {
#pragma unroll
  for (u32 i = laneId() / 16; i < S::SCALES; i += WARP / 16) {
    const u32 g = i / S::PER_GROUP, e16 = g % (Q::SIZE / 32) * 2 + i % S::PER_GROUP;
    const u8* b = span + g * 32 / Q::SIZE * Q::BYTES;
    const bool inside = group0 + g < groups;
    Vec<float, S::WIDTH> d;
    d[0] = inside ? Q::scale(b, e16) : 0.0f;
    if constexpr (Q::MINS) d[1] = inside ? Q::minimum(b, e16) : 0.0f;
    storeVec(scales + (i * 16 + laneId() % 16) * S::WIDTH, d);
  }
}

/** Rows of a right operand that a lane holds words of. */
constexpr u32 HELD_ROWS = X_MMA_NVIDIA ? 2 : 1;
X_DEVICE u32 heldRow(u32 i) { return X_MMA_NVIDIA ? laneId() / 4 + 8 * i : laneId() % 16; }

/** 32 elements of 16 rows as a right operand, unpacked; `held`: where the span begins of the rows that this lane holds. */
template <class Q>
X_DEVICE Group unpackGroup(const u8* const (&held)[HELD_ROWS], u32 g) {
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
      x.part[p].word[w] = signedQuad<Q>(held[r] + g * 32 / Q::SIZE * Q::BYTES, quad0 + quad);
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

/** Adds the products of a span of a warp's rows with the columns' groups from `group0` of the slab on. */
template <class Q, class S>
X_DEVICE void multiplySpan(const u8* const (&held)[HELD_ROWS], const float* scales, const u8* y, const float* records, u32 group0,
                           float (&acc)[S::C][mma::Tile<i8>::N]) {
  constexpr u32 N = mma::Tile<i8>::N;
#pragma unroll Q::HALVES ? 4 : 2
  for (u32 g = 0; g < S::GROUPS; ++g) {
    const Group x = unpackGroup<Q>(held, g);
    const u32 group = group0 + g;
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
          const Vec<float, S::RECORD> record = loadVec<S::RECORD>(records + (group * S::COLUMNS + column) * S::RECORD);
          const float* own = scales + ((g * S::PER_GROUP + h) * 16 + mma::columnOf(e)) * S::WIDTH;
          const Vec<float, S::WIDTH * ABREAST> d = loadVec<S::WIDTH * ABREAST>(own);
#pragma unroll
          for (u32 k = 0; k < ABREAST; ++k) {
            acc[j][e + k] += d[k * S::WIDTH] * (record[0] * sumOf(t.v[e + k]));
            if constexpr (Q::MINS) acc[j][e + k] -= d[k * S::WIDTH + 1] * record[1 + h];
          }
        }
      }
    }
  }
}

/** A block's place among the slabs of its tiles. */
struct StreamPlace {
  u32 tile, slab;

  X_DEVICE void next(u32 slabs) {
    if (++slab < slabs) return;
    slab = 0;
    tile += (u32)split::blocks();
  }
};

/** Writes a tile: what the warps along the spans have, added in their order, in shared memory that nothing else needs. */
template <class S>
X_DEVICE void storeTile(float* sums, const StreamProduct& p, u32 tile, u32 across, u32 along,
                        const float (&acc)[S::C][mma::Tile<i8>::N], float* dst, u32 dstRows) {
  static_assert(S::ALONG * S::COLUMNS * S::SUM_STRIDE * 4 <= S::SLAB_QUARTERS * S::COLUMNS * Y_STRIDE, "no room for sums");
#pragma unroll
  for (u32 j = 0; j < S::C; ++j)
#pragma unroll
    for (u32 e = 0; e < mma::Tile<i8>::N; ++e) {
      if (S::HALF && e / 2 % 2 == 1) continue;
      sums[(along * S::COLUMNS + 16 * j + mma::rowOf(e)) * S::SUM_STRIDE + 16 * across + mma::columnOf(e)] = acc[j][e];
    }
  barrier();
  const u32 row0 = tile / p.columnTiles * S::ROWS, column0 = columnOf<S>(p, tile);
#pragma unroll 1
  for (u32 i = threadIndex(); i < S::COLUMNS * S::ROWS; i += STREAM_BOUND) {
    const u32 r = i % S::ROWS, c = i / S::ROWS;
    if (row0 + r >= p.rows || column0 + c >= p.columns) continue;
    float sum = 0.0f;
#pragma unroll
    for (u32 k = 0; k < S::ALONG; ++k) sum += sums[(k * S::COLUMNS + c) * S::SUM_STRIDE + r];
    dst[(u64)(column0 + c) * dstRows + row0 + r] = sum;
  }
  barrier();
}

template <class Q, class S>
X_DEVICE void streamTiles(S& s, const StreamProduct& p, float* dst, u32 dstRows) {
  constexpr u32 C = S::C, N = mma::Tile<i8>::N;
  const u32 across = warpId() % S::ACROSS, along = warpId() / S::ACROSS, first = 16 * across;
  const u32 spans = (p.groups + S::GROUPS - 1) / S::GROUPS, slabs = (spans + S::ALONG - 1) / S::ALONG;
  const u32 tiles = (p.rows + S::ROWS - 1) / S::ROWS * p.columnTiles;
  typename S::Own& own = s.own[warpId()];
  float acc[C][N] = {};
  StreamPlace at{(u32)split::block(), 0};
  const auto rows = [&](StreamPlace place, u32 stage) {
    const u32 span = place.slab * S::ALONG + along;
    if (place.tile < tiles && span < spans) copyRows<S>(own.rows[stage], p, place.tile, first, span);
  };
  const auto columns = [&](StreamPlace place, u32 stage) {
    if (place.tile < tiles) copySlab<S>(s.y[stage], p, place.tile, place.slab);
  };
  const auto records = [&](StreamPlace place, u32 stage, u32 scaled) {
    if (place.tile < tiles) recordColumns<Q, S>(s.records[scaled], s.y[stage], place.slab * S::ALONG * S::GROUPS, p.groups);
  };
#if X_MMA_NVIDIA
  StreamPlace after = at, last;
  after.next(slabs);
  rows(at, 0);
  columns(at, 0);
  columns(after, 1);
  mma::commitCopies();
  mma::awaitCopies<0>();
  barrier();
  records(at, 0, 0);
  barrier();
#endif
  u32 stage = 0;
#pragma unroll 1
  for (u32 i = 0; at.tile < tiles; ++i) {
#if X_MMA_NVIDIA
    // Rows of the next slab and columns of the one after it are on their way while this one is multiplied.
    const u32 ahead = stage == 2 ? 0 : stage + 1, behind = stage == 0 ? 2 : stage - 1;
    rows(after, (i + 1) % 2);
    last = after;
    last.next(slabs);
    columns(last, behind);
    mma::commitCopies();
    records(after, ahead, (i + 1) % 2);
    const u32 held = i % 2;
#else
    const u32 held = 0;
    barrier();
    rows(at, 0);
    columns(at, 0);
    barrier();
    records(at, 0, 0);
    barrier();
#endif
    const u32 span = at.slab * S::ALONG + along;
    if (span < spans) {
      const u8* blocks = own.rows[held];
      const u64 offset = (u64)span * S::SPAN_BYTES;
      const auto begin = [&](u32 r) {
        return blocks + r * S::STRIDE + skewOf<S>(S::SKEW == 0 ? blocks : rowOf<S>(p, at.tile, first + r) + offset);
      };
      scaleRows<Q, S>(own.scales, begin(laneId() % 16), span * S::GROUPS, p.groups);
      warpBarrier();
      const u8* begins[HELD_ROWS];
#pragma unroll
      for (u32 r = 0; r < HELD_ROWS; ++r) begins[r] = begin(heldRow(r));
      multiplySpan<Q, S>(begins, own.scales, s.y[stage], s.records[held], along * S::GROUPS, acc);
    }
#if X_MMA_NVIDIA
    mma::awaitCopies<0>();
#endif
    barrier();
    if (at.slab == slabs - 1) {
      storeTile<S>((float*)s.y[stage], p, at.tile, across, along, acc, dst, dstRows);
#pragma unroll
      for (u32 j = 0; j < C; ++j)
#pragma unroll
        for (u32 e = 0; e < N; ++e) acc[j][e] = 0.0f;
    }
#if X_MMA_NVIDIA
    at = after;
    after = last;
    stage = ahead;
#else
    at.next(slabs);
#endif
  }
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
  const u64 rowBytes = (u64)((u32)innerSize / Q::SIZE) * Q::BYTES, columnBytes = (u64)paddedInner / 32 * Q8_1::BYTES;
  const u32 columns = (u32)columnCount, columnTiles = (columns + S::COLUMNS - 1) / S::COLUMNS;
  early::letNextBegin();
  early::await();
  // Blocks that run together share their rows.
  const StreamProduct p{x, rowBytes, y, columnBytes, (u32)rowCount, columns, (u32)innerSize / 32, columnTiles};
  streamTiles<Q>(*dynamicShared<S>(), p, dst, (u32)dstRows);
#else
  X_SHARED(Tiles, tile, 1);
  mulMat<Q>(x, y, dst, innerSize, rowCount, columnCount, paddedInner, dstRows, tile[0]);
#endif
}

}  // namespace quant
