// The first k positions of a row in sorted order, without sorting the row: which k elements they are is selected (sort/select.h,
// on the host sort/topk-host.h), and only those are sorted. A long row is cut into parts whose winners are candidates of a
// second pass, so that one row of a vocabulary keeps a whole GPU busy. candle has no counterpart: it sorts everything.
#pragma once

namespace sort {

/**
 * Item (row, part) of rows * parts: the first k positions, in sorted order, among the part's share of the row's `width`
 * candidates. Candidates are the positions in `from` [rows, width], of equal keys the smaller position first, or all
 * columns when it is null. k is at most TOP and at most width / parts. to: [rows, parts, k].
 */
template <class T>
X_DEVICE void topk(u64 rows, u64 cols, u64 width, u64 k, u64 parts, const T* x, const u32* from, u32* to,
                   bool descending) {
#if X_HOST
  X_SHARED(Key<T>, keys, top::KEPT);
  X_SHARED(u32, slots, top::KEPT);
#else
  X_SHARED(Key<T>, keys, TOP);
  X_SHARED(u32, slots, TOP);
  X_SHARED(u32, found, 1);
#endif
  X_SHARED(u32, counts, top::BUCKETS);
  X_SHARED(u32, groups, top::BUCKETS / top::GROUP);
  X_SHARED(top::State, state, 1);
  if (k == 0 || k > TOP || parts == 0 || width / parts < k) return;
  const Key<T> flip = flipOf<Key<T>>(descending);
  X_FOR_SPLIT(item, rows * parts) {
    const u64 part = item % parts;
    const u64 start = part * width / parts;
    const u64 n = (part + 1) * width / parts - start;
    const T* row = x + item / parts * cols;
    const u32* list = from == nullptr ? from : from + item / parts * width + start;
    if (list == nullptr) row += start;
    const auto keyAt = [=](u64 i) { return keyOf(row[list == nullptr ? i : (u64)list[i]], flip); };

    u32 taken = (u32)n;
#if X_HOST
    taken = (u32)k;
    const top::Shared shared = {counts, groups, state};
    if (list == nullptr) top::first(n, taken, keys, slots, shared, [=](u64 i) { return keyOf(row[i], flip); });
    else top::first(n, taken, keys, slots, shared, keyAt);
#else
    if (n <= top::SMALL) {
      X_FOR_BLOCK(i, n) {
        keys[i] = keyAt(i);
        slots[i] = (u32)i;
      }
    } else {
      taken = (u32)k;
      u32 rest = (u32)k;
      top::Bound<Key<T>> bound;
      top::Bound<u32> order = {0, 0};
      const top::Shared shared = {counts, groups, state};
      bool all = top::select(n, 8 * sizeof(Key<T>), rest, bound, shared, [=](u64 i, Key<T>& key) {
        key = keyAt(i);
        return true;
      });
      // Of more elements equal to the bound than there is room for, the first ones: selected by their places.
      if (!all) {
        u32 bits = 1;
        while (bits < 32 && (n >> bits) != 0) ++bits;
        top::select(n, bits, rest, order, shared, [=](u64 i, u32& place) {
          place = (u32)i;
          return bound.equal(keyAt(i));
        });
      }
      if (threadIndex() == 0) *found = 0;
      barrier();
      X_FOR_BLOCK(i, n) {
        const Key<T> key = keyAt(i);
        if (bound.before(key) || (bound.equal(key) && (all || order.before((u32)i) || order.equal((u32)i)))) {
          const u32 slot = top::increment(found);
          keys[slot] = key;
          slots[slot] = (u32)i;
        }
      }
    }
#endif
    // Slots that are left over go last.
    const u32 size = roundUpToPower(taken);
    X_FOR_BLOCK(i, size - taken) {
      keys[taken + i] = ~(Key<T>)0;
      slots[taken + i] = ~0u;
    }
    bitonic(size, [&](u32 a, u32 b) {
      const Key<T> left = keys[a], right = keys[b];
      const u32 i = slots[a], j = slots[b];
      if (before(right, j, left, i)) {
        keys[a] = right;
        keys[b] = left;
        slots[a] = j;
        slots[b] = i;
      }
    });
    X_FOR_BLOCK(i, k) to[item * k + i] = list == nullptr ? (u32)(start + slots[i]) : list[slots[i]];
    barrier();
  }
}

}  // namespace sort
