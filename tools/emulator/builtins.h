// What kernels ask of amdgcn's compiler, for lanes of lanes.h: built-ins, the matrix units and ROCm's mathematics. Given
// -DEMULATED_WAVE=32|64 and the chip's macro: -D__GFX11__, -D__GFX12__, -D__gfx942__ ...
#pragma once
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <ctime>

#include "lanes.h"
#include "matrix.h"

#undef __has_builtin
#define __has_builtin(x) 1
#define __AMDGCN__ 1
// Kernels hand it on and do no arithmetic with it, for which the host would want functions of a library.
#define __bf16 short
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
// Callers give what is the same in all lanes.
#define __builtin_amdgcn_readfirstlane(v) ((int)(v))
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

/** Ticks of 10 ns. */
inline uint64_t steadyCounter() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return uint64_t(now.tv_sec) * 100000000 + uint64_t(now.tv_nsec) / 10;
}

/** v_mbcnt: how many bits of the mask belong to lanes before this one, the mask being that of lanes from `first` on. */
__attribute__((always_inline)) inline uint32_t countBelow(uint32_t mask, uint32_t first, uint32_t base) {
  const uint32_t own = lane->index % WAVE;
  const uint64_t before = own <= first ? 0 : own - first >= 32 ? ~0u : (uint64_t{1} << (own - first)) - 1;
  return base + uint32_t(__builtin_popcount(mask & uint32_t(before)));
}

/** v_perm_b32 for selectors of 0 to 7. */
__attribute__((always_inline)) inline uint32_t pickBytes(uint32_t high, uint32_t low, uint32_t selectors) {
  const uint64_t bytes = uint64_t{high} << 32 | low;
#define PICKED(i) uint32_t(uint8_t(bytes >> (8 * (selectors >> i & 7)))) << i
  return PICKED(0) | PICKED(8) | PICKED(16) | PICKED(24);
#undef PICKED
}

__attribute__((always_inline)) inline int dot4(int a, int b, int c) {
  return c + int8_t(a) * int8_t(b) + int8_t(a >> 8) * int8_t(b >> 8) + int8_t(a >> 16) * int8_t(b >> 16) + (a >> 24) * (b >> 24);
}

template <class T>
T fetchAdd(T* p, T v) {
  const T before = *p;
  *p = before + v;
  return before;
}

/** A matrix instruction by its operation of matrix.h. */
template <void (*operation)(Lane* const* lanes), class V, class C>
__attribute__((noinline)) C multiplied(V a, V b, C c) {
  Multiply own{&a, &b, &c};
  together(operation, &own, __builtin_return_address(0));
  return c;
}

}  // namespace emulated

#define __builtin_amdgcn_wmma_f32_16x16x16_f16_w32(a, b, c) emulated::multiplied<emulated::multiply<emulated::HalfElements, 16, 1, 2, 1>>(a, b, c)
#define __builtin_amdgcn_wmma_f32_16x16x16_bf16_w32(a, b, c) emulated::multiplied<emulated::multiply<emulated::BrainElements, 16, 1, 2, 1>>(a, b, c)
#define __builtin_amdgcn_wmma_i32_16x16x16_iu8_w32(as, a, bs, b, c, clamp) emulated::multiplied<emulated::multiply<emulated::ByteElements, 16, 1, 2, 1>>(a, b, c)
#define __builtin_amdgcn_wmma_f32_16x16x16_f16_w32_gfx12(a, b, c) emulated::multiplied<emulated::multiply<emulated::HalfElements, 8, 2, 1, 8>>(a, b, c)
#define __builtin_amdgcn_wmma_f32_16x16x16_bf16_w32_gfx12(a, b, c) emulated::multiplied<emulated::multiply<emulated::BrainElements, 8, 2, 1, 8>>(a, b, c)
#define __builtin_amdgcn_wmma_i32_16x16x16_iu8_w32_gfx12(as, a, bs, b, c, clamp) emulated::multiplied<emulated::multiply<emulated::ByteElements, 8, 2, 1, 8>>(a, b, c)
#define __builtin_amdgcn_mfma_f32_16x16x16f16(a, b, c, x, y, z) emulated::multiplied<emulated::multiply<emulated::HalfElements, 4, 4, 1, 4>>(a, b, c)
#define __builtin_amdgcn_mfma_f32_16x16x32_f16(a, b, c, x, y, z) emulated::multiplied<emulated::multiply<emulated::HalfElements, 8, 4, 1, 4>>(a, b, c)
#define __builtin_amdgcn_mfma_f32_16x16x32_bf16(a, b, c, x, y, z) emulated::multiplied<emulated::multiply<emulated::BrainElements, 8, 4, 1, 4>>(a, b, c)
#define __builtin_amdgcn_mfma_f32_16x16x16bf16_1k(a, b, c, x, y, z) emulated::multiplied<emulated::multiply<emulated::BrainElements, 4, 4, 1, 4>>(a, b, c)
#define __builtin_amdgcn_mfma_f32_16x16x8bf16(a, b, c, x, y, z) emulated::multiplied<emulated::multiply<emulated::BrainElements, 2, 4, 1, 4>>(a, b, c)
#define __builtin_amdgcn_mfma_i32_16x16x32_i8(a, b, c, x, y, z) emulated::multiplied<emulated::multiply<emulated::ByteElements, 8, 4, 1, 4>>(a, b, c)
#define __builtin_amdgcn_mfma_i32_16x16x16i8(a, b, c, x, y, z) emulated::multiplied<emulated::multiply<emulated::ByteElements, 4, 4, 1, 4>>(a, b, c)

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
// As ROCm's, which makes good in the tail what the rounding of the argument loses.
extern "C" inline double __ocml_ncdf_f64(double x) {
  const double c = x < -40.0 ? -40.0 : x, a = c * -0.70710678118654752;
  const double lost = std::fma(c, -0.70710678118654752, -a) + c * 4.8336466567264567e-17, below = 0.5 * std::erfc(a);
  return x < 0.0 ? below * (1.0 - 2.0 * a * lost) : below;
}
extern "C" inline float __ocml_pow_f32(float a, float b) { return std::pow(a, b); }
extern "C" inline double __ocml_pow_f64(double a, double b) { return std::pow(a, b); }
