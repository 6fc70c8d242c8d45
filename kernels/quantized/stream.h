// Few columns times many quantised rows on int8 matrix units: mul_mat_stream_{type}_{8,16,32}, for batches of sequences that
// decode together, where a product is bound by the bytes of its weights. The parameters are those of mul_mat_*. What differs
// from mma.h: rows come to shared memory as they lie in memory, the next ones while these are multiplied, and each is unpacked
// by the one warp that multiplies it, on its way into matrix operands.
//   - a warp takes a span of 16 rows at a time; ACROSS warps are beside each other along the rows, ALONG along the spans, whose
//     sums are added at the end, in order
//   - a slab is what all warps take at a time; a block goes through the slabs of all of its tiles without a break
//   - scales become f32 once for a span and warp, columns' scales once for a block
//   - integer sums of 32 elements (16 in q2_K, q3_K and q6_K) are exact, so that results are those of mul_mat_vec_* but for
//     the order of f32 sums
// A block is 8 warps on NVIDIA and 4 on AMD, with sizeof(Stream) bytes of dynamic shared memory, which
// packages/rocm-backend/src/ops/quantized-stream.ts knows too; columns begin at multiples of 16 bytes and are padded to 256
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

template <class Q, u32 COLUMNS_>
struct Stream {
  static constexpr u32 ACROSS = COLUMNS_ > 16 ? STREAM_WARPS / 2 : STREAM_WARPS / 4, ALONG = STREAM_WARPS / ACROSS;
  static constexpr u32 ROWS = 16 * ACROSS;
  // Units take 16 columns at least; of NVIDIA's results the upper 8 are left out.
  static constexpr bool HALF = X_MMA_NVIDIA && COLUMNS_ == 8;
  static constexpr u32 COLUMNS = HALF || COLUMNS_ > 8 ? COLUMNS_ : 16, C = (COLUMNS + 15) / 16;
  static constexpr u32 SPAN = 256, GROUPS = SPAN / 32, QUARTERS = SPAN / SLAB;
  static constexpr u32 SPAN_BYTES = SPAN / Q::SIZE * Q::BYTES, ROW_BYTES = ALONG * SPAN_BYTES;
  // A slab of a row: the 16-byte pieces that hold it wherever it begins, and a thread's pieces of all rows.
  static constexpr u32 SKEW = Q::BYTES % 16 == 0 ? 0 : Q::BYTES % 4 == 0 ? 12 : 14, PIECES = (ROW_BYTES + SKEW + 15) / 16;
  static constexpr u32 ROW_COPIES = (ROWS * PIECES + STREAM_BOUND - 1) / STREAM_BOUND;
  // An odd number of pieces apart, the same word of eight rows lies in different banks.
  static constexpr u32 STRIDE = (PIECES | 1) * 16;
  static constexpr u32 PER_GROUP = Q::HALVES ? 2 : 1, SCALES = GROUPS * PER_GROUP, WIDTH = Q::MINS ? 2 : 1;
  // AMD's lanes hold more of an operand, and have no registers for several groups.
  static constexpr u32 GROUPS_AT_ONCE = !X_MMA_NVIDIA ? 1 : C == 1 ? GROUPS : 4;
  static constexpr u32 SLAB_QUARTERS = ALONG * QUARTERS, SLAB_COLUMNS = ALONG * GROUPS * COLUMNS;
  // Pieces of 16 bytes of a quarter of a column, lines of which each warp copies a share, and a lane's pieces of that.
  static constexpr u32 LINE_PIECES = Y_STRIDE / 16, LINES = SLAB_QUARTERS * COLUMNS / STREAM_WARPS;
  static constexpr u32 LINE_COPIES = (LINES * LINE_PIECES + WARP - 1) / WARP;
  static_assert(LINES % COLUMNS == 0 || COLUMNS % LINES == 0, "a warp copies whole quarters, or of one");
  /** Of a group of a column: its scale and, where there are minima, the scale times the sum of the quants of each part. */
  static constexpr u32 RECORD = Q::MINS ? 2 * PER_GROUP : 1;

  alignas(16) u8 rows[ROW_STAGES][ROWS * STRIDE];
  // Of the span that a warp is at, [scale][row] the scale and the minimum.
  alignas(16) float scales[STREAM_WARPS][SCALES * 16 * WIDTH];
  // Columns, 128 elements of all of them after the other, and [group][column] their records.
  alignas(16) u8 y[COLUMN_STAGES][SLAB_QUARTERS * COLUMNS * Y_STRIDE];
  alignas(16) float records[SCALE_STAGES][SLAB_COLUMNS * RECORD];

  // A tile's sums meet in the memory of the columns that were the last ones of it, so many apart from column to column.
  static constexpr u32 SUM_STRIDE = ROWS + 4;
};

/** A product's operands. */
struct StreamProduct {
  const u8* x;
  const u8* y;
  u32 rowBytes, columnBytes, rows, columns, groups, columnTiles;

  /** Row r; those past the last are the last again. */
  X_DEVICE const u8* row(u32 r) const { return x + (u64)(r < rows ? r : rows - 1) * rowBytes; }
};

/** A block's place among the slabs of its tiles. */
struct StreamPlace {
  u32 tile, slab, row0, column0;

  template <class S>
  X_DEVICE void enter(const StreamProduct& p, u32 next) {
    tile = next;
    slab = 0;
    row0 = tile / p.columnTiles * S::ROWS;
    column0 = tile % p.columnTiles * S::COLUMNS;
  }
  template <class S>
  X_DEVICE void next(const StreamProduct& p, u32 slabs) {
    if (++slab == slabs) enter<S>(p, tile + (u32)split::blocks());
  }
};

X_DEVICE void copyPiece(u8* to, const u8* from) {
#if X_MMA_NVIDIA
  mma::copyAsync(mma::sharedAddress(to), from, 16);
#else
  storeVec((u32*)to, loadVec<4>((const u32*)from));
#endif
}

/** Where a slab of row r begins within the 16 bytes that hold its first one. */
template <class S>
X_DEVICE u32 skewOf(const StreamProduct& p, u32 r, u32 slab) {
  if (S::SKEW == 0) return 0;
  return ((u32)(u64)p.x + (r < p.rows ? r : p.rows - 1) * p.rowBytes + slab * S::ROW_BYTES) & 15;
}

/** Which pieces of a slab of the rows a thread copies: neighbouring threads have neighbouring pieces. */
template <class S>
struct RowPieces {
  u32 row[S::ROW_COPIES], offset[S::ROW_COPIES];

  X_DEVICE RowPieces() {
#pragma unroll
    for (u32 j = 0; j < S::ROW_COPIES; ++j) {
      const u32 i = threadIndex() + j * STREAM_BOUND;
      row[j] = i / S::PIECES;
      offset[j] = i % S::PIECES * 16;
    }
  }

  /** Begins to copy a slab, as far as the rows go. */
  X_DEVICE void copy(u8* to, const StreamProduct& p, const StreamPlace& at) const {
    const u32 begin = at.slab * S::ROW_BYTES;
#pragma unroll
    for (u32 j = 0; j < S::ROW_COPIES; ++j) {
      const u32 r = at.row0 + row[j], from = begin + offset[j] - skewOf<S>(p, r, at.slab);
      if ((S::ROWS * S::PIECES % STREAM_BOUND == 0 || row[j] < S::ROWS) && (i32)from < (i32)p.rowBytes)
        copyPiece(to + row[j] * S::STRIDE + offset[j], p.row(r) + (i32)from);
    }
  }
};

/** Which pieces of a slab of the columns a lane copies: their columns, and where they lie from the slab's first byte on. */
template <class S>
struct ColumnPieces {
  u32 column[S::LINE_COPIES], offset[S::LINE_COPIES], quarter;

  X_DEVICE ColumnPieces(const StreamProduct& p) {
    quarter = warpId() * S::LINES / S::COLUMNS;
#pragma unroll
    for (u32 j = 0; j < S::LINE_COPIES; ++j) {
      const u32 i = laneId() + j * WARP, line = warpId() * S::LINES + i / S::LINE_PIECES;
      // What lies past the warp's last line belongs to no column.
      column[j] = i < S::LINES * S::LINE_PIECES ? line % S::COLUMNS : ~0u >> 1;
      offset[j] = column[j] * p.columnBytes + line / S::COLUMNS * Y_STRIDE + i % S::LINE_PIECES * 16;
    }
  }

  /** Begins to copy a slab, as far as the columns go. */
  X_DEVICE void copy(u8* to, const StreamProduct& p, const StreamPlace& at) const {
    const u32 begin = at.slab * S::SLAB_QUARTERS * Y_STRIDE;
    // Columns are padded to whole spans.
    if (begin + quarter * Y_STRIDE >= p.columnBytes) return;
    const u8* from = p.y + (u64)at.column0 * p.columnBytes + begin;
    u8* own = to + (warpId() * S::LINES * S::LINE_PIECES + laneId()) * 16;
#pragma unroll
    for (u32 j = 0; j < S::LINE_COPIES; ++j)
      if (at.column0 + column[j] < p.columns) copyPiece(own + j * WARP * 16, from + offset[j]);
  }
};

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

/**
 * How a format's quants become operands: `quad` gives four as signed bytes, times 1 / UNIT, a power of two by which scales are
 * then multiplied, where that takes fewer instructions than taking an offset off.
 */
template <class Q>
struct Operands {
  static constexpr float UNIT = 1.0f;
  static X_DEVICE u32 quad(const u8* b, u32 e4) { return signedQuad<Q>(b, e4); }
};
template <>
struct Operands<Q4_0> {
  static constexpr float UNIT = 1.0f / 16;
  static X_DEVICE u32 quad(const u8* b, u32 e4) {
    const u32 word = load2(b + 2 + 4 * (e4 & 3));
    return ((e4 & 4 ? word : word << 4) & 0xf0f0f0f0u) ^ 0x80808080u;
  }
};
template <>
struct Operands<Q6_K> {
  static constexpr float UNIT = 1.0f / 4;
  static X_DEVICE u32 quad(const u8* b, u32 e4) {
    const u32 g = Q6_K::groupOf(e4);
    const u32 low = load2(b + 64 * Q6_K::halfOf(e4) + 32 * (g & 1) + 4 * Q6_K::wordOf(e4));
    const u32 high = load2(b + 128 + 32 * Q6_K::halfOf(e4) + 4 * Q6_K::wordOf(e4));
    return (((g & 2 ? low >> 2 : low << 2) & 0x3c3c3c3cu) | (high << (6 - 2 * g) & 0xc0c0c0c0u)) ^ 0x80808080u;
  }
};

/** Scales and minima of a span of a row. Its lanes laneId() / 16 take them in turn; see {@link scaleRows}. */
template <class Q, class S>
struct SpanScales {
  static constexpr u32 LANES = WARP / 16, EACH = S::SCALES / LANES;
  const u8* span;
  u32 first, left;

  /** `left`: groups from the span's first one on to the row's end. */
  X_DEVICE SpanScales(const u8* span_, u32 left_) : span(span_), first(laneId() / 16 * EACH), left(left_) {}

  /** The scale, and the minimum where there is one, of the lane's j-th part. */
  X_DEVICE Vec<float, S::WIDTH> operator[](u32 j) const {
    const u32 i = first + j, g = i / S::PER_GROUP, e16 = g % (Q::SIZE / 32) * 2 + i % S::PER_GROUP;
    const u8* b = span + g * 32 / Q::SIZE * Q::BYTES;
    // Superblocks are whole spans.
    const bool inside = Q::SIZE == S::SPAN || g < left;
    const float scale = Q::scale(b, e16) * Operands<Q>::UNIT;
    Vec<float, S::WIDTH> d;
    d[0] = inside ? scale : 0.0f;
    if constexpr (Q::MINS) {
      const float minimum = Q::minimum(b, e16);
      d[1] = inside ? minimum : 0.0f;
    }
    return d;
  }
};

#if X_MMA_NVIDIA
/** Byte i of `bytes` times d, which f16 holds: converted by a fused multiplication, for 2^23 times d is exact. */
X_DEVICE float byteTimes(u32 bytes, u32 i, float d) {
  float product;
  const float value = bitCast<float>(permute(bytes, 0x4b000000u, 0x7440 | i));
  asm("fma.rn.f32 %0, %1, %2, %3;" : "=f"(product) : "f"(value), "f"(d), "f"(-8388608.0f * d));
  return product;
}

/** Six-bit scales and minima four at a time. */
template <class Q, class S>
struct TwoWayScales {
  float d, m;
  u32 scales, minima;

  X_DEVICE TwoWayScales(const u8* span, u32) {
    const Vec<u32, 4> head = load16(span);
    d = to_acc(bitCast<f16>((u16)head[0]));
    m = to_acc(bitCast<f16>((u16)(head[0] >> 16)));
    const bool last = laneId() / 16 != 0;
    scales = last ? (head[3] & 0x0f0f0f0fu) | (head[1] >> 2 & 0x30303030u) : head[1] & 0x3f3f3f3fu;
    minima = last ? (head[3] >> 4 & 0x0f0f0f0fu) | (head[2] >> 2 & 0x30303030u) : head[2] & 0x3f3f3f3fu;
  }
  X_DEVICE Vec<float, 2> operator[](u32 j) const { return {byteTimes(scales, j, d), byteTimes(minima, j, m)}; }
};
template <class S>
struct SpanScales<Q4_K, S> : TwoWayScales<Q4_K, S> {
  static constexpr u32 EACH = 4;
  using TwoWayScales<Q4_K, S>::TwoWayScales;
};
template <class S>
struct SpanScales<Q5_K, S> : TwoWayScales<Q5_K, S> {
  static constexpr u32 EACH = 4;
  using TwoWayScales<Q5_K, S>::TwoWayScales;
};
#endif

/** A warp's rows' scales and minima as numbers; those of groups past the end are nothing. `span`: of row laneId() % 16. */
template <class Q, class S>
X_DEVICE void scaleRows(float* scales, const u8* span, u32 left) {
  typedef SpanScales<Q, S> Scales;
  const Scales d(span, left);
#pragma unroll
  for (u32 j = 0; j < Scales::EACH; ++j)
    storeVec(scales + ((laneId() / 16 * Scales::EACH + j) * 16 + laneId() % 16) * S::WIDTH, d[j]);
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
      x.part[p].word[w] = Operands<Q>::quad(held[r] + g * 32 / Q::SIZE * Q::BYTES, quad0 + quad);
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

#if X_MMA_NVIDIA
/** d times a sum: products of a scale, which f16 holds, with what sums start as are exact. */
struct SumScale {
  float d, zero;
  X_DEVICE SumScale(float scale) : d(scale), zero(-12582912.0f * scale) {}
  X_DEVICE float operator()(i32 v) const {
    float product;
    asm("fma.rn.f32 %0, %1, %2, %3;" : "=f"(product) : "f"(bitCast<float>(v)), "f"(d), "f"(zero));
    return product;
  }
};
#else
struct SumScale {
  float d;
  X_DEVICE SumScale(float scale) : d(scale) {}
  X_DEVICE float operator()(i32 v) const { return d * sumOf(v); }
};
#endif

/** Adds the products of a span of a warp's rows with columns from `y` on, whose records are `records`. */
template <class Q, class S>
X_DEVICE void multiplySpan(const u8* const (&held)[HELD_ROWS], const float* scales, const u8* y, const float* records,
                           float (&acc)[S::C][mma::Tile<i8>::N]) {
  constexpr u32 N = mma::Tile<i8>::N;
#pragma unroll S::GROUPS_AT_ONCE
  for (u32 g = 0; g < S::GROUPS; ++g) {
    const Group x = unpackGroup<Q>(held, g);
    const u8* columns = y + g / SLAB_GROUPS * S::COLUMNS * Y_STRIDE + g % SLAB_GROUPS * Q8_1::BYTES + 4;
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
          const Vec<float, S::RECORD> record = loadVec<S::RECORD>(records + (g * S::COLUMNS + column) * S::RECORD);
          const SumScale scaled(record[0]);
          const float* own = scales + ((g * S::PER_GROUP + h) * 16 + mma::columnOf(e)) * S::WIDTH;
          const Vec<float, S::WIDTH * ABREAST> d = loadVec<S::WIDTH * ABREAST>(own);
#pragma unroll
          for (u32 k = 0; k < ABREAST; ++k) {
            acc[j][e + k] += d[k * S::WIDTH] * scaled(t.v[e + k]);
            if constexpr (Q::MINS) acc[j][e + k] -= d[k * S::WIDTH + 1] * record[1 + h];
          }
        }
      }
    }
  }
}

/** Writes a tile: what the warps along the spans have, added in their order, in shared memory that nothing else needs. */
template <class S>
X_DEVICE void storeTile(float* sums, const StreamProduct& p, const StreamPlace& at, u32 across, u32 along,
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
#pragma unroll 1
  for (u32 i = threadIndex(); i < S::COLUMNS * S::ROWS; i += STREAM_BOUND) {
    const u32 r = i % S::ROWS, c = i / S::ROWS;
    if (at.row0 + r >= p.rows || at.column0 + c >= p.columns) continue;
    float sum = 0.0f;
#pragma unroll
    for (u32 k = 0; k < S::ALONG; ++k) sum += sums[(k * S::COLUMNS + c) * S::SUM_STRIDE + r];
    dst[(u64)(at.column0 + c) * dstRows + at.row0 + r] = sum;
  }
  barrier();
}

template <class Q, class S>
X_DEVICE void streamTiles(S& s, const StreamProduct& p, float* dst, u32 dstRows) {
  constexpr u32 C = S::C, N = mma::Tile<i8>::N;
  const u32 across = warpId() % S::ACROSS, along = warpId() / S::ACROSS, first = 16 * across;
  const u32 spans = (p.groups + S::GROUPS - 1) / S::GROUPS, slabs = (spans + S::ALONG - 1) / S::ALONG;
  const u32 tiles = (p.rows + S::ROWS - 1) / S::ROWS * p.columnTiles;
  float* const scales = s.scales[warpId()];
  float acc[C][N] = {};
  const RowPieces<S> rowPieces;
  const ColumnPieces<S> columnPieces(p);
  StreamPlace at{};
  at.enter<S>(p, (u32)split::block());
  const auto rows = [&](const StreamPlace& place, u32 stage) {
    if (place.tile < tiles) rowPieces.copy(s.rows[stage], p, place);
  };
  const auto columns = [&](const StreamPlace& place, u32 stage) {
    if (place.tile < tiles) columnPieces.copy(s.y[stage], p, place);
  };
  const auto records = [&](const StreamPlace& place, u32 stage, u32 scaled) {
    if (place.tile < tiles) recordColumns<Q, S>(s.records[scaled], s.y[stage], place.slab * S::ALONG * S::GROUPS, p.groups);
  };
#if X_MMA_NVIDIA
  StreamPlace after = at, last;
  after.next<S>(p, slabs);
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
  for ([[maybe_unused]] u32 i = 0; at.tile < tiles; ++i) {
#if X_MMA_NVIDIA
    // Rows of the next slab and columns of the one after it are on their way while this one is multiplied.
    const u32 ahead = stage == 2 ? 0 : stage + 1, behind = stage == 0 ? 2 : stage - 1;
    rows(after, (i + 1) % 2);
    last = after;
    last.next<S>(p, slabs);
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
      const auto begin = [&](u32 r) {
        return s.rows[held] + (first + r) * S::STRIDE + skewOf<S>(p, at.row0 + first + r, at.slab) + along * S::SPAN_BYTES;
      };
      scaleRows<Q, S>(scales, begin(laneId() % 16), p.groups - span * S::GROUPS);
      warpBarrier();
      const u8* begins[HELD_ROWS];
#pragma unroll
      for (u32 r = 0; r < HELD_ROWS; ++r) begins[r] = begin(heldRow(r));
      const u32 group0 = along * S::GROUPS;
      const u8* y = s.y[stage] + along * S::QUARTERS * S::COLUMNS * Y_STRIDE;
      multiplySpan<Q, S>(begins, scales, y, s.records[held] + group0 * S::COLUMNS * S::RECORD, acc);
    }
#if X_MMA_NVIDIA
    mma::awaitCopies<0>();
#endif
    barrier();
    if (at.slab == slabs - 1) {
      storeTile<S>((float*)s.y[stage], p, at, across, along, acc, dst, dstRows);
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
    at.next<S>(p, slabs);
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
  const u32 rowBytes = (u32)innerSize / Q::SIZE * Q::BYTES, columnBytes = (u32)paddedInner / 32 * Q8_1::BYTES;
  const u32 columns = (u32)columnCount, columnTiles = (columns + S::COLUMNS - 1) / S::COLUMNS;
  early::letNextBegin();
  early::await();
  // Blocks that run together share their rows.
  const StreamProduct p{x, y, rowBytes, columnBytes, (u32)rowCount, columns, (u32)innerSize / 32, columnTiles};
  streamTiles<Q>(*dynamicShared<S>(), p, dst, (u32)dstRows);
#else
  X_SHARED(Tiles, tile, 1);
  mulMat<Q>(x, y, dst, innerSize, rowCount, columnCount, paddedInner, dstRows, tile[0]);
#endif
}

}  // namespace quant
