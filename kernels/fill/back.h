// copy_back_b{8,16,32,64}: a copy of a view that goes backwards along some dims: strides below 0, in two's complement. Our
// own, beside candle's ucopy, whose strides go forwards; it moves bits, so one kernel serves all dtypes of a size.
#pragma once

namespace back {

/** dst[i] = src[offset of element i]; info = dims ++ strides, which are read as signed. */
template <class T>
X_DEVICE void copy(u64 numel, u64 num_dims, const u64* info, const T* src, T* dst) {
#if X_HOST
  const u64 outer = num_dims - 1, inner = info[outer];
  const i64 step = (i64)info[num_dims + outer];
  for (u64 i = launch::eachBegin(numel), end = launch::eachEnd(numel); i < end;) {
    const u64 row = i / inner, column = i - row * inner;
    const u64 count = inner - column < end - i ? inner - column : end - i;
    const T* from = src + ((i64)stridedOffset(row, outer, info, info + num_dims) + (i64)column * step);
    T* to = dst + i;
    if (step == 1) {
      __builtin_memcpy(to, from, count * sizeof(T));
    } else if (step == -1) {
      for (u64 j = 0; j < count; ++j) to[j] = from[-(i64)j];
    } else {
      for (u64 j = 0; j < count; ++j) to[j] = from[(i64)j * step];
    }
    i += count;
  }
#else
  X_FOR_EACH(i, numel) dst[i] = src[(i64)stridedOffset(i, num_dims, info, info + num_dims)];
#endif
}

}  // namespace back
