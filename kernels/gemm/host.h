// Matrix products on the host: a microkernel whose results fill the registers, over packed panels. The right panel (DEPTH x WIDTH)
// is packed once for HEIGHT rows; packing widens f16, bf16 and f8e4m3 to f32, and narrow integers to u32. Which orientation the
// right matrix has only matters to the packing, which transposes in registers.
#pragma once

#if X_HOST
namespace gemm {

/** Of a product in registers rows and vectors of columns, of a tile its sides and how much of k at a time. */
template <class A>
struct Sizes {
  static constexpr u32 N = Vector<A>::N, DEPTH = 128;
#ifdef __AVX512F__
  static constexpr u32 ROWS = 8, VECTORS = 3, WIDTH = 4 * VECTORS * N, HEIGHT = 256;
#else
  static constexpr u32 ROWS = 6, VECTORS = 2, WIDTH = 8 * VECTORS * N, HEIGHT = 96;
#endif
  static constexpr u32 COLUMNS = VECTORS * N;
};

/** Where there are fewer tiles than this, or than blocks, they are less high, so that threads share them. */
constexpr u64 FEW = 32, LEAST_HEIGHT = 48;

/** v[i] is what lies from at(i) on, turned: rows become columns. */
template <class A, class At>
X_DEVICE void loadTurned(typename Vector<A, 8 * sizeof(A)>::type (&v)[8], At at) {
#pragma unroll
  for (u32 i = 0; i < 8; ++i) v[i] = loadWide<8 * sizeof(A)>(at(i));
  turnEight(v);
}

/** to[SIDE][SIDE], rows `stride` apart, from as many columns of r, which are contiguous along k. */
template <u32 SIDE, class T, class A>
X_DEVICE void turnRight(A* to, u64 stride, const Operand<T>& r, u64 k, u64 n) {
  typename Vector<A, SIDE * sizeof(A)>::type v[SIDE];
#pragma unroll
  for (u32 i = 0; i < SIDE; ++i) v[i] = loadWide<SIDE * sizeof(A)>(r.at(k, n + i));
  if constexpr (SIDE == 16) turnSixteen(v);
  else turnEight(v);
#pragma unroll
  for (u32 i = 0; i < SIDE; ++i) __builtin_memcpy(to + i * stride, &v[i], sizeof(v[i]));
}

/** panel[k][COLUMNS] from `count` columns of r, zeros beyond them. */
template <u32 COLUMNS, class T, class A>
X_DEVICE void packRight(A* panel, const Operand<T>& r, u64 k0, u64 depth, u64 n0, u64 count) {
  constexpr u32 N = Vector<A>::N;
  u64 k = 0;
  if (count == COLUMNS && r.column == 1) {
    for (; k < depth; ++k) {
      const T* p = r.at(k0 + k, n0);
#pragma unroll
      for (u32 c = 0; c < COLUMNS; c += N) *(typename Vector<A>::loose*)(panel + k * COLUMNS + c) = loadWide(p + c);
    }
  }
  if (count == COLUMNS && r.row == 1) {
    // Whole lines at a time, where a vector is one: what one load fetches is not fetched again for the next.
    constexpr u32 SIDE = N == 16 ? 16 : 8;
    const u64 whole = (depth - k) / SIDE * SIDE;
    for (u32 c = 0; c < COLUMNS && whole > 0; c += SIDE)
      for (u64 i = 0; i < whole; i += SIDE) turnRight<SIDE>(panel + (k + i) * COLUMNS + c, COLUMNS, r, k0 + k + i, n0 + c);
    k += whole;
  }
  for (; k < depth; ++k)
    for (u64 c = 0; c < COLUMNS; ++c) panel[k * COLUMNS + c] = c < count ? widened(*r.at(k0 + k, n0 + c)) : (A)0;
}

/** Sends for `count` lines of a matrix, `stride` elements apart, of each so many bytes. */
template <class T>
X_DEVICE void fetchLines(const T* first, u64 stride, u64 count, u64 bytes) {
  for (; count > 0; --count, first += stride)
    for (u64 at = 0; at < bytes; at += 64) __builtin_prefetch((const u8*)first + at, 0, 2);
}

/** Sends for part number `part` of `parts` of the columns [n0, n0 + width), depth rows, that are packed next. */
template <class T>
X_DEVICE void fetchRight(const Operand<T>& r, u64 k, u64 depth, u64 n0, u64 width, u64 part, u64 parts) {
  const bool down = r.row == 1;
  const u64 lines = down ? width : depth, each = tilesOf(lines, parts), first = part * each;
  if (first >= lines || (!down && r.column != 1)) return;
  const u64 count = lines - first < each ? lines - first : each;
  if (down) fetchLines(r.at(k, n0 + first), r.column, count, depth * sizeof(T));
  else fetchLines(r.at(k + first, n0), r.row, count, width * sizeof(T));
}

/** strip[k][ROWS] from l, zeros beyond `count` rows. */
template <class T, class A>
inline __attribute__((noinline)) void packLeft(A* strip, const Operand<T>& l, u64 m0, u64 count, u64 k0, u64 depth) {
  constexpr u32 ROWS = Sizes<A>::ROWS;
  u64 first = 0;
  if constexpr (ROWS == 8) {
    if (count == ROWS && l.column == 1) {
      for (; first + 8 <= depth; first += 8) {
        typename Vector<A, 8 * sizeof(A)>::type v[8];
        loadTurned<A>(v, [&](u32 i) { return l.at(m0 + i, k0 + first); });
        for (u32 i = 0; i < 8; ++i) __builtin_memcpy(strip + (first + i) * ROWS, &v[i], sizeof(v[i]));
      }
    }
  }
  if (count == ROWS && l.row == 1) {
    for (; first < depth; ++first) {
      const T* p = l.at(m0, k0 + first);
#pragma unroll
      for (u32 i = 0; i < ROWS; ++i) strip[first * ROWS + i] = widened(p[i]);
    }
  }
  for (u32 i = 0; i < ROWS; ++i) {
    const T* p = l.at(m0 + (i < count ? i : 0), k0);
    for (u64 k = first; k < depth; ++k) strip[k * ROWS + i] = i < count ? widened(p[k * l.column]) : (A)0;
  }
}

/** sums[ROWS][VECTORS of columns], rows `stride` apart, += strip . panel over `depth`. */
template <class A, u32 VECTORS>
X_DEVICE void kernel(const A* strip, const A* panel, u64 depth, A* sums, u64 stride) {
  constexpr u32 ROWS = Sizes<A>::ROWS, N = Vector<A>::N;
  typedef typename Vector<A>::type V;
  typedef typename Vector<A>::loose L;
  V acc[ROWS][VECTORS];
#pragma unroll
  for (u32 i = 0; i < ROWS; ++i)
#pragma unroll
    for (u32 c = 0; c < VECTORS; ++c) acc[i][c] = *(const L*)(sums + i * stride + c * N);
  for (u64 k = 0; k < depth; ++k, strip += ROWS, panel += VECTORS * N) {
    V right[VECTORS];
#pragma unroll
    for (u32 c = 0; c < VECTORS; ++c) right[c] = *(const L*)(panel + c * N);
#pragma unroll
    for (u32 i = 0; i < ROWS; ++i)
#pragma unroll
      for (u32 c = 0; c < VECTORS; ++c) acc[i][c] += strip[i] * right[c];
  }
#pragma unroll
  for (u32 i = 0; i < ROWS; ++i)
#pragma unroll
    for (u32 c = 0; c < VECTORS; ++c) *(L*)(sums + i * stride + c * N) = acc[i][c];
}

/** What a thread has for tiles of products. */
template <class A>
struct alignas(64) Workspace {
  A panel[Sizes<A>::DEPTH * Sizes<A>::WIDTH], sums[Sizes<A>::HEIGHT * Sizes<A>::WIDTH], strip[Sizes<A>::DEPTH * Sizes<A>::ROWS];
};

/** Rows from m0 to m, at most HEIGHT, and columns from n0 of one product, those below n, at most WIDTH; out has n columns. */
template <class L, class R, class O>
X_DEVICE void multiplyTile(const Operand<L>& l, const Operand<R>& r, u64 m0, u64 m, u64 n0, u64 n, u64 k, O* out,
                           Workspace<sum_t<L>>& own) {
  typedef sum_t<L> A;
  typedef Sizes<A> S;
  const u64 width = n - n0 < S::WIDTH ? n - n0 : S::WIDTH, height = m - m0;
  const auto eachVectors = [&](auto f) {
    for (u64 c = 0; c < width; c += S::COLUMNS) withVectors<S::VECTORS, S::N>(width - c, [&](auto v) { f(v, c); });
  };
  for (u64 i = 0; i < tilesOf(height, S::ROWS) * S::ROWS * S::WIDTH; ++i) own.sums[i] = (A)0;
  for (u64 k0 = 0; k0 < k; k0 += S::DEPTH) {
    const u64 depth = k - k0 < S::DEPTH ? k - k0 : S::DEPTH;
    eachVectors([&](auto v, u64 c) {
      packRight<v.columns>(own.panel + c * depth, r, k0, depth, n0 + c, width - c < v.columns ? width - c : v.columns);
    });
    const u64 next = k0 + depth, ahead = k - next < S::DEPTH ? k - next : S::DEPTH;
    for (u64 i = 0; i < height; i += S::ROWS) {
      if (ahead > 0) fetchRight(r, next, ahead, n0, width, i / S::ROWS, tilesOf(height, S::ROWS));
      if (l.column == 1 && i + 2 * S::ROWS <= height) fetchLines(l.at(m0 + i + S::ROWS, k0), l.row, S::ROWS, depth * sizeof(L));
      packLeft(own.strip, l, m0 + i, height - i < S::ROWS ? height - i : S::ROWS, k0, depth);
      eachVectors([&](auto v, u64 c) {
        kernel<A, v.value>(own.strip, own.panel + c * depth, depth, own.sums + i * S::WIDTH + c, S::WIDTH);
      });
    }
  }
  for (u64 i = 0; i < height; ++i)
    for (u64 c = 0; c < width; ++c) out[(m0 + i) * n + n0 + c] = from_acc<O>(own.sums[i * S::WIDTH + c]);
}

template <class L, class R, class O>
X_DEVICE void multiply(u64 batches, u64 m, u64 n, u64 k, const Operand<L>& lhs, const Operand<R>& rhs, O* out) {
#ifdef __AVX512F__
  if constexpr (sameType<L, bf16> && sameType<R, bf16>) {
    if (x_amx) return tiles::multiplyAll(batches, m, n, k, lhs, rhs, out);
    if (::pairs::supported()) return pairs::multiplyAll(batches, m, n, k, lhs, rhs, out);
  }
#endif
  typedef Sizes<sum_t<L>> S;
  if (m == 0) return;
  Workspace<sum_t<L>> own;
  const u64 across = tilesOf(n, S::WIDTH);
  u64 most = S::HEIGHT;
  const u64 wanted = split::blocks() < FEW ? split::blocks() : FEW;
  while (most / 2 >= LEAST_HEIGHT && across * tilesOf(m, most) * batches < wanted) most /= 2;
  const u64 down = tilesOf(m, most), high = tilesOf(tilesOf(m, down), S::ROWS) * S::ROWS, rows = tilesOf(m, high);
  X_FOR_SPLIT(at, across * rows * batches) {
    const u64 n0 = at % across * S::WIDTH, m0 = at / across % rows * high, b = at / across / rows;
    multiplyTile(lhs.of(b), rhs.of(b), m0, m - m0 < high ? m : m0 + high, n0, n, k, out + b * m * n, own);
  }
}

/** As on GPUs (gemm/tile.h). */
template <class L, class R, class O>
X_DEVICE void multiplyGroups(u64 n, u64 k, const L* rows, const R* weights, const u32* tiles, u32 count, O* out) {
  typedef Sizes<sum_t<L>> S;
  Workspace<sum_t<L>> own;
  const u64 across = tilesOf(n, S::WIDTH);
  X_FOR_SPLIT(at, across * count) {
    const u32* group = tiles + at / across * 3;
    const Operand<L> l = {rows, 0, k, 1};
    const Operand<R> r = {weights + group[0] * n * k, 0, 1, k};
    for (u64 m0 = group[1], end = group[2]; m0 < end; m0 += S::HEIGHT)
      multiplyTile(l, r, m0, end - m0 < S::HEIGHT ? end : m0 + S::HEIGHT, at % across * S::WIDTH, n, k, out, own);
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
