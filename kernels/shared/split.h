// How a list of independent work items (rows, tiles) is spread over the grid, one block an item: on GPUs grid-stride over
// the linear block index, on the host one contiguous run of items a block. Any grid of any shape covers every item once.
#pragma once

namespace split {

X_DEVICE u64 blocks() { return (u64)gridX() * gridY() * gridZ(); }
X_DEVICE u64 block() { return blockX() + (u64)gridX() * (blockY() + (u64)gridY() * blockZ()); }

#if X_HOST
X_DEVICE u64 part(u64 index, u64 n) {
  const u64 each = n / blocks(), extra = n % blocks();
  return index * each + (index < extra ? index : extra);
}
X_DEVICE u64 begin(u64 n) { return part(block(), n); }
X_DEVICE u64 end(u64 n) { return part(block() + 1, n); }
X_DEVICE u64 step() { return 1; }
#else
X_DEVICE u64 begin(u64) { return block(); }
X_DEVICE u64 end(u64 n) { return n; }
X_DEVICE u64 step() { return blocks(); }
#endif

}  // namespace split

/** Loops over [0, n), each item by one whole block; every thread of the block sees the same items. */
#define X_FOR_SPLIT(i, n) \
  for (u64 i = split::begin(n), i##_end = split::end(n), i##_step = split::step(); i < i##_end; i += i##_step)
