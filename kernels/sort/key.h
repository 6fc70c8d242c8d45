// The order of a sort: every value becomes an unsigned key whose order is the value's, so one comparison serves all
// dtypes; of the other direction are the same keys with all bits turned, by a word that a kernel is told. NaN is the greatest value whatever its sign (PyTorch's rule): last ascending, first
// descending. -0 equals 0. Equal keys keep their order in both directions, because positions break ties.
#pragma once

namespace sort {

template <u32 size>
struct KeyOf {
  typedef u32 type;
};
template <>
struct KeyOf<8> {
  typedef u64 type;
};
template <class T>
using Key = typename KeyOf<sizeof(T)>::type;

template <class F, class Bits>
X_DEVICE Bits floatKey(F v) {
  constexpr Bits sign = (Bits)1 << (8 * sizeof(Bits) - 1);
  constexpr Bits infinity = sizeof(Bits) == 8 ? (Bits)((u64)0x7ff << 52) : (Bits)0x7f800000;
  const Bits bits = bitCast<Bits>(v), magnitude = bits & (sign - 1);
  const Bits ordered = (bits & sign) != 0 ? sign - magnitude : sign + magnitude;
  return magnitude > infinity ? ~(Bits)0 : ordered;
}

/** What turns the keys of an ascending order into those of a descending one. */
template <class K>
X_DEVICE K flipOf(bool descending) {
  return descending ? (K)~(K)0 : (K)0;
}

/** The key of v; f16, bf16 and f8e4m3 widen exactly, integers shift their range to begin at 0. */
template <class T>
X_DEVICE Key<T> keyOf(T v, Key<T> flip) {
  Key<T> key;
  if constexpr (sameType<T, double>) key = floatKey<double, u64>(v);
  else if constexpr (isFloatType<T>) key = floatKey<float, u32>(to_acc(v));
  else if constexpr ((T)-1 < (T)0) key = (Key<T>)v ^ ((Key<T>)1 << (8 * sizeof(Key<T>) - 1));
  else key = (Key<T>)v;
  return key ^ flip;
}

/** keyOf in 16 bits for the types of one and two bytes. */
template <class T>
X_DEVICE u16 shortKeyOf(T v, u16 flip) {
  u16 key;
  if constexpr (isFloatType<T>) {
    typedef typename vec::Word<sizeof(T)>::type Bits;
    constexpr u16 sign = (u16)(1u << (8 * sizeof(T) - 1));
    constexpr u16 infinity = sameType<T, f16> ? 0x7c00 : sameType<T, bf16> ? 0x7f80 : 0x7e;  // f8e4m3: its largest value
    const u16 bits = bitCast<Bits>(v), magnitude = bits & (sign - 1);
    const u16 ordered = bits & sign ? sign - magnitude : sign + magnitude;
    key = magnitude > infinity ? (u16)0xffff : ordered;
  } else {
    key = (T)-1 < (T)0 ? (u16)((u16)v ^ 0x8000) : (u16)v;
  }
  return key ^ flip;
}

/** Whether (a, i) belongs before (b, j). */
template <class K, class I>
X_DEVICE bool before(K a, I i, K b, I j) {
  return a < b || (a == b && i < j);
}

X_DEVICE u32 roundUpToPower(u32 n) {
  u32 power = 1;
  while (power < n) power *= 2;
  return power;
}

/**
 * Bitonic network over `size` slots, a power of two, by one block: exchange(a, b) swaps slots a < b unless a belongs first,
 * exchange(b, a) unless b does. Begins and ends with a barrier.
 */
template <class F>
X_DEVICE void bitonic(u32 size, F exchange) {
  barrier();
  for (u32 block = 2; block != 0 && block <= size; block *= 2) {
    for (u32 distance = block / 2; distance > 0; distance /= 2) {
      X_FOR_BLOCK(pair, size / 2) {
        const u32 p = (u32)pair;
        const u32 a = ((p & ~(distance - 1)) << 1) | (p & (distance - 1));
        const u32 b = a | distance;
        if ((a & block) == 0) exchange(a, b);
        else exchange(b, a);
      }
      barrier();
    }
  }
}

#if X_HOST
/**
 * Stable merge sort of the positions [0, n) by one thread, between two buffers of n; the result is in `result`.
 * keyAt(i) is the key of position i.
 */
template <class I, class F>
X_DEVICE void mergeSort(u32 n, I* result, I* other, F keyAt) {
  constexpr u32 SMALL = 16;
  u32 passes = 0;
  for (u64 width = SMALL; width < n; width *= 2) ++passes;
  I* from = passes % 2 == 0 ? result : other;
  I* to = passes % 2 == 0 ? other : result;
  for (u32 start = 0; start < n; start += SMALL) {
    const u32 end = n - start < SMALL ? n : start + SMALL;
    for (u32 i = start; i < end; ++i) {
      const auto key = keyAt(i);
      u32 slot = i;
      for (; slot > start && key < keyAt(from[slot - 1]); --slot) from[slot] = from[slot - 1];
      from[slot] = (I)i;
    }
  }
  for (u64 width = SMALL; width < n; width *= 2) {
    for (u64 start = 0; start < n; start += 2 * width) {
      const u64 middle = n - start < width ? n : start + width;
      const u64 end = n - start < 2 * width ? n : start + 2 * width;
      u64 a = start, b = middle;
      for (u64 out = start; out < end; ++out) {
        const bool left = a < middle && (b >= end || keyAt(from[a]) <= keyAt(from[b]));
        to[out] = left ? from[a++] : from[b++];
      }
    }
    I* swap = from;
    from = to;
    to = swap;
  }
}
#endif

}  // namespace sort
