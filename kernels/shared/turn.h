// Squares of eight vectors of eight elements, or of sixteen, in the registers of a host.
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

/** The same of sixteen: halves are merged four times. */
template <class Sixteen>
X_DEVICE void turnSixteen(Sixteen (&v)[16]) {
#pragma unroll
  for (u32 step = 0; step < 4; ++step) {
    Sixteen t[16];
#pragma unroll
    for (u32 i = 0; i < 8; ++i) {
      t[2 * i] = __builtin_shufflevector(v[i], v[i + 8], 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
      t[2 * i + 1] = __builtin_shufflevector(v[i], v[i + 8], 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
    }
#pragma unroll
    for (u32 i = 0; i < 16; ++i) v[i] = t[i];
  }
}

#endif
