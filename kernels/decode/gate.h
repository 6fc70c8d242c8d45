// The activation of a gate as numbers, for products whose weights are numbers too.
#pragma once

namespace decode {

/** act(gate) * up of rows of n values, that begin every `gateRow` and `upRow` values: y [rows, n]. */
template <class T>
struct Gate {
  u64 rows;
  u32 n;
  const float* gate;
  u64 gateRow;
  const float* up;
  u64 upRow;
  T* y;
};

template <class Act, class T>
X_DEVICE void gateAll(const Gate<T>& p) {
  early::await();
  early::letNextBegin();
#if X_HOST
  const u64 total = p.rows * p.n;
  for (u64 i = launch::eachBegin(total), end = launch::eachEnd(total); i < end;) {
    const u64 row = i / p.n, at = i % p.n, left = p.n - at, count = left < end - i ? left : end - i;
    const float *gate = p.gate + row * p.gateRow + at, *up = p.up + row * p.upRow + at;
    T* y = p.y + i;
    for (u64 e = 0; e < count; ++e) y[e] = from_acc<T>(Act::apply(gate[e]) * up[e]);
    i += count;
  }
#else
  const bool wide = p.n % 4 == 0 && p.gateRow % 4 == 0 && p.upRow % 4 == 0 && aligned16(p.gate) && aligned16(p.up) &&
                    alignedTo(p.y, 4 * sizeof(T));
  const u32 across = wide ? p.n / 4 : p.n;
  X_FOR_EACH(i, p.rows * across) {
    const u64 row = i / across, at = i - row * across;
    const float *gate = p.gate + row * p.gateRow, *up = p.up + row * p.upRow;
    if (!wide) {
      p.y[i] = from_acc<T>(Act::apply(gate[at]) * up[at]);
      continue;
    }
    const Vec<float, 4> g = loadVec<4>(gate + at * 4), u = loadVec<4>(up + at * 4);
    Vec<T, 4> y;
#pragma unroll
    for (u32 e = 0; e < 4; ++e) y[e] = from_acc<T>(Act::apply(g[e]) * u[e]);
    storeVec(p.y + i * 4, y);
  }
#endif
}

}  // namespace decode
