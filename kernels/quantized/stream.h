// Few columns times many quantised rows on matrix units: mul_mat_stream_{type}_{8,16,32,64}, for batches of sequences that
// decode together, where a product is bound by the bytes of its weights, and mul_mat_stream_grouped_{type}_{16,64,128}, for the
// columns that each expert of a mixture has. The first parameters are those of mul_mat_* and mul_mat_grouped_*. What
// differs from mma.h: rows come to shared memory as they lie in memory, the next ones while these are multiplied, and each is
// unpacked by the one warp that multiplies it, straight into operands (operands.h).
//   - a block takes ROWS rows and COLUMNS columns, a tile, a span of 256 along k at a time; a warp takes 16 of the rows
//   - columns become f16 once for a block and span, while the span before is multiplied
//   - all spans of all tiles, one after the other, are cut into as many runs of one length as there are blocks; what blocks
//     have of a tile that is not theirs alone goes to `parts`, and the last of them to come adds it up in the order of the spans
// How many warps a block has and how much dynamic shared memory, packages/rocm-backend/src/ops/quantized-stream.ts knows too.
// Columns begin at multiples of 16 bytes and are padded to whole spans.
#pragma once

namespace quant {

#if X_MMA

/** Warps of a block: many columns are shared by twice as many, where the memory is there. */
template <class Q, u32 COLUMNS>
constexpr u32 STREAM_WARPS = !X_MMA_NVIDIA ? 4 : COLUMNS == 64 && SPAN / Q::SIZE * Q::BYTES <= SPAN ? 16 : 8;
/** Products of warpgroups, from that many columns on. */
template <u32 COLUMNS>
constexpr bool STREAM_GROUPS = X_WGMMA && COLUMNS >= 32;

/** GROUPED_: columns are in groups, each of which is multiplied with the rows of an expert, and come as operands (writeOperands). */
template <class Q, u32 COLUMNS_, bool GROUPED_ = false>
struct Stream {
  static constexpr bool GROUPED = GROUPED_;
  // Units take 16 columns at least, on NVIDIA 8.
  static constexpr bool HALF = X_MMA_NVIDIA && COLUMNS_ == 8;
  static constexpr u32 COLUMNS = HALF || COLUMNS_ > 8 ? COLUMNS_ : 16, C = (COLUMNS + 15) / 16;
  static constexpr u32 SPAN_BYTES = SPAN / Q::SIZE * Q::BYTES;
  static constexpr u32 WARPS = STREAM_WARPS<Q, COLUMNS_>, BOUND = WARPS * WARP, ROWS = 16 * WARPS;
  // A row's span: the 16-byte pieces that hold it wherever it begins. An odd number of pieces apart, the same word of eight
  // rows lies in different banks.
  static constexpr u32 SKEW = Q::BYTES % 16 == 0 ? 0 : Q::BYTES % 4 == 0 ? 12 : Q::BYTES % 2 == 0 ? 14 : 15, PIECES = (SPAN_BYTES + SKEW + 15) / 16;
  static constexpr u32 STRIDE = (PIECES | 1) * 16;
  static constexpr u32 COLUMN_BYTES = GROUPS * Q8_1::BYTES, COLUMN_PIECES = COLUMN_BYTES / 16;
  // Copies are asynchronous on NVIDIA: so many spans ahead.
  static constexpr u32 AHEAD = !X_MMA_NVIDIA ? 0 : COLUMNS <= 16 && SPAN_BYTES <= SPAN ? 2 : 1;
  static constexpr u32 STAGES = AHEAD + 1, OPERANDS = GROUPED ? STAGES : X_MMA_NVIDIA ? 2 : 1;

  alignas(1024) ColumnOperands<COLUMNS> operands[OPERANDS];
  alignas(16) u8 rows[STAGES][ROWS * STRIDE];
#if X_MMA_NVIDIA
  alignas(16) u8 columns[GROUPED ? 1 : STAGES][GROUPED ? 16 : COLUMNS * COLUMN_BYTES];
#endif

  /** A thread's sums of a tile, of which 8 columns fill the first half. */
  struct Sums {
    mma::Tile<f16> tile[C];
  };
  static constexpr u32 EACH = HALF ? 4 : mma::Tile<f16>::N, SUMS = C * EACH;
  static X_DEVICE float& sum(Sums& sums, u32 i) { return sums.tile[i / EACH].v[i % EACH]; }
};

X_DEVICE void copyPiece(u8* to, const u8* from) {
#if X_MMA_NVIDIA
  mma::copyAsync(mma::sharedAddress(to), from, 16);
#else
  storeVec((u32*)to, loadVec<4>((const u32*)from));
#endif
}

/** A span of a warp's rows in memory. */
template <class S>
struct WarpRows {
  const u8* begin;
  u32 rowBytes, count;

  X_DEVICE WarpRows(const StreamProduct& p, const StreamPlace<S>& at) : rowBytes(p.rowBytes) {
    const u32 row = at.row0 + warpId() * 16, left = row < p.rows ? p.rows - row : 0;
    begin = p.x + (at.firstRow(p) + warpId() * 16) * rowBytes + at.span * S::SPAN_BYTES;
    count = left < 16 ? left : 16;
  }

  /** Where row r begins within the 16 bytes that hold its first one, as it does in shared memory. */
  X_DEVICE u32 skew(u32 r) const { return S::SKEW == 0 ? 0 : ((u32)(u64)begin + r * rowBytes) & 15; }

  /**
   * Begins to copy the rows: lanes beside each other have pieces beside each other. What lies behind a row is copied too, it
   * is no matter; only what lies behind the last one is not looked at.
   */
  X_DEVICE void copy(u8* to) const {
    if (count == 0) return;
    constexpr u32 ALL = 16 * S::PIECES;
    const u32 low = S::SKEW == 0 ? 0 : (u32)(u64)begin & 15, end = low + (count - 1) * rowBytes + S::SPAN_BYTES - 1;
    const u8* const from = begin - low;
    u8* const own = to + warpId() * 16 * S::STRIDE;
#pragma unroll
    for (u32 j = 0; j < (ALL + WARP - 1) / WARP; ++j) {
      const u32 i = laneId() + j * WARP, row = i / S::PIECES, offset = i % S::PIECES * 16;
      if (ALL % WARP != 0 && i >= ALL) break;
      const u32 at = low + row * rowBytes + offset, least = at < end ? at : end;
      copyPiece(own + row * S::STRIDE + offset, from + (S::SKEW == 0 ? at < end ? at : 0 : least & ~15u));
    }
  }
};

/** Begins to copy the columns' blocks as they are. */
template <class S>
X_DEVICE void copyColumns(u8* to, const StreamProduct& p, const StreamPlace<S>& at) {
  const u32 count = at.columnsLeft(p);
  const u8* from = p.y + (u64)at.column0 * p.columnBytes + at.span * S::COLUMN_BYTES;
#pragma unroll
  for (u32 j = 0; j < (S::COLUMNS * S::COLUMN_PIECES + S::BOUND - 1) / S::BOUND; ++j) {
    const u32 i = threadIndex() + j * S::BOUND, column = i / S::COLUMN_PIECES, offset = i % S::COLUMN_PIECES * 16;
    if (column < S::COLUMNS && column < count) copyPiece(to + i * 16, from + column * p.columnBytes + offset);
  }
}

#if X_MMA_NVIDIA
/** Begins to copy the columns' operands; those past the last are left as they are. */
template <class S>
X_DEVICE void copyOperands(ColumnOperands<S::COLUMNS>& operands, const StreamProduct& p, const StreamPlace<S>& at) {
  constexpr u32 PIECES = SPAN * 2 / 16;
  const u32 count = at.columnsLeft(p);
  const u8* from = p.y + (u64)at.column0 * p.columnBytes + at.span * (SPAN * 2);
#pragma unroll 4
  for (u32 i = threadIndex(); i < S::COLUMNS * PIECES; i += S::BOUND) {
    const u32 column = i / PIECES, piece = i % PIECES;
    if (column < count)
      copyPiece(operands.bytes + operands.at(column, piece / 2, piece % 2), from + (u64)column * p.columnBytes + piece * 16);
  }
}
#endif

/** Columns of a span as operands; those past the last are left as they are. `from`: the span's blocks of column 0. */
template <class Q, class S>
X_DEVICE void convertColumns(ColumnOperands<S::COLUMNS>& operands, const u8* from, u32 stride, const StreamProduct& p,
                             const StreamPlace<S>& at) {
  // Few columns are divided among all threads, down to two words of a block.
  constexpr u32 EACH = S::COLUMNS * GROUPS * 8 / S::BOUND, WORDS = EACH < 2 ? 2 : EACH < 8 ? EACH : 8, PARTS = 8 / WORDS;
  const u32 count = at.columnsLeft(p), left = p.groups - at.span * GROUPS;
#pragma unroll 1
  for (u32 i = threadIndex(); i < S::COLUMNS * GROUPS * PARTS; i += S::BOUND) {
    const u32 column = i / PARTS / GROUPS, g = i / PARTS % GROUPS;
    if (column < count)
      operands.template convert<Q, WORDS>(column, from + column * stride + g * Q8_1::BYTES, g, i % PARTS * WORDS, g < left);
  }
}

#if X_WGMMA
/** The same by warpgroups, of the first N columns. */
template <u32 N, class Q, class S>
X_DEVICE void multiplyTogether(typename S::Sums& sums, const ColumnOperands<S::COLUMNS>& operands, const RowOperands<Q>& rows) {
  // A few steps' operands are made while those before are multiplied, as many as there are registers for.
  constexpr u32 AT_ONCE = Quarter<Q>::FOUR_WAY ? 1 : 2;
  float(&d)[N / 2] = (float(&)[N / 2])sums;
  const u64 columns = wgmma::describe(mma::sharedAddress(operands.bytes));
#pragma unroll
  for (u32 step = 0; step < STEPS; step += AT_ONCE) {
    mma::Operand<f16> x[AT_ONCE];
#pragma unroll
    for (u32 i = 0; i < AT_ONCE; ++i) x[i] = rows[step + i];
    wgmma::begin();
#pragma unroll
    for (u32 i = 0; i < AT_ONCE; ++i) {
      const u32 further = (step + i) / 4 * ColumnOperands<S::COLUMNS>::BLOCK + (step + i) % 4 * 32;
      wgmma::multiply<true>(d, x[i].word, columns + further / 16, (f16*)nullptr);
    }
    wgmma::commit();
    wgmma::await<1>();
  }
  wgmma::await<0>();
}
#endif

/** Adds the products of a span of the warp's rows with the columns in `operands`, of which there are `count`. */
template <class Q, class S>
X_DEVICE void multiplySpan(typename S::Sums& sums, const ColumnOperands<S::COLUMNS>& operands, const RowOperands<Q>& rows,
                           [[maybe_unused]] u32 count) {
#if X_WGMMA
  if constexpr (STREAM_GROUPS<S::COLUMNS>) {
    if (S::COLUMNS == 128 && count <= 64) multiplyTogether<64, Q, S>(sums, operands, rows);
    else multiplyTogether<S::COLUMNS, Q, S>(sums, operands, rows);
    return;
  }
#endif
#if X_MMA_NVIDIA
  if constexpr (S::HALF) {
    // Of 8 columns four matrices are two steps.
    const u32 address = mma::sharedAddress(operands.bytes);
#pragma unroll
    for (u32 step = 0; step < STEPS; step += 2) {
      u32 y[4];
      mma::loadMatrices(y, address + operands.at(laneId() % 8, step + laneId() / 16, laneId() / 8 % 2));
      mma::multiplyHalf(sums.tile[0].v, rows[step].word, y[0], y[1], (f16*)nullptr);
      mma::multiplyHalf(sums.tile[0].v, rows[step + 1].word, y[2], y[3], (f16*)nullptr);
    }
    return;
  }
#endif
#pragma unroll
  for (u32 step = 0; step < STEPS; step += STEPS_AT_ONCE) {
    const mma::Operand<f16> x = rows[step];
#pragma unroll
    for (u32 j = 0; j < S::C; ++j) mma::multiply(sums.tile[j], x, operands.load(j, step));
  }
}

/** Writes a tile's sums, as far as there are such rows and columns. */
template <class S>
X_DEVICE void storeTile(const StreamProduct& p, const StreamPlace<S>& at, typename S::Sums& sums) {
  const u32 row0 = at.row0 + warpId() * 16, left = at.columnsLeft(p);
#pragma unroll
  for (u32 i = 0; i < S::SUMS; ++i) {
    const u32 e = i % S::EACH, r = row0 + mma::rowOf(e), c = i / S::EACH * 16 + mma::columnOf(e);
    if (r < p.rows && c < left) p.dst[(u64)(at.column0 + c) * p.dstRows + r] = S::sum(sums, i);
  }
}

/** Takes the sums of a tile's spans `first` to `at`, which may be all of them, and leaves zeros. */
template <class S>
X_DEVICE void finishTile(const StreamProduct& p, const StreamCut& cut, const StreamPlace<S>& at, u32 first,
                         typename S::Sums& sums) {
  bool whole = first == 0 && at.span + 1 == p.spans;
  if (!whole) {
    const u32 begin = cut.owner(at.tile * p.spans), end = cut.owner(at.tile * p.spans + p.spans - 1) + 1;
    // Of a block's run the first and the last tile may be shared with others.
    const auto part = [&](u32 block) {
      const u32 place = cut.begin(block) < at.tile * p.spans ? 1 : 0;
      return p.parts + (u64)(block * 2 + place) * S::SUMS * S::BOUND + threadIndex();
    };
    float* const own = part((u32)split::block());
#pragma unroll
    for (u32 i = 0; i < S::SUMS; ++i) own[i * S::BOUND] = S::sum(sums, i);
    whole = lastToArrive(p.counters + at.tile, end - begin);
    if (whole) {
      sums = {};
#pragma unroll 1
      for (u32 b = begin; b < end; ++b) {
        const float* from = part(b);
#pragma unroll
        for (u32 i = 0; i < S::SUMS; ++i) S::sum(sums, i) += from[i * S::BOUND];
      }
    }
  }
  if (whole) storeTile<S>(p, at, sums);
  sums = {};
}

template <class Q, class S>
X_DEVICE void streamTiles(S& s, const StreamProduct& p) {
  const StreamCut cut(p);
  const u32 block = (u32)split::block();
  if (block >= cut.blocks) return;
  const u32 begin = cut.begin(block), count = cut.begin(block + 1) - begin;
  StreamPlace<S> at(p, begin);
  u32 first = at.span;
  const u32 above = 0x64646464u | p.dstRows >> 31;  // there are fewer
  typename S::Sums sums = {};
#if X_MMA_NVIDIA
  // What the next copies are of: rows of a span, and columns of the one after it, which are converted a span earlier.
  StreamPlace<S> rowsAt = at, columnsAt = at;
  const auto copyNextRows = [&](u32 i) {
    if (i < count) WarpRows<S>(p, rowsAt).copy(s.rows[i % S::STAGES]);
    rowsAt.next(p);
  };
  const auto copyNextColumns = [&](u32 i) {
    if constexpr (S::GROUPED) {
      if (i < count) copyOperands<S>(s.operands[i % S::STAGES], p, columnsAt);
    } else if (i < count) {
      copyColumns<S>(s.columns[i % S::STAGES], p, columnsAt);
    }
    columnsAt.next(p);
  };
  const auto publish = [] {
#if X_WGMMA
    wgmma::publish();
#endif
  };
  const auto convert = [&](u32 i, const StreamPlace<S>& place) {
    if (i < count) convertColumns<Q, S>(s.operands[i % 2], s.columns[i % S::STAGES], S::COLUMN_BYTES, p, place);
    publish();
  };
  // Columns that are converted come a span earlier than the rows.
  constexpr u32 SOONER = S::GROUPED ? 0 : 1;
  if constexpr (!S::GROUPED) {
    copyNextColumns(0);
    mma::commitCopies();
  }
#pragma unroll
  for (u32 i = 0; i < S::AHEAD; ++i) {
    copyNextRows(i);
    copyNextColumns(i + SOONER);
    mma::commitCopies();
  }
  if constexpr (!S::GROUPED) {
    mma::awaitCopies<S::AHEAD>();
    barrier();
    convert(0, at);
  }
#endif
#pragma unroll 1
  for (u32 i = 0; i < count; ++i) {
    StreamPlace<S> after = at;
    after.next(p);
#if X_MMA_NVIDIA
    // After this all have what was copied for this span, and nobody needs what is overwritten now.
    mma::awaitCopies<S::AHEAD - 1>();
    if constexpr (S::GROUPED) publish();
    barrier();
    copyNextRows(i + S::AHEAD);
    copyNextColumns(i + S::AHEAD + SOONER);
    mma::commitCopies();
    if constexpr (!S::GROUPED) convert(i + 1, after);
    const u32 stage = i % S::STAGES, half = i % S::OPERANDS;
#else
    const u32 stage = 0, half = 0;
    barrier();
    WarpRows<S>(p, at).copy(s.rows[0]);
    const u8* columns = p.y + (u64)at.column0 * p.columnBytes + at.span * S::COLUMN_BYTES;
    convertColumns<Q, S>(s.operands[0], columns, p.columnBytes, p, at);
    barrier();
#endif
    const WarpRows<S> place(p, at);
    const u8* const own = s.rows[stage] + warpId() * 16 * S::STRIDE;
    RowOperands<Q> rows;
    rows.load(p.groups - at.span * GROUPS, above, [&](u32 r) { return own + r * S::STRIDE + place.skew(r); });
    multiplySpan<Q, S>(sums, s.operands[half], rows, at.columnsLeft(p));
    if (at.span + 1 == p.spans || i + 1 == count) {
      finishTile<S>(p, cut, at, first, sums);
      first = 0;
    }
    at = after;
  }
#if X_MMA_NVIDIA
  mma::awaitCopies<0>();
#endif
}

#else

template <class Q, u32 COLUMNS>
constexpr u32 STREAM_WARPS = 256 / WARP;

#endif

/**
 * As mulMat, which computes it on the host. `parts`: room for two tiles a block; `counters`: a zero for each
 * tile, left as zeros.
 */
template <class Q, u32 COLUMNS>
X_DEVICE void mulMatStream(const u8* x, const u8* y, float* dst, i32 innerSize, i32 rowCount, i32 columnCount,
                           i32 paddedInner, i32 dstRows, [[maybe_unused]] float* parts, [[maybe_unused]] u32* counters) {
#if X_MMA
  typedef Stream<Q, COLUMNS> S;
  const u32 rowBytes = (u32)innerSize / Q::SIZE * Q::BYTES, columnBytes = (u32)paddedInner / 32 * Q8_1::BYTES;
  const u32 rows = (u32)rowCount, columns = (u32)columnCount, groups = (u32)innerSize / 32;
  const u32 columnTiles = (columns + S::COLUMNS - 1) / S::COLUMNS, tiles = (rows + S::ROWS - 1) / S::ROWS * columnTiles;
  early::letNextBegin();
  early::await();
  streamTiles<Q>(*dynamicShared<S>(), StreamProduct{x, y, dst, parts, counters, rowBytes, columnBytes, rows, columns, groups,
                                                    (u32)dstRows, columnTiles, tiles, (groups + GROUPS - 1) / GROUPS});
#else
  X_SHARED(Tiles, tile, 1);
  mulMat<Q>(x, y, dst, innerSize, rowCount, columnCount, paddedInner, dstRows, tile[0]);
#endif
}

#if X_NVPTX

/**
 * As mulMatGrouped, of tiles of at most COLUMNS columns: only on NVIDIA, where it takes less time than mulMatMmaGrouped. y holds
 * operands (writeOperands) of whole spans. `parts` and `counters` as above, for as many tiles as `tileCount` could make.
 */
template <class Q, u32 COLUMNS>
X_DEVICE void mulMatStreamGrouped(const u8* x, const u8* y, float* dst, i32 innerSize, i32 rowCount, const u32* experts,
                                  i32 tileCount, i32 paddedInner, float* parts, u32* counters) {
  typedef Stream<Q, COLUMNS, true> S;
  const u32 rowBytes = (u32)innerSize / Q::SIZE * Q::BYTES, columnBytes = (u32)paddedInner * 2;
  const u32 rows = (u32)rowCount, groups = (u32)innerSize / 32, rowTiles = (rows + S::ROWS - 1) / S::ROWS;
  early::await();
  early::letNextBegin();
  // Tiles without columns are at the end.
  u32 filled = 0;
  X_FOR_BLOCK(i, (u32)tileCount) filled += experts[i * 3 + 1] < experts[i * 3 + 2];
  filled = blockReduce<Sum>(filled);
  streamTiles<Q>(*dynamicShared<S>(), StreamProduct{x, y, dst, parts, counters, rowBytes, columnBytes, rows, 0, groups, rows,
                                                    filled, filled * rowTiles, (groups + GROUPS - 1) / GROUPS, experts});
}

#endif

}  // namespace quant
