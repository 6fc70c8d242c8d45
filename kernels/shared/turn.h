// Squares of eight vectors of eight elements, in the registers of a host.
#pragma once

#if X_HOST

/** Rows become columns: halves are merged three times. */
template <class Eight>
X_DEVICE void turnEight(Eight (&v)[8]) {
#pragma unroll
  for (u32 step = 0; step < 3; ++step) {
    Eight t[8];
#pragma unroll
    for (u32 i = 0; i < 4; ++i) {
      t[2 * i] = __builtin_shufflevector(v[i], v[i + 4], 0, 8, 1, 9, 2, 10, 3, 11);
      t[2 * i + 1] = __builtin_shufflevector(v[i], v[i + 4], 4, 12, 5, 13, 6, 14, 7, 15);
    }
#pragma unroll
    for (u32 i = 0; i < 8; ++i) v[i] = t[i];
  }
}

#endif
