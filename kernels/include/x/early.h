// Kernels that may begin while the one launched before them still runs: NVIDIA's programmatic dependent launches, from
// compute capability 9.0 on (target sm_90a); elsewhere all of this is nothing. KERNEL_EARLY(name), beside the kernel, asks
// the driver for it. All threads of such a kernel call early::await before they read what earlier kernels may have written,
// and before they write.
#pragma once

#if X_NVPTX && __CUDA_ARCH__ >= 900
#define X_EARLY 1
// A constant that the runtime binding looks for (packages/hip/native/cuda_driver.cc).
#define KERNEL_EARLY(name)                            \
  extern "C" X_DEVICE_DATA const char x_early_##name; \
  X_DEVICE_DATA __attribute__((used)) const char x_early_##name = 1;
#else
#define X_EARLY 0
#define KERNEL_EARLY(name)
#endif

namespace early {

/** The kernel launched next may begin once all blocks have said so, or ended. */
X_DEVICE void letNextBegin() {
#if X_EARLY
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

/** Until everything launched before has ended and can be seen. */
X_DEVICE void await() {
#if X_EARLY
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

}  // namespace early
