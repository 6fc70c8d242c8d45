// index_add, scatter and scatter_add: writes through ids. One thread owns a (left, right) position and walks the indexed
// dim in order, so there are no atomics, the result is the same on every run, and of equal ids scatter's last one wins.
// An id outside the destination, or the largest value of its type, is skipped. f16, bf16 and f8e4m3 add in f32 and round
// after each addition, as candle does.
#pragma once

namespace indexing {

struct Set {
  template <class T>
  static X_DEVICE T apply(T, T v) {
    return v;
  }
};

struct Add {
  template <class T>
  static X_DEVICE T apply(T old, T v) {
    if constexpr (sameType<T, i64>) return (i64)((u64)old + (u64)v);
    else if constexpr (sameType<T, i32>) return (i32)((u32)old + (u32)v);
    else return from_acc<T>((acc_t<T>)(to_acc(old) + to_acc(v)));
  }
};

#if X_HOST
/**
 * ROWS rows at once, since in one an addition waits for that before. An element stays in a register while the ids are its own: adding to
 * memory would wait longer.
 */
template <u32 ROWS, class Op, class T, class I>
X_DEVICE void scatterRows(const Taken<I>& taken, const I* ids, u64 ids_step, const T* inp, T* out, u64 src_dim, u64 dst_dim) {
  u64 held[ROWS];
  T value[ROWS] = {};
#pragma unroll
  for (u32 r = 0; r < ROWS; ++r) held[r] = NOWHERE;
  for (u64 j = 0; j < src_dim; ++j) {
#pragma unroll
    for (u32 r = 0; r < ROWS; ++r) {
      const I own = ids[r * ids_step + j];
      if (!taken(own)) continue;
      T* row = out + r * dst_dim;
      const u64 id = (u64)own;
      if (id != held[r]) {
        if (held[r] != NOWHERE) row[held[r]] = value[r];
        held[r] = id;
        value[r] = row[id];
      }
      value[r] = Op::apply(value[r], inp[r * src_dim + j]);
    }
  }
#pragma unroll
  for (u32 r = 0; r < ROWS; ++r)
    if (held[r] != NOWHERE) out[r * dst_dim + held[r]] = value[r];
}
#endif

/** out[pre, ids[..], post] = Op(itself, inp[pre, j, post]) for j in order. ids has inp's shape, or (flat) only j. */
template <class Op, bool flat, class T, class I>
X_DEVICE void scatter(const I* ids, const T* inp, T* out, u64 left, u64 src_dim, u64 dst_dim, u64 right) {
#if X_HOST
  const Taken<I> taken(dst_dim);
  // Positions of one row go side by side: each step of j is a run of neighbouring elements.
  for (u64 i = launch::eachBegin(left * right), end = launch::eachEnd(left * right); i < end;) {
    const Place at = placeOf(i, right);
    const u64 count = right - at.column < end - i ? right - at.column : end - i;
    if (right == 1) {
      const u64 step = flat ? 0 : src_dim;
      const u64 some = end - i < 4 ? 1 : 4;
      (some == 4 ? scatterRows<4, Op, T, I> : scatterRows<1, Op, T, I>)(taken, ids + i * step, step, inp + i * src_dim,
                                                                        out + i * dst_dim, src_dim, dst_dim);
      i += some;
      continue;
    }
    for (u64 j = 0; j < src_dim; ++j) {
      const u64 from = (at.row * src_dim + j) * right + at.column;
      T* row = out + at.row * dst_dim * right + at.column;
      if (flat) {
        if (!taken(ids[j])) continue;
        const u64 id = (u64)ids[j];
        for (u64 c = 0; c < count; ++c) row[id * right + c] = Op::apply(row[id * right + c], inp[from + c]);
      } else {
        for (u64 c = 0; c < count; ++c) {
          const u64 id = (u64)ids[from + c];
          if (taken(ids[from + c])) row[id * right + c] = Op::apply(row[id * right + c], inp[from + c]);
        }
      }
    }
    i += count;
  }
#else
  X_FOR_EACH(i, left * right) {
    const Place at = placeOf(i, right);
    T* row = out + at.row * dst_dim * right + at.column;
    u64 from = at.row * src_dim * right + at.column;
    for (u64 j = 0; j < src_dim; ++j, from += right) {
      const u64 id = checked(ids[flat ? j : from], dst_dim);
      if (id != NOWHERE) row[id * right] = Op::apply(row[id * right], inp[from]);
    }
  }
#endif
}

}  // namespace indexing
