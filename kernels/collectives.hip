// COLLECTIVES: sums over the devices of a group through their own memory, for what is so small that a library's call takes longer
// than the data. Ours: candle leaves all of it to NCCL.
//   all_reduce_peers_{f32,f16,bf16}    target = the sum of all ranks' source, in f32 and rounded once: collectives/peers.h
// At most 128 blocks of 256 threads, as many on every rank of a call; `turns` is what the stages were made for.
#include "x.h"

#include "collectives/wire.h"
#include "collectives/peers.h"

#define ALL_REDUCE(t)                                                                                                      \
  KERNEL_EARLY(all_reduce_peers_##t)                                                                                       \
  KERNEL_BOUNDS(all_reduce_peers_##t, 256,                                                                                 \
                (u64 count, u32 rank, u32 ranks, u32 turns, u64 patience, const t* source, t* target, u32* control,        \
                 u64* stage)) {                                                                                            \
    peers::AllReduce<t>{count, rank, ranks, turns, patience, source, target, control, stage}.run();                        \
  }
ALL_REDUCE(f32)
ALL_REDUCE(f16)
ALL_REDUCE(bf16)
