// Matrix products of f16 and bf16 on matrix units. An operand's rows (of the left matrix) or columns (of the right one)
// are its lines; a line's elements follow each other along k. Either lines are contiguous along k or their neighbours
// are contiguous across them, 16-byte aligned both ways: launchGemm sees to it. A block of 256 threads computes a tile.
//   NVIDIA: 128 x 256, 64 deep, slabs in flight by cp.async; warpgroup products take them as they lie (sm_90a), elsewhere
//           ldmatrix turns operands that lie the other way
//   AMD:    128 x 128, 32 deep, the next slab in registers, turned on its way into LDS
#pragma once

#if X_MMA
namespace gemm {

/** An operand by lines: element (line, k) is data[line * lineStride + k * depthStride]. */
template <class T>
struct Lines {
  const T* data;
  u64 lineStride, depthStride, lines, depth;
  X_DEVICE bool alongDepth() const { return depthStride == 1; }
};

// Tiles of the result in an order in which blocks that run together share operands: groups of 8 tiles down.
X_DEVICE void placeTile(u64 index, u64 down, u64 across, u64& row, u64& column) {
  constexpr u64 GROUP = 8;
  const u64 first = index / (GROUP * across) * GROUP;
  const u64 height = down - first < GROUP ? down - first : GROUP;
  const u64 within = index - first * across;
  row = first + within % height;
  column = within / height;
}

/** A warp's part of the tile: R x C tiles of 16 x 16 from (row, column) of the result. */
template <u32 R, u32 C, class T, class O>
X_DEVICE void storeTiles(const mma::Tile<T> (&acc)[R][C], u64 row, u64 column, u64 m, u64 n, O* out) {
#pragma unroll
  for (u32 r = 0; r < R; ++r)
#pragma unroll
    for (u32 c = 0; c < C; ++c) {
#if X_MMA_NVIDIA
      // Two neighbouring columns at a time.
#pragma unroll
      for (u32 i = 0; i < mma::Tile<T>::N; i += 2) {
        const u64 y = row + r * 16 + mma::rowOf(i), x = column + c * 16 + mma::columnOf(i);
        if (y >= m || x >= n) continue;
        O* to = out + y * n + x;
        Vec<O, 2> pair;
        if constexpr (sameType<O, float>) pair = {acc[r][c].v[i], acc[r][c].v[i + 1]};
        else pair = bitCast<Vec<O, 2>>(mma::roundPair<T>(acc[r][c].v[i], acc[r][c].v[i + 1]));
        if (n % 2 == 0) storeVec(to, pair);
        else {
          to[0] = pair[0];
          if (x + 1 < n) to[1] = pair[1];
        }
      }
#else
#pragma unroll
      for (u32 i = 0; i < mma::Tile<T>::N; ++i) {
        const u64 y = row + r * 16 + mma::rowOf(i), x = column + c * 16 + mma::columnOf(i);
        if (y < m && x < n) out[y * n + x] = from_acc<O>(acc[r][c].v[i]);
      }
#endif
    }
}

#if X_MMA_NVIDIA

constexpr u32 MMA_THREADS = 256, MMA_M = 128, MMA_N = 256, MMA_K = 64;

/**
 * LINES x 64 elements in shared memory: rows of 128 bytes, which are a line's depths or, for 64 lines after the other, lines
 * at a depth. The pieces of 16 bytes of a row are turned so that no two meet in a bank, as wgmma.h has it.
 */
template <u32 LINES, bool ALONG_DEPTH>
struct Slab {
  static constexpr u32 BYTES = LINES * MMA_K * 2, ROW = 128, BLOCK = MMA_K * ROW;

  /** A thread's copies of one slab after another: COPIES pieces, STEP lines or depths apart. */
  template <class T>
  struct Feed {
    static constexpr u32 PIECES = ALONG_DEPTH ? 8 : LINES / 8, STEP = MMA_THREADS / PIECES;
    static constexpr u32 COPIES = (ALONG_DEPTH ? LINES : MMA_K) / STEP;
    const T* from;
    u64 stride;     // elements between two pieces
    u32 to;         // where the first piece goes in a slab; the others keep its turn, STEP being a multiple of 8
    i32 depthLeft;  // from the first piece's depth on
    u32 lineBytes;  // across lines: what of a piece lies inside; along depth: one bit for each piece whose line exists

    X_DEVICE Feed(const Lines<T>& x, u64 line0) {
      const u32 piece = threadIndex() % PIECES, first = threadIndex() / PIECES;
      const u64 line = line0 + (ALONG_DEPTH ? first : piece * 8);
      const u32 depth = ALONG_DEPTH ? piece * 8 : first;
      from = x.data + line * x.lineStride + depth * x.depthStride;
      stride = (ALONG_DEPTH ? x.lineStride : x.depthStride) * STEP;
      to = piece / 8 * BLOCK + first * ROW + (piece % 8 ^ first % 8) * 16;
      depthLeft = (i32)(x.depth - depth);
      lineBytes = 0;
      if (!ALONG_DEPTH) lineBytes = line >= x.lines ? 0 : x.lines - line < 8 ? (u32)(x.lines - line) * 2 : 16;
      else
        for (u32 i = 0; i < COPIES; ++i) lineBytes |= (u32)(line + i * STEP < x.lines) << i;
    }

    /** Begins the copy of the next slab; what lies outside becomes zero. */
    X_DEVICE void next(u32 slab) {
      const u32 depthBytes = depthLeft <= 0 ? 0 : depthLeft < 8 ? (u32)depthLeft * 2 : 16;
#pragma unroll
      for (u32 i = 0; i < COPIES; ++i) {
        const u32 bytes = ALONG_DEPTH ? (lineBytes >> i & 1) * depthBytes : depthLeft > (i32)(i * STEP) ? lineBytes : 0;
        // A copy of no bytes may name any address.
        mma::copyAsync(slab + to + i * STEP * ROW, from + i * stride, bytes);
      }
      from += ALONG_DEPTH ? MMA_K : stride * COPIES;
      depthLeft -= MMA_K;
    }
  };

#if X_WGMMA
  /** The lines from `line` on, a multiple of 64, at depths k .. k + 15. */
  static X_DEVICE u64 describe(u32 shared, u32 line, u32 k) {
    return ALONG_DEPTH ? wgmma::describe(shared + line * ROW + k * 2) : wgmma::describe(shared + line / 64 * BLOCK + k * ROW, BLOCK);
  }
#endif

  /** 16 lines from `line` at depths k .. k + 15, both multiples of 16, within the slab. */
  template <class T, bool RIGHT>
  static X_DEVICE mma::Operand<T> load(u32 shared, u32 line, u32 k) {
    mma::Operand<T> x;
    if (ALONG_DEPTH) {
      const u32 at = line + mma::rowToLoad<RIGHT>(), piece = k / 8 + mma::halfToLoad<RIGHT>();
      mma::loadMatrices(x.word, shared + at * ROW + (piece ^ at % 8) * 16);
    } else {
      const u32 at = k + mma::rowToLoad<!RIGHT>(), piece = line % 64 / 8 + mma::halfToLoad<!RIGHT>();
      mma::loadMatricesTransposed(x.word, shared + line / 64 * BLOCK + at * ROW + (piece ^ at % 8) * 16);
    }
    return x;
  }
};

/** The slabs of a tile, one after the other, of which as many as dynamic shared memory holds are there at once. */
template <bool LEFT, bool RIGHT, class T>
struct Slabs {
  typedef Slab<MMA_M, LEFT> Left;
  typedef Slab<MMA_N, RIGHT> Right;
  static constexpr u32 BYTES = Left::BYTES + Right::BYTES;
  typename Left::template Feed<T> left;
  typename Right::template Feed<T> right;
  u32 shared, end, reading, writing, unfetched;

  X_DEVICE Slabs(const Lines<T>& lhs, const Lines<T>& rhs, u64 row0, u64 column0)
      : left(lhs, row0), right(rhs, column0), shared(mma::sharedAddress(dynamicShared<u8>())) {
    end = shared + mma::dynamicSharedBytes() / BYTES * BYTES;
    reading = writing = shared;
    unfetched = (u32)((lhs.depth + MMA_K - 1) / MMA_K);
  }
  X_DEVICE u32 after(u32 slab) const { return slab + BYTES == end ? shared : slab + BYTES; }

  /** Begins to fetch the next slab, if there is one. */
  X_DEVICE void fetch() {
    if (unfetched > 0) {
      left.next(writing);
      right.next(writing + Left::BYTES);
      writing = after(writing);
      --unfetched;
    }
    mma::commitCopies();
  }
  /** The next slab that has arrived. */
  X_DEVICE u32 take() {
    const u32 slab = reading;
    reading = after(reading);
    return slab;
  }
  /** Slabs are reused by the block's next tile. */
  X_DEVICE void finish() {
    mma::awaitCopies<0>();
    barrier();
  }
};

#if X_WGMMA

// Four slabs: two are on their way while one is multiplied and another one may still be. A warpgroup has 64 rows.
template <bool LEFT, bool RIGHT, class T, class O>
X_DEVICE void mmaTile(const Lines<T>& lhs, const Lines<T>& rhs, u64 row0, u64 column0, O* out) {
  Slabs<LEFT, RIGHT, T> slabs(lhs, rhs, row0, column0);
  const u32 row = warpId() / 4 * 64;
  mma::Tile<T> acc[1][MMA_N / 16] = {};
  float(&sums)[MMA_N / 2] = reinterpret_cast<float(&)[MMA_N / 2]>(acc);
  u32 unmultiplied = slabs.unfetched;
  slabs.fetch();
  slabs.fetch();
#pragma unroll 1
  for (; unmultiplied > 0; --unmultiplied) {
    mma::awaitCopies<1>();
    wgmma::publish();
    barrier();
    const u32 slab = slabs.take();
    wgmma::begin();
#pragma unroll
    for (u32 k = 0; k < MMA_K; k += 16) {
      const u64 a = Slab<MMA_M, LEFT>::describe(slab, row, k);
      const u64 b = Slab<MMA_N, RIGHT>::describe(slab + Slab<MMA_M, LEFT>::BYTES, 0, k);
      wgmma::multiply<LEFT, RIGHT>(sums, a, b, (T*)nullptr);
    }
    wgmma::commit();
    // Goes where the slab before the last one was: all warpgroups are done with that since they met.
    slabs.fetch();
    wgmma::await<1>();
  }
  wgmma::await<0>();
  slabs.finish();
  storeTiles(acc, row0 + row + warpId() % 4 * 16, column0, lhs.lines, rhs.lines, out);
}

#else

// Of two or three slabs one is multiplied while the others are on their way.
template <bool LEFT, bool RIGHT, class T, class O>
X_DEVICE void mmaTile(const Lines<T>& lhs, const Lines<T>& rhs, u64 row0, u64 column0, O* out) {
  typedef Slab<MMA_M, LEFT> Left;
  typedef Slab<MMA_N, RIGHT> Right;
  Slabs<LEFT, RIGHT, T> slabs(lhs, rhs, row0, column0);
  const bool three = slabs.end - slabs.shared > 2 * slabs.BYTES;
  const u32 row = warpId() % 2 * 64, column = warpId() / 2 * 64;
  mma::Tile<T> acc[4][4] = {};
  u32 unmultiplied = slabs.unfetched;
  slabs.fetch();
  if (three) slabs.fetch();
#pragma unroll 1
  for (; unmultiplied > 0; --unmultiplied) {
    if (three) mma::awaitCopies<1>();
    else mma::awaitCopies<0>();
    barrier();
    slabs.fetch();
    const u32 left = slabs.take(), right = left + Left::BYTES;
    // While four tiles are multiplied the next ones' right operand is on its way, and one of the next left operands.
    mma::Operand<T> a[2][4], b[2];
#pragma unroll
    for (u32 i = 0; i < 4; ++i) a[0][i] = Left::template load<T, false>(left, row + i * 16, 0);
    b[0] = Right::template load<T, true>(right, column, 0);
#pragma unroll
    for (u32 step = 0; step < MMA_K / 4; ++step) {
      const u32 k = step / 4 * 16, j = step % 4, next = step + 1;
      if (next < MMA_K / 4) b[next % 2] = Right::template load<T, true>(right, column + next % 4 * 16, next / 4 * 16);
      if (k + 16 < MMA_K) a[(k / 16 + 1) % 2][j] = Left::template load<T, false>(left, row + j * 16, k + 16);
#pragma unroll
      for (u32 i = 0; i < 4; ++i) mma::multiply(acc[i][j], a[k / 16 % 2][i], b[step % 2]);
    }
  }
  slabs.finish();
  storeTiles(acc, row0 + row, column0 + column, lhs.lines, rhs.lines, out);
}

#endif

#else

constexpr u32 MMA_M = 128, MMA_N = 128, MMA_K = 32, PADDED = MMA_K + 8;
// Warps of 64 lanes take 64 x 64, of 32 lanes 64 x 32.
constexpr u32 WARP_ROWS = 4, WARP_COLUMNS = WARP == 64 ? 4 : 2;

/** A thread's 16 elements of 128 lines x 32 depths. */
template <class T>
struct Piece {
  Vec<T, 8> part[2];

  /** Along k: 8 elements of two lines, 64 apart; across: 8 lines at two neighbouring depths. */
  X_DEVICE void fetch(const Lines<T>& x, u64 line0, u64 k0) {
    const u32 thread = threadIndex();
#pragma unroll
    for (u32 i = 0; i < 2; ++i) {
      const bool along = x.alongDepth();
      const u64 line = line0 + (along ? thread / 4 + i * 64 : thread % 16 * 8);
      const u64 k = k0 + (along ? thread % 4 * 8 : thread / 16 * 2 + i);
      const u64 left = along ? (k < x.depth ? x.depth - k : 0) : (line < x.lines ? x.lines - line : 0);
      const bool in = line < x.lines && k < x.depth;
      const T* from = x.data + line * x.lineStride + k * x.depthStride;
      if (in && left >= 8) part[i] = loadVec<8>(from);
      else
#pragma unroll
        for (u32 e = 0; e < 8; ++e) part[i].v[e] = in && e < left ? from[e] : from_acc<T>(0.0f);
    }
  }

  /** slab[line * PADDED + k] */
  X_DEVICE void store(const Lines<T>& x, T* slab) const {
    const u32 thread = threadIndex();
    if (x.alongDepth()) {
#pragma unroll
      for (u32 i = 0; i < 2; ++i) storeVec(slab + (thread / 4 + i * 64) * PADDED + thread % 4 * 8, part[i]);
    } else {
#pragma unroll
      for (u32 e = 0; e < 8; ++e) {
        const u32 pair = bitCast<u16>(part[0].v[e]) | (u32)bitCast<u16>(part[1].v[e]) << 16;
        *(u32*)(slab + (thread % 16 * 8 + e) * PADDED + thread / 16 * 2) = pair;
      }
    }
  }
};

template <class T, class O>
X_DEVICE void mmaTile(const Lines<T>& lhs, const Lines<T>& rhs, u64 row0, u64 column0, O* out) {
  X_SHARED(T, left, MMA_M * PADDED);
  X_SHARED(T, right, MMA_N * PADDED);
  const u32 row = warpId() % 2 * 64, column = warpId() / 2 * WARP_COLUMNS * 16;
  mma::Tile<T> acc[WARP_ROWS][WARP_COLUMNS] = {};
  Piece<T> a, b;
  a.fetch(lhs, row0, 0);
  b.fetch(rhs, column0, 0);
  for (u64 k0 = 0; k0 < lhs.depth; k0 += MMA_K) {
    barrier();
    a.store(lhs, left);
    b.store(rhs, right);
    barrier();
    if (k0 + MMA_K < lhs.depth) {
      a.fetch(lhs, row0, k0 + MMA_K);
      b.fetch(rhs, column0, k0 + MMA_K);
    }
#pragma unroll
    for (u32 k = 0; k < MMA_K; k += mma::Unit<T>::K) {
      mma::Operand<T> y[WARP_COLUMNS];
#pragma unroll
      for (u32 j = 0; j < WARP_COLUMNS; ++j) y[j] = mma::load<T, true>(right + (column + j * 16) * PADDED + k, PADDED * 2);
#pragma unroll
      for (u32 i = 0; i < WARP_ROWS; ++i) {
        const mma::Operand<T> x = mma::load<T>(left + (row + i * 16) * PADDED + k, PADDED * 2);
#pragma unroll
        for (u32 j = 0; j < WARP_COLUMNS; ++j) mma::multiply(acc[i][j], x, y[j]);
      }
    }
  }
  barrier();
  storeTiles(acc, row0 + row, column0 + column, lhs.lines, rhs.lines, out);
}

#endif

template <class T, class O>
X_DEVICE void multiplyMma(u64 batches, u64 m, u64 n, u64 k, const Operand<T>& lhs, const Operand<T>& rhs, O* out) {
  const u64 across = (n + MMA_N - 1) / MMA_N, down = (m + MMA_M - 1) / MMA_M;
  X_FOR_SPLIT(at, across * down * batches) {
    const u64 b = at / (across * down);
    u64 row, column;
    placeTile(at - b * across * down, down, across, row, column);
    const Operand<T> l = lhs.of(b), r = rhs.of(b);
    const Lines<T> x{l.data, l.row, l.column, m, k}, y{r.data, r.column, r.row, n, k};
    O* to = out + b * m * n;
#if X_MMA_NVIDIA
    if (x.alongDepth() && y.alongDepth()) mmaTile<true, true>(x, y, row * MMA_M, column * MMA_N, to);
    else if (x.alongDepth()) mmaTile<true, false>(x, y, row * MMA_M, column * MMA_N, to);
    else if (y.alongDepth()) mmaTile<false, true>(x, y, row * MMA_M, column * MMA_N, to);
    else mmaTile<false, false>(x, y, row * MMA_M, column * MMA_N, to);
#else
    mmaTile(x, y, row * MMA_M, column * MMA_N, to);
#endif
  }
}

}  // namespace gemm
#endif
