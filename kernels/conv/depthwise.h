// Convolutions of floats on the host whose groups have one channel of the image: a plane (conv/planes.h) is made in memory of the
// thread's own, multiplied while a cache has it, and written nowhere else. Vectors run along rows of the result.
#pragma once

#if X_HOST
namespace conv {

/** Elements of a plane and taps of a phase that there is room for; ops/conv-host.ts asks for no more. */
constexpr u32 OWN_PLANE = 32768, OWN_TAPS = 128, OWN_ROWS = 4;

/** What an output's vector is sums of: ROWS rows of the result that begin at `from`. */
template <u32 ROWS, class A>
X_DEVICE void sumTaps(const A* from, u64 pitch, const A* weights, const u64* taps, u64 count,
                      typename Lanes<A>::type (&acc)[ROWS]) {
#pragma unroll
  for (u32 r = 0; r < ROWS; ++r) acc[r] = typename Lanes<A>::type{};
  for (u64 t = 0; t < count; ++t) {
    const A* p = from + taps[t * TAP_WORDS];
#pragma unroll
    for (u32 r = 0; r < ROWS; ++r) acc[r] += weights[t] * *(const typename Lanes<A>::loose*)(p + r * pitch);
  }
}

/** The same of a kernel of 3 x 3 neighbours, `weights` by rows in every lane: what rows of the result share is loaded once. */
template <u32 ROWS, class A>
X_DEVICE void sumSquare(const A* from, u64 pitch, const typename Lanes<A>::type (&weights)[9], typename Lanes<A>::type (&acc)[ROWS]) {
#pragma unroll
  for (u32 r = 0; r < ROWS; ++r) acc[r] = typename Lanes<A>::type{};
#pragma unroll
  for (u32 y = 0; y < ROWS + 2; ++y) {
#pragma unroll
    for (u32 x = 0; x < 3; ++x) {
      const typename Lanes<A>::type v = *(const typename Lanes<A>::loose*)(from + y * pitch + x);
#pragma unroll
      for (u32 r = 0; r < ROWS; ++r)
        if (y >= r && y - r < 3) acc[r] += weights[(y - r) * 3 + x] * v;
    }
  }
}

/** Whether taps are 3 x 3 neighbours in a plane, in any order: `square` then has their weights by rows. */
template <class A>
X_DEVICE bool isSquare(const u64* taps, u64 count, u64 pitch, const A* weights, A* square) {
  if (count != 9 || pitch < 3) return false;
  u32 seen = 0;
  for (u32 t = 0; t < 9; ++t) {
    const u64 y = taps[t * TAP_WORDS] / pitch, x = taps[t * TAP_WORDS] % pitch;
    if (y >= 3 || x >= 3) return false;
    square[y * 3 + x] = weights[t];
    seen |= 1u << (y * 3 + x);
  }
  return seen == 0x1ff;
}

/** ROWS rows of a phase's outputs, from `row` on. */
template <u32 ROWS, class T>
__attribute__((noinline)) void ownRows(const Phase& phase, const Target& target, const u64* taps, const acc_t<T>* weights,
                                       bool square, u64 row, const acc_t<T>* plane, T* dst) {
  typedef acc_t<T> A;
  typedef Lanes<A> L;
  const u64 count = phase.columns < L::N ? phase.columns : L::N;
  typename L::type spread[9] = {};
  if (square) {
#pragma unroll
    for (u32 t = 0; t < 9; ++t) spread[t] += weights[t];
  }
  for (u64 column = 0; column < phase.columns;) {
    typename L::type acc[ROWS];
    const A* from = plane + row * target.pitch + column;
    if (square) sumSquare<ROWS>(from, target.pitch, spread, acc);
    else sumTaps<ROWS>(from, target.pitch, weights, taps, phase.taps, acc);
    for (u32 r = 0; r < ROWS; ++r) {
      T* to = dst + (row + r) * target.down + column * target.across;
      if constexpr (sameType<T, A>) {
        if (target.across == 1 && count == L::N) {
          *(typename L::loose*)to = acc[r];
          continue;
        }
      }
      A sums[L::N];
      *(typename L::loose*)sums = acc[r];
      if (target.across == 1 && count == L::N) {
        for (u32 j = 0; j < L::N; ++j) to[j] = from_acc<T>(sums[j]);
      } else {
        for (u32 j = 0; j < count; ++j) to[j * target.across] = from_acc<T>(sums[j]);
      }
    }
    // The last vector ends with the row: what it has in common with the one before is computed twice.
    if (column + count == phase.columns) break;
    column = column + 2 * count <= phase.columns ? column + count : phase.columns - count;
  }
}

/**
 * dst [images][groups * c_out][channel]: every group has one channel of the image, whose planes are of `plane_size` elements.
 * Strides of the kernel lead from a group to the next, and within it from an output channel to the next.
 */
template <class T>
X_DEVICE void multiplyOwn(const Counts& n, const PlaneAxis& down, const PlaneAxis& across, const Image& image, u64 plane_size,
                          u64 group_stride, u64 out_stride, const Target& target, const u64* table, const T* src,
                          const T* kernel, T* dst) {
  typedef acc_t<T> A;
  // Behind the plane: what a vector reads beside the last row.
  alignas(64) A plane[OWN_PLANE + 2 * Lanes<A>::N], weights[OWN_TAPS], square[9];
  if (plane_size > OWN_PLANE) return;
  const u64 lines = down.parts * across.parts * down.size;
  X_FOR_SPLIT(item, n.images * n.groups) {
    planeLines<T, Widened<T>>(down, across, image, n.groups, src, item * lines, (item + 1) * lines, plane);
    for (u64 i = 0; i < n.c_out * n.phases; ++i) {
      const u64 own = i / n.phases;
      const Phase phase = phaseAt(table, i % n.phases);
      if (phase.taps > OWN_TAPS) return;
      const u64* taps = tapsOf(table, n, phase);
      const T* from = kernel + item % n.groups * group_stride + own * out_stride;
      for (u64 t = 0; t < phase.taps; ++t) weights[t] = to_acc(from[taps[t * TAP_WORDS + 1]]);
      const bool known = isSquare(taps, phase.taps, target.pitch, weights, square);
      T* to = dst + (item * n.c_out + own) * target.channel + phase.start;
      u64 row = 0;
      for (; row + OWN_ROWS <= phase.rows; row += OWN_ROWS)
        ownRows<OWN_ROWS>(phase, target, taps, known ? square : weights, known, row, plane, to);
      for (; row < phase.rows; ++row) ownRows<1>(phase, target, taps, known ? square : weights, known, row, plane, to);
    }
  }
}

}  // namespace conv
#endif
