// What kernels ask of amdgcn's compiler, for lanes of lanes.h: built-ins, the matrix units and ROCm's mathematics. WMMA and
// MFMA are computed from what the lanes hold, by the layouts of AMD's ISA guides ("Matrix core instructions", RDNA3 7.9,
// RDNA4 7.12, CDNA3 7.1). Given -DEMULATED_WAVE=32|64 and the chip's macro: -D__GFX11__, -D__GFX12__, -D__gfx942__ ...
#pragma once
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <ctime>

#include "lanes.h"

#undef __has_builtin
#define __has_builtin(x) 1
#define __AMDGCN__ 1
// Statements for amdgcn's code generator alone name its registers.
#define asm(...)
#define __AMDGCN_WAVEFRONT_SIZE__ EMULATED_WAVE

#define __builtin_amdgcn_workitem_id_x() (emulated::lane->id[0])
#define __builtin_amdgcn_workitem_id_y() (emulated::lane->id[1])
#define __builtin_amdgcn_workitem_id_z() (emulated::lane->id[2])
#define __builtin_amdgcn_workgroup_id_x() (emulated::blockId[0])
#define __builtin_amdgcn_workgroup_id_y() (emulated::blockId[1])
#define __builtin_amdgcn_workgroup_id_z() (emulated::blockId[2])
#define __builtin_amdgcn_workgroup_size_x() (emulated::launch->block[0])
#define __builtin_amdgcn_workgroup_size_y() (emulated::launch->block[1])
#define __builtin_amdgcn_workgroup_size_z() (emulated::launch->block[2])
#define __builtin_amdgcn_grid_size_x() (emulated::launch->grid[0] * emulated::launch->block[0])
#define __builtin_amdgcn_grid_size_y() (emulated::launch->grid[1] * emulated::launch->block[1])
#define __builtin_amdgcn_grid_size_z() (emulated::launch->grid[2] * emulated::launch->block[2])
#define __builtin_amdgcn_mbcnt_lo(mask, base) emulated::countBelow(mask, 0, base)
#define __builtin_amdgcn_mbcnt_hi(mask, base) emulated::countBelow(mask, 32, base)
#define __builtin_amdgcn_ballot_w32(v) ((uint32_t)emulated::ballot(v))
#define __builtin_amdgcn_ballot_w64(v) emulated::ballot(v)
#define __builtin_amdgcn_fence(order, scope) __asm__ volatile("" ::: "memory")
#define __builtin_amdgcn_s_barrier() emulated::wait(emulated::State::AtBlock)
#define __builtin_amdgcn_wave_barrier() emulated::waveBarrier()
#define __builtin_amdgcn_ds_bpermute(address, value) emulated::permute(address, value)
#define __builtin_amdgcn_perm(high, low, selectors) emulated::pickBytes(high, low, selectors)
#define __builtin_amdgcn_exp2f(x) std::exp2((float)(x))
#define __builtin_amdgcn_rcpf(x) (1.0f / (x))
#define __builtin_amdgcn_sdot4(a, b, c, clamp) emulated::dot4(a, b, c)
#define __builtin_amdgcn_sudot4(as, a, bs, b, c, clamp) emulated::dot4(a, b, c)
#define __builtin_amdgcn_s_sleep(time) emulated::wait(emulated::State::Ready)
#define __builtin_readsteadycounter() emulated::steadyCounter()
#define __HIP_MEMORY_SCOPE_AGENT 0
#define __HIP_MEMORY_SCOPE_SYSTEM 1
#define __hip_atomic_load(p, order, scope) __atomic_load_n(p, order)
#define __hip_atomic_store(p, v, order, scope) __atomic_store_n(p, v, order)
#define __hip_atomic_fetch_add(p, v, order, scope) emulated::fetchAdd(p, v)
#define __hip_atomic_compare_exchange_strong(p, expected, desired, success, failure, scope) \
  __atomic_compare_exchange_n(p, expected, desired, false, success, failure)

namespace emulated {

__attribute__((noinline)) inline void waveBarrier() {
  together([](Lane* const*) {}, nullptr, __builtin_return_address(0));
}

/** Ticks of 10 ns. */
inline uint64_t steadyCounter() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return uint64_t(now.tv_sec) * 100000000 + uint64_t(now.tv_nsec) / 10;
}

/** v_mbcnt: how many bits of the mask belong to lanes before this one, the mask being that of lanes from `first` on. */
inline uint32_t countBelow(uint32_t mask, uint32_t first, uint32_t base) {
  const uint32_t own = lane->index % WAVE;
  const uint64_t before = own <= first ? 0 : own - first >= 32 ? ~0u : (uint64_t{1} << (own - first)) - 1;
  return base + uint32_t(__builtin_popcount(mask & uint32_t(before)));
}

struct Vote {
  bool own;
  unsigned long long all;
};
__attribute__((noinline)) inline unsigned long long ballot(bool v) {
  Vote own{v, 0};
  together(
      [](Lane* const* lanes) {
        unsigned long long all = 0;
        for (uint32_t i = 0; i < WAVE; ++i)
          if (lanes[i] && static_cast<Vote*>(lanes[i]->data)->own) all |= 1ull << i;
        for (uint32_t i = 0; i < WAVE; ++i)
          if (lanes[i]) static_cast<Vote*>(lanes[i]->data)->all = all;
      },
      &own, __builtin_return_address(0));
  return own.all;
}

struct Permute {
  int address, value, result;
};
/** ds_bpermute_b32; what a lane reads of one that is not there is nothing to rely on. */
__attribute__((noinline)) inline int permute(int address, int value) {
  Permute own{address, value, 0};
  together(
      [](Lane* const* lanes) {
        for (uint32_t i = 0; i < WAVE; ++i) {
          if (!lanes[i]) continue;
          Permute& one = *static_cast<Permute*>(lanes[i]->data);
          const Lane* from = lanes[uint32_t(one.address) / 4 % WAVE];
          one.result = from ? static_cast<Permute*>(from->data)->value : 0x7fbadbad;
        }
      },
      &own, __builtin_return_address(0));
  return own.result;
}

/** v_perm_b32 for selectors of 0 to 7. */
inline uint32_t pickBytes(uint32_t high, uint32_t low, uint32_t selectors) {
  const uint64_t bytes = uint64_t{high} << 32 | low;
  uint32_t picked = 0;
  for (uint32_t i = 0; i < 32; i += 8) picked |= uint32_t(uint8_t(bytes >> (8 * (selectors >> i & 7)))) << i;
  return picked;
}

inline int dot4(int a, int b, int c) {
  for (int i = 0; i < 32; i += 8) c += int(int8_t(a >> i)) * int(int8_t(b >> i));
  return c;
}

template <class T>
T fetchAdd(T* p, T v) {
  const T before = *p;
  *p = before + v;
  return before;
}

struct HalfElements {
  static float at(const void* words, uint32_t i) { return float(static_cast<const _Float16*>(words)[i]); }
};
struct BrainElements {
  static float at(const void* words, uint32_t i) {
    return __builtin_bit_cast(float, uint32_t{static_cast<const uint16_t*>(words)[i]} << 16);
  }
};
struct ByteElements {
  static int at(const void* words, uint32_t i) { return static_cast<const int8_t*>(words)[i]; }
};

template <class V, class C>
struct Multiply {
  V a, b;
  C c;
};

// c += A . B over 16 x 16, of which a lane holds one row of A and one column of B, that of its number mod 16: EACH
// elements in every one of GROUPS groups of 16 lanes, whose k follow each other. Element i of a result lies in column
// lane % 16 and in the row that the chip's guide gives.
template <class E, uint32_t EACH, uint32_t GROUPS, class V, class C>
__attribute__((noinline)) C multiplied(V a, V b, C c) {
  typedef Multiply<V, C> Data;
  Data own{a, b, c};
  together(
      [](Lane* const* lanes) {
        for (uint32_t lane = 0; lane < WAVE; ++lane) {
          if (!lanes[lane]) std::abort();  // matrix instructions ignore which lanes are active
          C& c = static_cast<Data*>(lanes[lane]->data)->c;
          const uint32_t group = lane / 16, column = lane % 16;
          for (uint32_t i = 0; i < 256 / WAVE; ++i) {
#if defined(__GFX11__)
            const uint32_t row = 2 * i + group;
#elif defined(__GFX12__)
            const uint32_t row = 8 * group + i;
#else
            const uint32_t row = 4 * group + i;
#endif
            for (uint32_t g = 0; g < GROUPS; ++g) {
              const Data* left = static_cast<Data*>(lanes[16 * g + row]->data);
              const Data* right = static_cast<Data*>(lanes[16 * g + column]->data);
              for (uint32_t e = 0; e < EACH; ++e) c[i] += E::at(&left->a, e) * E::at(&right->b, e);
            }
          }
        }
      },
      &own, __builtin_return_address(0));
  return own.c;
}

}  // namespace emulated

#define __builtin_amdgcn_wmma_f32_16x16x16_f16_w32(a, b, c) emulated::multiplied<emulated::HalfElements, 16, 1>(a, b, c)
#define __builtin_amdgcn_wmma_f32_16x16x16_bf16_w32(a, b, c) emulated::multiplied<emulated::BrainElements, 16, 1>(a, b, c)
#define __builtin_amdgcn_wmma_i32_16x16x16_iu8_w32(as, a, bs, b, c, clamp) emulated::multiplied<emulated::ByteElements, 16, 1>(a, b, c)
#define __builtin_amdgcn_wmma_f32_16x16x16_f16_w32_gfx12(a, b, c) emulated::multiplied<emulated::HalfElements, 8, 2>(a, b, c)
#define __builtin_amdgcn_wmma_f32_16x16x16_bf16_w32_gfx12(a, b, c) emulated::multiplied<emulated::BrainElements, 8, 2>(a, b, c)
#define __builtin_amdgcn_wmma_i32_16x16x16_iu8_w32_gfx12(as, a, bs, b, c, clamp) emulated::multiplied<emulated::ByteElements, 8, 2>(a, b, c)
#define __builtin_amdgcn_mfma_f32_16x16x16f16(a, b, c, x, y, z) emulated::multiplied<emulated::HalfElements, 4, 4>(a, b, c)
#define __builtin_amdgcn_mfma_f32_16x16x16bf16_1k(a, b, c, x, y, z) emulated::multiplied<emulated::BrainElements, 4, 4>(a, b, c)
#define __builtin_amdgcn_mfma_f32_16x16x8bf16(a, b, c, x, y, z) emulated::multiplied<emulated::BrainElements, 2, 4>(a, b, c)
#define __builtin_amdgcn_mfma_i32_16x16x32_i8(a, b, c, x, y, z) emulated::multiplied<emulated::ByteElements, 8, 4>(a, b, c)
#define __builtin_amdgcn_mfma_i32_16x16x16i8(a, b, c, x, y, z) emulated::multiplied<emulated::ByteElements, 4, 4>(a, b, c)

// ROCm's mathematics by libm's names.
#define OCML_1(name, f)                                      \
  extern "C" inline float __ocml_##name##_f32(float x) { return std::f(x); } \
  extern "C" inline double __ocml_##name##_f64(double x) { return std::f(x); }
OCML_1(exp, exp)
OCML_1(expm1, expm1)
OCML_1(log, log)
OCML_1(log1p, log1p)
OCML_1(sin, sin)
OCML_1(cos, cos)
OCML_1(tanh, tanh)
OCML_1(erf, erf)
OCML_1(round, round)
OCML_1(sqrt, sqrt)
OCML_1(rint, rint)
#undef OCML_1
extern "C" inline float __ocml_ncdf_f32(float x) { return 0.5f * std::erfc(x * -0.70710678118654752f); }
extern "C" inline double __ocml_ncdf_f64(double x) { return 0.5 * std::erfc(x * -0.70710678118654752); }
extern "C" inline float __ocml_pow_f32(float a, float b) { return std::pow(a, b); }
extern "C" inline double __ocml_pow_f64(double a, double b) { return std::pow(a, b); }
