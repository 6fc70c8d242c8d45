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

/** The same of sixteen: squares of four within quarters of registers, then quarters. */
template <class Sixteen>
X_DEVICE void turnSixteen(Sixteen (&v)[16]) {
#define IN_QUARTERS(a, b, c, d) \
  a, b, c, d, a + 4, b + 4, c + 4, d + 4, a + 8, b + 8, c + 8, d + 8, a + 12, b + 12, c + 12, d + 12
#define QUARTERS(a, b, c, d)                                                                                      \
  4 * a, 4 * a + 1, 4 * a + 2, 4 * a + 3, 4 * b, 4 * b + 1, 4 * b + 2, 4 * b + 3, 4 * c, 4 * c + 1, 4 * c + 2,    \
      4 * c + 3, 4 * d, 4 * d + 1, 4 * d + 2, 4 * d + 3
  Sixteen t[16];
#pragma unroll
  for (u32 i = 0; i < 16; i += 4) {
    const Sixteen low01 = __builtin_shufflevector(v[i], v[i + 1], IN_QUARTERS(0, 16, 1, 17));
    const Sixteen high01 = __builtin_shufflevector(v[i], v[i + 1], IN_QUARTERS(2, 18, 3, 19));
    const Sixteen low23 = __builtin_shufflevector(v[i + 2], v[i + 3], IN_QUARTERS(0, 16, 1, 17));
    const Sixteen high23 = __builtin_shufflevector(v[i + 2], v[i + 3], IN_QUARTERS(2, 18, 3, 19));
    t[i] = __builtin_shufflevector(low01, low23, IN_QUARTERS(0, 1, 16, 17));
    t[i + 1] = __builtin_shufflevector(low01, low23, IN_QUARTERS(2, 3, 18, 19));
    t[i + 2] = __builtin_shufflevector(high01, high23, IN_QUARTERS(0, 1, 16, 17));
    t[i + 3] = __builtin_shufflevector(high01, high23, IN_QUARTERS(2, 3, 18, 19));
  }
#pragma unroll
  for (u32 i = 0; i < 4; ++i) {
    const Sixteen even0 = __builtin_shufflevector(t[i], t[4 + i], QUARTERS(0, 2, 4, 6));
    const Sixteen odd0 = __builtin_shufflevector(t[i], t[4 + i], QUARTERS(1, 3, 5, 7));
    const Sixteen even1 = __builtin_shufflevector(t[8 + i], t[12 + i], QUARTERS(0, 2, 4, 6));
    const Sixteen odd1 = __builtin_shufflevector(t[8 + i], t[12 + i], QUARTERS(1, 3, 5, 7));
    v[i] = __builtin_shufflevector(even0, even1, QUARTERS(0, 2, 4, 6));
    v[8 + i] = __builtin_shufflevector(even0, even1, QUARTERS(1, 3, 5, 7));
    v[4 + i] = __builtin_shufflevector(odd0, odd1, QUARTERS(0, 2, 4, 6));
    v[12 + i] = __builtin_shufflevector(odd0, odd1, QUARTERS(1, 3, 5, 7));
  }
#undef IN_QUARTERS
#undef QUARTERS
}

#endif
