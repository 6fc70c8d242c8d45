// index_select and gather: reads through ids. An id that is negative, not below the dim's size, or the largest value of
// its type (candle's "no element") gives zeros, so no id can read outside the source. Callers for whom that value is an id
// like any other widen the ids, or take the kernels of view.h.
#pragma once

namespace indexing {

constexpr u64 NOWHERE = ~0ull;

/** The id as an index below `size`, else NOWHERE. */
template <class I>
X_DEVICE u64 indexOf(I id, u64 size) {
  return id >= (I)0 && (u64)id < size ? (u64)id : NOWHERE;
}

/** The same where the type's largest value is no element, as in candle. */
template <class I>
X_DEVICE u64 checked(I id, u64 size) {
  return id == convert::Limits<I>::high ? NOWHERE : indexOf(id, size);
}

/** Which ids `checked` takes, by one comparison: negative ones are the largest without their sign. */
template <class I>
struct Taken {
  u64 limit;

  X_DEVICE explicit Taken(u64 size) : limit(size < (u64)convert::Limits<I>::high ? size : (u64)convert::Limits<I>::high) {}
  X_DEVICE bool operator()(I id) const { return (u64)id < limit; }
};

// Values are only moved here, so they travel as words of their size.
template <u32 bytes>
using Bits = typename vec::Word<bytes>::type;

struct Place {
  u64 row, column;
};

// i = row * width + column.
X_DEVICE Place placeOf(u64 i, u64 width) {
  const u64 row = quotientOf(i, width);
  return Place{row, i - row * width};
}

/** Which row of the source each row of the result is: rows of `ids_dim` for each of the source's `src_dim`; ids may be strided. */
template <class I>
struct ChosenRows {
  const I* ids;
  u64 src_dim, ids_dim, num_dims;
  const u64 *dims, *strides;  // null where ids are contiguous

  /** One division less for the rows before the first `ids_dim`: all of them, where the dim is the first. */
  X_DEVICE Place placeOfRow(u64 row) const { return row < ids_dim ? Place{0, row} : placeOf(row, ids_dim); }
  X_DEVICE const I* id(const Place& at) const {
    return ids + (dims == nullptr ? at.column : stridedOffset(at.column, num_dims, dims, strides));
  }
  X_DEVICE u64 of(const Place& at, I id) const {
    const u64 index = checked(id, src_dim);
    return index == NOWHERE ? NOWHERE : at.row * src_dim + index;
  }
  X_DEVICE u64 of(u64 row) const {
    const Place at = placeOfRow(row);
    return of(at, *id(at));
  }
};

#if X_HOST
/** Bytes of a row that are fetched before it is copied. */
constexpr u64 PREFETCHED = 1024;

/** By vectors: for some kilobytes the C library takes instructions that begin slowly on some CPUs. */
inline __attribute__((noinline)) void copyBytes(u8* to, const u8* from, u64 bytes) {
  typedef u8 Loose __attribute__((vector_size(64), aligned(1), may_alias));
  u64 i = 0;
  for (; i + 256 <= bytes; i += 256) {
    Loose v[4];
#pragma unroll
    for (u32 j = 0; j < 4; ++j) v[j] = *(const Loose*)(from + i + j * 64);
#pragma unroll
    for (u32 j = 0; j < 4; ++j) *(Loose*)(to + i + j * 64) = v[j];
  }
  __builtin_memcpy(to + i, from + i, bytes - i);
}
#endif

#if X_HOST
/** out[row, column] = a row of inp chosen, or zeros; rows of `width` elements, elements shared by the grid. */
template <class W, class I>
X_DEVICE void copyRows(u64 numel, u64 width, const W* inp, W* out, const ChosenRows<I>& chosen) {
  const u64 begin = launch::eachBegin(numel), end = launch::eachEnd(numel);
  const bool isLong = width * sizeof(W) >= PREFETCHED;
  Place at = placeOf(begin, width);
  for (u64 i = begin, next = begin < end ? chosen.of(at.row) : 0; i < end; ++at.row, at.column = 0) {
    const u64 count = width - at.column < end - i ? width - at.column : end - i, from = next;
    // What the next row begins with is on its way while this one is copied.
    if (i + count < end) next = chosen.of(at.row + 1);
    if (isLong && next != NOWHERE)
      for (u64 b = 0; b < PREFETCHED; b += 64) __builtin_prefetch((const u8*)(inp + next * width) + b);
    if (from == NOWHERE) __builtin_memset(out + i, 0, count * sizeof(W));
    else if (count == 1) out[i] = inp[from * width + at.column];
    else copyBytes((u8*)(out + i), (const u8*)(inp + from * width + at.column), count * sizeof(W));
    i += count;
  }
}
#else
/** Moves elements one at a time, or 16 bytes of them: told at run time, for code around it that is long and there only once. */
template <u32 bytes>
struct Mover {
  typedef Vec<u32, 4> Value;
  const void* inp;
  void* out;
  bool wide;

  X_DEVICE Value load(u64 i) const {
    if (wide) return loadVec<4>((const u32*)inp + i * 4);
    Value value = {};
    const Bits<bytes> element = ((const Bits<bytes>*)inp)[i];
    if constexpr (bytes < 4) {
      value[0] = element;
    } else {
      const auto words = bitCast<Vec<u32, bytes / 4>>(element);
#pragma unroll
      for (u32 k = 0; k < bytes / 4; ++k) value[k] = words[k];
    }
    return value;
  }
  X_DEVICE void store(u64 i, const Value& value) const {
    if (wide) return storeVec((u32*)out + i * 4, value);
    Bits<bytes>* to = (Bits<bytes>*)out + i;
    if constexpr (bytes < 4) {
      *to = (Bits<bytes>)value[0];
    } else {
      Vec<u32, bytes / 4> words;
#pragma unroll
      for (u32 k = 0; k < bytes / 4; ++k) words[k] = value[k];
      *to = bitCast<Bits<bytes>>(words);
    }
  }
};

/** out[row, column] = a row of inp chosen, or zeros; rows of `width` moves, moves shared by the grid. */
template <u32 bytes, class I>
X_DEVICE void copyRows(u64 moves, u64 width, const Mover<bytes>& mover, const ChosenRows<I>& chosen) {
  typedef typename Mover<bytes>::Value Value;
  // A block takes two rows' pieces at once, each row's id looked up once: a piece waits for its id.
  constexpr u32 PIECE = 2, ROWS = 2;
  const u64 piece = PIECE * (u64)blockThreads();
  if (width >= piece) {
    const u64 rows = quotientOf(moves, width), pieces = quotientOf(width + piece - 1, piece);
    X_FOR_SPLIT(item, (rows + ROWS - 1) / ROWS * pieces) {
      const Place at = placeOf(item, pieces);
      const u64 start = at.column * piece + threadIndex();
      // All ids are on their way before the first is looked at. Behind the last row that row is read again, and not written.
      Place place[ROWS];
      const I* lies[ROWS];
      I id[ROWS];
#pragma unroll
      for (u32 r = 0; r < ROWS; ++r) {
        const u64 row = at.row * ROWS + r;
        place[r] = chosen.placeOfRow(row < rows ? row : rows - 1);
        lies[r] = chosen.id(place[r]);
      }
#pragma unroll
      for (u32 r = 0; r < ROWS; ++r) id[r] = *lies[r];
      u64 from[ROWS];
      Value value[ROWS][PIECE] = {};
#pragma unroll
      for (u32 r = 0; r < ROWS; ++r) from[r] = chosen.of(place[r], id[r]);
#pragma unroll
      for (u32 r = 0; r < ROWS; ++r) {
#pragma unroll
        for (u32 k = 0; k < PIECE; ++k) {
          const u64 c = start + k * blockThreads();
          if (from[r] != NOWHERE && c < width) value[r][k] = mover.load(from[r] * width + c);
        }
      }
#pragma unroll
      for (u32 r = 0; r < ROWS; ++r) {
#pragma unroll
        for (u32 k = 0; k < PIECE; ++k) {
          const u64 c = start + k * blockThreads();
          if (at.row * ROWS + r < rows && c < width) mover.store((at.row * ROWS + r) * width + c, value[r][k]);
        }
      }
    }
    return;
  }
  X_FOR_EACH(i, moves) {
    const Place at = placeOf(i, width);
    const u64 from = chosen.of(at.row);
    Value value = {};
    if (from != NOWHERE) value = mover.load(from * width + at.column);
    mover.store(i, value);
  }
}
#endif

/** inp [left, src_dim, right] to out [left, ids_dim, right]; ids may be strided (info = its dims and strides). */
template <u32 bytes, class I>
X_DEVICE void select(u64 numel, u64 num_dims, const u64* info, const I* ids, const void* inp, void* out, u64 src_dim, u64 ids_dim,
                     u64 right) {
  const bool flat = info == nullptr || isContiguous(num_dims, info, info + num_dims);
  const ChosenRows<I> chosen{ids, src_dim, ids_dim, num_dims, flat ? nullptr : info, flat ? nullptr : info + num_dims};
#if X_HOST
  copyRows(numel, right, (const Bits<bytes>*)inp, (Bits<bytes>*)out, chosen);
#else
  constexpr u32 perWord = 16 / bytes;
  const bool wide = right % perWord == 0 && aligned16(inp) && aligned16(out);
  copyRows(wide ? numel / perWord : numel, wide ? right / perWord : right, Mover<bytes>{inp, out, wide}, chosen);
#endif
}

/** out[pre, i, post] = inp[pre, ids[pre, i, post], post]; ids has out's shape. */
template <u32 bytes, class I>
X_DEVICE void gather(u64 numel, const I* ids, const void* inp, void* out, u64 src_dim, u64 ids_dim, u64 right) {
  const Bits<bytes>* from = (const Bits<bytes>*)inp;
  Bits<bytes>* to = (Bits<bytes>*)out;
#if X_HOST
  const Taken<I> taken(src_dim);
  // Ids of one `pre`, and of these what has neighbours in the source.
  const u64 each = ids_dim * right;
  for (u64 i = launch::eachBegin(numel), end = launch::eachEnd(numel); i < end;) {
    const u64 pre = i / each, last = pre * each + each < end ? pre * each + each : end;
    const Bits<bytes>* own = from + pre * src_dim * right;
    if (right == 1) {
      for (; i < last; ++i) to[i] = taken(ids[i]) ? own[ids[i]] : Bits<bytes>{};
      continue;
    }
    for (u64 column = i % right; i < last; column = 0)
      for (; i < last && column < right; ++i, ++column)
        to[i] = taken(ids[i]) ? own[(u64)ids[i] * right + column] : Bits<bytes>{};
  }
#else
  X_FOR_EACH(i, numel) {
    const Place at = placeOf(i, right);
    const u64 pre = placeOf(at.row, ids_dim).row;
    const u64 id = checked(ids[i], src_dim);
    Bits<bytes> value = {};
    if (id != NOWHERE) value = from[(pre * src_dim + id) * right + at.column];
    to[i] = value;
  }
#endif
}

}  // namespace indexing
