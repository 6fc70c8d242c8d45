// Arg-sort of rows of any width by their keys' digits, the least significant first (LSD radix sort), 8 bits a pass. Rows
// are cut into parts, a block each. A pass is two kernels: one counts the digits of every part; the other reads all counts
// of its row, so that it knows where each digit of its part begins in the sorted row, and moves keys and positions there in
// order. No block waits for another. The first pass makes keys of the values, the last one writes positions alone.
#pragma once

namespace sort {
namespace radix {

constexpr u32 DIGIT = 8;  // launchers: SORT_RADIX_BITS
constexpr u32 DIGITS = 1 << DIGIT;

template <u32 size>
struct ShortKeyOf {
  typedef typename KeyOf<size>::type type;
};
template <>
struct ShortKeyOf<1> {
  typedef u16 type;
};
template <>
struct ShortKeyOf<2> {
  typedef u16 type;
};

/** What a first pass reads: values, whose keys are as short as their type allows, and each one's own column. */
template <class T>
struct Values {
  typedef typename ShortKeyOf<sizeof(T)>::type K;

  const T* x;
  K flip;

  X_DEVICE u32 shift() const { return 0; }
  X_DEVICE K key(u64 i) const {
    if constexpr (sizeof(T) <= 2) return shortKeyOf(x[i], flip);
    else return keyOf(x[i], flip);
  }
  X_DEVICE u32 position(u64, u64 column) const { return (u32)column; }
};

/** What the later passes read: keys and positions as the pass before left them. */
template <class Word>
struct Keys {
  typedef Word K;

  const K* keys;
  const u32* positions;
  u32 low;

  X_DEVICE u32 shift() const { return low; }
  X_DEVICE K key(u64 i) const { return keys[i]; }
  X_DEVICE u32 position(u64 i, u64) const { return positions[i]; }
};

template <class K>
X_DEVICE u32 digitOf(K key, u32 shift) {
  return (u32)(key >> shift) & (DIGITS - 1);
}

/** The part of a row that is a block's: columns [begin, begin + count) of row `row`, of which the first is element `first`. */
struct Part {
  u64 row, index, begin, first, count;

  X_DEVICE Part(u64 item, u64 parts, u64 cols, u64 part) {
    row = item / parts;
    index = item % parts;
    begin = index * part;
    first = row * cols + begin;
    count = cols - begin < part ? cols - begin : part;
  }
};

#if !X_HOST

// Of a block, one a digit; constant, so that the places of a thread's elements need one address.
constexpr u32 THREADS = DIGITS;
// Keys of a thread and a tile: 16 KiB of shared memory in a block of THREADS.
template <class K>
constexpr u32 ITEMS = sizeof(K) == 8 ? 8 : 16;
// Of those, how many a thread reads before it ranks or moves them: more of them cost registers, and with them waves.
template <class K>
constexpr u32 GROUP = ITEMS<K> / 2;

/** How many elements of a digit came before this lane's in its warp, whose counters are these; all lanes come here. */
X_DEVICE u16 rank(u16* counters, u32 digit) {
  typedef LaneMask<WARP> Mask;
  const typename Mask::type peers = lanesWith<DIGIT>(digit);
  const u32 before = counters[digit], below = Mask::below(peers);
  warpBarrier();
  if (below == 0) counters[digit] = (u16)(before + Mask::size(peers));
  warpBarrier();
  return (u16)(before + below);
}

/** The sum of v over the threads before this one. Has a barrier between its accesses to shared memory. */
X_DEVICE u32 sumBefore(u32 v) {
  X_SHARED(u32, sums, THREADS / WARP);
  const u32 lane = laneId(), warp = warpId();
  u32 sum = v;
#pragma unroll
  for (u32 distance = 1; distance < WARP; distance *= 2) {
    const u32 before = shuffle(sum, (lane - distance) % WARP);
    if (lane >= distance) sum += before;
  }
  if (lane == WARP - 1) sums[warp] = sum;
  barrier();
#pragma unroll
  for (u32 w = 0; w < THREADS / WARP; ++w) sum += w < warp ? sums[w] : 0;
  return sum - v;
}

#endif

/** counts[row, part, digit] of parts of `part` columns. */
template <class From>
X_DEVICE void count(u64 rows, u64 cols, u64 part, From from, u32* counts) {
  if (part == 0) return;
  const u64 parts = (cols + part - 1) / part;
  const u32 shift = from.shift();
  X_FOR_SPLIT(item, rows * parts) {
    const Part at(item, parts, cols, part);
#if X_HOST
    u32 found[DIGITS] = {};
    for (u64 i = 0; i < at.count; ++i) ++found[digitOf(from.key(at.first + i), shift)];
    for (u32 d = 0; d < DIGITS; ++d) counts[item * DIGITS + d] = found[d];
#else
    typedef typename From::K K;
    // A counter is eight, which lanes share out, since the lanes of a warp often have one digit in common.
    constexpr u32 COPIES = 8, N = ITEMS<K>;
    X_SHARED(u32, copies, DIGITS * COPIES);
    const u32 thread = threadIndex(), copy = laneId() % COPIES;
#pragma unroll
    for (u32 c = 0; c < COPIES; ++c) copies[c * DIGITS + thread] = 0;
    barrier();
    for (u64 start = 0; start < at.count; start += N * THREADS) {
      const u32 left = at.count - start < N * THREADS ? (u32)(at.count - start) : N * THREADS;
      K keys[N];
#pragma unroll
      for (u32 j = 0; j < N; ++j) {
        const u32 i = j * THREADS + thread;
        keys[j] = i < left ? from.key(at.first + start + i) : (K)0;
      }
#pragma unroll
      for (u32 j = 0; j < N; ++j) {
        if (j * THREADS + thread < left) atomicAdd(copies + digitOf(keys[j], shift) * COPIES + copy, 1u);
      }
    }
    barrier();
    u32 sum = 0;
#pragma unroll
    for (u32 c = 0; c < COPIES; ++c) sum += copies[thread * COPIES + (c + thread / 4) % COPIES];
    counts[item * DIGITS + thread] = sum;
    barrier();
#endif
  }
}

/** Moves what is at i of every row to its place by this pass's digit; keys may be null, positions go to `to`. */
template <class From>
X_DEVICE void scatter(u64 rows, u64 cols, u64 part, From from, const u32* counts, typename From::K* keys, u32* to) {
  typedef typename From::K K;
  if (part == 0) return;
  const u64 parts = (cols + part - 1) / part;
  const u32 shift = from.shift();
#if !X_HOST
  constexpr u32 N = ITEMS<K>, TILE = N * THREADS, WARPS = THREADS / WARP;
  // A warp's counters; when they are no longer needed, the digits of the tile in sorted order.
  constexpr u32 COUNTERS = WARPS * DIGITS > TILE / 2 ? WARPS * DIGITS : TILE / 2;
  X_SHARED(u16, counters, COUNTERS);
  X_SHARED(u16, slots, TILE);
  X_SHARED(u32, firsts, DIGITS);
  X_SHARED(u32, bases, DIGITS);
  X_SHARED(unsigned char, staged, TILE * (sizeof(K) > 4 ? sizeof(K) : 4));
  K* stagedKeys = (K*)staged;
  u32* stagedPositions = (u32*)staged;
  u8* digits = (u8*)counters;
  // A warp has consecutive elements, lane by lane and N times over.
  const u32 thread = threadIndex(), place = warpId() * WARP * N + laneId();
  u16* mine = counters + warpId() * DIGITS;
#endif
  X_FOR_SPLIT(item, rows * parts) {
    const Part at(item, parts, cols, part);
    const u32* rowCounts = counts + at.row * parts * DIGITS;
    K* rowKeys = keys == nullptr ? keys : keys + at.row * cols;
    u32* rowTo = to + at.row * cols;
#if X_HOST
    u32 next[DIGITS], all = 0;
    for (u32 d = 0; d < DIGITS; ++d) {
      next[d] = all;
      for (u64 p = 0; p < parts; ++p) {
        const u32 found = rowCounts[p * DIGITS + d];
        if (p < at.index) next[d] += found;
        all += found;
      }
    }
    for (u64 i = 0; i < at.count; ++i) {
      const K key = from.key(at.first + i);
      const u32 slot = next[digitOf(key, shift)]++;
      if (rowKeys != nullptr) rowKeys[slot] = key;
      rowTo[slot] = from.position(at.first + i, at.begin + i);
    }
#else
    // Where in the row the next element goes whose digit is this thread's number.
    u32 next = 0, all = 0;
    u64 of = thread;
#pragma unroll 8
    for (u32 p = 0; p < (u32)parts; ++p, of = opaque(of + DIGITS)) {
      const u32 found = rowCounts[of];
      next += p < at.index ? found : 0;
      all += found;
    }
    next += sumBefore(all);
#pragma unroll 1
    for (u64 start = 0; start < at.count; start += TILE) {
      const u32 count = at.count - start < TILE ? (u32)(at.count - start) : TILE;
      const u64 first = at.first + start, column = at.begin + start;
#pragma unroll
      for (u32 w = 0; w < WARPS; ++w) counters[w * DIGITS + thread] = 0;
      barrier();
#pragma unroll 1
      for (u32 j = 0; j < N; j += GROUP<K>) {
        K key[GROUP<K>];
#pragma unroll
        for (u32 k = 0; k < GROUP<K>; ++k) {
          const u32 i = place + (j + k) * WARP;
          key[k] = i < count ? from.key(first + i) : (K)~(K)0;  // the greatest keys fill the last tile
        }
#pragma unroll
        for (u32 k = 0; k < GROUP<K>; ++k) slots[(j + k) * THREADS + thread] = rank(mine, digitOf(key[k], shift));
      }
      barrier();
      u32 here = 0;
#pragma unroll
      for (u32 w = 0; w < WARPS; ++w) {
        const u16 found = counters[w * DIGITS + thread];
        counters[w * DIGITS + thread] = (u16)here;
        here += found;
      }
      const u32 before = sumBefore(here);
      firsts[thread] = before;
      bases[thread] = next - before;
      next += here;
      barrier();
      // Through shared memory, so that threads beside each other write elements beside each other.
#pragma unroll 1
      for (u32 j = 0; j < N; j += GROUP<K>) {
        K key[GROUP<K>];
#pragma unroll
        for (u32 k = 0; k < GROUP<K>; ++k) {
          const u32 i = place + (j + k) * WARP;
          key[k] = i < count ? from.key(first + i) : (K)0;
        }
#pragma unroll
        for (u32 k = 0; k < GROUP<K>; ++k) {
          u16& own = slots[(j + k) * THREADS + thread];
          const u32 digit = digitOf(key[k], shift), slot = own + firsts[digit] + mine[digit];
          own = (u16)slot;
          if (place + (j + k) * WARP < count) stagedKeys[slot] = key[k];
        }
      }
      barrier();
#pragma unroll 4
      for (u32 i = thread; i < count; i += THREADS) {
        const K key = stagedKeys[i];
        const u32 digit = digitOf(key, shift);
        digits[i] = (u8)digit;
        if (rowKeys != nullptr) rowKeys[bases[digit] + i] = key;
      }
      barrier();
#pragma unroll 1
      for (u32 j = 0; j < N; j += GROUP<K>) {
        u32 position[GROUP<K>];
#pragma unroll
        for (u32 k = 0; k < GROUP<K>; ++k) {
          const u32 i = place + (j + k) * WARP;
          position[k] = i < count ? from.position(first + i, column + i) : 0;
        }
#pragma unroll
        for (u32 k = 0; k < GROUP<K>; ++k) {
          if (place + (j + k) * WARP < count) stagedPositions[slots[(j + k) * THREADS + thread]] = position[k];
        }
      }
      barrier();
#pragma unroll 4
      for (u32 i = thread; i < count; i += THREADS) rowTo[bases[digits[i]] + i] = stagedPositions[i];
      barrier();
    }
#endif
  }
}

}  // namespace radix
}  // namespace sort
