// Linear layers whose weights are f16 or bf16: x [m, k] in f32 times the transpose of w [n, k], into f32 [m, n]. Weights are
// widened and activations stay as they are, so products are exact and only their sums are rounded.
#pragma once

namespace gemm {

/** v as T; what is finite and too large for f16 is its largest value, whose products stay numbers. */
template <class T>
X_DEVICE T roundedFinite(float v) {
  if constexpr (sameType<T, f16>) {
    constexpr float MOST = 65504.0f, FINITE = 3.402823466e38f;
    if (v > MOST && v <= FINITE) v = MOST;
    if (v < -MOST && v >= -FINITE) v = -MOST;
  }
  return from_acc<T>(v);
}

/** What `part`, v as T, leaves of v; of infinity nothing. */
template <class T>
X_DEVICE T roundedRest(float v, T part) {
  const float rest = v - to_acc(part);
  return roundedFinite<T>(rest == rest ? rest : 0.0f);
}

#if X_HOST

/** Columns from `begin` to `end` of x times the transpose of w, four at a time, whose weights stay in the cache for all rows. */
template <class T>
X_DEVICE void linearColumns(const float* x, const T* w, float* out, u64 m, u64 n, u64 k, u64 begin, u64 end) {
  const Operand<float> l = {x, 0, k, 1};
  const Operand<T> r = {w, 0, 1, k};
  for (u64 column = begin; column < end; column += 4) {
    const u64 last = end - column < 4 ? end : column + 4;
    u64 row = 0;
    for (; row + 4 <= m; row += 4)
      for (u64 c = column; c < last; ++c) dots<4, 1>(l, row, r, c, k, out, n);
    for (; row < m; ++row) {
      if (last - column == 4) dots<1, 4>(l, row, r, column, k, out, n);
      else
        for (u64 c = column; c < last; ++c) dots<1, 1>(l, row, r, c, k, out, n);
    }
  }
}

#else

// Weight rows of a team: the activations that are loaded serve both.
constexpr u32 LINEAR_ROWS = 2;
/** Threads of a block at most. */
constexpr u32 LINEAR_THREADS = 256;

/**
 * Adds to acc the products of two weight rows with ROWS rows of x at STEPS places of 8, `step` apart, whose loads are all on their
 * way before the first is waited for: there is no branch between them.
 */
template <u32 STEPS, u32 ROWS, class T>
X_DEVICE void linearSteps(const T* const (&w)[LINEAR_ROWS], const float* const (&x)[ROWS], u32 at, u32 step,
                          float (&acc)[ROWS][LINEAR_ROWS]) {
  constexpr u32 V = vecWidth<T>;
  Vec<T, V> right[STEPS][LINEAR_ROWS];
#pragma unroll
  for (u32 s = 0; s < STEPS; ++s)
#pragma unroll
    for (u32 r = 0; r < LINEAR_ROWS; ++r) right[s][r] = loadVec<V>(w[r] + at + s * step);
#pragma unroll
  for (u32 s = 0; s < STEPS; ++s)
#pragma unroll
    for (u32 a = 0; a < ROWS; ++a)
#pragma unroll
      for (u32 half = 0; half < V; half += 4) {
        const Vec<float, 4> left = loadVec<4>(x[a] + at + s * step + half);
#pragma unroll
        for (u32 e = 0; e < 4; ++e)
#pragma unroll
          for (u32 r = 0; r < LINEAR_ROWS; ++r) acc[a][r] += left[e] * widened(right[s][r][half + e]);
      }
}

/** Adds to acc the products of two weight rows with ROWS rows of x over this thread's share of k. */
template <u32 ROWS, class T>
X_DEVICE void linearDots(const T* const (&w)[LINEAR_ROWS], const float* const (&x)[ROWS], u32 k, bool wide, const Team& team,
                         float (&acc)[ROWS][LINEAR_ROWS]) {
  constexpr u32 V = vecWidth<T>;
  // With more rows their sums take the registers.
  constexpr u32 MOST = ROWS == 1 ? 4 : 2;
  const u32 whole = wide ? k / V * V : 0, step = team.threads * V;
  u32 at = team.thread * V;
#pragma unroll 1
  for (; at + (MOST - 1) * step < whole; at += MOST * step) linearSteps<MOST>(w, x, at, step, acc);
  if (MOST > 2 && at + step < whole) {
    linearSteps<2>(w, x, at, step, acc);
    at += 2 * step;
  }
  if (at < whole) linearSteps<1>(w, x, at, step, acc);
#pragma unroll 1
  for (u32 j = whole + team.thread; j < k; j += team.threads)
#pragma unroll
    for (u32 r = 0; r < LINEAR_ROWS; ++r) {
      const float right = widened(w[r][j]);
#pragma unroll
      for (u32 a = 0; a < ROWS; ++a) acc[a][r] += x[a][j] * right;
    }
}

/** Rows from 0 to `count`, at most ROWS, of x times the transpose of w, shared by `blocks` blocks of which this is number `block`. */
template <u32 ROWS, class T>
X_DEVICE void linearRows(const float* x, const T* w, float* out, u32 count, u64 n, u32 k, u64 block, u64 blocks) {
  constexpr u32 SUMS = ROWS * LINEAR_ROWS;
  X_SHARED(float, partial, LINEAR_THREADS / WARP * SUMS);
  const bool wide = aligned16(x) && aligned16(w) && k % vecWidth<T> == 0;
  const float* left[ROWS];
#pragma unroll
  for (u32 a = 0; a < ROWS; ++a) left[a] = x + (u64)clamped(a, count) * k;
  const Team team = teamFor((n + LINEAR_ROWS - 1) / LINEAR_ROWS, block, blocks);
  for (u64 row = team.index * LINEAR_ROWS; row < n; row += team.count * LINEAR_ROWS) {
    const T* right[LINEAR_ROWS];
#pragma unroll
    for (u32 r = 0; r < LINEAR_ROWS; ++r) right[r] = w + (row + r < n ? row + r : n - 1) * k;
    float acc[ROWS][LINEAR_ROWS] = {};
    linearDots<ROWS>(right, left, k, wide, team, acc);
#pragma unroll
    for (u32 a = 0; a < ROWS; ++a)
#pragma unroll
      for (u32 r = 0; r < LINEAR_ROWS; ++r) {
        const float sum = warpReduce<Sum>(acc[a][r]);
        if (laneId() != 0) continue;
        if (!team.isWarp) partial[warpId() * SUMS + a * LINEAR_ROWS + r] = sum;
        else if (row + r < n && a < opaque(count)) out[a * n + row + r] = sum;
      }
    if (team.isWarp) continue;
    barrier();
    for (u32 i = threadIndex(); i < SUMS; i += blockThreads()) {
      const u32 a = i / LINEAR_ROWS, r = i % LINEAR_ROWS;
      float sum = 0.0f;
      for (u32 warp = 0; warp < warpsInBlock(); ++warp) sum += partial[warp * SUMS + i];
      if (row + r < n && a < count) out[a * n + row + r] = sum;
    }
    barrier();
  }
}

#endif

/** The first m rows, at most ROWS, of x times the transpose of w. */
template <u32 ROWS, class T>
X_DEVICE void linearFew(u64 m, u64 n, u64 k, const float* x, const T* w, float* out) {
#if X_HOST
  linearColumns(x, w, out, m, n, k, split::part(split::block(), n), split::part(split::block() + 1, n));
#else
  early::letNextBegin();
  early::await();
  linearRows<ROWS>(x, w, out, (u32)m, n, (u32)k, split::block(), split::blocks());
#endif
}

/**
 * For every pair of token and expert the product of a row of x with the expert's weights: w [experts, n, k], ids [pairs], out
 * [pairs, n]; x [pairs, k], or a row for `topk` pairs where `shared`. The x axis of the grid shares the columns, y the pairs.
 */
template <class T>
X_DEVICE void linearExperts(u64 pairs, u64 n, u64 k, u32 topk, bool shared, const float* x, const T* w, const u32* ids, float* out) {
#if !X_HOST
  early::letNextBegin();
  early::await();
#endif
  for (u64 pair = blockY(); pair < pairs; pair += gridY()) {
    const float* row = x + (shared ? pair / topk : pair) * k;
    const T* own = w + ids[pair] * n * k;
#if X_HOST
    linearColumns(row, own, out + pair * n, 1, n, k, n * blockX() / gridX(), n * (blockX() + 1) / gridX());
#else
    linearRows<1>(row, own, out + pair * n, 1, n, (u32)k, blockX(), gridX());
#endif
  }
}

}  // namespace gemm
