// The first k of many candidates on the host, which reads them once: what does not belong before the last of k that are known
// is passed over, a vector of keys at a time, and what does is kept until so much is that a selection makes the bound better.
#pragma once

#if X_HOST
namespace sort::top {

/** Candidates that are kept until the next selection, and those that are there at most. */
X_DEVICE u32 keptFor(u32 k) { return 4 * k > 512 ? 4 * k : 512; }
constexpr u32 CHUNK = 64, PIECE = 16, KEPT = 4 * TOP + CHUNK;

/** Of `held` candidates in the order of their positions the first k, in the same order; gives the last one's key. */
template <class K>
__attribute__((noinline)) K keepFirst(u32 k, u32 held, K* keys, u32* slots, Shared shared) {
  u32 rest = k;
  Bound<K> bound;
  Bound<u32> order = {0, 0};
  const bool all = select(held, 8 * sizeof(K), rest, bound, shared, [=](u64 i, K& key) {
    key = keys[i];
    return true;
  });
  if (!all) {
    select(held, 16, rest, order, shared, [=](u64 i, u32& place) {
      place = (u32)i;
      return bound.equal(keys[i]);
    });
  }
  u32 slot = 0;
  K last = 0;
  for (u32 i = 0; i < held; ++i) {
    const K key = keys[i];
    const bool kept = bound.before(key) || (bound.equal(key) && (all || order.before(i) || order.equal(i)));
    keys[slot] = key;
    slots[slot] = slots[i];
    slot += kept;
    last = kept && key > last ? key : last;
  }
  return last;
}

/** keys and slots [KEPT]: of n candidates, whose keys keyAt gives, the first k without order. */
template <class K, class F>
X_DEVICE void first(u64 n, u32 k, K* keys, u32* slots, Shared shared, F keyAt) {
  const u32 most = keptFor(k);
  u32 held = n < most ? (u32)n : most;
  for (u32 i = 0; i < held; ++i) {
    keys[i] = keyAt(i);
    slots[i] = i;
  }
  // Of keys equal to the bound the first k are known already: what comes later must be before it.
  K bound = held > k ? keepFirst(k, held, keys, slots, shared) : 0;
  u64 at = held;
  if (held > k) held = k;
  for (; at < n; at += CHUNK) {
    K chunk[CHUNK];
    const u32 count = n - at < CHUNK ? (u32)(n - at) : CHUNK;
    if (count == CHUNK) {
      for (u32 i = 0; i < CHUNK; ++i) chunk[i] = keyAt(at + i);
    } else {
      for (u32 i = 0; i < CHUNK; ++i) chunk[i] = i < count ? keyAt(at + i) : ~(K)0;
    }
    K any = 0;
    for (u32 i = 0; i < CHUNK; ++i) any |= (K)(chunk[i] < bound);
    if (!any) continue;
    for (u32 piece = 0; piece < CHUNK; piece += PIECE) {
      K some = 0;
      for (u32 i = 0; i < PIECE; ++i) some |= (K)(chunk[piece + i] < bound);
      if (!some) continue;
      for (u32 i = 0; i < PIECE; ++i) {
        keys[held] = chunk[piece + i];
        slots[held] = (u32)at + piece + i;
        held += chunk[piece + i] < bound;
      }
    }
    if (held > most) {
      bound = keepFirst(k, held, keys, slots, shared);
      held = k;
    }
  }
  if (held > k) keepFirst(k, held, keys, slots, shared);
}

}  // namespace sort::top
#endif
