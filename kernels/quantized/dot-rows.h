// Dot products of a thread with its share of rows of quantized weights: what products of few columns and of experts are made of.
#pragma once

#if !X_HOST

namespace quant {

// Rows of a team: one loads the column too often, four leave too few warps (tools/bench/quantized.ts).
constexpr u32 PAIR = 2;

/**
 * Parts of 32 elements that a thread takes at once: in superblocks two, whose runs lie beside each other and share scales. AMD's
 * scalar registers do not hold that many runs of sixteen.
 */
template <class Q>
constexpr u32 PARTS_AT_ONCE = Q::SUPER && (X_NVPTX || !Q::HALVES) ? 2 : 1;

/** The quads of a run, as the format loads them itself where it does, else one by one. */
template <class Q, u32 RUN>
X_DEVICE auto runOf(const u8* b, u32 e4, u32 (&q)[RUN], int) -> decltype(Q::run(b, e4, q)) {
  Q::run(b, e4, q);
}
template <class Q, u32 RUN>
X_DEVICE void runOf(const u8* b, u32 e4, u32 (&q)[RUN], long) {
#pragma unroll
  for (u32 i = 0; i < RUN; ++i) q[i] = Q::quad(b, e4 + i);
}

/** What the dot products t and `sum` (of the column's quants alone) of a run in the sixteen elements e16 add to a result. */
template <class Q>
X_DEVICE float scaled(const u8* b, u32 e16, i32 t, i32 sum) {
  const i32 centred = t - Q::OFFSET * sum;
  float v;
  if constexpr (Q::SUPER) v = Q::superScale(b) * (float)(Q::intScale(b, e16) * centred);
  else v = Q::scale(b, e16) * (float)centred;
  if constexpr (Q::MINS) {
    if constexpr (Q::SUPER) v -= Q::superMinimum(b) * (float)(Q::intMinimum(b, e16) * sum);
    else v -= Q::minimum(b, e16) * (float)sum;
  }
  return v;
}

// Warps of the largest block, of 256 threads.
constexpr u32 MOST_WARPS = 256 / WARP;

/** The sum of what the block's warps have at at[warp * step], in blockReduce's order. */
X_DEVICE float sumOfWarps(const float* at, u32 step) {
  const u32 warps = warpsInBlock();
  if constexpr (FEW_REGISTERS) {
    float sums[MOST_WARPS];
#pragma unroll
    for (u32 warp = 0; warp < MOST_WARPS; ++warp) sums[warp] = warp < warps ? 0.0f + at[warp * step] : 0.0f;
#pragma unroll
    for (u32 half = MOST_WARPS / 2; half > 0; half /= 2)
#pragma unroll
      for (u32 i = 0; i < half; ++i) sums[i] += sums[i + half];
    if (warps > 1) return sums[0];
  }
  float sum = at[0];
#pragma unroll 1
  for (u32 warp = 1; warp < warps; ++warp) sum += at[warp * step];
  return sum;
}

/** Columns as they lie in memory, from what belongs to some blocks of the rows on: where a block of a column is. */
struct ColumnBlocks {
  const u8* y;
  u64 columnBytes;
  X_DEVICE const u8* operator()(u32 block, u32 column) const { return y + block * Q8_1::BYTES + column * columnBytes; }
};

/**
 * Adds to acc the products of COLS columns with PARTS_AT_ONCE parts of 32 values of PAIR rows, from a part of their blocks on.
 * @param columns as ColumnBlocks
 */
template <class Q, u32 COLS, class Columns>
X_DEVICE void dotParts(const u8* const (&blocks)[PAIR], u32 part, const Columns& columns, float (&acc)[COLS][PAIR]) {
  constexpr u32 RUN = Q::RUN * PARTS_AT_ONCE<Q>;
  // With many columns one run at a time: all of them in flight would not fit the registers.
#pragma unroll COLS > 4 ? 1 : 8 / Q::RUN
  for (u32 run = 0; run < 8 / Q::RUN; ++run) {
    const u32 e4 = Q::first(part, run);
    u32 quads[PAIR][RUN];
#pragma unroll
    for (u32 r = 0; r < PAIR; ++r) runOf<Q, RUN>(blocks[r], e4, quads[r], 0);
#pragma unroll
    for (u32 c = 0; c < COLS; ++c) {
      const u8* yc = columns(e4 / 8, c);
      i32 u[RUN], sum = 0;
#pragma unroll
      for (u32 i = 0; i < RUN; ++i) {
        u[i] = (i32)Q8_1::quad(yc, (e4 & 7) + i);
        if (Q::MINS || Q::OFFSET != 0) sum = dp4a(0x01010101, u[i], sum);
      }
      const float d8 = Q8_1::scale(yc);
#pragma unroll
      for (u32 r = 0; r < PAIR; ++r) {
        i32 t = 0;
#pragma unroll
        for (u32 i = 0; i < RUN; ++i) t = dp4a((i32)quads[r][i], u[i], t);
        acc[c][r] += d8 * scaled<Q>(blocks[r], e4 >> 2, t, sum);
      }
    }
  }
}

/** Adds to acc the products of COLS columns with PAIR rows over this thread's share of the row. */
template <class Q, u32 COLS>
X_DEVICE void dotRows(const u8* const (&rows)[PAIR], const u8* y, u64 columnBytes, u32 parts, const Team& team,
                      float (&acc)[COLS][PAIR]) {
  constexpr u32 PARTS = Q::SIZE / 32, AT_ONCE = PARTS_AT_ONCE<Q>;
  for (u32 s = team.thread * AT_ONCE; s < parts; s += team.threads * AT_ONCE) {
    const u32 block = s / PARTS;
    const u8* blocks[PAIR];
#pragma unroll
    for (u32 r = 0; r < PAIR; ++r) blocks[r] = rows[r] + (u64)block * Q::BYTES;
    dotParts<Q, COLS>(blocks, s % PARTS, ColumnBlocks{y + (u64)block * PARTS * Q8_1::BYTES, columnBytes}, acc);
  }
}

}  // namespace quant

#endif
