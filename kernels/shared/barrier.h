// The barrier of a warp.
#pragma once

/** What lanes of this warp wrote to shared memory before is what its lanes read after; every lane must come here. */
#if X_HOST
X_DEVICE void warpBarrier() {}
#elif X_AMDGCN
X_DEVICE void warpBarrier() {
  __builtin_amdgcn_fence(__ATOMIC_RELEASE, "wavefront");
  __builtin_amdgcn_wave_barrier();
  __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "wavefront");
}
#elif X_NVRTC
X_DEVICE void warpBarrier() { __syncwarp(); }
#else
X_DEVICE void warpBarrier() { __nvvm_bar_warp_sync(0xffffffffu); }
#endif
