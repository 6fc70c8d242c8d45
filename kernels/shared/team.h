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

/** Bytes of a weight that are sent for before the columns are there: more than memory gives in that time. */
constexpr u64 AHEAD = 16u << 20;

/**
 * Sends for the ROWS rows of weights that a team takes first, by as many of its threads, while the kernel that makes the
 * columns still runs. Teams behind AHEAD would only ask twice: their blocks come when those of others have gone.
 */
template <u32 ROWS>
X_DEVICE void sendForRows(const void* weights, u64 rowBytes, u64 rows, const Team& team) {
  const u64 row = team.index * ROWS + team.thread;
  if (team.thread < ROWS && row < rows && (row + 1) * rowBytes <= AHEAD)
    early::prefetch((const u8*)weights + row * rowBytes, rowBytes);
}

#endif
