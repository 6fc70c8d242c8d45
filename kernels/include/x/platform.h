// Which compiler and target this is, the integer types, function attributes and the warp width.
// Exactly one of X_AMDGCN, X_NVPTX and X_HOST is 1; X_NVRTC is 1 beside X_NVPTX when NVIDIA's front end compiles.
#pragma once

#if defined(__AMDGCN__)
#define X_AMDGCN 1
#define X_NVPTX 0
#define X_HOST 0
#elif defined(__NVPTX__) || defined(__CUDACC_RTC__) || defined(__CUDA_ARCH__)
#define X_AMDGCN 0
#define X_NVPTX 1
#define X_HOST 0
#else
#define X_AMDGCN 0
#define X_NVPTX 0
#define X_HOST 1
#endif

#if X_NVPTX && !defined(__clang__)
#define X_NVRTC 1
#else
#define X_NVRTC 0
#endif

// 1 where a tool lists all kernels, those too that the host has not.
#ifndef X_LISTED
#define X_LISTED 0
#endif

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef signed char i8;
typedef short i16;
typedef int i32;
typedef long long i64;
typedef u64 usize;
typedef float f32;
typedef double f64;

#define X_RESTRICT __restrict__
// Lists of the dtypes, for instantiating a kernel over them: X_ALL_TYPES(M) is M(u8) M(u32) …
#define X_INT_TYPES(M) M(u8) M(u32) M(i16) M(i32) M(i64)
#define X_FLOAT_TYPES(M) M(bf16) M(f16) M(f32) M(f64) M(f8e4m3)
#define X_ALL_TYPES(M) X_INT_TYPES(M) X_FLOAT_TYPES(M)
// The same with more arguments: X_ALL_TYPES_OF(M, a) is M(u8, a) M(u32, a) …
#define X_FLOAT_TYPES_OF(M, ...) \
  M(bf16, __VA_ARGS__) M(f16, __VA_ARGS__) M(f32, __VA_ARGS__) M(f64, __VA_ARGS__) M(f8e4m3, __VA_ARGS__)
#define X_ALL_TYPES_OF(M, ...)                                                                              \
  M(u8, __VA_ARGS__) M(u32, __VA_ARGS__) M(i16, __VA_ARGS__) M(i32, __VA_ARGS__) M(i64, __VA_ARGS__) \
  X_FLOAT_TYPES_OF(M, __VA_ARGS__)

// X_OUTLINED: as X_DEVICE on GPUs, where calls cost registers; on the host a function that is compiled once and called.
#if X_NVRTC
#define X_DEVICE __device__ __forceinline__
#define X_GLOBAL(threads, blocks) __global__ __launch_bounds__(threads, blocks)
#define X_SHARED_MEMORY __shared__
#define X_DEVICE_DATA __device__
#elif X_HOST
#define X_DEVICE inline __attribute__((always_inline))
#define X_OUTLINED static inline __attribute__((noinline, unused))
#define X_SHARED_MEMORY
#define X_DEVICE_DATA __attribute__((visibility("default")))
#else
#define X_DEVICE inline __attribute__((device, always_inline))
#if X_AMDGCN  // clang reads launch_bounds for nvptx only
#define X_GLOBAL(threads, blocks) __attribute__((global, amdgpu_flat_work_group_size(1, threads)))
#else
#define X_GLOBAL(threads, blocks) __attribute__((global, launch_bounds(threads, blocks)))
#endif
#define X_SHARED_MEMORY __attribute__((shared))
#define X_DEVICE_DATA __attribute__((device, visibility("default")))
#endif
#if !X_HOST
#define X_OUTLINED X_DEVICE
#endif

#if X_HOST
constexpr u32 WARP = 1;
#elif X_NVPTX
constexpr u32 WARP = 32;
#elif defined(__AMDGCN_WAVEFRONT_SIZE__)
constexpr u32 WARP = __AMDGCN_WAVEFRONT_SIZE__;
#elif defined(__AMDGCN_WAVEFRONT_SIZE)
constexpr u32 WARP = __AMDGCN_WAVEFRONT_SIZE;
#elif defined(__GFX9__) || defined(__GFX8__) || defined(__GFX7__)
constexpr u32 WARP = 64;  // compilers that no longer define the macro: GCN and CDNA run wave64, RDNA wave32
#else
constexpr u32 WARP = 32;
#endif

// clang before 19, which is in hiprtc up to ROCm 6.3, spills where later ones do not, and gfx906 has 64 registers for a lane
// of a large block and nothing beside them: these get the plainer loops.
#if X_AMDGCN && (__clang_major__ < 19 || defined(__gfx906__))
[[maybe_unused]] constexpr bool FEW_REGISTERS = true;
#else
[[maybe_unused]] constexpr bool FEW_REGISTERS = false;
#endif

/** Same bits, another type of the same size. */
template <class To, class From>
X_DEVICE To bitCast(From v) {
  static_assert(sizeof(To) == sizeof(From), "bitCast needs equal sizes");
#if X_NVRTC
  union {
    From from;
    To to;
  } u;
  u.from = v;
  return u.to;
#else
  return __builtin_bit_cast(To, v);
#endif
}

template <class A, class B>
constexpr bool sameType = false;
template <class A>
constexpr bool sameType<A, A> = true;

/**
 * v, of which the compiler knows no more than its type: what is computed of it can be neither merged with what v comes from
 * nor computed ahead, as all the offsets of an unrolled loop in registers of their own. Only amdgcn's code needs it. Not for
 * pointers: which memory they point to would be unknown too.
 */
template <class T>
X_DEVICE T opaque(T v) {
#if X_AMDGCN
  asm("" : "+v"(v));
#endif
  return v;
}
