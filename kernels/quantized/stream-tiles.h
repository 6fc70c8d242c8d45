// How the work of stream.h is cut: all spans of all tiles, one after the other, in runs of one length, one a block.
#pragma once

#if X_MMA
namespace quant {

/** A product's operands. */
struct StreamProduct {
  const u8* x;
  const u8* y;
  float* dst;
  float* parts;
  u32* counters;
  u32 rowBytes, columnBytes, rows, columns, groups, dstRows, columnTiles, tiles, spans;
  const u32* experts = nullptr;  // of each tile of columns in groups: the expert, the first column and the one behind the last
};

/** How all spans of all tiles are cut into runs, one a block. */
struct StreamCut {
  u32 total, blocks;

  X_DEVICE StreamCut(const StreamProduct& p) : total(p.tiles * p.spans), blocks((u32)split::blocks()) {
    if (blocks > total) blocks = total;
  }
  X_DEVICE u32 begin(u32 block) const { return total * block / blocks; }
  /** The block whose run has span i. */
  X_DEVICE u32 owner(u32 i) const { return ((i + 1) * blocks - 1) / total; }
};

/** In groups: which tile of columns, whose rows, and the column behind the last. */
template <bool GROUPED>
struct StreamGroup {};
template <>
struct StreamGroup<true> {
  u32 group, expert, end;
};

/** A span of a tile. Tiles beside each other share their rows; in groups they share their columns. */
template <class S>
struct StreamPlace : StreamGroup<S::GROUPED> {
  u32 tile, span, row0, column0;

  X_DEVICE StreamPlace(const StreamProduct& p, u32 i) : tile(i / p.spans), span(i % p.spans) {
    if constexpr (S::GROUPED) {
      const u32 rowTiles = p.tiles / p.columnTiles;
      row0 = tile % rowTiles * S::ROWS;
      this->group = tile / rowTiles;
      find(p);
    } else {
      row0 = tile / p.columnTiles * S::ROWS;
      column0 = tile % p.columnTiles * S::COLUMNS;
    }
  }
  X_DEVICE void next(const StreamProduct& p) {
    if (++span < p.spans) return;
    span = 0;
    ++tile;
    if constexpr (S::GROUPED) {
      row0 += S::ROWS;
      if (row0 < p.rows) return;
      row0 = 0;
      if (++this->group < p.columnTiles) find(p);
    } else {
      column0 += S::COLUMNS;
      if (column0 < p.columns) return;
      column0 = 0;
      row0 += S::ROWS;
    }
  }
  X_DEVICE void find(const StreamProduct& p) {
    const u32* own = p.experts + this->group * 3;
    this->expert = own[0], column0 = own[1], this->end = own[2];
  }
  /** Of the matrix, the tile's first row. */
  X_DEVICE u64 firstRow(const StreamProduct& p) const {
    if constexpr (S::GROUPED) return (u64)this->expert * p.rows + row0;
    else return row0;
  }
  /** Columns from the tile's first one on. */
  X_DEVICE u32 columnsLeft(const StreamProduct& p) const {
    if constexpr (S::GROUPED) return this->end - column0;
    else return p.columns - column0;
  }
};

}  // namespace quant
#endif
