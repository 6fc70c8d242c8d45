// Attention of parts of several sequences, such as prompts of different lengths, whose keys and values are in a cache in blocks:
// FlashAttention's varlen form with block tables. A table of tiles says whose queries lie where, so one launch serves any
// number of sequences and none depends on their lengths. What a tile does is as for whole tensors: flash.h, problem.h.
#pragma once

namespace attention {

/** Rows of one head in the blocks of a cache. */
template <class T>
struct InBlocks {
  static constexpr bool ZEROS = true;
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
  u32 blockShift, blocks, window;
  float scale;
  const T* q;
  u64 qRow, qHead;
  const T *k, *v;  // [blocks << blockShift, kvHeads, d]
  const u32* tables;
  const float* sinks;  // [heads], or null
  T* out;              // [rows, heads, d]

  template <u32 D>
  X_DEVICE Tile<T, InBlocks<T>> tile(u64 item) const {
    const u32* entry = tiles + item / heads * 4;
    const u32 row = entry[0], rows = entry[1], seen = entry[2], head = (u32)(item % heads), kvHead = head / (heads / kvHeads);
    // Rows that no sequence has see nothing.
    const u32 kv = seen == 0 ? 0 : seen + rows - 1, last = kv == 0 ? 0 : kv - 1;
    const u64 stride = (u64)kvHeads * D;
    const u32* table = tables + entry[3];
    return {{q + row * qRow + head * qHead, qRow}, rows, (i32)seen, kv,
            {k + kvHead * D, stride, table, blockShift, blocks, last}, {v + kvHead * D, stride, table, blockShift, blocks, last},
            out + ((u64)row * heads + head) * D, (u64)heads * D, scale, window, sinks ? sinks + head : nullptr};
  }
};

/** Tiles in the order of the table, whose first ones begin first; elsewhere than on matrix units blocks are whole warps. */
template <u32 D, class T>
X_DEVICE void attendVarlen(const Varlen<T>& p) {
  X_FOR_SPLIT(item, (u64)p.count * p.heads) {
    const auto tile = p.template tile<D>(item);
    if (tile.rows == 0) continue;
#if X_MMA
    attendTile<D>(tile);
#else
    for (u32 row = warpId(); row < tile.rows; row += warpsInBlock()) attendRow<D>(tile, row);
#endif
  }
}

}  // namespace attention
