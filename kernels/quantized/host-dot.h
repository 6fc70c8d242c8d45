// Int8 products of 256 values with 256 activations by what a level has: VNNI adds the four products of a lane, of bytes
// without and with sign; before it pairs are added in 16 bits. ARM has its own way (host-neon.h). Sums of integers, so all
// levels give the same.
#pragma once

#if X_HOST
namespace quant {

/** The largest magnitude of a format's quants. */
template <class Q>
constexpr u32 largestOf() {
  if (codebookOf<Q>() == Codebook::Four || sameType<Q, Q6_K>) return 63;
  if (codebookOf<Q>() == Codebook::Eight) return sameType<Q, IQ1_S> || sameType<Q, IQ1_M> ? 9 : 43;
  const bool bytes = sameType<Q, Q8_0> || sameType<Q, Q8_1_Weight> || sameType<Q, Q8_K> || sameType<Q, IQ4_NL> ||
                     sameType<Q, IQ4_XS>;
  return bytes ? 128 : 31;
}

/** The same as far as products ask for it: the most that 16 bits hold four or two pairs of, or one. */
template <class Q>
constexpr u32 pairsOf() {
  return largestOf<Q>() < 32 ? 31 : largestOf<Q>() < 64 ? 63 : 128;
}

// A vector as registers of the level's width.
#if defined(__AVX512BW__)
typedef Bytes64 Register;
typedef Shorts32 PairSums;
#elif defined(__AVX2__)
typedef Bytes Register;
typedef Words16 PairSums;
#else
typedef Bytes16 Register;
typedef Words8 PairSums;
#endif
constexpr u32 REGISTERS = 64 / sizeof(Register);
X_DEVICE Register registerOf(const Bytes64& v, u32 r) { return loadAs<Register>((const u8*)&v + r * sizeof(Register)); }

#if !QUANT_VNNI && !QUANT_NEON
// Sums of two neighbouring products: at most 2 * 128 * 127.
template <bool isSigned>
X_DEVICE PairSums pairSums(Register q, Register u) {
#if defined(__AVX512BW__)
  if constexpr (isSigned) {
    const Signed64 s = (Signed64)q, w = (Signed64)u;
    return (PairSums)__builtin_ia32_pmaddubsw512((Chars64)__builtin_elementwise_abs(s), (Chars64)(s < 0 ? -w : w));
  } else {
    return (PairSums)__builtin_ia32_pmaddubsw512((Chars64)q, (Chars64)u);
  }
#elif defined(__AVX2__)
  if constexpr (isSigned) {
    const Chars magnitude = (Chars)__builtin_elementwise_abs((Signed)q);
    return (PairSums)__builtin_ia32_pmaddubsw256(magnitude, __builtin_ia32_psignb256((Chars)u, (Chars)q));
  } else {
    return (PairSums)__builtin_ia32_pmaddubsw256((Chars)q, (Chars)u);
  }
#elif defined(__SSSE3__)
  if constexpr (isSigned) {
    const Chars16 magnitude = (Chars16)__builtin_elementwise_abs((Signed16)q);
    return (PairSums)__builtin_ia32_pmaddubsw128(magnitude, __builtin_ia32_psignb128((Chars16)u, (Chars16)q));
  } else {
    return (PairSums)__builtin_ia32_pmaddubsw128((Chars16)q, (Chars16)u);
  }
#else
  PairSums sums;
#pragma unroll
  for (u32 i = 0; i < sizeof(PairSums) / 2; ++i) {
    const u8 a = q[2 * i], b = q[2 * i + 1];
    const i32 first = (isSigned ? (i8)a : a) * (i8)u[2 * i], second = (isSigned ? (i8)b : b) * (i8)u[2 * i + 1];
    sums[i] = (short)(first + second);
  }
  return sums;
#endif
}
X_DEVICE auto fourSums(PairSums pairs) {
#if defined(__AVX512BW__)
  return __builtin_ia32_pmaddwd512(pairs, PairSums{} + 1);
#elif defined(__AVX2__)
  return __builtin_ia32_pmaddwd256(pairs, PairSums{} + 1);
#elif defined(__SSSE3__)
  return __builtin_ia32_pmaddwd128(pairs, PairSums{} + 1);
#else
  return Ints4{pairs[0] + pairs[1], pairs[2] + pairs[3], pairs[4] + pairs[5], pairs[6] + pairs[7]};
#endif
}
#endif

/** In each lane start and the products of its bytes in all N vectors; q is larger by BIAS where it is signed. */
template <bool isSigned, u32 LARGEST, u32 N>
X_DEVICE Ints16 dots(const Bytes64 (&q)[N], const Bytes64 (&u)[N], Ints16 start) {
  Ints16 sums = start;
#pragma unroll
  for (u32 r = 0; r < REGISTERS; ++r) {
#if QUANT_VNNI
#if defined(__AVX512VNNI__)
#pragma unroll
    for (u32 v = 0; v < N; ++v) sums = (Ints16)__builtin_ia32_vpdpbusd512(sums, q[v], (Chars64)u[v]);
#else
    Ints sum = loadAs<Ints>((const u8*)&start + 32 * r);
#pragma unroll
    for (u32 v = 0; v < N; ++v)
      sum = (Ints)__builtin_ia32_vpdpbusd256(sum, registerOf(q[v], r), (Chars)registerOf(u[v], r));
    __builtin_memcpy((u8*)&sums + 32 * r, &sum, 32);
#endif
#elif QUANT_NEON
    const Ints4 lanes = registerDots<LARGEST>(q, u, r, loadAs<Ints4>((const u8*)&start + 16 * r));
    __builtin_memcpy((u8*)&sums + 16 * r, &lanes, 16);
#else
    // Sums of pairs are added in 16 bits while these hold them.
    constexpr u32 TOGETHER = LARGEST < 32 ? N : LARGEST < 64 ? 2 : 1;
    auto sum = fourSums(PairSums{});
#pragma unroll
    for (u32 v = 0; v < N; v += TOGETHER) {
      PairSums pairs = pairSums<isSigned>(registerOf(q[v], r), registerOf(u[v], r));
#pragma unroll
      for (u32 w = v + 1; w < v + TOGETHER; ++w)
        pairs += pairSums<isSigned>(registerOf(q[w], r), registerOf(u[w], r));
      sum += fourSums(pairs);
    }
    decltype(sum) lanes;
    __builtin_memcpy(&lanes, (const u8*)&start + r * sizeof(lanes), sizeof(lanes));
    lanes += sum;
    __builtin_memcpy((u8*)&sums + r * sizeof(lanes), &lanes, sizeof(lanes));
#endif
  }
  return sums;
}

/** Sums of the activations in a lane. */
template <u32 N>
X_DEVICE Ints16 sumsOf(const Bytes64 (&u)[N]) {
  Bytes64 ones[N];
#pragma unroll
  for (u32 v = 0; v < N; ++v) ones[v] = Bytes64{} + 1;
  return dots<false, 1>(ones, u, Ints16{});
}

}  // namespace quant
#endif
