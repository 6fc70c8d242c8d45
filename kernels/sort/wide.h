// Arg-sort of rows of any width: chunks of CHUNK columns are sorted (chunk.h), then merge passes double the
// sorted width between two buffers of positions. A merge is cut into pieces of equal length that know nothing of each
// other: each finds by binary search how many of its outputs precede it in either half (the "merge path").
#pragma once

namespace sort {

#if !X_HOST
// Outputs that a GPU thread merges one after the other; divides CHUNK, so that a piece lies in one pair of halves.
constexpr u32 PIECE = 8;
#endif

/** Outputs [begin, end) of the merge of a[0, na) and b[0, nb), positions in x; equals come from a first. */
template <bool ascending, class T>
X_DEVICE void mergePiece(const T* x, const u32* a, u64 na, const u32* b, u64 nb, u64 begin, u64 end, u32* out) {
  u64 low = begin > nb ? begin - nb : 0, high = begin < na ? begin : na;
  while (low < high) {
    const u64 middle = (low + high) / 2;
    if (keyOf<ascending>(x[a[middle]]) <= keyOf<ascending>(x[b[begin - 1 - middle]])) low = middle + 1;
    else high = middle;
  }
  u64 i = low, j = begin - low;
  u32 left = i < na ? a[i] : 0, right = j < nb ? b[j] : 0;
  Key<T> leftKey = i < na ? keyOf<ascending>(x[left]) : 0, rightKey = j < nb ? keyOf<ascending>(x[right]) : 0;
  for (u64 o = begin; o < end; ++o) {
    if (i < na && (j >= nb || leftKey <= rightKey)) {
      out[o] = left;
      if (++i < na) {
        left = a[i];
        leftKey = keyOf<ascending>(x[left]);
      }
    } else {
      out[o] = right;
      if (++j < nb) {
        right = b[j];
        rightKey = keyOf<ascending>(x[right]);
      }
    }
  }
}

/** Merges neighbouring runs of `width` columns (CHUNK times a power of two) of every row, from one buffer to another. */
template <bool ascending, class T>
X_DEVICE void merge(u64 rows, u64 cols, u64 width, const T* x, const u32* from, u32* to) {
  const auto piece = [&](u64 row, u64 begin, u64 end) {
    const u64 start = begin / (2 * width) * (2 * width);
    const u64 length = cols - start < 2 * width ? cols - start : 2 * width;
    const u64 left = length < width ? length : width;
    const u32* a = from + row * cols + start;
    mergePiece<ascending>(x + row * cols, a, left, a + left, length - left, begin - start, end - start, to + row * cols + start);
  };
  if (width == 0) return;
#if X_HOST
  const u64 end = launch::eachEnd(rows * cols);
  for (u64 i = launch::eachBegin(rows * cols); i < end;) {
    const u64 column = i % cols;
    u64 stop = (column / (2 * width) + 1) * (2 * width);
    if (stop > cols) stop = cols;
    if (stop - column > end - i) stop = column + (end - i);
    piece(i / cols, column, stop);
    i += stop - column;
  }
#else
  const u64 across = (cols + PIECE - 1) / PIECE;
  X_FOR_EACH(i, rows * across) {
    const u64 begin = i % across * PIECE;
    piece(i / across, begin, cols - begin < PIECE ? cols : begin + PIECE);
  }
#endif
}

}  // namespace sort
