// fast_{sum,min,max,argmin,argmax}: candle's reductions over the trailing dims of a strided source, one block an output.
// candle walks the whole index chain for every element; here a group whose dims step evenly (one reduced dim, or
// contiguous ones) is read with a single stride. Beside them our own: `rows_*` for many
// contiguous rows whose start is a multiple of 16 bytes, and `part_*`/`done_*`, which split few long rows over many blocks.
#pragma once

namespace reduce {

// Where the elements of one output lie: at `base + j * step`, or (step 0) by the index chain.
struct Groups {
  u64 size, dims;
  const u64 *info, *strides;
  u64 step;

  X_DEVICE static Groups of(u64 size, u64 num_dims, const u64* info) {
    Groups g = {size, num_dims, info, info + num_dims, 1};
    if (info == nullptr) return g;
    u64 covered = 1, next = 0;
    g.step = 0;
    u64 first = 0;
    for (u64 d = num_dims; covered < size && d-- > 0;) {
      if (info[d] == 1) continue;
      if (first != 0 && g.strides[d] != next) return g;
      if (first == 0) first = g.strides[d] + 1;
      next = g.strides[d] * info[d];
      covered *= info[d];
    }
    // Stride 0 (a broadcast dim) goes through the chain too.
    if (covered == size) g.step = first == 0 ? 1 : first - 1;
    return g;
  }
  X_DEVICE u64 base(u64 output) const {
    return info == nullptr ? output * size : stridedOffset(output * size, dims, info, strides);
  }
  X_DEVICE u64 chain(u64 output, u64 j) const { return stridedOffset(output * size + j, dims, info, strides); }
};

#if X_HOST
X_DEVICE u64 outputsOf(u64 numel, u64 size) { return size == 0 ? split::blocks() : (numel + size - 1) / size; }
#define X_FOR_OUTPUTS(output, numel, size) X_FOR_SPLIT(output, outputsOf(numel, size))
#else
// Without the division by which their number is known.
X_DEVICE bool isOutput(u64 output, u64 numel, u64 size) {
  return size == 0 ? output < split::blocks() : output * size < numel;
}
#define X_FOR_OUTPUTS(output, numel, size) \
  for (u64 output = split::block(), output##_step = split::blocks(); isOutput(output, numel, size); output += output##_step)
#endif
X_DEVICE u64 lengthOf(u64 output, u64 numel, u64 size) { return numel - output * size < size ? numel - output * size : size; }

// What kernels share that take one long range, or any layout: for those of many rows a call would cost a twentieth.
template <class Op, class T>
X_OUTLINED Handed<Op, T> overRange(const T* p, u64 n) {
  return overBlockAt<Op>(p, n);
}
template <class Op, class T>
X_OUTLINED u32 indexOverRange(const T* p, u64 n) {
  return indexOverBlockAt<Op>(p, n);
}

template <class Op, class T>
X_DEVICE void fast(u64 numel, u64 size, u64 num_dims, const u64* info, const T* src, T* dst) {
  typedef acc_t<T> A;
  const Groups groups = Groups::of(size, num_dims, info);
  X_FOR_OUTPUTS(output, numel, size) {
    const u64 n = size == 0 ? 0 : lengthOf(output, numel, size), step = groups.step;
    const T* p = src + (n == 0 ? 0 : groups.base(output));
    const auto stepped = [p, step](u64 j) { return to_acc(p[j * step]); };
    // One at a time: the index chain's registers leave no room for more.
    const auto chained = [&](u64 j) { return to_acc(src[groups.chain(output, j)]); };
#if X_HOST
    A result;
    if (n == 0) result = Op::template identity<A>();
    else if (step == 1) result = overRange<Op>(p, n).result();
    else if (step != 0) result = overBlock<Op, T>(n, stepped).result();
    else result = overBlock<Op, T, 1>(n, chained).result();
#else
    Tally<Op, A> mine;
    if (step == 1 && vectorises(p, n)) mine = shareOf<Op>(p, n, threadIndex(), blockThreads());
    else if (step != 0) mine = shareBy<Op, T, FEW_REGISTERS ? 1 : LANES<A>>(n, stepped);
    else mine = shareBy<Op, T, 1>(n, chained);
    const A result = ofBlock<Op, T>(mine).result();
#endif
    if (threadIndex() == 0) dst[output] = from_acc<T>(result);
  }
}

template <class Op, class T>
X_DEVICE void fastIndex(u64 numel, u64 size, u64 num_dims, const u64* info, const T* src, u32* dst) {
  typedef acc_t<T> A;
  const Groups groups = Groups::of(size, num_dims, info);
  X_FOR_OUTPUTS(output, numel, size) {
    const u64 n = size == 0 ? 0 : lengthOf(output, numel, size), step = groups.step;
    const T* p = src + (n == 0 ? 0 : groups.base(output));
    const auto stepped = [p, step](u64 j) { return to_acc(p[j * step]); };
    const auto chained = [&](u64 j) { return to_acc(src[groups.chain(output, j)]); };
#if X_HOST
    u32 index;
    if (step == 1) index = indexOverRange<Op>(p, n);
    else if (step != 0) index = indexOverBlock<Op, A>(n, stepped);
    else index = indexOverBlock<Op, A>(n, chained);
#else
    Best<A> mine;
    if (step == 1 && vectorises(p, n)) mine = bestOfShare<Op>(p, n, threadIndex(), blockThreads());
    else if (step != 0) mine = bestBy<Op, A>(n, stepped);
    else mine = bestBy<Op, A, 1>(n, chained);
    const u32 index = winnerOf<Op>(mine);
#endif
    if (threadIndex() == 0) dst[output] = index;
  }
}

/** Contiguous rows of `size` elements, a warp each (the host: a block each). */
template <class Op, class T>
X_DEVICE void rows(u64 rows, u64 size, const T* src, T* dst) {
#if X_HOST
  X_FOR_SPLIT(row, rows) dst[row] = from_acc<T>(overBlockAt<Op>(src + row * size, size).result());
#else
  for (u64 row = split::block() * warpsInBlock() + warpId(); row < rows; row += split::blocks() * warpsInBlock()) {
    const auto tally = ofWarp<Op, T>(shareOf<Op>(src + row * size, size, laneId(), lanes::active()));
    if (laneId() == 0) dst[row] = from_acc<T>(tally.result());
  }
#endif
}

template <class Op, class T>
X_DEVICE void rowsIndex(u64 rows, u64 size, const T* src, u32* dst) {
#if X_HOST
  X_FOR_SPLIT(row, rows) dst[row] = indexOverBlockAt<Op>(src + row * size, size);
#else
  for (u64 row = split::block() * warpsInBlock() + warpId(); row < rows; row += split::blocks() * warpsInBlock()) {
    typedef typename Carried<acc_t<T>>::type C;
    const Best<acc_t<T>> best = bestOfShare<Op>(src + row * size, size, laneId(), lanes::active());
    const acc_t<T> winner = (acc_t<T>)warpReduce<Op>((C)best.value);
    const u32 index = warpReduce<Min>(best.index != NO_INDEX && sameValue(best.value, winner) ? best.index : NO_INDEX);
    if (laneId() == 0) dst[row] = index;
  }
#endif
}

/** partial[row * parts + part] = Op over the part's share of a contiguous row; item = row * parts + part. */
template <class Op, class T>
X_DEVICE void part(u64 rows, u64 size, u64 parts, const T* src, Handed<Op, T>* partial) {
  X_FOR_SPLIT(item, rows * parts) {
    const u64 row = item / parts, p = item % parts;
    const u64 each = ((size + parts - 1) / parts + 15) / 16 * 16;
    const u64 begin = p * each < size ? p * each : size, end = begin + each < size ? begin + each : size;
    const Handed<Op, T> tally = overRange<Op>(src + row * size + begin, end - begin);
    if (threadIndex() == 0) partial[item] = tally;
  }
}

template <class Op, class T>
X_DEVICE void done(u64 rows, u64 parts, const Handed<Op, T>* partial, T* dst) {
  X_FOR_SPLIT(row, rows) {
    auto mine = Tally<Op, acc_t<T>>::none();
    X_FOR_BLOCK(part, parts) mine.join(partial[row * parts + part]);
    const auto tally = ofBlock<Op, T>(mine);
    if (threadIndex() == 0) dst[row] = from_acc<T>(tally.result());
  }
}

/** As `part`, giving the extremum's index in its row; an empty share gives NO_INDEX. */
template <class Op, class T>
X_DEVICE void partIndex(u64 rows, u64 size, u64 parts, const T* src, u32* partial) {
  X_FOR_SPLIT(item, rows * parts) {
    const u64 row = item / parts, p = item % parts;
    const u64 each = (size + parts - 1) / parts;
    const u64 begin = p * each < size ? p * each : size, end = begin + each < size ? begin + each : size;
    const T* at = src + row * size + begin;
    const u32 index = indexOverRange<Op>(at, end - begin);
    if (threadIndex() == 0) partial[item] = index == NO_INDEX ? NO_INDEX : index + (u32)begin;
  }
}

/** The winner of the parts, whose values are read again through their indices. Parts are in order: the first of equals wins. */
template <class Op, class T>
X_DEVICE void doneIndex(u64 rows, u64 size, u64 parts, const T* src, const u32* partial, u32* dst) {
  X_FOR_SPLIT(row, rows) {
    const T* values = src + row * size;
    const u32* indices = partial + row * parts;
    const u32 winner = indexOverBlock<Op, acc_t<T>>(parts, [values, indices](u64 j) {
      return to_acc(values[indices[j] == NO_INDEX ? indices[0] : indices[j]]);
    });
    if (threadIndex() == 0) dst[row] = indices[winner];
  }
}

/**
 * candle's sum_*: info = dims, strides, then the summed dims' sizes and their strides in the contiguous source, outer dims
 * first; the sums are added to what is in dst. candle adds every element with an atomic; here one thread or one block
 * makes all of a sum, so that f32 keeps its precision and every run gives the same bits.
 */
template <class T>
X_DEVICE void sumInto(u64 numel, u64 num_dims, u64 num_sum_dims, const u64* info, const T* src, T* dst) {
  const u64* sizes = info + 2 * num_dims;
  const u64* steps = sizes + num_sum_dims;
  const bool contiguous = isContiguous(num_dims, info, info + num_dims);
  u64 terms = 1;
  for (u64 d = 0; d < num_sum_dims; ++d) terms *= sizes[d];
  if (terms == 0) return;
  const auto term = [=](u64 output, u64 j) {
    u64 i = output;
    for (u64 d = num_sum_dims; d-- > 0; j /= sizes[d])
      i = (i / steps[d] * sizes[d] + j % sizes[d]) * steps[d] + i % steps[d];
    return to_acc(src[contiguous ? i : stridedOffset(i, num_dims, info, info + num_dims)]);
  };
  const auto add = [=](u64 output, acc_t<T> sum) { dst[output] = from_acc<T>(to_acc(dst[output]) + sum); };
  if (terms <= blockThreads()) {
    X_FOR_EACH(output, numel / terms) {
      auto sum = Tally<WrapSum, acc_t<T>>::none();
      for (u64 j = 0; j < terms; ++j) sum.take(term(output, j));
      add(output, sum.result());
    }
    return;
  }
  X_FOR_SPLIT(output, numel / terms) {
    const auto sum = overBlock<WrapSum, T, 1>(terms, [=](u64 j) { return term(output, j); });
    if (threadIndex() == 0) add(output, sum.result());
  }
}

}  // namespace reduce
