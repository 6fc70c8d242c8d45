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

/**
 * The first bin at which the running sum exceeds target(sum of all). Every warp finds it by itself; bins are complete and stay
 * until all have come to the barrier at the end.
 */
template <class Target>
X_DEVICE Place locate(const u64* bins, Target target) {
  constexpr u32 EACH = BINS / WARP;
  const u32 lane = laneId(), first = lane * EACH;
  u64 mine = 0;
  // Lanes begin at different banks of the memory.
#pragma unroll 1
  for (u32 j = 0; j < EACH; ++j) mine += bins[first + ((j + lane) & (EACH - 1))];
  u64 total = 0, before = 0;
#pragma unroll 1
  for (u32 l = 0; l < WARP; ++l) {
    const u64 other = shuffle(mine, l);
    if (l < lane) before += other;
    total += other;
  }
  const u64 wanted = target(total);
  Place place = {0, 0, 0};
  if (before <= wanted && wanted - before < mine) {
    u64 rest = wanted - before;
    u32 bin = first;
    while (bins[bin] <= rest) rest -= bins[bin++];
    place = {bin, rest, bins[bin]};
  }
  // The others have zeros.
  place.bin = warpReduce<Sum>(place.bin);
  place.rest = warpReduce<Sum>(place.rest);
  place.size = warpReduce<Sum>(place.size);
  barrier();
  return place;
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
