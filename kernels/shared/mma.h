// Matrix units: D += A . Bt over tiles of 16 x 16 for a whole warp, both operands lying in shared memory as rows that are
// contiguous along k. One vocabulary for NVIDIA's mma.sync (sm_80 on), RDNA's WMMA (gfx11, gfx12) and CDNA's MFMA. How the
// instructions spread a tile over lanes: PTX ISA "Matrix multiply-accumulate", AMD's ISA guides and matrix calculator.
// X_MMA says that this target has them; where it has not, nothing of this is there.
#pragma once

namespace mma {

#if X_NVPTX
#define X_MMA_NVIDIA 1
#elif X_AMDGCN && defined(__GFX12__) && __has_builtin(__builtin_amdgcn_wmma_f32_16x16x16_f16_w32_gfx12)
#define X_MMA_GFX12 1
#elif X_AMDGCN && defined(__GFX11__) && __has_builtin(__builtin_amdgcn_wmma_f32_16x16x16_f16_w32)
#define X_MMA_GFX11 1
// Compilers of before gfx950 had such instructions take it for gfx942, whose instructions it has, too.
#elif X_AMDGCN && defined(__gfx950__) && __has_builtin(__builtin_amdgcn_mfma_f32_16x16x32_bf16)
#define X_MMA_CDNA 4
#elif X_AMDGCN && (defined(__gfx942__) || defined(__gfx950__) || defined(__gfx9_4_generic__))
#define X_MMA_CDNA 3
#elif X_AMDGCN && defined(__gfx90a__)
#define X_MMA_CDNA 2
#elif X_AMDGCN && defined(__gfx908__)
#define X_MMA_CDNA 1
#endif
#ifndef X_MMA_NVIDIA
#define X_MMA_NVIDIA 0
#endif

// 0 on AMD's chips before WMMA and MFMA, which packages/rocm-backend/src/matrix-units.ts knows by their names: no kernel is
// compiled for them that is only launched where there are such units.
#if X_AMDGCN && !X_MMA_CDNA && !defined(__GFX11__) && !defined(__GFX12__) && !defined(__gfx940__) && !defined(__gfx941__)
#define X_MMA_KERNELS 0
#else
#define X_MMA_KERNELS 1
#endif

#if X_MMA_NVIDIA || X_MMA_GFX12 || X_MMA_GFX11 || X_MMA_CDNA
#define X_MMA 1

// Elements along k that one instruction takes, and the 32-bit words of an operand that a lane holds.
template <class T>
struct Unit;
#define X_MMA_UNIT(T, K_, WORDS_) \
  template <>                     \
  struct Unit<T> {                \
    static constexpr u32 K = K_, WORDS = WORDS_; \
  };
#if X_MMA_NVIDIA
X_MMA_UNIT(f16, 16, 4)
X_MMA_UNIT(bf16, 16, 4)
X_MMA_UNIT(i8, 32, 4)
#elif X_MMA_GFX12
X_MMA_UNIT(f16, 16, 4)
X_MMA_UNIT(bf16, 16, 4)
X_MMA_UNIT(i8, 16, 2)
#elif X_MMA_GFX11  // both halves of a wave hold the same operand
X_MMA_UNIT(f16, 16, 8)
X_MMA_UNIT(bf16, 16, 8)
X_MMA_UNIT(i8, 16, 4)
#else
X_MMA_UNIT(f16, X_MMA_CDNA == 4 ? 32 : 16, X_MMA_CDNA == 4 ? 4 : 2)
X_MMA_UNIT(bf16, X_MMA_CDNA == 4 ? 32 : 16, X_MMA_CDNA == 4 ? 4 : 2)
// Sums of i8 are of the 32 elements that have a scale, so the 64 that CDNA 4 can take are no use.
X_MMA_UNIT(i8, X_MMA_CDNA >= 3 ? 32 : 16, X_MMA_CDNA >= 3 ? 2 : 1)
#endif
#undef X_MMA_UNIT

template <class T>
struct Sums {
  typedef float type;
};
template <>
struct Sums<i8> {
  typedef i32 type;
};

/** A lane's share of 16 rows (of A, or columns of B) x K elements. */
template <class T>
struct Operand {
  u32 word[Unit<T>::WORDS];
};

/** A lane's share of a 16 x 16 result. */
template <class T>
struct Tile {
  static constexpr u32 N = 256 / WARP;
  typename Sums<T>::type v[N];
};

/** Row and column in the tile of a lane's element i. */
X_DEVICE u32 rowOf(u32 i) {
  const u32 lane = laneId();
#if X_MMA_NVIDIA
  return lane / 4 + i / 2 % 2 * 8;
#elif X_MMA_GFX12
  return i + lane / 16 * 8;
#elif X_MMA_GFX11
  return 2 * i + lane / 16;
#else
  return lane / 16 * 4 + i;
#endif
}
X_DEVICE u32 columnOf(u32 i) {
#if X_MMA_NVIDIA
  return laneId() % 4 * 2 + i % 2 + i / 4 * 8;
#else
  (void)i;
  return laneId() % 16;
#endif
}

#if X_MMA_NVIDIA

/** What PTX calls the address of a generic pointer into shared memory. */
X_DEVICE u32 sharedAddress(const void* p) {
#if X_NVRTC
  return (u32)__cvta_generic_to_shared(p);
#else
  return (u32)(u64)(__attribute__((address_space(3))) const void*)p;
#endif
}

/** Bytes that the launch asked for. */
X_DEVICE u32 dynamicSharedBytes() {
  u32 bytes;
  asm("mov.u32 %0, %%dynamic_smem_size;" : "=r"(bytes));
  return bytes;
}

// A lane's words of an operand are those of four 8 x 8 matrices of 16-bit elements. A right operand has them in another
// order than a left one: the instruction takes two neighbouring registers, its lines' first and second half along k.

/** Four 8 x 8 matrices; lane l names the address of row l % 8 of matrix l / 8. */
X_DEVICE void loadMatrices(u32 (&word)[4], u32 address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(word[0]), "=r"(word[1]), "=r"(word[2]), "=r"(word[3])
               : "r"(address)
               : "memory");
}
X_DEVICE void loadMatricesTransposed(u32 (&word)[4], u32 address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(word[0]), "=r"(word[1]), "=r"(word[2]), "=r"(word[3])
               : "r"(address)
               : "memory");
}

/** 16 bytes from global to shared memory, zeros where `bytes` is 0 instead of 16, not waited for. */
X_DEVICE void copyAsync(u32 shared, const void* global, u32 bytes) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared), "l"(global), "r"(bytes) : "memory");
}
/** The same of all 16. */
X_DEVICE void copyAsync(u32 shared, const void* global) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared), "l"(global) : "memory");
}
/** The same of four bytes, by way of the first cache. */
X_DEVICE void copyWordAsync(u32 shared, const void* global) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(shared), "l"(global) : "memory");
}
/** Brings 32 bytes from global memory to the L2 cache. */
X_DEVICE void prefetch(const void* global) { asm volatile("prefetch.global.L2 [%0];" ::"l"(global)); }
X_DEVICE void commitCopies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
/** Until no more than N of the groups committed are on their way. */
template <u32 N>
X_DEVICE void awaitCopies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
}

X_DEVICE void multiplyHalf(float* c, const u32 (&a)[4], u32 b0, u32 b1, f16*) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
X_DEVICE void multiplyHalf(float* c, const u32 (&a)[4], u32 b0, u32 b1, bf16*) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
X_DEVICE void multiplyHalf(i32* c, const u32 (&a)[4], u32 b0, u32 b1, i8*) {
  asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/** Row and half along k whose address a lane gives for a left or right operand (loadMatrices). */
template <bool RIGHT>
X_DEVICE u32 rowToLoad() {
  return RIGHT ? laneId() / 16 * 8 + laneId() % 8 : laneId() % 16;
}
template <bool RIGHT>
X_DEVICE u32 halfToLoad() {
  return RIGHT ? laneId() / 8 % 2 : laneId() / 16;
}

/** rows: 16 rows of K elements in shared memory, `stride` bytes apart, 16-byte aligned. */
template <class T, bool RIGHT = false>
X_DEVICE Operand<T> load(const void* rows, u32 stride) {
  Operand<T> x;
  loadMatrices(x.word, sharedAddress(rows) + rowToLoad<RIGHT>() * stride + halfToLoad<RIGHT>() * 16);
  return x;
}

/** A left operand from rows that are aligned to 4 bytes only. */
template <class T>
X_DEVICE Operand<T> loadWords(const void* rows, u32 stride) {
  Operand<T> x;
  const u32 lane = laneId();
#pragma unroll
  for (u32 i = 0; i < 4; ++i)
    x.word[i] = ((const u32*)((const u8*)rows + (lane / 4 + i % 2 * 8) * stride))[lane % 4 + i / 2 * 4];
  return x;
}

template <class T>
X_DEVICE void multiply(Tile<T>& d, const Operand<T>& a, const Operand<T>& b) {
  multiplyHalf(d.v, a.word, b.word[0], b.word[1], (T*)nullptr);
  multiplyHalf(d.v + 4, a.word, b.word[2], b.word[3], (T*)nullptr);
}

// Integer sums that begin at a number, which stays where it is: one register for all of them.
X_DEVICE void productFrom(i32* d, const u32 (&a)[4], u32 b0, u32 b1, i32 from) {
  asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%10, %10, %10, %10};"
      : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1), "r"(from));
}
X_DEVICE void productFrom(i32* d, u32 a0, u32 a1, u32 b, i32 from) {
  asm("mma.sync.aligned.m16n8k16.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%7, %7, %7, %7};"
      : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
      : "r"(a0), "r"(a1), "r"(b), "r"(from));
}
X_DEVICE void multiplyFrom(Tile<i8>& d, const Operand<i8>& a, const Operand<i8>& b, i32 from) {
  productFrom(d.v, a.word, b.word[0], b.word[1], from);
  productFrom(d.v + 4, a.word, b.word[2], b.word[3], from);
}
/** Only elements 16 * part .. 16 * part + 15 of the 32 along k. */
X_DEVICE void multiplyPartFrom(Tile<i8>& d, const Operand<i8>& a, const Operand<i8>& b, u32 part, i32 from) {
  productFrom(d.v, a.word[2 * part], a.word[2 * part + 1], b.word[part], from);
  productFrom(d.v + 4, a.word[2 * part], a.word[2 * part + 1], b.word[part + 2], from);
}

/** Two sums rounded to 16 bits, the first in the low half: the second conversion of a pair costs nothing. */
template <class T>
X_DEVICE u32 roundPair(float first, float second) {
  u32 pair;
  if constexpr (sameType<T, f16>) asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(second), "f"(first));
  else asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(second), "f"(first));
  return pair;
}

#else

/** A lane's share of row laneId() % 16, which begins at `row`. */
template <class T>
X_DEVICE Operand<T> loadRow(const void* row) {
  constexpr u32 W = Unit<T>::WORDS;
#if X_MMA_GFX11
  const u32* from = (const u32*)row;
#else
  const u32* from = (const u32*)row + laneId() / 16 * W;
#endif
  Operand<T> x;
#pragma unroll
  for (u32 i = 0; i < W; ++i) x.word[i] = from[i];
  return x;
}

/** rows: 16 rows of K elements in shared memory, `stride` bytes apart, aligned to a lane's share of a row. */
template <class T, bool RIGHT = false>
X_DEVICE Operand<T> load(const void* rows, u32 stride) {
  return loadRow<T>((const u8*)rows + laneId() % 16 * stride);
}

template <class T>
X_DEVICE Operand<T> loadWords(const void* rows, u32 stride) {
  return load<T>(rows, stride);
}

#define X_VECTOR(T, n) T __attribute__((ext_vector_type(n)))
typedef X_VECTOR(float, 4) float4v;
typedef X_VECTOR(float, 8) float8v;
typedef X_VECTOR(i32, 2) int2v;
typedef X_VECTOR(i32, 4) int4v;
typedef X_VECTOR(i32, 8) int8v;
typedef X_VECTOR(_Float16, 4) half4v;
typedef X_VECTOR(_Float16, 8) half8v;
typedef X_VECTOR(_Float16, 16) half16v;
typedef X_VECTOR(short, 2) short2v;
typedef X_VECTOR(short, 4) short4v;
typedef X_VECTOR(short, 8) short8v;
typedef X_VECTOR(short, 16) short16v;
#if X_MMA_CDNA == 4
typedef X_VECTOR(__bf16, 8) brain8v;
#endif
#undef X_VECTOR

template <class V, class T>
X_DEVICE V vectorOf(const T& x) {
  V v;
  static_assert(sizeof(V) == sizeof(T), "a vector of the same size");
  __builtin_memcpy(&v, &x, sizeof(V));
  return v;
}

template <class T>
X_DEVICE void multiply(Tile<T>& d, const Operand<T>& a, const Operand<T>& b) {
#if X_MMA_GFX12
  if constexpr (sameType<T, f16>) {
    const float8v r = __builtin_amdgcn_wmma_f32_16x16x16_f16_w32_gfx12(vectorOf<half8v>(a), vectorOf<half8v>(b), vectorOf<float8v>(d));
    d = vectorOf<Tile<T>>(r);
  } else if constexpr (sameType<T, bf16>) {
    const float8v r = __builtin_amdgcn_wmma_f32_16x16x16_bf16_w32_gfx12(vectorOf<short8v>(a), vectorOf<short8v>(b), vectorOf<float8v>(d));
    d = vectorOf<Tile<T>>(r);
  } else {
    const int8v r = __builtin_amdgcn_wmma_i32_16x16x16_iu8_w32_gfx12(true, vectorOf<int2v>(a), true, vectorOf<int2v>(b), vectorOf<int8v>(d), false);
    d = vectorOf<Tile<T>>(r);
  }
#elif X_MMA_GFX11
  if constexpr (sameType<T, f16>) {
    const float8v r = __builtin_amdgcn_wmma_f32_16x16x16_f16_w32(vectorOf<half16v>(a), vectorOf<half16v>(b), vectorOf<float8v>(d));
    d = vectorOf<Tile<T>>(r);
  } else if constexpr (sameType<T, bf16>) {
    const float8v r = __builtin_amdgcn_wmma_f32_16x16x16_bf16_w32(vectorOf<short16v>(a), vectorOf<short16v>(b), vectorOf<float8v>(d));
    d = vectorOf<Tile<T>>(r);
  } else {
    const int8v r = __builtin_amdgcn_wmma_i32_16x16x16_iu8_w32(true, vectorOf<int4v>(a), true, vectorOf<int4v>(b), vectorOf<int8v>(d), false);
    d = vectorOf<Tile<T>>(r);
  }
#else
  if constexpr (sameType<T, f16>) {
#if X_MMA_CDNA == 4
    const float4v r = __builtin_amdgcn_mfma_f32_16x16x32_f16(vectorOf<half8v>(a), vectorOf<half8v>(b), vectorOf<float4v>(d), 0, 0, 0);
#else
    const float4v r = __builtin_amdgcn_mfma_f32_16x16x16f16(vectorOf<half4v>(a), vectorOf<half4v>(b), vectorOf<float4v>(d), 0, 0, 0);
#endif
    d = vectorOf<Tile<T>>(r);
  } else if constexpr (sameType<T, bf16>) {
#if X_MMA_CDNA == 4
    const float4v r = __builtin_amdgcn_mfma_f32_16x16x32_bf16(vectorOf<brain8v>(a), vectorOf<brain8v>(b), vectorOf<float4v>(d), 0, 0, 0);
#elif X_MMA_CDNA == 1
    // Two of K = 8: a lane's four elements stand for other k than above, but for the same ones in both operands.
    float4v r = vectorOf<float4v>(d);
#pragma unroll
    for (u32 i = 0; i < 2; ++i)
      r = __builtin_amdgcn_mfma_f32_16x16x8bf16(vectorOf<short2v>(a.word[i]), vectorOf<short2v>(b.word[i]), r, 0, 0, 0);
#else
    const float4v r = __builtin_amdgcn_mfma_f32_16x16x16bf16_1k(vectorOf<short4v>(a), vectorOf<short4v>(b), vectorOf<float4v>(d), 0, 0, 0);
#endif
    d = vectorOf<Tile<T>>(r);
  } else {
#if X_MMA_CDNA >= 3
    const int4v r = __builtin_amdgcn_mfma_i32_16x16x32_i8(vectorOf<long>(a), vectorOf<long>(b), vectorOf<int4v>(d), 0, 0, 0);
#else
    const int4v r = __builtin_amdgcn_mfma_i32_16x16x16i8((int)a.word[0], (int)b.word[0], vectorOf<int4v>(d), 0, 0, 0);
#endif
    d = vectorOf<Tile<T>>(r);
  }
#endif
}

#if X_MMA_CDNA >= 3
/** Only elements 16 * part .. 16 * part + 15 of the 32 along k, which half of the wave's lanes hold. */
X_DEVICE void multiplyPart(Tile<i8>& d, const Operand<i8>& a, const Operand<i8>& b, u32 part) {
  Operand<i8> half;
#pragma unroll
  for (u32 i = 0; i < Unit<i8>::WORDS; ++i) half.word[i] = laneId() / 32 == part ? a.word[i] : 0;
  multiply(d, half, b);
}
#endif

#endif
#endif

}  // namespace mma
