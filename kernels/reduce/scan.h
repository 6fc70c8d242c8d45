// cumsum_*: running sums along the middle of contiguous [left, size, right], our own form. Floats are summed in f64 and
// rounded once an element; integers wrap.
#pragma once

namespace reduce {

template <class T, bool real = isFloatType<T>, bool small = sizeof(T) < 4>
struct RunningOf {
  typedef T type;
};
template <class T, bool small>
struct RunningOf<T, true, small> {
  typedef double type;
};
template <class T>
struct RunningOf<T, false, true> {
  typedef i32 type;
};
template <class T>
using Running = typename RunningOf<T>::type;

#if X_HOST

/** Sums that run side by side, since each addition waits for the one before. */
constexpr u32 CHAINS = 8;

template <class A, class T>
X_DEVICE A sumOf(const T* p, u64 count) {
  A sums[CHAINS] = {};
  u64 i = 0;
  for (; i + CHAINS <= count; i += CHAINS)
    for (u32 c = 0; c < CHAINS; ++c) sums[c] = addWrap(sums[c], cast<A>(p[i + c]));
  for (; i < count; ++i) sums[0] = addWrap(sums[0], cast<A>(p[i]));
  for (u32 c = 1; c < CHAINS; ++c) sums[0] = addWrap(sums[0], sums[c]);
  return sums[0];
}

typedef double Eight __attribute__((vector_size(CHAINS * 8)));
typedef u64 EightBits __attribute__((vector_size(CHAINS * 8)));
typedef float Floats __attribute__((vector_size(CHAINS * 4)));

/**
 * Sums as f32, for types that are narrower rounded to odd: what is cut off stays in the last bit, so that the rounding to T is the
 * only one. Sums below the normal numbers of f32 are whole steps of T and have nothing to cut off.
 */
template <class T>
X_DEVICE Floats roundedSums(Eight sums) {
  if constexpr (sizeof(T) < 4) {
    constexpr u64 CUT = (1u << 29) - 1;
    const EightBits bits = (EightBits)sums, rest = (EightBits)((bits & CUT) != 0) & (CUT + 1);
    sums = (Eight)((bits & ~CUT) | rest);
  }
  return __builtin_convertvector(sums, Floats);
}

/** Steps of all chains, of floats whose sums are f64, eight at a time; gives how many were made. */
template <class T>
X_DEVICE u64 takeChains(const T* p, T* out, u64 each, double (&sums)[CHAINS]) {
  Eight all;
  for (u32 c = 0; c < CHAINS; ++c) all[c] = sums[c];
  u64 j = 0;
  for (; j + CHAINS <= each; j += CHAINS) {
    Floats v[CHAINS];
#pragma unroll
    for (u32 c = 0; c < CHAINS; ++c)
#pragma unroll
      for (u32 i = 0; i < CHAINS; ++i) v[c][i] = to_acc(p[c * each + j + i]);
    turnEight(v);
#pragma unroll
    for (u32 i = 0; i < CHAINS; ++i) {
      all += __builtin_convertvector(v[i], Eight);
      v[i] = roundedSums<T>(all);
    }
    turnEight(v);
#pragma unroll
    for (u32 c = 0; c < CHAINS; ++c)
#pragma unroll
      for (u32 i = 0; i < CHAINS; ++i) out[c * each + j + i] = from_acc<T>(v[c][i]);
  }
  for (u32 c = 0; c < CHAINS; ++c) sums[c] = all[c];
  return j;
}

// A row is cut into a piece for each chain, which begins with the sum of those before.
template <class T>
X_DEVICE void cumsumRows(u64 rows, u64 size, const T* src, T* dst) {
  typedef Running<T> A;
  X_FOR_SPLIT(row, rows) {
    const T* p = src + row * size;
    T* out = dst + row * size;
    const u64 each = size / CHAINS;
    A sums[CHAINS] = {};
    for (u32 c = 1; c < CHAINS; ++c) sums[c] = addWrap(sums[c - 1], sumOf<A>(p + (c - 1) * each, each));
    u64 j = 0;
    if constexpr (isFloatType<T> && !sameType<T, double>) j = takeChains(p, out, each, sums);
    for (; j < each; ++j) {
#pragma unroll
      for (u32 c = 0; c < CHAINS; ++c) {
        sums[c] = addWrap(sums[c], cast<A>(p[c * each + j]));
        out[c * each + j] = cast<T>(sums[c]);
      }
    }
    for (j = CHAINS * each; j < size; ++j) {
      sums[CHAINS - 1] = addWrap(sums[CHAINS - 1], cast<A>(p[j]));
      out[j] = cast<T>(sums[CHAINS - 1]);
    }
  }
}

template <class T>
X_DEVICE void cumsumColumns(u64 left, u64 size, u64 right, const T* src, T* dst) {
  typedef Running<T> A;
  constexpr u32 WIDTH = 64;
  const u64 tiles = (right + WIDTH - 1) / WIDTH;
  X_FOR_SPLIT(item, left * tiles) {
    const u64 first = item % tiles * WIDTH, base = item / tiles * size * right + first;
    const u32 width = right - first < WIDTH ? (u32)(right - first) : WIDTH;
    A sums[WIDTH] = {};
    for (u64 j = 0; j < size; ++j) {
      const T* p = src + base + j * right;
      T* out = dst + base + j * right;
      for (u32 c = 0; c < width; ++c) sums[c] = addWrap(sums[c], cast<A>(p[c]));
      for (u32 c = 0; c < width; ++c) out[c] = cast<T>(sums[c]);
    }
  }
}

#else

/** The sum of v of the lanes before this one, and of all lanes. */
template <class A>
X_DEVICE A sumBefore(A v, A* all) {
  const u32 lane = laneId(), count = lanes::active();
  A sum = v;
#pragma unroll 1
  for (u32 distance = 1; distance < WARP; distance *= 2) {
    const A other = shuffle(sum, lane >= distance ? lane - distance : lane);
    if (lane >= distance) sum = addWrap(other, sum);
  }
  const A before = shuffle(sum, lane > 0 ? lane - 1 : 0);
  *all = shuffle(sum, count - 1);
  return lane > 0 ? before : (A)0;
}

// A block a row, some neighbours a thread at a time.
template <class T>
X_DEVICE void cumsumRows(u64 rows, u64 size, const T* src, T* dst) {
  typedef Running<T> A;
  constexpr u32 EACH = 4;
  X_SHARED(A, totals, 1024 / WARP);
  const u32 warps = warpsInBlock(), warp = warpId();
  X_FOR_SPLIT(row, rows) {
    const T* p = src + row * size;
    T* out = dst + row * size;
    A carry = (A)0;
#pragma unroll 1
    for (u64 base = 0; base < size; base += (u64)EACH * blockThreads()) {
      const u64 first = base + (u64)EACH * threadIndex();
      A sums[EACH], sum = (A)0, all;
#pragma unroll
      for (u32 e = 0; e < EACH; ++e) sums[e] = sum = addWrap(sum, first + e < size ? cast<A>(p[first + e]) : (A)0);
      A before = sumBefore(sum, &all);
      if (laneId() == 0) totals[warp] = all;
      barrier();
      A next = carry;
#pragma unroll 1
      for (u32 w = 0; w < warps; ++w) {
        if (w == warp) before = addWrap(next, before);
        next = addWrap(next, totals[w]);
      }
      carry = next;
      barrier();
#pragma unroll
      for (u32 e = 0; e < EACH; ++e)
        if (first + e < size) out[first + e] = cast<T>(addWrap(before, sums[e]));
    }
  }
}

// A thread a column.
template <class T>
X_DEVICE void cumsumColumns(u64 left, u64 size, u64 right, const T* src, T* dst) {
  typedef Running<T> A;
  X_FOR_EACH(i, left * right) {
    const u64 row = i / right, base = row * size * right + (i - row * right);
    A sum = (A)0;
#pragma unroll 4
    for (u64 j = 0; j < size; ++j) {
      sum = addWrap(sum, cast<A>(src[base + j * right]));
      dst[base + j * right] = cast<T>(sum);
    }
  }
}

#endif

template <class T>
X_DEVICE void cumsum(u64 left, u64 size, u64 right, const T* src, T* dst) {
  if (right == 1) cumsumRows(left, size, src, dst);
  else cumsumColumns(left, size, right, src, dst);
}

}  // namespace reduce
