// The same by way of shared memory, for a format whose blocks begin at any multiple of 2: a warp's loads of two and four bytes there
// touch many lines each, and products went through memory half as fast as those of q4_K. A warp copies what its lanes want of the
// rows next, sixteen bytes a lane, while they multiply what was copied before.
#pragma once

#if X_MMA_NVIDIA && __CUDA_ARCH__ >= 900
#define QUANT_STAGED_ROWS 1

namespace quant {

/** Formats that gain by it; q2_K and q3_K have fewer bytes and lost. */
template <class Q>
constexpr bool STAGED = sameType<Q, Q6_K>;
/** Warps of a block that have the memory. */
constexpr u32 STAGED_WARPS = 4;
/** Blocks of a row that lanes take at once, and bytes, with what begins and ends before and behind multiples of 16. */
template <class Q>
constexpr u32 STAGED_BLOCKS = WARP * PARTS_AT_ONCE<Q> * 32 / Q::SIZE;
template <class Q>
constexpr u32 STAGED_BYTES = (STAGED_BLOCKS<Q> * Q::BYTES + 30) / 16 * 16;

/** Of a warp: the rows' blocks that are multiplied, and those that come next. */
template <class Q>
struct alignas(16) StagedRows {
  u8 bytes[2][PAIR][STAGED_BYTES<Q>];
};

/**
 * Sends for the rows' blocks from a part on, of so many, to where they lie as in memory to a multiple of 16. Addresses are made one by
 * one: what is computed ahead is spilled.
 */
template <class Q>
X_DEVICE void stageRows(const u8* const (&rows)[PAIR], u32 first, u32 parts, u8 (&to)[PAIR][STAGED_BYTES<Q>]) {
  constexpr u32 PARTS = Q::SIZE / 32;
  const u32 block = first / PARTS, left = parts / PARTS - block, count = left < STAGED_BLOCKS<Q> ? left : STAGED_BLOCKS<Q>;
#pragma unroll
  for (u32 r = 0; r < PAIR; ++r) {
    const u8* from = rows[r] + (u64)block * Q::BYTES;
    const u32 before = (u32)((u64)from & 15), pieces = (before + count * Q::BYTES + 15) / 16;
#pragma unroll
    for (u32 i = 0; i < (STAGED_BYTES<Q> / 16 + WARP - 1) / WARP; ++i) {
      const u32 piece = i * WARP + laneId();
      if (piece < pieces) mma::copyAsync(mma::sharedAddress(to[r] + piece * 16), from - before + piece * 16);
    }
  }
  mma::commitCopies();
}

/** As dotRows, of a team of whole warps. Up to 15 bytes on either side of the rows come along, and must be memory. */
template <class Q, u32 COLS>
X_DEVICE void dotStagedRows(const u8* const (&rows)[PAIR], const u8* y, u64 columnBytes, u32 parts, const Team& team,
                            StagedRows<Q>& memory, float (&acc)[COLS][PAIR]) {
  constexpr u32 PARTS = Q::SIZE / 32, AT_ONCE = PARTS_AT_ONCE<Q>;
  const u32 step = team.threads * AT_ONCE;
  // Of the warp's first lane.
  u32 first = team.thread / WARP * WARP * AT_ONCE;
  if (first < parts) stageRows<Q>(rows, first, parts, memory.bytes[0]);
  for (u32 turn = 0; first < parts; first += step, turn ^= 1) {
    if (first + step < parts) {
      stageRows<Q>(rows, first + step, parts, memory.bytes[turn ^ 1]);
      mma::awaitCopies<1>();
    } else {
      mma::awaitCopies<0>();
    }
    warpBarrier();
    const u32 s = first + laneId() * AT_ONCE;
    if (s < parts) {
      const u8* blocks[PAIR];
#pragma unroll
      for (u32 r = 0; r < PAIR; ++r) {
        const u32 before = (u32)(u64)(rows[r] + (u64)(first / PARTS) * Q::BYTES) & 15;
        blocks[r] = memory.bytes[turn][r] + before + (s / PARTS - first / PARTS) * Q::BYTES;
      }
      dotParts<Q, COLS>(blocks, s % PARTS, ColumnBlocks{y + (u64)(s / PARTS) * PARTS * Q8_1::BYTES, columnBytes}, acc);
    }
    warpBarrier();
  }
}

}  // namespace quant

#else
#define QUANT_STAGED_ROWS 0
#endif
