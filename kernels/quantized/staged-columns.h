// Several columns by way of shared memory: lanes want their blocks of 36 bytes at strides that touch many lines each, which took longer
// than the dot products. The warps of a block take the same parts of their rows at a time, and the columns' blocks of these lie in
// shared memory, those of the next parts coming meanwhile.
#pragma once

#if X_MMA_NVIDIA
#define QUANT_STAGED_COLUMNS 1

namespace quant {

/** Threads of a block that takes columns so: packages/rocm-backend/src/ops/vector-shape.ts knows it too. */
constexpr u32 STAGED_THREADS = 256;
/** Parts of 32 values that a warp takes at once. */
template <class Q>
constexpr u32 STAGED_PARTS = WARP * PARTS_AT_ONCE<Q>;

/** Blocks, one beside the other, that a lane's runs lie in. What lanes read at a time are blocks this many apart. */
template <class Q>
constexpr u32 STAGED_WAYS = PARTS_AT_ONCE<Q> == 1 ? 1 : 8 / Q::RUN;

/**
 * Of each column the blocks that are multiplied, and those that come next: all first ones of so many, then all second ones. Lanes
 * then read at strides of nine words, which lie in different banks.
 */
template <class Q, u32 COLS>
struct alignas(16) StagedColumns {
  static constexpr u32 WAYS = STAGED_WAYS<Q>, BLOCKS = STAGED_PARTS<Q>, BYTES = BLOCKS * Q8_1::BYTES;
  u8 bytes[2][COLS][BYTES];

  static X_DEVICE u32 place(u32 block) { return (block % WAYS * (BLOCKS / WAYS) + block / WAYS) * Q8_1::BYTES; }
};

/** Sends for the columns' blocks of a step: in pieces of sixteen bytes where blocks stay in order, else word by word. */
template <class Q, u32 COLS>
struct ColumnCopy {
  typedef StagedColumns<Q, COLS> Staged;
  static constexpr u32 UNIT = Staged::WAYS == 1 ? 16 : 4, UNITS = Staged::BYTES / UNIT;
  static constexpr u32 TURNS = (UNITS + STAGED_THREADS - 1) / STAGED_THREADS;
  u32 place[TURNS];

  X_DEVICE ColumnCopy() {
#pragma unroll
    for (u32 j = 0; j < TURNS; ++j) {
      const u32 at = (threadIndex() + j * STAGED_THREADS) * UNIT;
      place[j] = UNIT == 16 ? at : Staged::place(at / Q8_1::BYTES) + at % Q8_1::BYTES;
    }
  }

  /** @param first part of so many; columns are padded to whole pieces */
  X_DEVICE void begin(const u8* y, u64 columnBytes, u32 first, u32 parts, u8 (&to)[COLS][Staged::BYTES]) const {
    const u32 left = parts - first, bytes = left < Staged::BLOCKS ? left * Q8_1::BYTES : Staged::BYTES;
#pragma unroll
    for (u32 j = 0; j < TURNS; ++j) {
      const u32 at = (threadIndex() + j * STAGED_THREADS) * UNIT;
      if (at >= bytes) break;
      const u8* from = y + first * Q8_1::BYTES + at;
      const u32 shared = mma::sharedAddress(to[0] + place[j]);
#pragma unroll
      for (u32 c = 0; c < COLS; ++c) {
        if constexpr (UNIT == 16) mma::copyAsync(shared + c * Staged::BYTES, from + c * columnBytes);
        else mma::copyWordAsync(shared + c * Staged::BYTES, from + c * columnBytes);
      }
    }
    mma::commitCopies();
  }
};

/** Where a block of a column lies of those that are staged, counted from one on. */
template <class Q, u32 COLS>
struct StagedBlocks {
  const u8* bytes;
  u32 first;
  X_DEVICE const u8* operator()(u32 block, u32 column) const {
    typedef StagedColumns<Q, COLS> Staged;
    return bytes + Staged::place(first + block) + column * Staged::BYTES;
  }
};

/** Adds to acc the products of COLS columns with the PAIR rows of this warp. All warps of the block have parts of their own rows. */
template <class Q, u32 COLS>
X_DEVICE void dotStagedColumns(const u8* const (&rows)[PAIR], const u8* y, u64 columnBytes, u32 parts, StagedColumns<Q, COLS>& memory,
                               float (&acc)[COLS][PAIR]) {
  constexpr u32 PARTS = Q::SIZE / 32, STEP = STAGED_PARTS<Q>;
  const ColumnCopy<Q, COLS> copy;
  copy.begin(y, columnBytes, 0, parts, memory.bytes[0]);
#pragma unroll 1
  for (u32 first = 0, turn = 0; first < parts; first += STEP, turn ^= 1) {
    if (first + STEP < parts) {
      copy.begin(y, columnBytes, first + STEP, parts, memory.bytes[turn ^ 1]);
      mma::awaitCopies<1>();
    } else {
      mma::awaitCopies<0>();
    }
    barrier();
    const u32 s = first + laneId() * PARTS_AT_ONCE<Q>;
    if (s < parts) {
      const u8* blocks[PAIR];
#pragma unroll
      for (u32 r = 0; r < PAIR; ++r) blocks[r] = rows[r] + (u64)(s / PARTS) * Q::BYTES;
      dotParts<Q, COLS>(blocks, s % PARTS, StagedBlocks<Q, COLS>{memory.bytes[turn][0], s / PARTS * PARTS - first}, acc);
    }
    barrier();
  }
}

/** As mulMatVec, in blocks of STAGED_THREADS. */
template <class Q, u32 COLS>
X_DEVICE void mulMatVecStaged(const u8* x, const u8* y, float* dst, u32 columns, u32 rows, u32 count, u64 columnBytes, u64 dstStride,
                              u64 block, u64 blocks) {
  constexpr u32 ROWS = STAGED_THREADS / WARP * PAIR;
  typedef StagedColumns<Q, COLS> Memory;
  X_SHARED(Memory, staged, 1);
  const u64 rowBytes = (u64)(columns / Q::SIZE) * Q::BYTES;
  early::await();
  for (u64 first = block * ROWS; first < rows; first += blocks * ROWS) {
    const u64 row = first + warpId() * PAIR;
    const u8* at[PAIR];
#pragma unroll
    for (u32 r = 0; r < PAIR; ++r) at[r] = x + (row + r < rows ? row + r : rows - 1) * rowBytes;
    float acc[COLS][PAIR] = {};
    dotStagedColumns<Q, COLS>(at, y, columnBytes, columns / 32, staged[0], acc);
    float sums[COLS * PAIR];
#pragma unroll
    for (u32 i = 0; i < COLS * PAIR; ++i) sums[i] = acc[i / PAIR][i % PAIR];
    warpReduceEach<Sum>(sums);
    if (laneId() == 0) {
#pragma unroll
      for (u32 i = 0; i < COLS * PAIR; ++i)
        if (row + i % PAIR < rows && i / PAIR < opaque(count)) dst[i / PAIR * dstStride + row + i % PAIR] = sums[i];
    }
  }
}

}  // namespace quant

#else
#define QUANT_STAGED_COLUMNS 0
#endif
