// Radix select: which of many keys are the smallest, over the bits of the keys and without sorting them.
#pragma once

namespace sort {

/** The most elements that top-k can be asked for; they are sorted in shared memory. */
constexpr u32 TOP = 1024;

namespace top {

constexpr u32 DIGIT = 11, BUCKETS = 1 << DIGIT, GROUP = 32;
// Candidates up to which a GPU sorts them all at once; on the host selecting first is always cheaper.
[[maybe_unused]] constexpr u32 SMALL = TOP;

struct State {
  u32 bucket, before, size;
};

struct Shared {
  u32* counts;
  u32* groups;
  State* state;
};

// *p += 1, giving the old value; the threads of a block may do it at once.
X_DEVICE u32 increment(u32* p) {
#if X_HOST
  return (*p)++;
#else
  return atomicAdd(p, 1u);
#endif
}

/** A set of keys by their leading bits: those before `bits` under `mask`, and those equal to it as far as needed. */
template <class K>
struct Bound {
  K bits, mask;

  X_DEVICE bool equal(K key) const { return ((key ^ bits) & mask) == 0; }
  X_DEVICE bool before(K key) const { return (key & mask) < bits; }
};

/**
 * The bound of the `rest` smallest of the keys that keyAt(i, key) gives (false: i takes no part) for i in [0, n). `rest`
 * becomes how many of the keys equal to the bound belong to them; true says that all of these do.
 */
template <class K, class F>
X_DEVICE bool select(u64 n, u32 width, u32& rest, Bound<K>& bound, Shared shared, F keyAt) {
  bound = Bound<K>{0, 0};
  for (u32 left = width; left > 0;) {
    const u32 digit = left < DIGIT ? left : DIGIT;
    left -= digit;
    const u32 last = ((u32)1 << digit) - 1;
    X_FOR_BLOCK(b, BUCKETS) shared.counts[b] = 0;
    barrier();
    X_FOR_BLOCK(i, n) {
      K key;
      if (keyAt(i, key) && bound.equal(key)) increment(shared.counts + ((u32)(key >> left) & last));
    }
    barrier();
    X_FOR_BLOCK(g, BUCKETS / GROUP) {
      u32 sum = 0;
      for (u32 b = 0; b < GROUP; ++b) sum += shared.counts[g * GROUP + b];
      shared.groups[g] = sum;
    }
    barrier();
    if (threadIndex() == 0) {
      u32 before = 0, b = 0;
      while (b + GROUP <= last && before + shared.groups[b / GROUP] < rest) before += shared.groups[b / GROUP], b += GROUP;
      while (b < last && before + shared.counts[b] < rest) before += shared.counts[b++];
      *shared.state = State{b, before, shared.counts[b]};
    }
    barrier();
    const State state = *shared.state;
    bound.bits |= (K)state.bucket << left;
    bound.mask |= (K)last << left;
    rest -= state.before;
    if (state.size == rest) return true;
  }
  return false;
}

}  // namespace top

}  // namespace sort
