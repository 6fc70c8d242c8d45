// transpose_b{8,16,32,64}: a copy of a view whose unit stride is not its last dim, through square tiles in shared memory
// so that reads and writes are both of neighbouring addresses. Our own form of candle's strided ucopy for that case; it
// moves bits, so one kernel serves all dtypes of a size.
#pragma once

namespace transpose {

/**
 * dst[out(b) + r * row_step + c] = src[in(b) + c * col_step + r]; info = batch dims, in strides, out strides. A GPU's tile is
 * ACROSS cells wide.
 */
template <class T, u32 ACROSS>
struct Copy {
  u64 rows, cols, num_dims;
  const u64* info;
  u64 row_step, col_step;
  const T* src;
  T* dst;

#if X_HOST
  static constexpr u32 TILE = sizeof(T) < 4 ? 64 : 32;

  static constexpr u32 BLOCK = 8;
  typedef T Eight __attribute__((vector_size(BLOCK * sizeof(T))));
  typedef T Loose __attribute__((vector_size(BLOCK * sizeof(T)), aligned(sizeof(T)), may_alias));

  static X_DEVICE void turn(const T* from, T* to) {
    Eight v[BLOCK];
#pragma unroll
    for (u32 i = 0; i < BLOCK; ++i) v[i] = *(const Loose*)(from + i * TILE);
    turnEight(v);
#pragma unroll
    for (u32 i = 0; i < BLOCK; ++i) *(Loose*)(to + i * TILE) = v[i];
  }

  // By way of buffers, so that a cache line is used up at once: with steps of a power of two they would evict each other.
  X_DEVICE void tile(u64 row, u64 col, const T* from, T* to) const {
    const u32 height = rows - row < TILE ? (u32)(rows - row) : TILE, width = cols - col < TILE ? (u32)(cols - col) : TILE;
    alignas(64) T held[TILE * TILE], turned[TILE * TILE];
    from += col * col_step + row;
    to += row * row_step + col;
    if (height == TILE && width == TILE) {
      for (u32 c = 0; c < TILE; ++c) __builtin_memcpy(held + c * TILE, from + c * col_step, TILE * sizeof(T));
      for (u32 c = 0; c < TILE; c += BLOCK)
        for (u32 r = 0; r < TILE; r += BLOCK) turn(held + c * TILE + r, turned + r * TILE + c);
      for (u32 r = 0; r < TILE; ++r) __builtin_memcpy(to + r * row_step, turned + r * TILE, TILE * sizeof(T));
      return;
    }
    for (u32 c = 0; c < width; ++c)
      for (u32 r = 0; r < height; ++r) held[c * TILE + r] = from[c * col_step + r];
    for (u32 r = 0; r < height; ++r)
      for (u32 c = 0; c < width; ++c) to[r * row_step + c] = held[c * TILE + r];
  }
#else
  // A cell is what a lane moves at once: an element of 4 or 8 bytes, or W smaller ones.
  static constexpr u32 W = sizeof(T) < 4 ? 4 / sizeof(T) : 1;
  static constexpr u32 TILE = ACROSS * W, BITS = 8 * sizeof(T), USUAL_BLOCK = 256;
  typedef typename vec::Word<W * sizeof(T)>::type Cell;

  // Cells in shared memory: neighbouring lanes hold neighbouring cells of a row, or cells of rows W apart, in other banks.
  static constexpr u32 CELLS = TILE * (ACROSS + 1) + TILE / 32, PITCH = TILE + W;
  static X_DEVICE u32 slot(u32 row, u32 cell) { return row * (ACROSS + 1) + (W > 1 ? row / 32 : 0) + cell; }

  // Cells of a usual block's thread: the same place of every LINES-th line, so that only addresses move on.
  static constexpr u32 LINES = USUAL_BLOCK / ACROSS, ROUNDS = ACROSS / LINES;
  // Of these, how many a thread loads before it stores them, and how many such rounds stand in the code side by side.
  static constexpr bool WIDE = W > 1 && ACROSS == 64;
  static constexpr u32 FLYING = WIDE ? 8 : 8 / W < ROUNDS ? 8 / W : ROUNDS, UNROLLED = WIDE ? 1 : ROUNDS / FLYING;

  // Element e of cell j goes to element j of cell e.
  static X_DEVICE void exchange(Cell (&cells)[W]) {
    if constexpr (W > 1) {
#pragma unroll
      for (u32 step = W / 2; step > 0; step /= 2) {
        const u32 bits = step * BITS, low = step == 2 || W == 2 ? 0x0000ffffu : 0x00ff00ffu;
#pragma unroll
        for (u32 j = 0; j < W; ++j) {
          if (j & step) continue;
          const u32 a = cells[j], b = cells[j + step];
          cells[j] = (a & low) | (b & low) << bits;
          cells[j + step] = (a >> bits & low) | (b & ~low);
        }
      }
    }
  }

  // A tile of cells; one at an edge has fewer.
  template <bool EDGE>
  X_DEVICE void cellTile(u64 height, u64 width, const T* from, T* to, Cell* held) const {
    const u32 line = threadIndex() / ACROSS, place = threadIndex() % ACROSS;
    const bool inHeight = !EDGE || place * W < height, inWidth = !EDGE || place * W < width;
    from += line * W * col_step + place * W;
    Cell* into[W];
#pragma unroll
    for (u32 e = 0; e < W; ++e) into[e] = held + slot(place * W + e, line);
#pragma unroll UNROLLED
    for (u32 round = 0; round < ROUNDS; round += FLYING) {
      Cell flying[FLYING][W] = {};
#pragma unroll
      for (u32 f = 0; f < FLYING; ++f, from += LINES * W * col_step) {
        if (EDGE && !(inHeight && (line + (round + f) * LINES) * W < width)) continue;
#pragma unroll
        for (u32 j = 0; j < W; ++j) flying[f][j] = *(const Cell*)(from + j * col_step);
      }
#pragma unroll
      for (u32 f = 0; f < FLYING; ++f) {
        exchange(flying[f]);
#pragma unroll
        for (u32 e = 0; e < W; ++e) into[e][(round + f) * LINES] = flying[f][e];
      }
    }
    barrier();
    to += line * row_step + place * W;
#pragma unroll 4
    for (u32 row = line; row < TILE; row += LINES, to += LINES * row_step)
      if (!EDGE || (inWidth && row < height)) *(Cell*)to = held[slot(row, place)];
  }

  X_DEVICE void scalarTile(u64 height, u64 width, const T* from, T* to, T* held) const {
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
    X_SHARED(Cell, held, CELLS);
    const T* from = src + col * col_step + row;
    T* to = dst + row * row_step + col;
    const u64 height = rows - row, width = cols - col;
    const bool cells = blockThreads() == USUAL_BLOCK && alignedTo(from, sizeof(Cell)) && alignedTo(to, sizeof(Cell)) &&
                       (row_step | col_step | height | width) % W == 0;
    if (!cells) scalarTile(height, width, from, to, (T*)held);
    else if (height >= TILE && width >= TILE) cellTile<false>(height, width, from, to, held);
    else cellTile<true>(height, width, from, to, held);
    barrier();
  }
#endif

  X_DEVICE static u64 tiles(u64 size) { return (size + TILE - 1) / TILE; }

  X_DEVICE void run(u64 batches) const {
    const u64 down = tiles(rows), across = tiles(cols);
    X_FOR_SPLIT(item, batches * down * across) {
      // Divisions would take longer here than a thread's share of the tile.
      const u64 batch = batches == 1 ? 0 : item / (down * across), at = item - batch * down * across;
      const u64 in = stridedOffset(batch, num_dims, info, info + num_dims);
      const u64 out = stridedOffset(batch, num_dims, info, info + 2 * num_dims);
      tile(at / across * TILE, at % across * TILE, src + in, dst + out);
    }
  }
};

}  // namespace transpose
