// Finding where a running sum of whole numbers passes a target, by a block: sums of bins in shared memory, then those of
// finer bins within the one that was found. No vocabulary is sorted.
#pragma once

namespace sampling {

constexpr u32 BINS = 2048;

/** A bin, what the target is beyond the bins before it, and the sum of the bin. */
struct Place {
  u32 bin;
  u64 rest, size;
};

/** What the threads before this one have, and what all threads of the block have. */
template <class T>
struct Running {
  T before, total;
};

/** Sums over the threads of a block, of whole warps. Between two calls all threads come to a barrier. */
template <class T>
X_DEVICE Running<T> running(T mine) {
  if constexpr (WARP == 1) return {0, mine};
  X_SHARED(T, sums, 1024 / WARP);
  // Looked at each time: registers would not hold what is compared from one call to the next.
  const u32 lane = opaque(laneId()), warp = warpId(), warps = warpsInBlock();
  T upTo = mine;
#pragma unroll
  for (u32 by = 1; by < WARP; by *= 2) {
    const T other = shuffle(upTo, lane >= by ? lane - by : lane);
    if (lane >= by) upTo += other;
  }
  if (lane == WARP - 1) sums[warp] = upTo;
  barrier();
  Running<T> all = {upTo - mine, 0};
#pragma unroll 1
  for (u32 w = 0; w < warps; ++w) {
    const T its = sums[w];
    if (w < warp) all.before += its;
    all.total += its;
  }
  return all;
}

/**
 * The first bin at which the running sum exceeds target(sum of all), by a block; zeros where it never does. Bins are complete and stay
 * until this returns.
 */
template <class T, class Target>
X_DEVICE Place locate(const T* bins, Target target) {
  X_SHARED(Place, found, 1);
  if (threadIndex() == 0) found[0] = {0, 0, 0};
  const u32 each = (BINS + blockThreads() - 1) / blockThreads(), first = threadIndex() * each;
  T mine = 0;
#pragma unroll 4
  for (u32 j = 0; j < each; ++j) mine += first + j < BINS ? bins[first + j] : 0;
  const Running<T> all = running(mine);
  const u64 before = all.before, wanted = target((u64)all.total);
  if (before <= wanted && wanted - before < mine) {
    u64 rest = wanted - before;
    u32 bin = first;
    while (bins[bin] <= rest) rest -= bins[bin++];
    found[0] = {bin, rest, bins[bin]};
  }
  barrier();
  return found[0];
}

X_DEVICE void clear(u64* bins) {
  X_FOR_BLOCK(j, BINS) bins[j] = 0;
  barrier();
}

/** The group of equal tokens in which a target lies: the key that they share, and what the target is beyond those before. */
struct Group {
  u32 key;
  u64 rest, size;
};

/** The group of those in a bin at which the target lies. */
template <class Order, class Measure>
X_DEVICE Group inBin(u64* bins, u32 n, Order order, Measure measure, Place place) {
  const u32 bin = place.bin;
  u32 key = 0, known = 0;
#pragma unroll 1
  for (u32 digit = 0; digit < 3; ++digit) {
    const u32 shift = digit == 0 ? 21 : digit == 1 ? 10 : 0, width = digit == 2 ? 10 : 11;
    clear(bins);
    X_FOR_BLOCK(i, n) {
      if (order.coarse((u32)i) != bin) continue;
      const u32 fine = order.fine((u32)i);
      if ((fine & known) != key) continue;
      const u64 m = measure((u32)i);
      if (m > 0) atomicAdd(bins + (fine >> shift & ((1u << width) - 1)), m);
    }
    barrier();
    const u64 rest = place.rest;
    place = locate(bins, [rest](u64) { return rest; });
    key |= place.bin << shift;
    known |= ((1u << width) - 1) << shift;
  }
  return {key, place.rest, place.size};
}

/**
 * Tokens in an order of theirs: where the running sum of measure(i) exceeds target(sum of all). `order.coarse(i)` is the bin
 * and `order.fine(i)` the key of a token, both ascending in that order; a bin has few tokens, so that threads rarely add to
 * the same one.
 */
template <class Order, class Measure, class Target>
X_DEVICE Group inOrder(u64* bins, u32 n, Order order, Measure measure, Target target) {
  clear(bins);
  X_FOR_BLOCK(i, n) {
    const u64 m = measure((u32)i);
    if (m > 0) atomicAdd(bins + order.coarse((u32)i), m);
  }
  barrier();
  const Place place = locate(bins, target);
  return inBin(bins, n, order, measure, place);
}

/** The first id at which the running sum of measure(id) exceeds target(sum of all), which there is; n is at most BINS * BINS. */
template <class Measure, class Target>
X_DEVICE u32 byId(u64* bins, u32 n, Measure measure, Target target) {
  const u32 each = (n + BINS - 1) / BINS;
  // A warp a bin, or of small bins a thread.
  const u32 width = each < WARP / 2 ? 1 : WARP;
#pragma unroll 1
  for (u32 bin = threadIndex() / width; bin < BINS; bin += blockThreads() / width) {
    const u64 first = (u64)bin * each;
    u64 sum = 0;
    for (u32 j = threadIndex() % width; j < each; j += width)
      if (first + j < n) sum += measure((u32)(first + j));
    if (width > 1) sum = warpReduce<Sum>(sum);
    if (threadIndex() % width == 0) bins[bin] = sum;
  }
  barrier();
  const Place coarse = locate(bins, target);
  const u64 first = (u64)coarse.bin * each;
  X_FOR_BLOCK(j, BINS) bins[j] = j < each && first + j < n ? measure((u32)(first + j)) : 0;
  barrier();
  const u64 rest = coarse.rest;
  return (u32)first + locate(bins, [rest](u64) { return rest; }).bin;
}

}  // namespace sampling
