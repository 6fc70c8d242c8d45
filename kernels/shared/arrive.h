// Blocks of one launch that work on a common result, which the last of them to come completes: no second launch, and no
// block that waits for another.
#pragma once

namespace arrive {

/** What this thread wrote before can be read on the whole device by those who learn of what it writes after. */
X_DEVICE void publish() {
#if X_HOST
  __atomic_thread_fence(__ATOMIC_RELEASE);
#elif X_AMDGCN
  __builtin_amdgcn_fence(__ATOMIC_RELEASE, "agent");
#else
  asm volatile("fence.acq_rel.gpu;" ::: "memory");
#endif
}

/** The other side of {@link publish}. */
X_DEVICE void observe() {
#if X_HOST
  __atomic_thread_fence(__ATOMIC_ACQUIRE);
#elif X_AMDGCN
  __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "agent");
#else
  asm volatile("fence.acq_rel.gpu;" ::: "memory");
#endif
}

}  // namespace arrive

/**
 * Whether this block is the last of `count` blocks that come here with `counter`, which is 0 before the first and after the
 * last. It can read what the others wrote before. All threads of a block.
 */
X_DEVICE bool lastToArrive(u32* counter, u32 count) {
  X_SHARED(u32, last, 1);
  arrive::publish();
  barrier();
  if (threadIndex() == 0) {
    last[0] = atomicAdd(counter, 1u) == count - 1;
    if (last[0]) *counter = 0;
    // NVIDIA's blocks have one first cache; AMD's may have two, and there every thread looks.
    if (X_NVPTX) arrive::observe();
  }
  barrier();
  const bool isLast = last[0] != 0;
  if (isLast && !X_NVPTX) arrive::observe();
  return isLast;
}
