// A workgroup of an AMD GPU on the host, a fiber a lane, for kernels on matrix units (kernels/shared/mma.h), which few
// machines have. WMMA and MFMA are computed from what the lanes hold, by the layouts of AMD's ISA guides ("Matrix core
// instructions", RDNA3 7.9, RDNA4 7.12, CDNA3 7.1); everything else is what those kernels use of kernels/include/x.
// Define BLOCK_THREADS before for other blocks than of 256. Give -DWAVE=32|64 and the chip's macro: -D__GFX11__, -D__GFX12__, -D__gfx942__, -D__gfx90a__ or -D__gfx908__.
#pragma once
#include <ucontext.h>

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <vector>

#undef __has_builtin
#define __has_builtin(x) 1
#define X_DEVICE inline
#define X_AMDGCN 1
#define X_NVPTX 0
#define X_NVRTC 0
#define X_HOST 0

typedef uint8_t u8;
typedef uint16_t u16;
typedef uint32_t u32;
typedef uint64_t u64;
typedef int8_t i8;
typedef int32_t i32;
typedef int64_t i64;

#ifndef BLOCK_THREADS
#define BLOCK_THREADS 256
#endif
constexpr u32 WARP = WAVE, BLOCK = BLOCK_THREADS;

// One lane runs at a time, up to its next barrier, and a wave as far as it can before the next wave; `backwards` lets the
// last lane and wave go first. What needs a barrier and has none goes wrong in one order or the other.
enum class At { Work, Wave, Block, End };
struct Lane {
  ucontext_t context;
  std::unique_ptr<unsigned char[]> stack;
  At at;
};
inline bool backwards = false;
inline u32 thread;
inline Lane laneOf[BLOCK];
inline ucontext_t scheduler;
inline std::function<void()> bodyOfLanes;

inline void stop(At at) {
  laneOf[thread].at = at;
  swapcontext(&laneOf[thread].context, &scheduler);
}
/** Where all of lanes [first, first + count) are; lanes that part ways are an error. */
inline At placeOf(u32 first, u32 count) {
  for (u32 i = first; i < first + count; ++i) {
    if (laneOf[i].at == laneOf[first].at) continue;
    std::printf("lanes %u and %u wait at different barriers\n", first, i);
    std::exit(1);
  }
  return laneOf[first].at;
}
inline void resumeAll(u32 first, u32 count) {
  for (u32 i = 0; i < count; ++i) {
    thread = backwards ? first + count - 1 - i : first + i;
    laneOf[thread].at = At::Work;
    swapcontext(&scheduler, &laneOf[thread].context);
  }
}
inline u32 threadIndex() { return thread; }
inline u32 laneId() { return thread % WARP; }
inline u32 warpId() { return thread / WARP; }
inline u32 blockThreads() { return BLOCK; }
inline u32 warpsInBlock() { return BLOCK / WARP; }
inline void barrier() { stop(At::Block); }
inline void waveBarrier() { stop(At::Wave); }
// Of the block, since one block runs at a time.
#define X_SHARED(T, name, N) alignas(16) static T name[N]

/** Runs body on every lane of a block. */
template <class F>
void runBlock(F body) {
  constexpr size_t STACK = 1 << 18;
  bodyOfLanes = body;
  for (Lane& lane : laneOf) {
    if (lane.stack == nullptr) lane.stack.reset(new unsigned char[STACK]);
    getcontext(&lane.context);
    lane.context.uc_stack.ss_sp = lane.stack.get();
    lane.context.uc_stack.ss_size = STACK;
    lane.context.uc_link = nullptr;
    makecontext(&lane.context, [] {
      bodyOfLanes();
      stop(At::End);
    }, 0);
  }
  do {
    for (u32 i = 0; i < BLOCK / WARP; ++i) {
      const u32 first = (backwards ? BLOCK / WARP - 1 - i : i) * WARP;
      do resumeAll(first, WARP);
      while (placeOf(first, WARP) == At::Wave);
    }
  } while (placeOf(0, BLOCK) == At::Block);
}

namespace split {
inline u64 blocks() { return 1; }
inline u64 block() { return 0; }
}  // namespace split
#define X_FOR_BLOCK(j, n) for (u64 j = threadIndex(), j##_end = (n); j < j##_end; j += BLOCK)
#define X_FOR_SPLIT(i, n) for (u64 i = 0, i##_end = (n); i < i##_end; ++i)

template <class To, class From>
To bitCast(From v) {
  return __builtin_bit_cast(To, v);
}
template <class A, class B>
constexpr bool sameType = false;
template <class A>
constexpr bool sameType<A, A> = true;

typedef _Float16 f16;
struct bf16 {
  u16 bits;
};
inline float to_acc(f16 v) { return (float)v; }
inline float to_acc(bf16 v) { return bitCast<float>((u32)v.bits << 16); }
template <class T>
T from_acc(float v) {
  if constexpr (sameType<T, f16>) {
    return (f16)v;
  } else {
    const u32 bits = bitCast<u32>(v);
    return bf16{(u16)((bits + 0x7fff + (bits >> 16 & 1)) >> 16)};
  }
}

template <class T, u32 N>
struct alignas(sizeof(T) * N) Vec {
  T v[N];
  T& operator[](u32 i) { return v[i]; }
  const T& operator[](u32 i) const { return v[i]; }
};
inline void requireAligned(const void* p, size_t bytes) {
  if ((uintptr_t)p % bytes == 0) return;
  std::printf("an access of %zu bytes at %p\n", bytes, p);
  std::abort();
}
template <u32 N, class T>
Vec<T, N> loadVec(const T* p) {
  requireAligned(p, N * sizeof(T));
  return *(const Vec<T, N>*)p;
}
template <class T, u32 N>
void storeVec(T* p, const Vec<T, N>& v) {
  requireAligned(p, N * sizeof(T));
  *(Vec<T, N>*)p = v;
}

inline bool aligned16(const void* p) { return (uintptr_t)p % 16 == 0; }
inline i32 dp4a(i32 a, i32 b, i32 c) {
  for (u32 byte = 0; byte < 4; ++byte) c += (i32)(i8)(a >> (8 * byte)) * (i32)(i8)(b >> (8 * byte));
  return c;
}

namespace lanes {
template <class T>
T lowest() {
  return -INFINITY;
}
}  // namespace lanes

inline float exchanged[BLOCK];
inline float shuffleXor(float v, u32 mask) {
  exchanged[thread] = v;
  waveBarrier();
  const float other = exchanged[thread ^ mask];
  waveBarrier();
  return other;
}
// The plain form of attention is compiled, not run.
struct Sum {};
template <class Op>
float warpReduce(float v) {
  return v;
}
namespace m {
inline float exp(float x) { return std::exp(x); }
inline float abs(float x) { return std::fabs(x); }
}  // namespace m

#define __builtin_amdgcn_fence(order, scope)
#define __builtin_amdgcn_wave_barrier() waveBarrier()
#define __builtin_amdgcn_exp2f(x) std::exp2(x)
#define __builtin_amdgcn_rcpf(x) (1.0f / (x))

struct HalfElements {
  static float at(const u32* words, u32 i) { return (float)((const f16*)words)[i]; }
};
struct BrainElements {
  static float at(const u32* words, u32 i) { return to_acc(((const bf16*)words)[i]); }
};
struct ByteElements {
  static i32 at(const u32* words, u32 i) { return ((const i8*)words)[i]; }
};

// c += A . B over 16 x 16, of which a lane holds one row of A and one column of B, that of its number mod 16: `each`
// elements in every one of `groups` groups of 16 lanes, whose k follow each other. Element i of a result lies in column
// lane % 16 and in the row that the chip's guide gives.
template <class E, class V, class C>
C multiplied(const V& a, const V& b, C c, u32 each, u32 groups) {
  static u32 left[BLOCK][8], right[BLOCK][8];
  std::memcpy(left[thread], &a, sizeof a);
  std::memcpy(right[thread], &b, sizeof b);
  waveBarrier();
  const u32 first = warpId() * WARP, group = laneId() / 16, column = laneId() % 16;
  for (u32 i = 0; i < 256 / WARP; ++i) {
#if defined(__GFX11__)
    const u32 row = 2 * i + group;
#elif defined(__GFX12__)
    const u32 row = 8 * group + i;
#else
    const u32 row = 4 * group + i;
#endif
    for (u32 g = 0; g < groups; ++g)
      for (u32 e = 0; e < each; ++e)
        c[i] += E::at(left[first + 16 * g + row], e) * E::at(right[first + 16 * g + column], e);
  }
  waveBarrier();
  return c;
}

#define __builtin_amdgcn_wmma_f32_16x16x16_f16_w32(a, b, c) multiplied<HalfElements>(a, b, c, 16, 1)
#define __builtin_amdgcn_wmma_f32_16x16x16_bf16_w32(a, b, c) multiplied<BrainElements>(a, b, c, 16, 1)
#define __builtin_amdgcn_wmma_i32_16x16x16_iu8_w32(as, a, bs, b, c, clamp) multiplied<ByteElements>(a, b, c, 16, 1)
#define __builtin_amdgcn_wmma_f32_16x16x16_f16_w32_gfx12(a, b, c) multiplied<HalfElements>(a, b, c, 8, 2)
#define __builtin_amdgcn_wmma_f32_16x16x16_bf16_w32_gfx12(a, b, c) multiplied<BrainElements>(a, b, c, 8, 2)
#define __builtin_amdgcn_wmma_i32_16x16x16_iu8_w32_gfx12(as, a, bs, b, c, clamp) multiplied<ByteElements>(a, b, c, 8, 2)
#define __builtin_amdgcn_mfma_f32_16x16x16f16(a, b, c, x, y, z) multiplied<HalfElements>(a, b, c, 4, 4)
#define __builtin_amdgcn_mfma_f32_16x16x16bf16_1k(a, b, c, x, y, z) multiplied<BrainElements>(a, b, c, 4, 4)
#define __builtin_amdgcn_mfma_f32_16x16x8bf16(a, b, c, x, y, z) multiplied<BrainElements>(a, b, c, 2, 4)
#define __builtin_amdgcn_mfma_i32_16x16x32_i8(a, b, c, x, y, z) multiplied<ByteElements>(a, b, c, 8, 4)
#define __builtin_amdgcn_mfma_i32_16x16x16i8(a, b, c, x, y, z) multiplied<ByteElements>(a, b, c, 4, 4)
