// cols_*: contiguous [left, size, right] reduced over the middle, our own form. The middle is cut into `parts` shares so
// that few columns still fill a device: with one share the result is final, with more every share gives an accumulator
// (a position, for argmin and argmax) to out [left, parts, right], which cols_done_* combines in order. On GPUs a block
// takes a tile of columns, 16 bytes a thread, its threads on several rows at once; the host walks rows of columns.
#pragma once

namespace reduce {

struct Share {
  u64 begin, end;
  X_DEVICE static Share of(u64 size, u64 parts, u64 part) {
    const u64 each = (size + parts - 1) / parts;
    const u64 begin = part * each < size ? part * each : size;
    return {begin, size - begin < each ? size : begin + each};
  }
};

#if !X_HOST

// 16 bytes, but no more than 8 columns: each has a result of its own in registers.
constexpr u32 MOST_COLUMNS = FEW_REGISTERS ? 4 : 8;
template <class T>
constexpr u32 COLUMNS_AT_ONCE = vecWidth<T> < MOST_COLUMNS ? vecWidth<T> : MOST_COLUMNS;

// Threads of a block that read; in larger blocks the others wait.
constexpr u32 READERS = 256;

/** A block's threads as `rows` rows of `across` columns of vectors. */
struct ColumnTile {
  u32 across, rows, x, y;
  X_DEVICE static ColumnTile of(u64 vectors) {
    const u32 readers = blockThreads() < READERS ? blockThreads() : READERS;
    u32 across = 1;
    while (across < WARP && across < vectors && 2 * across <= readers) across *= 2;
    return {across, readers / across, threadIndex() % across, threadIndex() / across};
  }
};

/** What the readers have of each of their V columns, in shared memory, from where a thread takes all rows of a column. */
template <class A, u32 V>
struct Gathered {
  // Neighbouring columns of a vector in banks of their own.
  static constexpr u32 STRIDE = READERS + WARP / V, SIZE = V * STRIDE;
  A* at;
  X_DEVICE void put(u32 e, A value) const { at[e * STRIDE + threadIndex()] = value; }
  X_DEVICE A get(const ColumnTile& tile, u32 column, u32 row) const {
    return at[column % V * STRIDE + row * tile.across + column / V];
  }
};

/** What a thread has of one column: a tally. */
template <class Op, class T, bool staged = isSum<Op> && sameType<acc_t<T>, float> && sizeof(T) < 4>
struct ColumnTally {
  static constexpr u32 STEPS = 0;
  Tally<Op, acc_t<T>> tally;

  X_DEVICE static ColumnTally none() { return {Tally<Op, acc_t<T>>::none()}; }
  X_DEVICE void take(acc_t<T> v) { tally.take(v); }
  X_DEVICE void settle() {}
  X_DEVICE Handed<Op, T> handed() const { return ::handed<Op, T>(tally); }
};

/**
 * A sum of floats of 16 bits or fewer: two plain f32, of which one takes the terms of STEPS steps before it joins the other. Its
 * error stays far below the last bit of T, and the two-sum of a tally would be most of what the kernel does for such elements.
 */
template <class Op, class T>
struct ColumnTally<Op, T, true> {
  static constexpr u32 STEPS = 64;
  float total, recent;

  X_DEVICE static ColumnTally none() { return {0.0f, 0.0f}; }
  X_DEVICE void take(float v) { recent += v; }
  X_DEVICE void settle() { total += recent, recent = 0.0f; }
  X_DEVICE Handed<Op, T> handed() const { return {total + recent}; }
};

template <class T, u32 V>
using Rows = Vec<T, V>[IN_FLIGHT];

// Visits the rows of one share that are this thread's: several(row, values) for IN_FLIGHT of them, `step` apart, which are
// loaded at once, and one(row, values) for what is left; settle() behind every STEPS times several, 0 for no limit.
template <u32 V, u32 STEPS, class T, class Several, class One, class Settle>
X_DEVICE void visitRows(const T* column, u64 right, Share share, u32 first, u32 step, Several several, One one, Settle settle) {
  u64 j = share.begin + first;
  for (bool last = false; !last; settle()) {
    const u64 run = j + (u64)STEPS * IN_FLIGHT * step;
    last = STEPS == 0 || run >= share.end;
    const u64 end = last ? share.end : run;
    for (; j + (IN_FLIGHT - 1) * step < end; j += IN_FLIGHT * step) {
      Rows<T, V> v;
#pragma unroll
      for (u32 l = 0; l < IN_FLIGHT; ++l) v[l] = loadVec<V>(column + (j + l * step) * right);
      several(j, v);
    }
  }
  for (; j < share.end; j += step) one(j, loadVec<V>(column + j * right));
}

template <class Op, u32 V, class T>
X_DEVICE void columnTiles(u64 left, u64 size, u64 right, u64 parts, const T* src, Handed<Op, T>* partial, T* dst) {
  typedef acc_t<T> A;
  typedef Handed<Op, T> H;
  X_SHARED(H, memory, (Gathered<H, V>::SIZE));
  const Gathered<H, V> gathered{memory};
  const u64 vectors = right / V;
  const ColumnTile tile = ColumnTile::of(vectors);
  const u64 tiles = (vectors + tile.across - 1) / tile.across;
  X_FOR_SPLIT(item, left * parts * tiles) {
    const u64 share = item / tiles, vector = item % tiles * tile.across + tile.x;
    typedef ColumnTally<Op, T> C;
    C mine[V];
#pragma unroll
    for (u32 e = 0; e < V; ++e) mine[e] = C::none();
    if (vector < vectors && tile.y < tile.rows) {
      visitRows<V, C::STEPS>(
          src + share / parts * size * right + vector * V, right, Share::of(size, parts, share % parts), tile.y, tile.rows,
          [&](u64, const Rows<T, V>& rows) {
#pragma unroll
            for (u32 e = 0; e < V; ++e) {
              A terms[IN_FLIGHT];
#pragma unroll
              for (u32 l = 0; l < IN_FLIGHT; ++l) terms[l] = to_acc(rows[l][e]);
              mine[e].take(inPairs<Op>(terms));
            }
          },
          [&](u64, const Vec<T, V>& row) {
#pragma unroll
            for (u32 e = 0; e < V; ++e) mine[e].take(to_acc(row[e]));
          },
          [&]() {
#pragma unroll
            for (u32 e = 0; e < V; ++e) mine[e].settle();
          });
    }
    if (tile.y < tile.rows)
#pragma unroll
      for (u32 e = 0; e < V; ++e) gathered.put(e, mine[e].handed());
    barrier();
    const u64 column0 = item % tiles * tile.across * V;
    X_FOR_BLOCK(c, tile.across * V) {
      if (column0 + c >= right) break;
      H total = gathered.get(tile, (u32)c, 0);
      for (u32 r = 1; r < tile.rows; ++r) total.join(gathered.get(tile, (u32)c, r));
      const u64 to = share * right + column0 + c;
      if (parts == 1) dst[to] = from_acc<T>(total.result());
      else partial[to] = total;
    }
    barrier();
  }
}

template <class Op, u32 V, class T>
X_DEVICE void columnIndexTiles(u64 left, u64 size, u64 right, u64 parts, const T* src, u32* out) {
  typedef acc_t<T> A;
  X_SHARED(A, valueMemory, (Gathered<A, V>::SIZE));
  X_SHARED(u32, indexMemory, (Gathered<u32, V>::SIZE));
  const Gathered<A, V> values{valueMemory};
  const Gathered<u32, V> indices{indexMemory};
  const u64 vectors = right / V;
  const ColumnTile tile = ColumnTile::of(vectors);
  const u64 tiles = (vectors + tile.across - 1) / tile.across;
  X_FOR_SPLIT(item, left * parts * tiles) {
    const u64 share = item / tiles, vector = item % tiles * tile.across + tile.x;
    Best<A> best[V];
#pragma unroll
    for (u32 e = 0; e < V; ++e) best[e] = Best<A>::template none<Op>();
    if (vector < vectors && tile.y < tile.rows) {
      const auto one = [&](u64 j, const Vec<T, V>& row) {
#pragma unroll
        for (u32 e = 0; e < V; ++e) best[e].template take<Op>(to_acc(row[e]), (u32)j);
      };
      const auto several = [&](u64 j, const Rows<T, V>& rows) {
#pragma unroll
        for (u32 l = 0; l < IN_FLIGHT; ++l) one(j + l * tile.rows, rows[l]);
      };
      visitRows<V, 0>(src + share / parts * size * right + vector * V, right, Share::of(size, parts, share % parts), tile.y,
                      tile.rows, several, one, []() {});
    }
    if (tile.y < tile.rows)
#pragma unroll
      for (u32 e = 0; e < V; ++e) {
        values.put(e, best[e].value);
        indices.put(e, best[e].index);
      }
    barrier();
    const u64 column0 = item % tiles * tile.across * V;
    X_FOR_BLOCK(c, tile.across * V) {
      if (column0 + c >= right) break;
      Best<A> all = Best<A>::template none<Op>();
      for (u32 r = 0; r < tile.rows; ++r) all.template merge<Op>(values.get(tile, (u32)c, r), indices.get(tile, (u32)c, r));
      out[share * right + column0 + c] = all.index;
    }
    barrier();
  }
}

#else

// Columns that the host walks at once.
constexpr u32 RUN = 256;

// body(share, column, width) for runs of columns of each share: the host's unit of work.
template <class F>
X_DEVICE void forColumnRuns(u64 left, u64 parts, u64 right, F body) {
  const u64 tiles = (right + RUN - 1) / RUN;
  X_FOR_SPLIT(item, left * parts * tiles) {
    const u64 column = item % tiles * RUN;
    body(item / tiles, column, right - column < RUN ? right - column : RUN);
  }
}

// A run's columns of ROWS rows from p; gives the row after them.
template <class Op, u32 ROWS, class T, class A = acc_t<T>>
X_DEVICE const T* takeRows(Tally<Op, A>* total, const T* p, u64 right, u64 width) {
  for (u64 c = 0; c < width; ++c) {
    A terms[ROWS];
    for (u32 r = 0; r < ROWS; ++r) terms[r] = to_acc(p[r * right + c]);
    total[c].take(inPairs<Op>(terms));
  }
  return p + ROWS * right;
}

#endif

template <class Op, class T>
X_DEVICE void columns(u64 left, u64 size, u64 right, u64 parts, const T* src, Handed<Op, T>* partial, T* dst) {
#if X_HOST
  typedef acc_t<T> A;
  forColumnRuns(left, parts, right, [=](u64 share, u64 column, u64 width) {
    Tally<Op, A> total[RUN];
    for (u64 c = 0; c < width; ++c) total[c] = Tally<Op, A>::none();
    const Share rows = Share::of(size, parts, share % parts);
    const T* p = src + (share / parts * size + rows.begin) * right + column;
    const T* end = p + (rows.end - rows.begin) * right;
    while (end - p >= (i64)(8 * right)) p = takeRows<Op, 8>(total, p, right, width);
    if (end - p >= (i64)(4 * right)) p = takeRows<Op, 4>(total, p, right, width);
    if (end - p >= (i64)(2 * right)) p = takeRows<Op, 2>(total, p, right, width);
    if (p < end) takeRows<Op, 1>(total, p, right, width);
    const u64 to = share * right + column;
    if (parts == 1) {
      for (u64 c = 0; c < width; ++c) dst[to + c] = from_acc<T>(total[c].result());
    } else {
      for (u64 c = 0; c < width; ++c) partial[to + c] = handed<Op, T>(total[c]);
    }
  });
#else
  constexpr u32 V = COLUMNS_AT_ONCE<T>;
  if (right % V == 0 && aligned16(src)) columnTiles<Op, V>(left, size, right, parts, src, partial, dst);
  else columnTiles<Op, 1>(left, size, right, parts, src, partial, dst);
#endif
}

template <class Op, class T>
X_DEVICE void columnsDone(u64 left, u64 parts, u64 right, const Handed<Op, T>* partial, T* dst) {
  X_FOR_EACH(i, left * right) {
    const u64 pre = i / right;
    const Handed<Op, T>* p = partial + (pre * parts * right + (i - pre * right));
    auto total = Tally<Op, acc_t<T>>::none();
#pragma unroll 16
    for (u64 part = 0; part < parts; ++part) total.join(p[part * right]);
    dst[i] = from_acc<T>(total.result());
  }
}

/** Positions within the middle; with several parts NO_INDEX for an empty share. */
template <class Op, class T>
X_DEVICE void columnsIndex(u64 left, u64 size, u64 right, u64 parts, const T* src, u32* out) {
#if X_HOST
  typedef acc_t<T> A;
  forColumnRuns(left, parts, right, [=](u64 share, u64 column, u64 width) {
    Best<A> best[RUN];
    for (u64 c = 0; c < width; ++c) best[c] = Best<A>::template none<Op>();
    const Share rows = Share::of(size, parts, share % parts);
    const T* p = src + (share / parts * size + rows.begin) * right + column;
    for (u64 j = rows.begin; j < rows.end; ++j, p += right)
      for (u64 c = 0; c < width; ++c) best[c].template take<Op>(to_acc(p[c]), (u32)j);
    for (u64 c = 0; c < width; ++c) out[share * right + column + c] = best[c].index;
  });
#else
  constexpr u32 V = COLUMNS_AT_ONCE<T>;
  if (right % V == 0 && aligned16(src)) columnIndexTiles<Op, V>(left, size, right, parts, src, out);
  else columnIndexTiles<Op, 1>(left, size, right, parts, src, out);
#endif
}

/** Reads the shares' values again through their positions. */
template <class Op, class T>
X_DEVICE void columnsIndexDone(u64 left, u64 size, u64 parts, u64 right, const T* src, const u32* partial, u32* dst) {
  X_FOR_EACH(i, left * right) {
    const u64 pre = i / right, post = i - pre * right;
    Best<acc_t<T>> best = Best<acc_t<T>>::template none<Op>();
#pragma unroll 4
    for (u64 part = 0; part < parts; ++part) {
      const u32 index = partial[(pre * parts + part) * right + post];
      if (index != NO_INDEX) best.template take<Op>(to_acc(src[(pre * size + index) * right + post]), index);
    }
    dst[i] = best.index;
  }
}

}  // namespace reduce
