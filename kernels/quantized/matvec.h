// Few columns times many quantised rows: mul_mat_vec_* (1..8 q8_1 columns), indexed_moe_forward_* and
// dequantize_mul_mat_vec_* (one f32 column). candle ties the row to the block and the block to 4 warps of 32. Here a team
// takes several rows at a time: the team is a warp when the grid has no more warps than such groups of rows, else the block,
// which is candle's launch. So any grid and block cover every row once, and no row past the last is touched.
#pragma once

namespace quant {

#if !X_HOST
/** As dotRows, the faster way where there is one for the team. */
template <class Q, u32 COLS>
X_DEVICE void dotTeamRows(const u8* const (&rows)[PAIR], const u8* y, u64 columnBytes, u32 parts, const Team& team,
                          float (&acc)[COLS][PAIR]) {
#if QUANT_STAGED_ROWS
  if constexpr (STAGED<Q> && COLS == 1) {
    X_SHARED(StagedRows<Q>, staged, STAGED_WARPS);
    if (blockThreads() % WARP == 0 && blockThreads() <= WARP * STAGED_WARPS)
      return dotStagedRows<Q, COLS>(rows, y, columnBytes, parts, team, staged[warpId()], acc);
  }
#endif
  dotRows<Q, COLS>(rows, y, columnBytes, parts, team, acc);
}
#endif

/**
 * dst[c * dstStride + row] for all rows and the first `count` of COLS columns, shared by `blocks` thread blocks of which
 * this is number `block`. GPUs read all COLS columns, so y has room for them, and drop what is not asked for.
 */
template <class Q, u32 COLS, bool STAGE = true>
X_DEVICE void mulMatVec(const u8* x, const u8* y, float* dst, u32 columns, u32 rows, u32 count, u64 columnBytes,
                        u64 dstStride, u64 block, u64 blocks) {
#if X_HOST
  hostProducts<Q>(x, rows * block / blocks, rows * (block + 1) / blocks, columns, y, columnBytes, count, dst, dstStride);
#else
#if QUANT_STAGED_COLUMNS
  if constexpr (COLS > 1) {
    if (blockThreads() == STAGED_THREADS)
      return mulMatVecStaged<Q, COLS>(x, y, dst, columns, rows, count, columnBytes, dstStride, block, blocks);
  }
#endif
  constexpr u32 SUMS = COLS * PAIR;
  X_SHARED(float, partial, MOST_WARPS * SUMS);
  const u64 rowBytes = (u64)(columns / Q::SIZE) * Q::BYTES;
  // The next kernel begins when blocks end: what waits beside their loads makes these slower.
  early::await();
  const Team team = teamFor((rows + PAIR - 1) / PAIR, block, blocks);
  for (u64 row = team.index * PAIR; row < rows; row += team.count * PAIR) {
    const u8* at[PAIR];
#pragma unroll
    for (u32 r = 0; r < PAIR; ++r) at[r] = x + (row + r < rows ? row + r : rows - 1) * rowBytes;
    float acc[COLS][PAIR] = {};
    if constexpr (STAGE) dotTeamRows<Q, COLS>(at, y, columnBytes, columns / 32, team, acc);
    else dotRows<Q, COLS>(at, y, columnBytes, columns / 32, team, acc);
    float sums[SUMS];
#pragma unroll
    for (u32 i = 0; i < SUMS; ++i) sums[i] = acc[i / PAIR][i % PAIR];
    warpReduceEach<Sum>(sums);
    if (laneId() == 0) {
#pragma unroll
      for (u32 i = 0; i < SUMS; ++i) {
        if (!team.isWarp) partial[warpId() * SUMS + i] = sums[i];
        else if (row + i % PAIR < rows && i / PAIR < opaque(count)) dst[i / PAIR * dstStride + row + i % PAIR] = sums[i];
      }
    }
    if (team.isWarp) continue;
    barrier();
    for (u32 i = threadIndex(); i < SUMS; i += blockThreads()) {
      const float sum = sumOfWarps(partial + i, SUMS);
      if (row + i % PAIR < rows && i / PAIR < count) dst[i / PAIR * dstStride + row + i % PAIR] = sum;
    }
    barrier();
  }
#endif
}

template <class Q, u32 COLS>
X_DEVICE void mulMatVecKernel(const u8* x, const u8* y, float* dst, i32 columns, i32 rows, i32 paddedColumns, i32 dstRows) {
  mulMatVec<Q, COLS>(x, y, dst, (u32)columns, (u32)rows, COLS, (u64)paddedColumns / 32 * Q8_1::BYTES, (u64)dstRows,
                     split::block(), split::blocks());
}

/** For formats that candle has no kernels for: one kernel for up to COLS columns, whose number it is told. */
template <class Q, u32 COLS>
X_DEVICE void mulMatVecUpTo(const u8* x, const u8* y, float* dst, i32 columns, i32 rows, i32 paddedColumns, i32 dstRows, i32 count) {
  const u64 columnBytes = (u64)paddedColumns / 32 * Q8_1::BYTES;
  mulMatVec<Q, COLS>(x, y, dst, (u32)columns, (u32)rows, (u32)count, columnBytes, (u64)dstRows, split::block(), split::blocks());
}

/** One of the weights of mulMatVecBeside, and the blocks that are its own. */
struct BesidePart {
  const u8* x;
  u32 rows, blocks;
};

/** Types of the weights of mulMatVecBeside; a number is four bits of `types`. */
enum BesideType : u32 { BESIDE_Q2_K, BESIDE_Q3_K, BESIDE_Q4_K, BESIDE_Q5_K, BESIDE_Q6_K, BESIDE_Q8_0 };

/**
 * One column times up to three weights of types of their own, whose results lie one behind the other: in a step of decoding a
 * launch costs as much as the product of a small weight. A block works for one weight, as in a launch for it alone; those of the last
 * begin first, which in files of mixed types has the larger blocks.
 */
X_DEVICE void mulMatVecBeside(const BesidePart& first, const BesidePart& second, const BesidePart& third, const u8* y, float* dst,
                              u32 columns, u32 types) {
  u64 block = split::blocks() - 1 - split::block();
  const u8* x = first.x;
  u32 rows = first.rows, blocks = first.blocks;
  const auto goOn = [&](const BesidePart& next) {
    if (block < blocks) return;
    block -= blocks;
    dst += rows;
    types >>= 4;
    x = next.x;
    rows = next.rows;
    blocks = next.blocks;
  };
  goOn(second);
  goOn(third);
  if (block >= blocks) return;
  switch (types & 15) {
    case BESIDE_Q2_K: return mulMatVec<Q2_K, 1, false>(x, y, dst, columns, rows, 1, 0, 0, block, blocks);
    case BESIDE_Q3_K: return mulMatVec<Q3_K, 1, false>(x, y, dst, columns, rows, 1, 0, 0, block, blocks);
    case BESIDE_Q4_K: return mulMatVec<Q4_K, 1, false>(x, y, dst, columns, rows, 1, 0, 0, block, blocks);
    case BESIDE_Q5_K: return mulMatVec<Q5_K, 1, false>(x, y, dst, columns, rows, 1, 0, 0, block, blocks);
    case BESIDE_Q6_K: return mulMatVec<Q6_K, 1, false>(x, y, dst, columns, rows, 1, 0, 0, block, blocks);
    case BESIDE_Q8_0: return mulMatVec<Q8_0, 1, false>(x, y, dst, columns, rows, 1, 0, 0, block, blocks);
  }
}

/** One token's experts: task (batch, topk) multiplies expert ids[task] with its input row. The x axis shares the rows, y and z the tasks. */
template <class Q>
X_DEVICE void indexedMoe(const u8* weights, const u8* inputs, const u32* ids, float* out, i32 n, i32 k, i32 batch, i32 topk,
                         i32 paddedColumns, i32 inputDim1) {
  const u64 expertBytes = (u64)n * (u64)(k / (i32)Q::SIZE) * Q::BYTES;
  const u64 inputBytes = (u64)paddedColumns / 32 * Q8_1::BYTES;
  const u64 tasks = (u64)batch * (u64)topk, stride = (u64)gridY() * gridZ();
  early::await();  // for ids
  for (u64 task = blockY() + (u64)gridY() * blockZ(); task < tasks; task += stride) {
    const u8* input = inputs + (inputDim1 == 1 ? task / (u32)topk : task) * inputBytes;
    mulMatVec<Q, 1>(weights + ids[task] * expertBytes, input, out + task * (u64)n, (u32)k, (u32)n, 1, 0, 0, blockX(), gridX());
  }
}

/** dst = x . y with the dequantised weights and an f32 column, one row a block and grid-stride. */
template <class Q>
X_DEVICE void dequantizeMulMatVec(const u8* x, const float* y, float* dst, u32 columns, u32 rows) {
  const u64 rowBytes = (u64)(columns / Q::SIZE) * Q::BYTES;
  X_FOR_SPLIT(row, rows) {
    const u8* b = x + row * rowBytes;
#if X_HOST
    float lanes[32] = {};
    for (u64 g = 0; g < columns / 32; ++g) {
      float values[32];
      dequantizeGroup<Q>(b + g * 32 / Q::SIZE * Q::BYTES, (u32)(g % (Q::SIZE / 32)), values);
      for (u32 i = 0; i < 32; ++i) lanes[i] += values[i] * y[g * 32 + i];
    }
    for (u32 w = 16; w > 0; w /= 2)
      for (u32 i = 0; i < w; ++i) lanes[i] += lanes[i + w];
    dst[row] = lanes[0];
#else
    float acc = 0.0f;
    X_FOR_BLOCK(quad, columns / 4) {
      float values[4];
      dequantizeQuad<Q>(b + quad / (Q::SIZE / 4) * Q::BYTES, (u32)(quad % (Q::SIZE / 4)), values);
#pragma unroll
      for (u32 i = 0; i < 4; ++i) acc += values[i] * y[quad * 4 + i];
    }
    acc = blockReduce<Sum>(acc);
    if (threadIndex() == 0) dst[row] = acc;
#endif
  }
}

}  // namespace quant
