// candle's arg-sort: one block a row, the row's positions in dynamic shared memory.
#pragma once

namespace sort {

/** dst[row] = positions that sort x[row], by keys turned by `flip`; shared memory holds ncols_pad positions, a power of two of at least ncols. */
template <class T>
X_DEVICE void row(const T* x, u32* dst, u32 ncols, u32 ncols_pad, Key<T> flip) {
  x += split::block() * ncols;
  dst += split::block() * ncols;
  u32* slots = dynamicShared<u32>();
#if X_HOST
  (void)ncols_pad;
  mergeSort(ncols, dst, slots, [&](u32 i) { return keyOf(x[i], flip); });
#else
  X_FOR_BLOCK(i, ncols_pad) slots[i] = (u32)i;
  bitonic(ncols_pad, [&](u32 a, u32 b) {
    const u32 i = slots[a], j = slots[b];
    // Slots past the row go last.
    const bool stays = j >= ncols || (i < ncols && before(keyOf(x[i], flip), i, keyOf(x[j], flip), j));
    if (!stays) {
      slots[a] = j;
      slots[b] = i;
    }
  });
  X_FOR_BLOCK(i, ncols) dst[i] = slots[i];
#endif
}

}  // namespace sort
