// transpose_b{8,16,32,64}: a copy of a view whose unit stride is not its last dim, through square tiles in shared memory
// so that reads and writes are both of neighbouring addresses. Our own form of candle's strided ucopy for that case; it
// moves bits, so one kernel serves all dtypes of a size.
#pragma once

namespace transpose {

/** dst[out(b) + r * row_step + c] = src[in(b) + c * col_step + r]; info = batch dims, in strides, out strides. */
template <class T>
struct Copy {
  u64 rows, cols, num_dims;
  const u64* info;
  u64 row_step, col_step;
  const T* src;
  T* dst;

#if X_HOST
  static constexpr u32 TILE = sizeof(T) < 4 ? 64 : 32;

  // By way of a buffer, so that a cache line is used up at once: with steps of a power of two they would evict each other.
  X_DEVICE void tile(u64 row, u64 col, const T* from, T* to) const {
    const u32 height = rows - row < TILE ? (u32)(rows - row) : TILE, width = cols - col < TILE ? (u32)(cols - col) : TILE;
    T held[TILE * TILE];
    for (u32 c = 0; c < width; ++c) {
      const T* line = from + (col + c) * col_step + row;
      for (u32 r = 0; r < height; ++r) held[c * TILE + r] = line[r];
    }
    for (u32 r = 0; r < height; ++r) {
      T* line = to + (row + r) * row_step + col;
      for (u32 c = 0; c < width; ++c) line[c] = held[c * TILE + r];
    }
  }
#else
  // Elements in one access of 4 bytes or more, accesses across a tile.
  static constexpr u32 W = sizeof(T) < 4 ? 4 / sizeof(T) : 1, ACROSS = sizeof(T) == 4 ? 64 : 32, TILE = ACROSS * W;
  static constexpr u32 BITS = 8 * sizeof(T), PITCH = TILE + W, USUAL_BLOCK = 256;

  // Accesses of a usual block's thread: the same place of every LINES-th line, so that only addresses move on.
  static constexpr u32 LINES = USUAL_BLOCK / ACROSS, ROUNDS = TILE / LINES, FLYING = ROUNDS < 8 ? ROUNDS : 8;

  X_DEVICE void wholeTile(const T* from, T* to, T* held) const {
    typedef Vec<T, W> Access;
    const u32 line = threadIndex() / ACROSS, place = threadIndex() % ACROSS;
    from += line * col_step + place * W;
    T* slot = held + line * PITCH + place * W;
    for (u32 round = 0; round < ROUNDS; round += FLYING) {
      Access flying[FLYING];
#pragma unroll
      for (u32 f = 0; f < FLYING; ++f, from += LINES * col_step) flying[f] = loadVec<W>(from);
#pragma unroll
      for (u32 f = 0; f < FLYING; ++f, slot += LINES * PITCH) storeVec(slot, flying[f]);
    }
    barrier();
    slot = held + place * W * PITCH + line;
    to += line * row_step + place * W;
#pragma unroll 4
    for (u32 round = 0; round < ROUNDS; ++round, slot += LINES, to += LINES * row_step) {
      if constexpr (W == 1) {
        *to = *slot;
      } else {
        u32 word = 0;
#pragma unroll
        for (u32 k = 0; k < W; ++k) {
          // Lanes begin at different elements, so that no two read the same bank.
          const u32 at = (k + place / (ACROSS / W)) % W;
          word |= (u32)slot[at * PITCH] << (at * BITS);
        }
        *(u32*)to = word;
      }
    }
  }

  X_DEVICE void edgeTile(u64 height, u64 width, const T* from, T* to, T* held) const {
    X_FOR_BLOCK(i, TILE * TILE) {
      const u64 c = i / TILE, r = i % TILE;
      if (c < width && r < height) held[c * PITCH + r] = from[c * col_step + r];
    }
    barrier();
    X_FOR_BLOCK(i, TILE * TILE) {
      const u64 r = i / TILE, c = i % TILE;
      if (c < width && r < height) to[r * row_step + c] = held[c * PITCH + r];
    }
  }

  X_DEVICE void tile(u64 row, u64 col, const T* src, T* dst) const {
    X_SHARED(T, held, TILE * PITCH);
    const T* from = src + col * col_step + row;
    T* to = dst + row * row_step + col;
    const u64 height = rows - row, width = cols - col;
    const bool words = alignedTo(from, sizeof(T) * W) && alignedTo(to, sizeof(T) * W) && (row_step | col_step) % W == 0;
    if (words && height >= TILE && width >= TILE && blockThreads() == USUAL_BLOCK) wholeTile(from, to, held);
    else edgeTile(height, width, from, to, held);
    barrier();
  }
#endif

  X_DEVICE void run(u64 batches) const {
    const u64 down = (rows + TILE - 1) / TILE, across = (cols + TILE - 1) / TILE;
    X_FOR_SPLIT(item, batches * down * across) {
      const u64 batch = item / (down * across), at = item - batch * down * across;
      const u64 in = stridedOffset(batch, num_dims, info, info + num_dims);
      const u64 out = stridedOffset(batch, num_dims, info, info + 2 * num_dims);
      tile(at / across * TILE, at % across * TILE, src + in, dst + out);
    }
  }
};

}  // namespace transpose
