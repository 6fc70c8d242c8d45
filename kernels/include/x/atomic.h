// atomicAdd(p, v): relaxed, device-wide, returns the old value; i32 u32 i64 u64 f32 f64, and the small floats through
// compare-and-swap on the 32-bit word that holds them.
#pragma once

namespace atomics {

X_DEVICE u32 compareAndSwap(u32* p, u32 expected, u32 desired) {
#if X_NVRTC
  return ::atomicCAS(p, expected, desired);
#elif X_HOST
  __atomic_compare_exchange_n(p, &expected, desired, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
  return expected;
#elif X_AMDGCN
  __hip_atomic_compare_exchange_strong(p, &expected, desired, __ATOMIC_RELAXED, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
  return expected;
#else
  return (u32)__nvvm_atom_cas_gen_i((int*)p, (int)expected, (int)desired);
#endif
}

X_DEVICE u64 compareAndSwap(u64* p, u64 expected, u64 desired) {
#if X_NVRTC
  return ::atomicCAS(p, expected, desired);
#elif X_HOST
  __atomic_compare_exchange_n(p, &expected, desired, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
  return expected;
#elif X_AMDGCN
  __hip_atomic_compare_exchange_strong(p, &expected, desired, __ATOMIC_RELAXED, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
  return expected;
#else
  return (u64)__nvvm_atom_cas_gen_ll((long long*)p, (long long)expected, (long long)desired);
#endif
}

// Swaps until `next(old)` went in. Word is u32 or u64, T has its size.
template <class Word, class T>
X_DEVICE T addBySwap(T* p, T v) {
  Word* word = (Word*)p;
  Word old = *(volatile Word*)word;
  for (;;) {
    const Word seen = compareAndSwap(word, old, bitCast<Word>((T)(bitCast<T>(old) + v)));
    if (seen == old) return bitCast<T>(old);
    old = seen;
  }
}

// T has 1 or 2 bytes: its bits are a field of an aligned word.
template <class T>
X_DEVICE T addInWord(T* p, T v) {
  u32* word = (u32*)((u64)p & ~3ull);
  const u32 shift = (u32)((u64)p & 3ull) * 8;
  const u32 mask = sizeof(T) == 1 ? 0xffu : 0xffffu;
  u32 old = *(volatile u32*)word;
  for (;;) {
    T current;
    u32 bits;
    if constexpr (sizeof(T) == 1) {
      current = bitCast<T>((u8)((old >> shift) & mask));
      bits = bitCast<u8>(from_acc<T>(to_acc(current) + to_acc(v)));
    } else {
      current = bitCast<T>((u16)((old >> shift) & mask));
      bits = bitCast<u16>(from_acc<T>(to_acc(current) + to_acc(v)));
    }
    const u32 seen = compareAndSwap(word, old, (old & ~(mask << shift)) | (bits << shift));
    if (seen == old) return current;
    old = seen;
  }
}

}  // namespace atomics

/** *p += v as one step; returns what was there. */
template <class T>
X_DEVICE T atomicAdd(T* p, T v) {
  if constexpr (sizeof(T) < 4) {
    return atomics::addInWord(p, v);
  } else {
#if X_NVRTC
    if constexpr (sameType<T, i64>) return (T)::atomicAdd((u64*)p, (u64)v);
    else return ::atomicAdd(p, v);
#elif X_AMDGCN
    return __hip_atomic_fetch_add(p, v, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
#elif X_NVPTX
    if constexpr (sameType<T, float>) return __nvvm_atom_add_gen_f(p, v);
    else if constexpr (sameType<T, double>) return __nvvm_atom_add_gen_d(p, v);
    else if constexpr (sizeof(T) == 4) return (T)__nvvm_atom_add_gen_i((int*)p, (int)v);
    else return (T)__nvvm_atom_add_gen_ll((long long*)p, (long long)v);
#else
    if constexpr (sameType<T, float>) return atomics::addBySwap<u32>(p, v);
    else if constexpr (sameType<T, double>) return atomics::addBySwap<u64>(p, v);
    else return __atomic_fetch_add(p, v, __ATOMIC_RELAXED);
#endif
  }
}
