// Matrix products on GPUs: tiles of 64 x 64 results, 16 deep, through shared memory, 4 x 4 results a thread. Strides are
// arbitrary; whichever of an operand's two strides is 1 decides the order in which threads load it, so loads coalesce.
#pragma once

namespace gemm {

template <class T>
struct SumOf {
  typedef acc_t<T> type;
};
template <>
struct SumOf<u8> {
  typedef u32 type;
};
template <>
struct SumOf<u16> {
  typedef u32 type;
};

/** What products of T are summed in: integers, which are unsigned here and wrap, in at least 32 bits. */
template <class T>
using sum_t = typename SumOf<T>::type;

template <class T>
X_DEVICE sum_t<T> widened(T v) {
  return (sum_t<T>)to_acc(v);
}

/** A batch of matrices, strides in elements. */
template <class T>
struct Operand {
  const T* data;
  u64 batch, row, column;

  X_DEVICE Operand of(u64 b) const { return Operand{data + b * batch, batch, row, column}; }
  X_DEVICE const T* at(u64 r, u64 c) const { return data + r * row + c * column; }
};

#if !X_HOST

constexpr u32 TILE = 64, DEPTH = 16, STRIDE = TILE + 4, MICRO = 4, PER_SIDE = TILE / MICRO;

// tile[k * STRIDE + i] = element (line i0 + i, k0 + k) of x, zero outside lines x depth.
template <class T, class A>
X_DEVICE void loadTile(A* tile, const T* x, u64 lineStride, u64 depthStride, u64 i0, u64 lines, u64 k0, u64 depth) {
  const bool alongDepth = depthStride == 1 && lineStride != 1;
  X_FOR_BLOCK(e, TILE * DEPTH) {
    const u32 i = alongDepth ? (u32)e / DEPTH : (u32)e % TILE;
    const u32 k = alongDepth ? (u32)e % DEPTH : (u32)e / TILE;
    A v = (A)0;
    if (i0 + i < lines && k0 + k < depth) v = widened(x[(i0 + i) * lineStride + (k0 + k) * depthStride]);
    tile[k * STRIDE + i] = v;
  }
}

/** Rows from m0 and columns from n0 of one product, those below m and n; out has n columns. All threads of the block. */
template <class L, class R, class O>
X_DEVICE void multiplyTile(const Operand<L>& l, const Operand<R>& r, u64 m0, u64 m, u64 n0, u64 n, u64 k, O* out,
                           sum_t<L>* left, sum_t<L>* right) {
  typedef sum_t<L> A;
  for (u32 base = 0; base < PER_SIDE * PER_SIDE; base += blockThreads()) {
    const u32 member = base + threadIndex();
    const u32 row = member / PER_SIDE * MICRO, column = member % PER_SIDE * MICRO;
    A acc[MICRO][MICRO] = {};
    for (u64 k0 = 0; k0 < k; k0 += DEPTH) {
      loadTile(left, l.data, l.row, l.column, m0, m, k0, k);
      loadTile(right, r.data, r.column, r.row, n0, n, k0, k);
      barrier();
      if (member < PER_SIDE * PER_SIDE) {
#pragma unroll 4
        for (u32 d = 0; d < DEPTH; ++d) {
          A x[MICRO], y[MICRO];
#pragma unroll
          for (u32 i = 0; i < MICRO; ++i) {
            x[i] = left[d * STRIDE + row + i];
            y[i] = right[d * STRIDE + column + i];
          }
#pragma unroll
          for (u32 i = 0; i < MICRO; ++i)
#pragma unroll
            for (u32 j = 0; j < MICRO; ++j) acc[i][j] += x[i] * y[j];
        }
      }
      barrier();
    }
    if (member >= PER_SIDE * PER_SIDE) continue;
#pragma unroll
    for (u32 i = 0; i < MICRO; ++i)
#pragma unroll
      for (u32 j = 0; j < MICRO; ++j)
        if (m0 + row + i < m && n0 + column + j < n)
          out[(m0 + row + i) * n + n0 + column + j] = from_acc<O>(acc[i][j]);
  }
}

template <class L, class R, class O>
X_DEVICE void multiply(u64 batches, u64 m, u64 n, u64 k, const Operand<L>& lhs, const Operand<R>& rhs, O* out) {
  X_SHARED(sum_t<L>, left, DEPTH * STRIDE);
  X_SHARED(sum_t<L>, right, DEPTH * STRIDE);
  const u64 across = (n + TILE - 1) / TILE, down = (m + TILE - 1) / TILE;
  X_FOR_SPLIT(at, across * down * batches) {
    const u64 n0 = at % across * TILE, m0 = at / across % down * TILE, b = at / across / down;
    multiplyTile(lhs.of(b), rhs.of(b), m0, m, n0, n, k, out + b * m * n, left, right);
  }
}

/**
 * Rows in groups, each with the weights [n, k] of an expert: tiles [tiles, 3] hold the expert, the first row and the one behind
 * the last, at most TILE of them; rows [.., k] and weights [experts, n, k], contiguous.
 */
template <class L, class R, class O>
X_DEVICE void multiplyGroups(u64 n, u64 k, const L* rows, const R* weights, const u32* tiles, u32 count, O* out) {
  X_SHARED(sum_t<L>, left, DEPTH * STRIDE);
  X_SHARED(sum_t<L>, right, DEPTH * STRIDE);
  const u64 across = (n + TILE - 1) / TILE;
  X_FOR_SPLIT(at, across * count) {
    const u32* own = tiles + at / across * 3;
    if (own[1] >= own[2]) continue;
    const Operand<L> l = {rows, 0, k, 1};
    const Operand<R> r = {weights + own[0] * n * k, 0, 1, k};
    multiplyTile(l, r, own[1], own[2], at % across * TILE, n, k, out, left, right);
  }
}

#endif

}  // namespace gemm
