// The product with a router's weights and the choice of experts in one launch, for few tokens. Blocks share the rows of a token;
// the last of them to come has all logits and chooses.
#pragma once

namespace decode {

/** Rows of the weight that a block takes at once. */
constexpr u32 ROUTER_ROWS = 2;  // launchers: ROUTER_ROWS

struct Router {
  u32 hidden, rows;             // rows of the weight, at least as many as experts: logits of something else behind theirs
  const float *x, *weight;      // [tokens, hidden], [rows, hidden]
  float* logits;                // [tokens, rows]
  u32* counters;                // [tokens], see shared/arrive.h

  /** The products of a token with ROUTER_ROWS rows from `row` on, by the whole block. */
  X_DEVICE void product(const float* x, u64 row, float (&sums)[ROUTER_ROWS]) const {
    const float* w[ROUTER_ROWS];
#pragma unroll
    for (u32 r = 0; r < ROUTER_ROWS; ++r) {
      w[r] = weight + (row + r < rows ? row + r : rows - 1) * hidden;
      sums[r] = 0.0f;
    }
#if X_HOST
    for (u32 r = 0; r < ROUTER_ROWS; ++r) {
      float lanes[16] = {};
      u32 at = 0;
      for (; at + 16 <= hidden; at += 16)
        for (u32 i = 0; i < 16; ++i) lanes[i] += x[at + i] * w[r][at + i];
      for (; at < hidden; ++at) lanes[0] += x[at] * w[r][at];
      for (u32 half = 8; half > 0; half /= 2)
        for (u32 i = 0; i < half; ++i) lanes[i] += lanes[i + half];
      sums[r] = lanes[0];
    }
#else
    if (hidden % 4 == 0 && aligned16(x) && aligned16(weight)) {
#pragma unroll 4
      for (u32 at = 4 * threadIndex(); at < hidden; at += 4 * blockThreads()) {
        const Vec<float, 4> value = loadVec<4>(x + at);
#pragma unroll
        for (u32 r = 0; r < ROUTER_ROWS; ++r) {
          const Vec<float, 4> four = loadVec<4>(w[r] + at);
          sums[r] += (value[0] * four[0] + value[1] * four[1]) + (value[2] * four[2] + value[3] * four[3]);
        }
      }
    } else {
#pragma unroll 1
      for (u32 at = threadIndex(); at < hidden; at += blockThreads())
        for (u32 r = 0; r < ROUTER_ROWS; ++r) sums[r] += x[at] * w[r][at];
    }
#pragma unroll
    for (u32 r = 0; r < ROUTER_ROWS; ++r) sums[r] = blockReduce<Sum>(sums[r]);
#endif
  }

  /** The logits of ROUTER_ROWS rows, by the whole block. */
  X_DEVICE void rowsOf(u32 token, u64 row) const {
    float sums[ROUTER_ROWS];
    product(x + (u64)token * hidden, row, sums);
    if (threadIndex() != 0) return;
#pragma unroll
    for (u32 r = 0; r < ROUTER_ROWS; ++r)
      if (row + r < rows) logits[(u64)token * rows + row + r] = sums[r];
  }
};

/**
 * The y axis counts the tokens, blocks along x share rows: on GPUs enough for all, since what a loop keeps would take more scalar
 * registers than there are.
 */
X_DEVICE void routerAll(const Router& p, const Route& route) {
  X_SHARED(float, scores, MAX_EXPERTS);
  X_SHARED(u64, keys, MAX_EXPERTS);
  X_SHARED(u64, groupKeys, MAX_EXPERTS);
  X_SHARED(u32, picks, MAX_CHOSEN);
  const u32 token = blockY();
  const u64 first = (u64)blockX() * ROUTER_ROWS;
  if (threadIndex() == 0 && token == 0 && first < p.rows) {
    const u64 count = p.rows - first < ROUTER_ROWS ? p.rows - first : ROUTER_ROWS;
    early::prefetch(p.weight + first * p.hidden, count * p.hidden * sizeof(float));
  }
  early::await();
  early::letNextBegin();
  if (token >= route.tokens) return;
#if X_HOST
  for (u64 row = first; row < p.rows; row += (u64)gridX() * ROUTER_ROWS) p.rowsOf(token, row);
#else
  if (first < p.rows) p.rowsOf(token, first);
#endif
  if (lastToArrive(p.counters + token, gridX())) routeToken(route, token, scores, keys, groupKeys, picks);
}

}  // namespace decode
