// COLLECTIVES: sums over the devices of a group through their own memory, for what is so small that a library's call takes longer
// than the data. Ours: candle leaves all of it to NCCL.
//   all_reduce_peers_{f32,f16,bf16}    target = the sum of all ranks' source, in f32 and rounded once: collectives/peers.h
//   all_reduce_peers_parts_{t}         the same by parts, of which each rank adds one up for all
// At most 128 blocks of 256 threads, as many on every rank of a call; `turns` is what the stages were made for.
#include "x.h"

#include "collectives/wire.h"
#include "collectives/peers.h"

#define ALL_REDUCE(name, t, parts)                                                                                         \
  KERNEL_EARLY(name)                                                                                                       \
  KERNEL_BOUNDS(name, 256,                                                                                                 \
                (u64 count, u32 rank, u32 ranks, u32 turns, u64 patience, const t* source, t* target, u32* control,        \
                 u64* stage)) {                                                                                            \
    peers::AllReduce<t, parts>{count, rank, ranks, turns, patience, source, target, control, stage}.run();                 \
  }
#define ALL_REDUCES(t)                            \
  ALL_REDUCE(all_reduce_peers_##t, t, false)      \
  ALL_REDUCE(all_reduce_peers_parts_##t, t, true)
ALL_REDUCES(f32)
ALL_REDUCES(f16)
ALL_REDUCES(bf16)
