// Who takes a group of rows in products with few columns: a warp where a grid has no more warps than groups, else a block.
// So any grid and block cover every group once.
#pragma once

#if !X_HOST

struct Team {
  u32 thread, threads;
  u64 index, count;
  bool isWarp;
};

/** Of `groups` groups of rows. */
X_DEVICE Team teamFor(u64 groups, u64 block, u64 blocks) {
  const u32 warps = warpsInBlock();
  if (blockThreads() % WARP == 0 && blocks * warps < groups + warps)
    return Team{laneId(), WARP, block * warps + warpId(), blocks * warps, true};
  return Team{threadIndex(), blockThreads(), block, blocks, false};
}

#endif
