// Attention of parts of several sequences, such as prompts of different lengths, whose keys and values are in a cache in blocks:
// FlashAttention's varlen form with block tables. A table of tiles says whose queries lie where, so one launch serves any
// number of sequences and none depends on their lengths. What a tile does is as for whole tensors: flash.h, problem.h.
#pragma once

namespace attention {

/** Rows of one head in the blocks of a cache. */
template <class T>
struct InBlocks {
  /** AMD's scalar registers do not hold sizes too. */
  static constexpr bool ZEROS = true, NARROW = !X_AMDGCN;
  const T* data;
  u64 stride;
  const u32* table;  // the blocks of a sequence, in order
  u32 shift, blocks, last;  // positions of a block, in powers of two; blocks that there are; the last row that the table names
  X_DEVICE const T* at(u32 row) const {
    const u32 within = row < last ? row : last, named = table[within >> shift];
    const u32 block = named < blocks ? named : blocks - 1;
    return data + (((u64)block << shift) + (within & ((1u << shift) - 1))) * stride;
  }
};

template <class T>
struct Varlen {
  /** [count, 4]: a tile's first row, its rows, keys that the first of them sees, and where its sequence's blocks begin. */
  const u32* tiles;
  u32 count, heads, kvHeads;
  u32 d, dv;
  u32 blockShift, blocks, window;
  float scale, softcap;
  const T* q;
  u64 qRow, qHead;
  const T *k, *v;  // [blocks << blockShift, kvHeads, d or dv]
  u64 vRow;        // from one value to the next
  const u32* tables;
  const float* sinks;  // [heads], or null
  T* out;              // [rows, heads, dv]

  /** Rows from `skipped` on of an item, up to `most`, which may be none. */
  template <u32 D>
  X_DEVICE Tile<T, InBlocks<T>> tile(u64 item, u32 skipped, u32 most) const {
    constexpr bool NARROW = InBlocks<T>::NARROW;
    const u32 width = NARROW ? d : D, valueWidth = NARROW ? dv : VALUES<D>;
    const u64 apart = NARROW ? vRow : D;
    const u32* entry = tiles + item / heads * 4;
    const u32 all = entry[1], left = skipped < all ? all - skipped : 0, rows = left < most ? left : most;
    const u32 row = entry[0] + skipped, head = (u32)(item % heads), kvHead = head / (heads / kvHeads);
    // Rows that no sequence has see nothing.
    const u32 seen = entry[2] == 0 ? 0 : entry[2] + skipped;
    const u32 kv = seen == 0 ? 0 : entry[2] + all - 1, last = kv == 0 ? 0 : kv - 1;
    const u32* table = tables + entry[3];
    return {{q + row * qRow + head * qHead, qRow}, rows, (i32)seen, kv,
            {k + kvHead * width, (u64)kvHeads * width, table, blockShift, blocks, last},
            {v + kvHead * apart, kvHeads * apart, table, blockShift, blocks, last},
            out + ((u64)row * heads + head) * valueWidth, (u64)heads * valueWidth, scale, window,
            sinks ? sinks + head : nullptr, width, valueWidth, softcap};
  }
};

/** Tiles in the order of the table, whose first ones begin first; elsewhere than on matrix units blocks are whole warps. */
template <u32 D, class T>
X_DEVICE void attendVarlen(const Varlen<T>& p) {
#if X_MMA
  // Tiles of the table are cut again for long heads.
  constexpr u32 QUERIES = Cut<D>::QUERIES, PARTS = TILE_ROWS_AT_MOST / QUERIES;
  X_FOR_SPLIT(item, (u64)p.count * p.heads * PARTS) {
    const u64 of = PARTS == 1 ? item : item / PARTS;
    const auto tile = p.template tile<D>(of, PARTS == 1 ? 0 : (u32)(item % PARTS) * QUERIES, QUERIES);
    if (tile.rows > 0) attendTile<D>(tile);
  }
#else
  X_FOR_SPLIT(item, (u64)p.count * p.heads) {
    const auto tile = p.template tile<D>(item, 0, ~0u);
    for (u32 row = warpId(); row < tile.rows; row += warpsInBlock()) attendRow<D>(tile, row);
  }
#endif
}

}  // namespace attention
