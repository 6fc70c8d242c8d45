// Sums of squares of a gradient by parts, which a sum over the parts of all gradients follows: the norm of what a step is made by.
#pragma once

namespace optim {

/** sums[part] of each of so many parts of `count` elements; parts beyond the elements are 0. */
template <class T>
X_DEVICE void squares(u64 count, u64 parts, const T* grad, acc_t<T>* sums) {
  typedef acc_t<T> A;
  const u64 each = (count + parts - 1) / parts;
  X_FOR_SPLIT(part, parts) {
    const u64 begin = part * each < count ? part * each : count, n = count - begin < each ? count - begin : each;
    const T* p = grad + begin;
    const A sum = reduce::overBlock<Sum, T>(n, [p](u64 j) {
      const A x = to_acc(p[j]);
      return x * x;
    }).result();
    if (threadIndex() == 0) sums[part] = sum;
  }
}

}  // namespace optim
