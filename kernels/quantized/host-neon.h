// What 64-bit ARM has for 64 bytes at once, sixteen of them a register: look-ups in a table, and products of bytes. Quants of all
// formats are below 128, so one instruction for bytes with sign serves them all.
#pragma once

#if X_HOST && defined(__aarch64__)
#define QUANT_NEON 1
namespace quant {

/** The table's bytes at the lowest four bits of `index`; the instruction gives 0 beyond the table. */
X_DEVICE Bytes16 lookUp(Bytes16 table, Bytes16 index) {
  return (Bytes16)__builtin_neon_vqtbl1q_v((Signed16)table, (Signed16)(index & 15), 48);
}

#if defined(__ARM_FEATURE_DOTPROD)
/** In each lane start and the products of its bytes in all N vectors, of which this is register r. */
template <u32 LARGEST, u32 N, class V>
X_DEVICE Ints4 registerDots(const V (&q)[N], const V (&u)[N], u32 r, Ints4 start) {
  Ints4 sum = start;
#pragma unroll
  for (u32 v = 0; v < N; ++v)
    sum = __builtin_neon_vdotq_s32((Signed16)sum, (Signed16)loadAs<Bytes16>((const u8*)&q[v] + 16 * r),
                                   (Signed16)loadAs<Bytes16>((const u8*)&u[v] + 16 * r), 34);
  return sum;
}
#else
typedef i8 Signed8 __attribute__((vector_size(8)));
template <u32 HALF>
X_DEVICE Words8 widenedHalf(const u8* p) {
  return __builtin_convertvector(loadAs<Signed8>(p + 8 * HALF), Words8);
}
X_DEVICE Ints4 neighboursAdded(Words8 v) { return __builtin_neon_vpaddlq_v((Signed16)v, 34); }

// Each product in a lane of 16 bits, as many as fit one upon the other.
template <u32 LARGEST, u32 N, class V>
X_DEVICE Ints4 registerDots(const V (&q)[N], const V (&u)[N], u32 r, Ints4 start) {
  constexpr u32 TOGETHER = LARGEST < 64 ? 4 : 2;
  Ints4 low = {}, high = {};
#pragma unroll
  for (u32 v = 0; v < N; v += TOGETHER) {
    Words8 lows = {}, highs = {};
#pragma unroll
    for (u32 w = v; w < N && w < v + TOGETHER; ++w) {
      const u8 *a = (const u8*)&q[w] + 16 * r, *b = (const u8*)&u[w] + 16 * r;
      lows += widenedHalf<0>(a) * widenedHalf<0>(b);
      highs += widenedHalf<1>(a) * widenedHalf<1>(b);
    }
    low += neighboursAdded(lows);
    high += neighboursAdded(highs);
  }
  return start + (__builtin_shufflevector(low, high, 0, 2, 4, 6) + __builtin_shufflevector(low, high, 1, 3, 5, 7));
}
#endif

}  // namespace quant
#else
#define QUANT_NEON 0
#endif
