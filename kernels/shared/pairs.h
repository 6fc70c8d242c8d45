// Dot products of pairs of bf16 on hosts that have them (AVX512-BF16): a lane of 32 bits holds two values, which an instruction
// multiplies with two others and adds up in f32. Products and sums below the least normal number of f32 are 0. Whether a CPU
// has the instruction is asked when a kernel runs, since x86-64-v4 does not say.
#pragma once

#if X_HOST && defined(__AVX512F__)
/** Of functions that multiply pairs: none is inlined into one without it. */
#define X_PAIRS_TARGET __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx512bf16")))

namespace pairs {

typedef float Sums __attribute__((vector_size(64)));
typedef u32 Words __attribute__((vector_size(64)));
typedef u32 LooseWords __attribute__((vector_size(64), aligned(4), may_alias));
typedef __bf16 Bf16s __attribute__((vector_size(64)));

/** Whether this CPU has the instruction; it is asked once, since a virtual one takes microseconds to answer. */
X_DEVICE bool supported() {
  static u32 known = 0;
  if (known == 0) {
    u32 a = 7, b, c = 0, d;
    __asm__ volatile("cpuid" : "+a"(a), "=b"(b), "+c"(c), "=d"(d));
    const u32 leaves = a;
    a = 7, c = 1;
    __asm__ volatile("cpuid" : "+a"(a), "=b"(b), "+c"(c), "=d"(d));
    known = leaves >= 1 && (a >> 5 & 1) ? 1 : 2;
  }
  return known == 1;
}

/** sums + left . right, pair by pair. */
X_PAIRS_TARGET X_DEVICE Sums add(Sums sums, Words left, Words right) {
  return __builtin_ia32_dpbf16ps_512(sums, (Bf16s)left, (Bf16s)right);
}

typedef u16 Narrow __attribute__((vector_size(32)));

/** Sixteen values in the bits of bf16, rounded as from_acc does; those below the least normal number become 0. */
X_PAIRS_TARGET X_DEVICE Narrow narrow(Sums v) {
  Narrow bits;
  __asm__("vcvtneps2bf16 %1, %0" : "=v"(bits) : "v"(v));
  return bits;
}

}  // namespace pairs
#else
#define X_PAIRS_TARGET
#endif
