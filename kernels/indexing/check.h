// check_ids: reports an id outside [low, size), where low is 0 or less. `report` is six words, zeros at first, of which the
// first id found takes possession: taken, op, dim, position among the ids, the id, and the size. What op and dim mean is
// the caller's affair. Reports of earlier launches stay.
#pragma once

namespace indexing {

template <class I>
X_DEVICE bool isInside(I id, i64 low, u64 size) {
  return id < (I)0 ? (i64)id >= low : (u64)id < size;
}

/** ids may be strided (info = its dims and strides). */
template <class I>
X_DEVICE void check(u64 numel, u64 num_dims, const u64* info, const I* ids, i64 low, u64 size, u64 op, u64 dim, u64* report) {
  const u64* strides = info == nullptr ? nullptr : info + num_dims;
#if X_HOST
  // Nearly always nothing is found: a loop without a branch, which is vectorised.
  if (info == nullptr) {
    bool all = true;
    X_FOR_EACH(i, numel) all &= isInside(ids[i], low, size);
    if (all) return;
  }
#endif
  X_FOR_EACH(i, numel) {
    const I id = ids[info == nullptr ? i : stridedOffset(i, num_dims, info, strides)];
    if (isInside(id, low, size) || atomics::compareAndSwap(report, 0, 1) != 0) continue;
    report[1] = op;
    report[2] = dim;
    report[3] = i;
    report[4] = (u64)(i64)id;
    report[5] = size;
  }
}

}  // namespace indexing
