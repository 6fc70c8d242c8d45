// Sort of rows of up to WARP_ROW columns by one warp each, by the digits of their keys, the least significant first. A lane
// holds every WARP-th element of the row as a word: the bits of its key that no pass has sorted by above its position. So
// keys of 4 bytes, too, move as one word: the first digit is ranked before the position takes its place. Lanes that hold
// the same digit find each other by ballots, and nothing but the move to sorted order goes through shared memory, in which
// the counters of digits have had their turn by then. No warp waits for another.
#pragma once

namespace sort {

/** The widest row that a warp sorts; a wider one is not touched. */
constexpr u32 WARP_ROW = 1024;  // launchers: SORT_WARP_ROW

namespace warprow {

// Threads of a block that have rows to sort.
constexpr u32 THREADS = 128;  // launchers: SORT_WARP_THREADS
// NVIDIA's compiler takes as many registers as a block of so many threads leaves it: 80, which let 24 warps run at once.
[[maybe_unused]] constexpr u32 BOUND = X_NVPTX ? 768 : THREADS;

#if !X_HOST

// Rows are padded to whole groups, the others are skipped.
constexpr u32 ITEMS = WARP_ROW / WARP, GROUPS = 4, GROUP = ITEMS / GROUPS;

/** Calls f with the first item of every group of a row of `count` columns. */
template <class F>
X_DEVICE void eachGroup(u32 count, F f) {
#pragma unroll
  for (u32 g = 0; g < GROUPS; ++g) {
    if (g * (GROUP * WARP) < count) f(g * GROUP);
  }
}

/** Counters of 16 bits become how many elements have a digit before theirs. */
template <u32 digits>
X_DEVICE void sumCounters(u16* counters) {
  // A lane's part of a chunk is one access; in a word of two counters, the sums of two chunks are added up at once.
  constexpr u32 EACH = digits / WARP < 8 ? digits / WARP : 8, CHUNKS = digits / (WARP * EACH), PAIRS = (CHUNKS + 1) / 2;
  typedef Vec<u32, EACH / 2> Words;
  const u32 lane = laneId();
  u32* words = (u32*)counters + lane * (EACH / 2);
  u32 sums[PAIRS] = {}, own[PAIRS];
#pragma unroll
  for (u32 c = 0; c < CHUNKS; ++c) {
    const Words found = loadVec<EACH / 2>(words + c * (WARP * EACH / 2));
    u32 both = 0;
#pragma unroll
    for (u32 w = 0; w < EACH / 2; ++w) both += found[w];
    sums[c / 2] += ((both & 0xffff) + (both >> 16)) << (16 * (c % 2));
  }
#pragma unroll
  for (u32 p = 0; p < PAIRS; ++p) own[p] = sums[p];
#pragma unroll
  for (u32 distance = 1; distance < WARP; distance *= 2) {
#pragma unroll
    for (u32 p = 0; p < PAIRS; ++p) {
      const u32 before = shuffle(sums[p], (lane - distance) % WARP);
      if (opaque(lane) >= distance) sums[p] += before;
    }
  }
  warpBarrier();  // counters are read again, rather than kept
  u32 carry = 0;
#pragma unroll
  for (u32 c = 0; c < CHUNKS; ++c) {
    const u32 all = CHUNKS > 1 ? shuffle(sums[c / 2], WARP - 1) >> (16 * (c % 2)) & 0xffff : 0;
    u32 before = carry + ((sums[c / 2] - own[c / 2]) >> (16 * (c % 2)) & 0xffff);
    Words found = loadVec<EACH / 2>(words + c * (WARP * EACH / 2));
#pragma unroll
    for (u32 w = 0; w < EACH / 2; ++w) {
      const u32 two = found[w];
      found[w] = before * 0x10001 + (two << 16);
      before += (two * 0x10001) >> 16;
    }
    storeVec(words + c * (WARP * EACH / 2), found);
    carry += all;
  }
}

/** The slots to which a stable sort by the lowest `bits` bits moves the words, two slots in a word. */
template <u32 bits>
X_DEVICE void findSlots(const u32 (&words)[ITEMS], u32 count, u16* counters, u32 (&slots)[ITEMS / 2]) {
  typedef LaneMask<WARP> Mask;
  constexpr u32 DIGITS = 1u << bits, EACH = DIGITS / WARP < 8 ? DIGITS / WARP : 8;
  const u32 lane = laneId();
  const typename Mask::type above = (typename Mask::type)~(typename Mask::type)1 << lane;
#pragma unroll
  for (u32 c = 0; c < DIGITS / (WARP * EACH); ++c) {
    storeVec(counters + (c * WARP + lane) * EACH, Vec<u16, EACH>{});
  }
  warpBarrier();
  eachGroup(count, [&](u32 first) {
    // First what needs no counters, so that the ballots of several elements overlap.
    typename Mask::type peers[GROUP];
#pragma unroll
    for (u32 k = 0; k < GROUP; ++k) peers[k] = lanesWith<bits>(words[first + k]);
#pragma unroll
    for (u32 k = 0; k < GROUP; ++k) {
      u16& counter = counters[words[first + k] & (DIGITS - 1)];
      const u32 rank = counter + Mask::below(peers[k]);
      warpBarrier();
      if ((peers[k] & above) == 0) counter = (u16)(rank + 1);
      warpBarrier();
      u32& two = slots[(first + k) / 2];
      two = k % 2 == 0 ? rank : two | rank << 16;
    }
  });
  sumCounters<DIGITS>(counters);
  warpBarrier();
  // Not written as above, since compilers would keep every digit in a register from there.
  const auto before = [&](u32 k) { return *(u16*)((u8*)counters + (words[k] * 2 & (2 * DIGITS - 2))); };
  eachGroup(count, [&](u32 first) {
#pragma unroll
    for (u32 k = 0; k < GROUP; k += 2) {
      const u32 low = before(first + k), high = before(first + k + 1);
      slots[(first + k) / 2] += low | high << 16;
    }
  });
  warpBarrier();
}

template <class T>
X_DEVICE void row(const T* x, u32 count, u32* index, T* values, u32* shared, bool descending) {
  // Keys of 4 bytes are digits of 11, 11 and 10 bits, and the position moves in where the first was.
  constexpr bool LONG = sizeof(T) == 4;
  constexpr u32 BITS = LONG ? 11 : 8, PASSES = LONG ? 3 : sizeof(T), HIGH = LONG ? 2 * BITS : BITS * PASSES;
  typedef typename vec::Word<sizeof(T)>::type Bits;
  // The columns from this lane's first on. A lane asks for its number every time, since compilers would keep of all its places
  // in registers whether they are in the row.
  const auto left = [=] { return (i32)count - (i32)shuffle(laneId(), laneId()); };
  const u32 lane = laneId();
  const Bits* from = (const Bits*)x + lane;
  u32* own = shared + lane;
  u32 words[ITEMS], slots[ITEMS / 2];
  const i32 read = left();
  eachGroup(count, [&](u32 first) {
#pragma unroll
    for (u32 k = 0; k < GROUP; ++k) words[first + k] = (i32)((first + k) * WARP) < read ? from[(first + k) * WARP] : 0;
  });
  const i32 filled = left();
  eachGroup(count, [&](u32 first) {
#pragma unroll
    for (u32 k = 0; k < GROUP; ++k) {
      u32& word = words[first + k];
      const T v = bitCast<T>((Bits)word);
      if constexpr (LONG) word = keyOf(v, flipOf<u32>(descending));
      else word = shortKeyOf(v, flipOf<u16>(descending)) & ((1u << HIGH) - 1);
      // The greatest keys fill the last group: they come last, as equal ones keep their order.
      if ((i32)((first + k) * WARP) >= filled) word = LONG ? ~0u : (1u << HIGH) - 1;
      if constexpr (!LONG) word |= ((first + k) * WARP + lane) << HIGH;
    }
  });
#pragma unroll 1
  for (u32 pass = 0; pass < PASSES; ++pass) {
    findSlots<BITS>(words, count, (u16*)shared, slots);
    eachGroup(count, [&](u32 first) {
#pragma unroll
      for (u32 k = 0; k < GROUP; ++k) {
        u32 word = words[first + k] >> BITS;
        if (LONG && pass == 0) word |= ((first + k) * WARP + lane) << HIGH;
        shared[k % 2 == 0 ? slots[(first + k) / 2] & 0xffff : slots[(first + k) / 2] >> 16] = word;
      }
    });
    warpBarrier();
    eachGroup(count, [&](u32 first) {
#pragma unroll
      for (u32 k = 0; k < GROUP; ++k) words[first + k] = own[(first + k) * WARP];
    });
    warpBarrier();
  }
  const i32 written = left();
  u32* to = index + lane;
  eachGroup(count, [&](u32 first) {
#pragma unroll
    for (u32 k = 0; k < GROUP; ++k) {
      if ((i32)((first + k) * WARP) < written) to[(first + k) * WARP] = words[first + k];
    }
  });
  if (values == nullptr) return;
  // Values are picked from shared memory, whose banks take more addresses at once than a cache does.
  Bits* staged = (Bits*)shared;
  Bits* picked = (Bits*)values + lane;
  const i32 again = left();
  eachGroup(count, [&](u32 first) {
#pragma unroll
    for (u32 k = 0; k < GROUP; ++k) {
      if ((i32)((first + k) * WARP) < again) staged[lane + (first + k) * WARP] = from[(first + k) * WARP];
    }
  });
  warpBarrier();
  eachGroup(count, [&](u32 first) {
#pragma unroll
    for (u32 k = 0; k < GROUP; ++k) {
      const Bits value = staged[words[first + k]];
      if ((i32)((first + k) * WARP) < again) picked[(first + k) * WARP] = value;
    }
  });
  warpBarrier();
}

#endif

/** index[row] = the positions that sort x[row], values[row] = the values in that order unless it is null. */
template <class T>
X_DEVICE void rows(u64 rows, u64 cols, const T* x, u32* index, T* values, bool descending) {
  if (cols > WARP_ROW) return;
#if X_HOST
  X_FOR_SPLIT(r, rows) {
    const T* from = x + r * cols;
    u32* to = index + r * cols;
    u32 other[WARP_ROW];
    mergeSort((u32)cols, to, other, [&](u32 i) { return keyOf(from[i], flipOf<Key<T>>(descending)); });
    if (values == nullptr) continue;
    for (u64 i = 0; i < cols; ++i) values[r * cols + i] = from[to[i]];
  }
#else
  X_SHARED(u32, shared, THREADS / WARP * WARP_ROW);
  const u32 warps = warpsInBlock() < THREADS / WARP ? warpsInBlock() : THREADS / WARP;
  const u32 warp = sameForWarp(warpId());
  if (warp >= warps) return;
  u32* own = shared + warp * WARP_ROW;
  for (u64 r = split::block() * warps + warp; r < rows; r += split::blocks() * warps) {
    T* to = values == nullptr ? values : values + r * cols;
    row(x + r * cols, (u32)cols, index + r * cols, to, own, descending);
  }
#endif
}

}  // namespace warprow
}  // namespace sort
