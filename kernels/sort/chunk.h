// Arg-sort of chunks of up to CHUNK columns by one block each, in dynamic shared memory. On GPUs a key and its position
// travel as one word of 32 or 64 bits, whose order is the stable one; a bitonic network goes over the words, up to three
// of its levels in a thread's registers between two trips to shared memory. Types of 8 bytes keep keys and positions apart.
#pragma once

namespace sort {

constexpr u32 CHUNK = 4096;  // launchers: SORT_CHUNK

#if !X_HOST

// Shared memory with a gap after every 16 words, so that neighbouring threads' strides do not meet in one bank.
template <class P>
struct Gapped {
  P* words;
  X_DEVICE P& operator[](u32 i) const { return words[i + (i >> 4)]; }
};

/** The network's levels of distance 2^(low + levels - 1) down to 2^low, for sorted runs of `run`; `size` words. */
template <u32 levels, class P>
X_DEVICE void networkPass(Gapped<P> words, u32 size, u32 run, u32 low) {
  constexpr u32 N = 1u << levels;
  X_FOR_BLOCK(group, size >> levels) {
    const u32 g = (u32)group;
    const u32 base = (g >> low << (low + levels)) | (g & ((1u << low) - 1));
    const bool up = (base & run) == 0;
    P word[N];
#pragma unroll
    for (u32 e = 0; e < N; ++e) word[e] = words[base + (e << low)];
#pragma unroll
    for (u32 distance = N / 2; distance > 0; distance /= 2) {
#pragma unroll
      for (u32 pair = 0; pair < N / 2; ++pair) {
        const u32 a = (pair / distance * 2 * distance) + pair % distance, b = a + distance;
        const P first = word[a], second = word[b];
        const bool stays = (first < second) == up;
        word[a] = stays ? first : second;
        word[b] = stays ? second : first;
      }
    }
#pragma unroll
    for (u32 e = 0; e < N; ++e) words[base + (e << low)] = word[e];
  }
  barrier();
}

template <class P>
X_DEVICE void network(Gapped<P> words, u32 size) {
  barrier();
  for (u32 run = 2, bits = 1; run != 0 && run <= size; run *= 2, ++bits) {
    for (u32 left = bits; left > 0;) {
      if (left >= 3) networkPass<3>(words, size, run, left - 3);
      else if (left == 2) networkPass<2>(words, size, run, 0);
      else networkPass<1>(words, size, run, 0);
      left = left >= 3 ? left - 3 : 0;
    }
  }
}

/**
 * index[i] = start + the position of the i-th of the `count` values at x, values[i] = that value unless `values` is null;
 * shared memory has `size` slots of a power of two.
 */
template <class T>
X_DEVICE void chunk(const T* x, u32* index, T* values, u32 start, u32 count, u32 size, bool descending) {
  const auto put = [=](u64 i, u32 slot) {
    index[i] = start + slot;
    if (values != nullptr) values[i] = x[slot];
  };
  if constexpr (sizeof(T) == 8) {
    Key<T>* keys = dynamicShared<Key<T>>();
    u16* slots = (u16*)(keys + size);
    X_FOR_BLOCK(i, size) {
      keys[i] = i < count ? keyOf(x[i], flipOf<Key<T>>(descending)) : ~(Key<T>)0;
      slots[i] = (u16)i;
    }
    bitonic(size, [&](u32 a, u32 b) {
      const Key<T> left = keys[a], right = keys[b];
      const u16 i = slots[a], j = slots[b];
      if (before(right, j, left, i)) {
        keys[a] = right;
        keys[b] = left;
        slots[a] = j;
        slots[b] = i;
      }
    });
    X_FOR_BLOCK(i, count) put(i, slots[i]);
  } else {
    typedef typename KeyOf<sizeof(T) == 4 ? 8 : 4>::type P;
    const Gapped<P> words{dynamicShared<P>()};
    X_FOR_BLOCK(i, size) {
      P key = (P)~(P)0 >> 16;
      if (i < count) {
        if constexpr (sizeof(T) == 4) key = keyOf(x[i], flipOf<Key<T>>(descending));
        else key = shortKeyOf(x[i], flipOf<u16>(descending));
      }
      words[(u32)i] = key << 16 | (u32)i;
    }
    network(words, size);
    X_FOR_BLOCK(i, count) put(i, (u32)(words[(u32)i] & 0xffff));
  }
  barrier();
}

#endif

/**
 * index[row, column] = positions within the row, sorted by value within each chunk of CHUNK columns; `values` has the values
 * in that order unless it is null. `size` is a power of two of at least min(cols, CHUNK); shared memory holds it as the
 * launch function counts.
 */
template <class T>
X_DEVICE void chunks(u64 rows, u64 cols, u64 size, const T* x, u32* index, T* values, bool descending) {
  const u64 across = (cols + CHUNK - 1) / CHUNK;
  X_FOR_SPLIT(at, rows * across) {
    const u64 start = at % across * CHUNK;
    const u64 offset = at / across * cols + start;
    const u32 count = cols - start < CHUNK ? (u32)(cols - start) : CHUNK;
#if X_HOST
    (void)size;
    Key<T> keys[CHUNK];
    u16 slots[CHUNK], other[CHUNK];
    for (u32 i = 0; i < count; ++i) keys[i] = keyOf(x[offset + i], flipOf<Key<T>>(descending));
    mergeSort(count, slots, other, [&](u32 i) { return keys[i]; });
    for (u32 i = 0; i < count; ++i) index[offset + i] = (u32)(start + slots[i]);
    for (u32 i = 0; values != nullptr && i < count; ++i) values[offset + i] = x[offset + slots[i]];
#else
    T* to = values == nullptr ? values : values + offset;
    chunk(x + offset, index + offset, to, (u32)start, count, (u32)size, descending);
#endif
  }
}

}  // namespace sort
