// Matrix products with few rows on GPUs, where reading the right matrix is the whole cost. A right matrix whose columns
// are contiguous (a linear layer's transposed weight) takes a warp a column; any other takes a warp's width of columns a
// block, whose warps share k. Up to 8 rows (4 of 8- and 16-bit integers and f8e4m3) go through in one reading.
#pragma once

#if !X_HOST
namespace gemm {

// Rows past the last are the last one again: their results are dropped, and the inner loop needs no branch.
X_DEVICE u32 clamped(u32 row, u32 rows) { return row < rows ? row : rows - 1; }

template <u32 ROWS, class T>
X_DEVICE void columnPerWarp(u64 batches, u64 m, u64 n, u64 k, const Operand<T>& lhs, const Operand<T>& rhs, T* out) {
  typedef sum_t<T> A;
  constexpr u32 V = vecWidth<T>;
  const u32 lanes = lanes::active();
  for (u64 i = split::block() * warpsInBlock() + warpId(); i < batches * n; i += split::blocks() * warpsInBlock()) {
    const u64 b = i / n, column = i - b * n;
    const Operand<T> l = lhs.of(b);
    const T* w = rhs.of(b).at(0, column);
    const bool wide = aligned16(w) && aligned16(l.data) && l.column == 1 && l.row % V == 0;
    for (u64 row = 0; row < m; row += ROWS) {
      const u32 rows = m - row < ROWS ? (u32)(m - row) : ROWS;
      A acc[ROWS] = {};
      const T* left[ROWS];
#pragma unroll
      for (u32 a = 0; a < ROWS; ++a) left[a] = l.at(row + clamped(a, rows), 0);
      u64 start = 0;
      if (wide) {
        start = k / V * V;
#pragma unroll ROWS == 1 ? 8 : 2
        for (u64 j = laneId() * V; j < start; j += lanes * V) {
          const Vec<T, V> right = loadVec<V>(w + j);
#pragma unroll
          for (u32 a = 0; a < ROWS; ++a) {
            const Vec<T, V> x = loadVec<V>(left[a] + j);
#pragma unroll
            for (u32 e = 0; e < V; ++e) acc[a] += widened(x[e]) * widened(right[e]);
          }
        }
      }
      for (u64 j = start + laneId(); j < k; j += lanes) {
        const A right = widened(w[j]);
#pragma unroll
        for (u32 a = 0; a < ROWS; ++a) acc[a] += widened(left[a][j * l.column]) * right;
      }
#pragma unroll
      for (u32 a = 0; a < ROWS; ++a) {
        const A sum = warpReduce<Sum>(acc[a]);
        if (laneId() == 0 && a < opaque(rows)) out[(b * m + row + a) * n + column] = from_acc<T>(sum);
      }
    }
  }
}

template <u32 ROWS, class T>
X_DEVICE void columnPerThread(u64 batches, u64 m, u64 n, u64 k, const Operand<T>& lhs, const Operand<T>& rhs, T* out) {
  typedef sum_t<T> A;
  X_SHARED(A, partial, 1024);
  const u32 width = blockThreads() < WARP ? blockThreads() : WARP, slices = blockThreads() / width;
  const u32 slice = threadIndex() / width, offset = threadIndex() % width;
  const u64 across = (n + width - 1) / width;
  X_FOR_SPLIT(at, across * batches) {
    const u64 b = at / across, column = at % across * width + offset;
    const Operand<T> l = lhs.of(b), r = rhs.of(b);
    for (u64 row = 0; row < m; row += ROWS) {
      const u32 rows = m - row < ROWS ? (u32)(m - row) : ROWS;
      A acc[ROWS] = {};
      const T* left[ROWS];
#pragma unroll
      for (u32 a = 0; a < ROWS; ++a) left[a] = l.at(row + clamped(a, rows), 0);
      if (column < n && slice < slices) {
        const T* w = r.at(0, column);
        u64 x = slice * l.column, y = slice * r.row;
#pragma unroll 4
        for (u64 j = slice; j < k; j += slices) {
          const A right = widened(w[y]);
#pragma unroll
          for (u32 a = 0; a < ROWS; ++a) acc[a] += widened(left[a][x]) * right;
          x = opaque(x + slices * l.column);
          y = opaque(y + slices * r.row);
        }
      }
#pragma unroll
      for (u32 a = 0; a < ROWS; ++a) {
        partial[threadIndex()] = acc[a];
        barrier();
        if (slice == 0 && column < n && a < opaque(rows)) {
          A sum = (A)0;
          for (u32 s = 0; s < slices; ++s) sum += partial[s * width + offset];
          out[(b * m + row + a) * n + column] = from_acc<T>(sum);
        }
        barrier();
      }
    }
  }
}

template <u32 ROWS, class T>
X_DEVICE void multiplyRows(u64 batches, u64 m, u64 n, u64 k, const Operand<T>& lhs, const Operand<T>& rhs, T* out) {
  if (rhs.row == 1) columnPerWarp<ROWS>(batches, m, n, k, lhs, rhs, out);
  else columnPerThread<ROWS>(batches, m, n, k, lhs, rhs, out);
}

template <class T>
X_DEVICE void multiplyFew(u64 batches, u64 m, u64 n, u64 k, const Operand<T>& lhs, const Operand<T>& rhs, T* out) {
  // What takes many instructions to widen has no registers left for eight rows.
  constexpr u32 MOST = sizeof(T) == 1 || sameType<T, u16> ? 4 : 8;
  if (m == 1) multiplyRows<1>(batches, m, n, k, lhs, rhs, out);
  else if (m <= 4 || MOST == 4) multiplyRows<4>(batches, m, n, k, lhs, rhs, out);
  else multiplyRows<MOST>(batches, m, n, k, lhs, rhs, out);
}

}  // namespace gemm
#endif
