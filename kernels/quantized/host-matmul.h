// Which way a host multiplies quantised rows with columns: by rows (host-products.h), by panels of sixteen, or as pairs of bf16.
#pragma once

#if X_HOST
namespace quant {

/** Columns of a tile at most, of `columns` of so many values: as many as the second cache holds, where products are fast. */
template <class Q>
X_DEVICE u64 hostColumns(u64 inner, u64 columns) {
  typedef HostTile<Q> Tile;
  (void)inner, (void)columns;
#if QUANT_AMX
  if (IN_TILES<Q> && x_amx) return columns >= AmxPairs<Q>::LEAST ? AmxPairs<Q>::COLUMNS : Tile::COLUMNS;
#endif
#if defined(__AVX512F__)
  const u64 steps = inner == 0 ? 1 : (inner + 255) / 256, most = Tile::OPENED / steps / Tile::COLUMNS * Tile::COLUMNS;
  return most < Tile::COLUMNS ? Tile::COLUMNS : most < Tile::WIDEST ? most : Tile::WIDEST;
#else
  return Tile::COLUMNS;
#endif
}

/** Products of columns c to c + count, at most hostColumns. */
template <class Q>
X_DEVICE void hostPanels(const HostProducts<Q>& products, u64 c, u64 count) {
#if QUANT_AMX
  if constexpr (IN_TILES<Q>)
    if (x_amx && count >= AmxPairs<Q>::LEAST) return AmxPairs<Q>{products, c, count}.run();
#endif
  for (u64 first = 0; first < products.steps(); first += HostProducts<Q>::STEPS) {
#if QUANT_AMX
    if constexpr (IN_TILES<Q>)
      if (x_amx) {
        AmxTile<Q>{products, c, count}.add(first);
        continue;
      }
#endif
#if QUANT_MMLA
    MmlaTile<Q>{products, c, count}.add(first);
#else
    HostTile<Q>{products, c, count}.add(first);
#endif
  }
}

/** dst[c * stride + row] = row . column c for rows begin to end and any number of columns. */
template <class Q>
QUANT_CALL void hostProducts(const u8* x, u64 begin, u64 end, u64 inner, const u8* y, u64 columnBytes, u64 columns,
                             float* dst, u64 stride) {
  const HostProducts<Q> products{x, begin, end, inner, y, columnBytes, dst, stride};
  // Up to eight columns turning a panel costs more than it saves; narrow registers hold the sums of four at most.
  constexpr u64 PANEL = 9, AT_ONCE = REGISTERS < 4 ? 8 : 4;
  for (u64 c = 0, left; left = columns - c, left > 0; c += left) {
    const u64 limit = left >= PANEL ? hostColumns<Q>(inner, left) : AT_ONCE;
    if (left > limit) left = limit;
    if (left >= PANEL) hostPanels(products, c, left);
    else if (left == 1) hostColumn<Q>(x, begin, end, inner, y + c * columnBytes, dst + c * stride);
    else
      for (u64 first = 0; first < products.steps(); first += HostProducts<Q>::STEPS) {
        if (left > 4) products.template add<AT_ONCE>(first, c, left);
        else products.template add<4>(first, c, left);
      }
  }
}

}  // namespace quant
#endif
