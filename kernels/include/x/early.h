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

/**
 * Sends for `bytes` from `from` on, into the cache that all processors share; by one thread. Before await too, of anything:
 * in that cache every write is seen. Up to 15 bytes on either side may come along, and must be memory.
 */
X_DEVICE void prefetch([[maybe_unused]] const void* from, [[maybe_unused]] u64 bytes) {
#if X_EARLY
  const u64 first = (u64)from / 16 * 16, end = ((u64)from + bytes + 15) / 16 * 16;
  asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(first), "r"((u32)(end - first)) : "memory");
#endif
}

/** The same of few bytes, a line after the other. */
X_DEVICE void prefetchLines([[maybe_unused]] const void* from, [[maybe_unused]] u32 bytes) {
#if X_EARLY
  for (u32 at = 0; at < bytes; at += 128) asm volatile("prefetch.global.L2 [%0];" ::"l"((u64)from + at) : "memory");
#endif
}

#if X_EARLY
/**
 * A word that may be about to change, before await: good for what to send for and nothing else. It is left out of the first
 * cache, where it would hide the change.
 */
X_DEVICE u32 peek(const u32* from) {
  u32 word;
  asm volatile("ld.global.cg.u32 %0, [%1];" : "=r"(word) : "l"(from) : "memory");
  return word;
}
#endif

}  // namespace early
