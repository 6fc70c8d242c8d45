// What passes between devices: memory of one that another writes to while a kernel reads it. A word of 64 bits arrives whole:
// its upper half says which call it belongs to, so nothing else has to be ordered, and no fence and no flag of its own is needed
// (NCCL's "LL"). Two words go in one access.
#pragma once

namespace wire {

struct Message {
  u64 words[2];
};

/** To memory of any device, past all caches that it does not share; p is aligned to 16 bytes. */
X_DEVICE void send(u64* p, u64 first, u64 second) {
#if X_NVPTX
  asm volatile("st.relaxed.sys.global.v2.b64 [%0], {%1, %2};" ::"l"(p), "l"(first), "l"(second) : "memory");
#elif X_AMDGCN
  __hip_atomic_store(p, first, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_SYSTEM);
  __hip_atomic_store(p + 1, second, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_SYSTEM);
#else
  __atomic_store_n(p, first, __ATOMIC_RELAXED);
  __atomic_store_n(p + 1, second, __ATOMIC_RELAXED);
#endif
}

/** What lies there now. */
X_DEVICE Message look(const u64* p) {
  Message m;
#if X_NVPTX
  asm volatile("ld.relaxed.sys.global.v2.b64 {%0, %1}, [%2];" : "=l"(m.words[0]), "=l"(m.words[1]) : "l"(p) : "memory");
#elif X_AMDGCN
  m.words[0] = __hip_atomic_load(p, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_SYSTEM);
  m.words[1] = __hip_atomic_load(p + 1, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_SYSTEM);
#else
  m.words[0] = __atomic_load_n(p, __ATOMIC_RELAXED);
  m.words[1] = __atomic_load_n(p + 1, __ATOMIC_RELAXED);
#endif
  return m;
}

/** A word that others write too, the host or another device. */
X_DEVICE u32 lookWord(const u32* p) {
#if X_NVPTX
  u32 word;
  asm volatile("ld.relaxed.sys.global.u32 %0, [%1];" : "=r"(word) : "l"(p) : "memory");
  return word;
#elif X_AMDGCN
  return __hip_atomic_load(p, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_SYSTEM);
#else
  return __atomic_load_n(p, __ATOMIC_RELAXED);
#endif
}

X_DEVICE u64 lookWord(const u64* p) {
#if X_NVPTX
  u64 word;
  asm volatile("ld.relaxed.sys.global.u64 %0, [%1];" : "=l"(word) : "l"(p) : "memory");
  return word;
#elif X_AMDGCN
  return __hip_atomic_load(p, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_SYSTEM);
#else
  return __atomic_load_n(p, __ATOMIC_RELAXED);
#endif
}

X_DEVICE void sendWord(u32* p, u32 word) {
#if X_NVPTX
  asm volatile("st.relaxed.sys.global.u32 [%0], %1;" ::"l"(p), "r"(word) : "memory");
#elif X_AMDGCN
  __hip_atomic_store(p, word, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_SYSTEM);
#else
  __atomic_store_n(p, word, __ATOMIC_RELAXED);
#endif
}

X_DEVICE void sendWord(u64* p, u64 word) {
#if X_NVPTX
  asm volatile("st.relaxed.sys.global.u64 [%0], %1;" ::"l"(p), "l"(word) : "memory");
#elif X_AMDGCN
  __hip_atomic_store(p, word, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_SYSTEM);
#else
  __atomic_store_n(p, word, __ATOMIC_RELAXED);
#endif
}

/** What was written before, by whoever this thread knows of, can be read on all devices by those who learn of what it writes after. */
X_DEVICE void publish() {
#if X_NVPTX
  asm volatile("fence.acq_rel.sys;" ::: "memory");
#elif X_AMDGCN
  __builtin_amdgcn_fence(__ATOMIC_RELEASE, "");
#else
  __atomic_thread_fence(__ATOMIC_RELEASE);
#endif
}

/** The other side of {@link publish}. */
X_DEVICE void observe() {
#if X_NVPTX
  asm volatile("fence.acq_rel.sys;" ::: "memory");
#elif X_AMDGCN
  __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "");
#else
  __atomic_thread_fence(__ATOMIC_ACQUIRE);
#endif
}

/** Between two looks. */
X_DEVICE void pause() {
#if X_AMDGCN
  __builtin_amdgcn_s_sleep(1);
#elif X_HOST && defined(__x86_64__)
  __builtin_ia32_pause();
#elif X_HOST
  asm volatile("yield");
#endif
}

/** Time: nanoseconds on NVIDIA's GPUs, ticks of 10 ns on AMD's; on the host, which has none here, how often it was asked. */
X_DEVICE u64 clock([[maybe_unused]] u64 asked) {
#if X_NVPTX
  u64 now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  return now;
#elif X_AMDGCN
#if __has_builtin(__builtin_readsteadycounter)
  return __builtin_readsteadycounter();
#elif defined(__GFX11__) || defined(__GFX12__)
  return __builtin_amdgcn_s_sendmsg_rtnl(0x83);
#else
  return __builtin_amdgcn_s_memrealtime();
#endif
#else
  return asked;
#endif
}

/** How long a thread waits for what another device sends. The first look at the time comes late, when it matters. */
struct Patience {
  u32* control;  // of the host: [0] is not 0 when nobody is to wait any more; [1] becomes 1 + the rank that did not come
  u64 most;      // by clock()
  u32 looks;
  u64 since;

  static constexpr u32 AT_ONCE = 256;  // looks between two at the host's memory, which are slow

  /** After a look in vain: whether to look again. */
  X_DEVICE bool lasts(u32 rank) {
    pause();
    if (++looks % AT_ONCE != 0) return true;
    const u32 asked = looks / AT_ONCE;
    const u64 now = clock(asked);
    if (asked == 1) since = now;
    if (lookWord(control) != 0) return false;
    if (now - since <= most) return true;
    sendWord(control + 1, 1 + rank);
    sendWord(control, 1);
    return false;
  }
};

}  // namespace wire
