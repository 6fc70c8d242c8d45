// COLLECTIVES: sums over the devices of a group through their own memory, for what is so small that a library's call takes longer
// than the data. Ours: candle leaves all of it to NCCL.
//   all_reduce_peers_{f32,f16,bf16}    target = the sum of all ranks' source, in f32 and rounded once: collectives/peers.h
//   all_reduce_peers_parts_{t}         the same by parts, of which each rank adds one up for all
//   norm_of_ranks_{f32,f16,bf16}       the norm of x and the sum over all ranks, a share of the rows on each: collectives/norm.h;
//                                      on GPUs alone
//   summed_norm_{f32,f16,bf16}         the same of few rows, all of them on each rank: collectives/summed-norm.h; on GPUs alone
// Sums take at most 128 blocks of 256 threads, as many on every rank of a call; `turns` is what the stages were made for.
#include "x.h"
#include "collectives/wire.h"
#include "collectives/peers.h"
#if !X_HOST
#include "shared/split.h"
#include "shared/barrier.h"
#include "shared/tally.h"
#include "shared/arrive.h"
#include "reduce/range-host.h"
#include "reduce/range.h"
#include "quantized/activations.h"
#include "decode/between.h"
#include "collectives/norm.h"
#include "collectives/summed-norm.h"
#endif

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

#if !X_HOST || X_LISTED
#define NORM_OF_RANKS(T, t)                                                                                            \
  KERNEL(norm_of_ranks_##t,                                                                                            \
         (u64 rows, u64 first, u32 n, float eps, float delta_scale, bool centred, const float* x, const float* delta,  \
          const float* delta_alpha, const float* alpha, const float* beta, float* sum, T* y, const float* delta_here,  \
          u32 rank, u32 ranks, u64 patience, u32* control, u64* stage)) {                                              \
    const decode::Norm<T> norm{rows, n, n, eps, delta_scale, centred, x, delta, delta_alpha, alpha, beta, sum, nullptr, \
                               y};                                                                                     \
    peers::normOfRanks(norm, first, delta_here, {rank, ranks, patience, control, stage});                              \
  }
NORM_OF_RANKS(float, f32)
NORM_OF_RANKS(f16, f16)
NORM_OF_RANKS(bf16, bf16)

#define SUMMED_NORM(T, t)                                                                                                   \
  KERNEL_EARLY(summed_norm_##t)                                                                                             \
  KERNEL(summed_norm_##t,                                                                                                   \
         (u64 rows, u32 n, u32 padded, float eps, float delta_scale, bool centred, const float* x, const float* delta,      \
          const float* delta_alpha, const float* alpha, const float* beta, float* sum, u8* blocks, T* y, u64 inbox_at,      \
          u32 rank, u32 ranks, u64 patience, u32* control, u64* stage)) {                                                   \
    const decode::Norm<T> norm{rows, n, padded, eps, delta_scale, centred, x, delta, delta_alpha, alpha, beta, sum, blocks, \
                               y};                                                                                          \
    peers::SummedNorm<T, 1> summed{norm, inbox_at, rank, ranks, patience, control, stage, blockX(), 0, {}, {}};                \
    peers::summedNorm(summed);                                                                                              \
  }
SUMMED_NORM(float, f32)
SUMMED_NORM(f16, f16)
SUMMED_NORM(bf16, bf16)
#endif
