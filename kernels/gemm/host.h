// Matrix products on the host: a 6 x 2-register microkernel over packed panels. The right panel (DEPTH x WIDTH, at most
// 64 KiB, so that a small thread stack holds it) is packed once for HEIGHT rows; packing widens f16, bf16 and f8e4m3 to f32, and narrow integers to u32.
// Which orientation the right matrix has only matters to the packing, which transposes in registers.
#pragma once

#if X_HOST
namespace gemm {

template <class A>
struct Vector {
  static constexpr u32 N = 32 / sizeof(A);
  typedef A type __attribute__((vector_size(32)));
  typedef A loose __attribute__((vector_size(32), aligned(sizeof(A)), may_alias));
};

/** N neighbouring elements, widened. */
template <class T>
X_DEVICE typename Vector<sum_t<T>>::type loadWide(const T* p) {
  typedef Vector<sum_t<T>> V;
  if constexpr (sameType<T, sum_t<T>>) {
    return *(const typename V::loose*)p;
  } else if constexpr (sameType<T, bf16>) {
    typedef u16 Halves __attribute__((vector_size(16)));
    typedef u32 Words __attribute__((vector_size(32)));
    Halves h;
    __builtin_memcpy(&h, p, 16);
    return (typename V::type)(__builtin_convertvector(h, Words) << 16);
#if !X_F16_BITS
  } else if constexpr (sameType<T, f16>) {
    typedef _Float16 Halves __attribute__((vector_size(16)));
    Halves h;
    __builtin_memcpy(&h, p, 16);
    return __builtin_convertvector(h, typename V::type);
#endif
  } else {
    typename V::type v;
    for (u32 i = 0; i < V::N; ++i) v[i] = widened(p[i]);
    return v;
  }
}

template <class A>
struct Sizes {
  static constexpr u32 N = Vector<A>::N, ROWS = 6, COLUMNS = 2 * N, DEPTH = 128, WIDTH = 64 * 1024 / DEPTH / sizeof(A), HEIGHT = 48;
};

typedef float Eight __attribute__((vector_size(32)));

// Rows of eight become columns of eight.
X_DEVICE void transpose8(Eight (&v)[8]) {
  Eight t[8];
  for (u32 i = 0; i < 8; i += 2) {
    t[i] = __builtin_shufflevector(v[i], v[i + 1], 0, 8, 2, 10, 4, 12, 6, 14);
    t[i + 1] = __builtin_shufflevector(v[i], v[i + 1], 1, 9, 3, 11, 5, 13, 7, 15);
  }
  Eight s[8];
  for (u32 i = 0; i < 8; i += 4) {
    for (u32 j = 0; j < 2; ++j) {
      s[i + j] = __builtin_shufflevector(t[i + j], t[i + j + 2], 0, 1, 8, 9, 4, 5, 12, 13);
      s[i + j + 2] = __builtin_shufflevector(t[i + j], t[i + j + 2], 2, 3, 10, 11, 6, 7, 14, 15);
    }
  }
  for (u32 i = 0; i < 4; ++i) {
    v[i] = __builtin_shufflevector(s[i], s[i + 4], 0, 1, 2, 3, 8, 9, 10, 11);
    v[i + 4] = __builtin_shufflevector(s[i], s[i + 4], 4, 5, 6, 7, 12, 13, 14, 15);
  }
}

/** panel[strip][k][COLUMNS] from r, zeros beyond `width` columns. */
template <class T, class A>
X_DEVICE void packRight(A* panel, const Operand<T>& r, u64 k0, u64 depth, u64 n0, u64 width) {
  typedef Sizes<A> S;
  for (u64 c0 = 0; c0 < width; c0 += S::COLUMNS, panel += S::COLUMNS * depth) {
    const u64 count = width - c0 < S::COLUMNS ? width - c0 : S::COLUMNS;
    if (count == S::COLUMNS && r.column == 1) {
      for (u64 k = 0; k < depth; ++k) {
        const T* p = r.at(k0 + k, n0 + c0);
        *(typename Vector<A>::loose*)(panel + k * S::COLUMNS) = loadWide(p);
        *(typename Vector<A>::loose*)(panel + k * S::COLUMNS + S::N) = loadWide(p + S::N);
      }
      continue;
    }
    u64 k = 0;
    if constexpr (sizeof(A) == 4) {
      if (count == S::COLUMNS && r.row == 1) {
        for (; k + 8 <= depth; k += 8) {
          for (u32 half = 0; half < 2; ++half) {
            Eight v[8];
            for (u32 j = 0; j < 8; ++j) v[j] = (Eight)loadWide(r.at(k0 + k, n0 + c0 + 8 * half + j));
            transpose8(v);
            for (u32 j = 0; j < 8; ++j) __builtin_memcpy(panel + (k + j) * S::COLUMNS + 8 * half, &v[j], 32);
          }
        }
      }
    }
    for (; k < depth; ++k)
      for (u64 c = 0; c < S::COLUMNS; ++c) panel[k * S::COLUMNS + c] = c < count ? widened(*r.at(k0 + k, n0 + c0 + c)) : (A)0;
  }
}

/** strip[k][ROWS] from l, zeros beyond `count` rows. */
template <class T, class A>
X_DEVICE void packLeft(A* strip, const Operand<T>& l, u64 m0, u64 count, u64 k0, u64 depth) {
  for (u32 i = 0; i < Sizes<A>::ROWS; ++i) {
    const T* p = l.at(m0 + (i < count ? i : 0), k0);
    const A keep = i < count ? (A)1 : (A)0;
    if (keep == (A)0) {
      for (u64 k = 0; k < depth; ++k) strip[k * Sizes<A>::ROWS + i] = (A)0;
    } else {
      for (u64 k = 0; k < depth; ++k) strip[k * Sizes<A>::ROWS + i] = widened(p[k * l.column]);
    }
  }
}

/** sums[row][column] += strip . panel over `depth`, ROWS x COLUMNS results, rows `stride` apart. */
template <class A>
X_DEVICE void kernel(const A* strip, const A* panel, u64 depth, A* sums, u64 stride) {
  typedef Sizes<A> S;
  typedef typename Vector<A>::type V;
  typedef typename Vector<A>::loose L;
  V acc[S::ROWS][2];
#pragma unroll
  for (u32 i = 0; i < S::ROWS; ++i) {
    acc[i][0] = *(const L*)(sums + i * stride);
    acc[i][1] = *(const L*)(sums + i * stride + S::N);
  }
  for (u64 k = 0; k < depth; ++k, strip += S::ROWS, panel += S::COLUMNS) {
    const V r0 = *(const L*)panel, r1 = *(const L*)(panel + S::N);
#pragma unroll
    for (u32 i = 0; i < S::ROWS; ++i) {
      acc[i][0] += strip[i] * r0;
      acc[i][1] += strip[i] * r1;
    }
  }
#pragma unroll
  for (u32 i = 0; i < S::ROWS; ++i) {
    *(L*)(sums + i * stride) = acc[i][0];
    *(L*)(sums + i * stride + S::N) = acc[i][1];
  }
}

/** Rows from m0 and columns from n0 of one product, those below m and n, at most HEIGHT and WIDTH; out has n columns. */
template <class L, class R, class O>
X_DEVICE void multiplyTile(const Operand<L>& l, const Operand<R>& r, u64 m0, u64 m, u64 n0, u64 n, u64 k, O* out,
                           sum_t<L>* panel, sum_t<L>* sums, sum_t<L>* strip) {
  typedef sum_t<L> A;
  typedef Sizes<A> S;
  const u64 width = n - n0 < S::WIDTH ? n - n0 : S::WIDTH, height = m - m0 < S::HEIGHT ? m - m0 : S::HEIGHT;
  for (u64 i = 0; i < S::HEIGHT * S::WIDTH; ++i) sums[i] = (A)0;
  for (u64 k0 = 0; k0 < k; k0 += S::DEPTH) {
    const u64 depth = k - k0 < S::DEPTH ? k - k0 : S::DEPTH;
    packRight(panel, r, k0, depth, n0, width);
    for (u64 i = 0; i < height; i += S::ROWS) {
      packLeft(strip, l, m0 + i, height - i < S::ROWS ? height - i : S::ROWS, k0, depth);
      for (u64 c = 0; c < width; c += S::COLUMNS) kernel<A>(strip, panel + c * depth, depth, sums + i * S::WIDTH + c, S::WIDTH);
    }
  }
  for (u64 i = 0; i < height; ++i)
    for (u64 c = 0; c < width; ++c) out[(m0 + i) * n + n0 + c] = from_acc<O>(sums[i * S::WIDTH + c]);
}

template <class L, class R, class O>
X_DEVICE void multiply(u64 batches, u64 m, u64 n, u64 k, const Operand<L>& lhs, const Operand<R>& rhs, O* out) {
#ifdef __AVX512F__
  if constexpr (sameType<L, bf16> && sameType<R, bf16> && sameType<O, bf16>) {
    if (::pairs::supported()) return pairs::multiplyAll(batches, m, n, k, lhs, rhs, out);
  }
#endif
  typedef sum_t<L> A;
  typedef Sizes<A> S;
  alignas(64) A panel[S::DEPTH * S::WIDTH], sums[S::HEIGHT * S::WIDTH], strip[S::DEPTH * S::ROWS];
  const u64 across = (n + S::WIDTH - 1) / S::WIDTH, down = (m + S::HEIGHT - 1) / S::HEIGHT;
  X_FOR_SPLIT(at, across * down * batches) {
    const u64 n0 = at % across * S::WIDTH, m0 = at / across % down * S::HEIGHT, b = at / across / down;
    multiplyTile(lhs.of(b), rhs.of(b), m0, m, n0, n, k, out + b * m * n, panel, sums, strip);
  }
}

/** As on GPUs (gemm/tile.h). */
template <class L, class R, class O>
X_DEVICE void multiplyGroups(u64 n, u64 k, const L* rows, const R* weights, const u32* tiles, u32 count, O* out) {
  typedef sum_t<L> A;
  typedef Sizes<A> S;
  alignas(64) A panel[S::DEPTH * S::WIDTH], sums[S::HEIGHT * S::WIDTH], strip[S::DEPTH * S::ROWS];
  const u64 across = (n + S::WIDTH - 1) / S::WIDTH;
  X_FOR_SPLIT(at, across * count) {
    const u32* own = tiles + at / across * 3;
    const Operand<L> l = {rows, 0, k, 1};
    const Operand<R> r = {weights + own[0] * n * k, 0, 1, k};
    for (u64 m0 = own[1]; m0 < own[2]; m0 += S::HEIGHT)
      multiplyTile(l, r, m0, (u64)own[2], at % across * S::WIDTH, n, k, out, panel, sums, strip);
  }
}

template <class A>
X_DEVICE A total(typename Vector<A>::type v) {
  A lane[Vector<A>::N];
  for (u32 i = 0; i < Vector<A>::N; ++i) lane[i] = v[i];
  for (u32 w = Vector<A>::N / 2; w > 0; w /= 2)
    for (u32 i = 0; i < w; ++i) lane[i] += lane[i + w];
  return lane[0];
}

/** ROWS rows of l times COLUMNS columns of r, both contiguous along k. */
template <u32 ROWS, u32 COLUMNS, class L, class R, class O>
X_DEVICE void dots(const Operand<L>& l, u64 row, const Operand<R>& r, u64 column, u64 k, O* out, u64 outStride) {
  typedef sum_t<L> A;
  constexpr u32 N = Vector<A>::N;
  typename Vector<A>::type acc[ROWS][COLUMNS][2] = {};
  u64 i = 0;
  for (; i + 2 * N <= k; i += 2 * N) {
#pragma unroll
    for (u32 half = 0; half < 2; ++half) {
      typename Vector<A>::type x[ROWS];
#pragma unroll
      for (u32 a = 0; a < ROWS; ++a) x[a] = loadWide(l.at(row + a, i + half * N));
#pragma unroll
      for (u32 c = 0; c < COLUMNS; ++c) {
        const typename Vector<A>::type w = loadWide(r.at(i + half * N, column + c));
#pragma unroll
        for (u32 a = 0; a < ROWS; ++a) acc[a][c][half] += x[a] * w;
      }
    }
  }
  for (u32 a = 0; a < ROWS; ++a) {
    for (u32 c = 0; c < COLUMNS; ++c) {
      A sum = total<A>(acc[a][c][0] + acc[a][c][1]);
      for (u64 j = i; j < k; ++j) sum += widened(*l.at(row + a, j)) * widened(*r.at(j, column + c));
      out[(row + a) * outStride + column + c] = from_acc<O>(sum);
    }
  }
}

/** sums[c] += row . column c for neighbouring columns, four steps of k at a time. */
template <class L, class R, class A>
X_DEVICE void addRows(A* sums, const Operand<L>& l, u64 row, const Operand<R>& r, u64 column, u64 count, u64 k) {
  u64 j = 0;
  if (r.column == 1) {
    for (; j + 4 <= k; j += 4) {
      const A x0 = widened(*l.at(row, j)), x1 = widened(*l.at(row, j + 1)), x2 = widened(*l.at(row, j + 2)), x3 = widened(*l.at(row, j + 3));
      const R *w0 = r.at(j, column), *w1 = w0 + r.row, *w2 = w1 + r.row, *w3 = w2 + r.row;
      for (u64 c = 0; c < count; ++c)
        sums[c] = (sums[c] + x0 * widened(w0[c])) + x1 * widened(w1[c]) + (x2 * widened(w2[c]) + x3 * widened(w3[c]));
    }
  }
  for (; j < k; ++j) {
    const A x = widened(*l.at(row, j));
    const R* w = r.at(j, column);
    for (u64 c = 0; c < count; ++c) sums[c] += x * widened(w[c * r.column]);
  }
}

/** Few rows: the right matrix is read once, in the order in which it lies. */
template <class L, class R, class O>
X_DEVICE void multiplyFew(u64 batches, u64 m, u64 n, u64 k, const Operand<L>& lhs, const Operand<R>& rhs, O* out) {
  typedef sum_t<L> A;
  constexpr u64 WIDTH = 256, ROWS = 4;
  for (u64 i = launch::eachBegin(batches * n), end = launch::eachEnd(batches * n); i < end;) {
    const u64 b = i / n, column = i % n;
    u64 count = n - column < WIDTH ? n - column : WIDTH;
    if (count > end - i) count = end - i;
    const Operand<L> l = lhs.of(b);
    const Operand<R> r = rhs.of(b);
    O* o = out + b * m * n;
    const bool dotted = r.row == 1 && l.column == 1;
    for (u64 row = 0; row < m;) {
      const u64 rows = m - row < ROWS ? m - row : ROWS;
      if (dotted) {
        u64 c = 0;
        if (rows == ROWS) {
          for (; c < count; ++c) dots<ROWS, 1>(l, row, r, column + c, k, o, n);
          row += ROWS;
        } else {
          for (; c + 4 <= count; c += 4) dots<1, 4>(l, row, r, column + c, k, o, n);
          for (; c < count; ++c) dots<1, 1>(l, row, r, column + c, k, o, n);
          ++row;
        }
        continue;
      }
      A acc[ROWS][WIDTH] = {};
      for (u64 a = 0; a < rows; ++a) addRows(acc[a], l, row + a, r, column, count, k);
      for (u64 a = 0; a < rows; ++a)
        for (u64 c = 0; c < count; ++c) o[(row + a) * n + column + c] = from_acc<O>(acc[a][c]);
      row += rows;
    }
    i += count;
  }
}

}  // namespace gemm
#endif
