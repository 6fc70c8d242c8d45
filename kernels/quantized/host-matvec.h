// One activation column times many rows on the host. Two cores are faster than their memory here, so rows are taken one
// after the other, a single stream that is prefetched far ahead, across the ends of rows: several rows at once compute more
// and read less.
#pragma once

#if X_HOST
namespace quant {

/** 256 activations in a format's order (host-steps.h); for each unit their scale, and the scale times their sum. */
template <class Q>
struct StepColumn {
  alignas(64) Bytes64 u[4];
  typename Units<Q>::Floats d, sums;

  X_DEVICE void open(const u8* y) {
#pragma unroll
    for (u32 v = 0; v < 4; ++v)
#pragma unroll
      for (u32 i = 0; i < 4; ++i) {
        const u32 at = Step<Q>::at(v, i);
        __builtin_memcpy((u8*)&u[v] + 16 * i, y + at / 32 * Q8_1::BYTES + 4 + at % 32, 16);
      }
#pragma unroll
    for (u32 g = 0; g < 8; ++g) {
      const u8* b = y + g * Q8_1::BYTES;
      const float scale = Q8_1::scale(b);
      const Ints s = dot32<false>(Bytes{} + 1, loadAs<Signed>(b + 4));
      const i32 low = s[0] + s[1] + s[2] + s[3], high = s[4] + s[5] + s[6] + s[7];
      if constexpr (Q::HALVES) {
        d[2 * g] = d[2 * g + 1] = scale;
        sums[2 * g] = scale * (float)low;
        sums[2 * g + 1] = scale * (float)high;
      } else {
        d[g] = scale;
        sums[g] = scale * (float)(low + high);
      }
    }
  }
};

// dot32 for 64 bytes.
#if defined(__AVX512BW__)
template <bool isSigned>
X_DEVICE Shorts32 pairs64(Bytes64 q, Bytes64 u) {
  if constexpr (isSigned) {
    const Signed64 s = (Signed64)q, w = (Signed64)u;
    return (Shorts32)__builtin_ia32_pmaddubsw512((Chars64)__builtin_elementwise_abs(s), (Chars64)(s < 0 ? -w : w));
  } else {
    return (Shorts32)__builtin_ia32_pmaddubsw512((Chars64)q, (Chars64)u);
  }
}
template <bool isSigned>
X_DEVICE Ints16 dot64(Bytes64 q, Bytes64 u) {
  return (Ints16)__builtin_ia32_pmaddwd512(pairs64<isSigned>(q, u), Shorts32{} + 1);
}
/** Two products added, of quants below 32. */
X_DEVICE Ints16 dot64(Bytes64 q0, Bytes64 u0, Bytes64 q1, Bytes64 u1) {
  return (Ints16)__builtin_ia32_pmaddwd512(pairs64<false>(q0, u0) + pairs64<false>(q1, u1), Shorts32{} + 1);
}
#else
template <bool isSigned>
X_DEVICE Ints16 dot64(Bytes64 q, Bytes64 u) {
  const u8 *qs = (const u8*)&q, *us = (const u8*)&u;
  const Ints low = dot32<isSigned>(loadAs<Bytes>(qs), loadAs<Signed>(us));
  const Ints high = dot32<isSigned>(loadAs<Bytes>(qs + 32), loadAs<Signed>(us + 32));
  return __builtin_shufflevector(low, high, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
}
X_DEVICE Ints16 dot64(Bytes64 q0, Bytes64 u0, Bytes64 q1, Bytes64 u1) { return dot64<false>(q0, u0) + dot64<false>(q1, u1); }
#endif

typedef float Floats16 __attribute__((vector_size(64)));

/** The units' values in the lanes of vector V's products, four lanes a sixteen. */
template <class Q, u32 V>
X_DEVICE Floats16 spread(typename Units<Q>::Floats s) {
  constexpr int a = Step<Q>::unit(V, 0), b = Step<Q>::unit(V, 1), c = Step<Q>::unit(V, 2), d = Step<Q>::unit(V, 3);
  return __builtin_shufflevector(s, s, a, a, a, a, b, b, b, b, c, c, c, c, d, d, d, d);
}

template <class V>
X_DEVICE float laneSum(V v) {
  constexpr u32 LANES = sizeof(V) / sizeof(float);
  float lanes[LANES];
  __builtin_memcpy(lanes, &v, sizeof(V));
#pragma unroll
  for (u32 w = LANES / 2; w > 0; w /= 2)
#pragma unroll
    for (u32 i = 0; i < w; ++i) lanes[i] += lanes[i + w];
  return lanes[0];
}

template <class Q>
X_DEVICE float rowTimes(const u8* row, const StepColumn<Q>* y, u64 steps) {
  constexpr u32 AHEAD = 8192, LINE = 64;
  Floats16 acc[2] = {};
  typename Units<Q>::Floats low = {};
  for (u64 k = 0; k < steps; ++k) {
    const u8* b = row + k * Step<Q>::BYTES;
    const StepColumn<Q>& c = y[k];
#pragma unroll
    for (u32 at = 0; at < Step<Q>::BYTES; at += LINE) __builtin_prefetch(b + AHEAD + at);
    const typename Units<Q>::Floats scales = Units<Q>::scales(b), d = scales * c.d;
    if constexpr (Q::MINS || Q::OFFSET != 0) low += Units<Q>::minima(b, scales) * c.sums;
    Bytes64 q[4];
    Step<Q>::quants(b, q);
    if constexpr (Step<Q>::PAIRED) {
      acc[0] += __builtin_convertvector(dot64(q[0], c.u[0], q[1], c.u[1]), Floats16) * spread<Q, 0>(d);
      acc[1] += __builtin_convertvector(dot64(q[2], c.u[2], q[3], c.u[3]), Floats16) * spread<Q, 2>(d);
    } else {
      acc[0] += __builtin_convertvector(dot64<Q::SIGNED>(q[0], c.u[0]), Floats16) * spread<Q, 0>(d);
      acc[1] += __builtin_convertvector(dot64<Q::SIGNED>(q[1], c.u[1]), Floats16) * spread<Q, 1>(d);
      acc[0] += __builtin_convertvector(dot64<Q::SIGNED>(q[2], c.u[2]), Floats16) * spread<Q, 2>(d);
      acc[1] += __builtin_convertvector(dot64<Q::SIGNED>(q[3], c.u[3]), Floats16) * spread<Q, 3>(d);
    }
  }
  return laneSum(acc[0] + acc[1]) - laneSum(low);
}

/** dst[row] = row . y for rows begin to end; y is one q8_1 column. */
template <class Q>
X_DEVICE void hostRowsTimesColumn(const u8* x, u64 rowBytes, const u8* y, float* dst, u64 columns, u64 begin, u64 end) {
  constexpr u64 AT_ONCE = 64;  // steps whose activations stay in the first cache, and on the stack
  const u64 steps = columns / 256;
  for (u64 row = begin; row < end; ++row) dst[row] = 0.0f;
  for (u64 first = 0; first < steps; first += AT_ONCE) {
    const u64 count = steps - first < AT_ONCE ? steps - first : AT_ONCE;
    StepColumn<Q> column[AT_ONCE];
    for (u64 k = 0; k < count; ++k) column[k].open(y + (first + k) * 8 * Q8_1::BYTES);
    const u8* at = x + first * Step<Q>::BYTES;
    for (u64 row = begin; row < end; ++row) dst[row] += rowTimes<Q>(at + row * rowBytes, column, count);
  }
  if constexpr (Q::SIZE < 256) {
    const u64 rest = columns % 256 / Q::SIZE;
    for (u64 row = begin; rest > 0 && row < end; ++row) {
      const u8* last[1] = {x + row * rowBytes + steps * Step<Q>::BYTES};
      float out[1][1];
      hostTile<Q, 1, 1>(last, y + steps * 8 * Q8_1::BYTES, 0, rest, out);
      dst[row] += out[0][0];
    }
  }
}

}  // namespace quant
#endif
