// dp4a(a, b, c): c plus the dot product of two vectors of four signed bytes. One instruction on RDNA2 and later, CDNA,
// gfx906 and NVIDIA; bytes unpacked elsewhere (gfx9-generic covers chips without it).
#pragma once

#if X_AMDGCN && (defined(__GFX11__) || defined(__GFX12__))
#define X_DP4A 2
#elif X_AMDGCN && (defined(__gfx906__) || defined(__gfx908__) || defined(__gfx90a__) || defined(__gfx940__) ||        \
                   defined(__gfx941__) || defined(__gfx942__) || defined(__gfx950__) || defined(__gfx9_4_generic__) || \
                   defined(__gfx1011__) || defined(__gfx1012__) || defined(__gfx1030__) || defined(__gfx1031__) ||     \
                   defined(__gfx1032__) || defined(__gfx1033__) || defined(__gfx1034__) || defined(__gfx1035__) ||     \
                   defined(__gfx1036__) || defined(__gfx10_3_generic__))
#define X_DP4A 1
#else
#define X_DP4A 0
#endif

X_DEVICE i32 dp4a(i32 a, i32 b, i32 c) {
#if X_DP4A == 2
  return __builtin_amdgcn_sudot4(true, a, true, b, c, false);
#elif X_DP4A == 1
  return __builtin_amdgcn_sdot4(a, b, c, false);
#elif X_NVPTX
  i32 r;
  asm("dp4a.s32.s32 %0, %1, %2, %3;" : "=r"(r) : "r"(a), "r"(b), "r"(c));
  return r;
#else
#pragma unroll
  for (u32 byte = 0; byte < 4; ++byte) c += (i32)(i8)(a >> (8 * byte)) * (i32)(i8)(b >> (8 * byte));
  return c;
#endif
}
