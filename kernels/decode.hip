// DECODE: what lies between the products of a quantised language model's layer, few launches for few tokens. Ours: candle
// makes each of an operation a step. Every number of tokens is right. Values are f32; blocks are q8_1, which the products
// of QUANTIZED read, rows padded as for quantize_q8_1. Launched with whole warps.
//   decode_norm_q8_1_{t}          x + delta and its RMS or layer norm, or itself where alpha is null, as blocks and as t; a block
//                                 a row: decode/between.h
//   decode_gated_q8_1_{act}       act(gate) * up, or act(gate) where up is null, as blocks or as bf16
//   decode_norm_biased            the norm of x + (delta + delta_bias), as f32 numbers and as blocks
//   decode_activated_{act}        act(x + bias), as blocks or as f32: decode/activated.h
//   decode_gate_{act}_{t}         act(gate) * up as t, of any number of values: decode/gate.h
//   decode_heads_{kv}, decode_heads_q8_0    norms and rotation of heads, keys and values into a cache of kv: decode/heads.h
//   decode_prompt_heads_{kv}      the same, with queries of prompts' tokens in kv: decode/heads.h
//   decode_latent_{kv}            queries, latent vectors and shared keys of latent attention: decode/latent.h
//   decode_head_norm_silu_q8_1    norms of heads times silu of a gate, as blocks: decode/head-norm.h
//   decode_silu_group_norm_q8_1   norms of groups of values that were multiplied by silu of a gate, as blocks; a block a
//                                 group: decode/group-norm.h
//   decode_route, decode_group    which experts tokens take, and the pairs of both by expert: decode/route.h; decode_group is
//                                 one block
//   decode_router                 the product that decode_route's logits come from, and the choice: decode/router.h
#include "x.h"
#include "shared/split.h"
#include "shared/barrier.h"
#include "shared/tally.h"
#include "shared/gates.h"
#include "shared/arrive.h"
#include "reduce/range-host.h"
#include "reduce/range.h"
#include "quantized/activations.h"
#include "decode/between.h"
#include "decode/gate.h"
#include "decode/activated.h"
#include "shared/q8-cache.h"
#include "decode/heads.h"
#include "decode/latent.h"
#include "decode/head-norm.h"
#include "decode/group-norm.h"
#include "decode/route.h"
#include "decode/router.h"

#define NORM(T, t)                                                                                                     \
  KERNEL_EARLY(decode_norm_q8_1_##t)                                                                                   \
  KERNEL(decode_norm_q8_1_##t,                                                                                         \
         (u64 rows, u32 n, u32 padded, float eps, float delta_scale, bool centred, const float* x, const float* delta, \
          const float* delta_alpha, const float* alpha, const float* beta, float* sum, u8* blocks, T* y)) {            \
    decode::normAll<T>({rows, n, padded, eps, delta_scale, centred, x, delta, delta_alpha, alpha, beta, sum, blocks,   \
                        y});                                                                                           \
  }
NORM(float, f32)
NORM(f16, f16)
NORM(bf16, bf16)

KERNEL_EARLY(decode_norm_biased)
KERNEL(decode_norm_biased,
       (u64 rows, u32 n, u32 padded, float eps, bool centred, const float* x, const float* delta, const float* delta_bias,
        const float* alpha, const float* beta, float* sum, u8* blocks, float* y)) {
  decode::normBiased<float>({rows, n, padded, eps, 1.0f, centred, x, delta, nullptr, alpha, beta, sum, blocks, y, delta_bias});
}

#define ACTIVATED(Act, act)                                                                                            \
  KERNEL_EARLY(decode_activated_##act)                                                                                 \
  KERNEL(decode_activated_##act, (u64 rows, u32 n, u32 padded, const float* x, u64 x_row, const float* bias,           \
                                  u8* blocks, float* y)) {                                                             \
    decode::activatedAll<gates::Act>({rows, n, padded, x, x_row, bias, blocks, y});                                    \
  }
ACTIVATED(Silu, silu)
ACTIVATED(Gelu, gelu)
ACTIVATED(GeluErf, gelu_erf)

#define GATED(Act, act)                                                                                                \
  KERNEL_EARLY(decode_gated_q8_1_##act)                                                                                \
  KERNEL(decode_gated_q8_1_##act, (u64 rows, u32 n, u32 padded, const float* gate, u64 gate_row, const float* up,      \
                                   u64 up_row, u8* blocks, bf16* y)) {                                                 \
    decode::gatedAll<gates::Act>({rows, n, padded, gate, gate_row, up, up_row, blocks, y});                           \
  }
GATED(Silu, silu)
GATED(Gelu, gelu)
GATED(Sigmoid, sigmoid)

#define GATE(Act, act, T, t)                                                                                           \
  KERNEL_EARLY(decode_gate_##act##_##t)                                                                                \
  KERNEL(decode_gate_##act##_##t,                                                                                      \
         (u64 rows, u32 n, const float* gate, u64 gate_row, const float* up, u64 up_row, T* y)) {                      \
    decode::gateAll<gates::Act, T>({rows, n, gate, gate_row, up, up_row, y});                                         \
  }
GATE(Silu, silu, float, f32)
GATE(Silu, silu, f16, f16)
GATE(Silu, silu, bf16, bf16)
GATE(Gelu, gelu, float, f32)
GATE(Gelu, gelu, f16, f16)
GATE(Gelu, gelu, bf16, bf16)
GATE(Sigmoid, sigmoid, float, f32)
GATE(Sigmoid, sigmoid, f16, f16)
GATE(Sigmoid, sigmoid, bf16, bf16)

#define HEADS(K, kv)                                                                                                   \
  KERNEL_EARLY(decode_heads_##kv)                                                                                      \
  KERNEL_BOUNDS(decode_heads_##kv, decode::HEAD_THREADS,                                                               \
                (u64 tokens, u32 heads, u32 kv_heads, u32 d, u32 dv, u32 rotated, bool interleaved, float scale,       \
                 float eps, const float* q, u64 q_row, const float* k, u64 k_row, const float* v, u64 v_row,           \
                 const float* q_norm, const float* k_norm, const float* cos, const float* sin, u64 table_row,          \
                 u64 table_length, const u32* positions, const u32* slots, u64 pool_slots, float* out, K* k_pool,      \
                 K* v_pool)) {                                                                                         \
    decode::headsAll<K>({tokens, heads, kv_heads, d, dv, rotated, interleaved, scale, eps, q, q_row, k, k_row, v,      \
                         v_row, q_norm, k_norm, cos, sin, table_row, table_length, positions, slots, pool_slots, out,  \
                         k_pool, v_pool});                                                                             \
  }
HEADS(float, f32)
HEADS(f16, f16)
HEADS(bf16, bf16)

KERNEL_EARLY(decode_heads_q8_0)
KERNEL_BOUNDS(decode_heads_q8_0, decode::HEAD_THREADS,
              (u64 tokens, u32 heads, u32 kv_heads, u32 d, u32 dv, u32 rotated, bool interleaved, float scale, float eps,
               const float* q, u64 q_row, const float* k, u64 k_row, const float* v, u64 v_row, const float* q_norm,
               const float* k_norm, const float* cos, const float* sin, u64 table_row, u64 table_length,
               const u32* positions, const u32* slots, u64 pool_slots, float* out, u8* k_pool, f16* k_scales, u8* v_pool,
               f16* v_scales)) {
  decode::headsAll<kv::Q8>({tokens, heads, kv_heads, d, dv, rotated, interleaved, scale, eps, q, q_row, k, k_row, v, v_row,
                            q_norm, k_norm, cos, sin, table_row, table_length, positions, slots, pool_slots, out,
                            {k_pool, k_scales}, {v_pool, v_scales}});
}

#define PROMPT_HEADS(K, kv)                                                                                            \
  KERNEL_EARLY(decode_prompt_heads_##kv)                                                                               \
  KERNEL_BLOCKS(decode_prompt_heads_##kv, decode::HEAD_THREADS, decode::PROMPT_BLOCKS,                                 \
                (u64 tokens, u32 heads, u32 kv_heads, u32 d, u32 dv, u32 rotated, bool interleaved, float scale,       \
                 float eps, const float* q, u64 q_row, const float* k, u64 k_row, const float* v, u64 v_row,           \
                 const float* q_norm, const float* k_norm, const float* cos, const float* sin, u64 table_row,          \
                 u64 table_length, const u32* positions, const u32* slots, u64 pool_slots, float* out, K* k_pool,      \
                 K* v_pool, u64 wide, K* q_narrow)) {                                                                  \
    decode::promptHeadsAll<K>({tokens, heads, kv_heads, d, dv, rotated, interleaved, scale, eps, q, q_row, k, k_row, v,  \
                               v_row, q_norm, k_norm, cos, sin, table_row, table_length, positions, slots, pool_slots,   \
                               out, k_pool, v_pool, wide, q_narrow});                                                    \
  }
PROMPT_HEADS(f16, f16)
PROMPT_HEADS(bf16, bf16)

#define LATENT(K, kv)                                                                                                  \
  KERNEL_EARLY(decode_latent_##kv)                                                                                     \
  KERNEL_BOUNDS(decode_latent_##kv, 256,                                                                               \
                (u64 tokens, u32 heads, u32 plain, u32 rotated, u32 rank, u32 padded, bool interleaved, float eps,     \
                 const float* q, u64 q_row, const float* latent, u64 latent_row, const float* alpha, const float* cos, \
                 const float* sin, u64 table_row, u64 table_length, const u32* positions, const u32* slots,            \
                 u64 pool_slots, float* out, u8* blocks, K* pool)) {                                                   \
    decode::latentAll<K>({tokens, heads, plain, rotated, rank, padded, interleaved, eps, q, q_row, latent, latent_row, \
                          alpha, cos, sin, table_row, table_length, positions, slots, pool_slots, out, blocks, pool}); \
  }
LATENT(float, f32)
LATENT(f16, f16)
LATENT(bf16, bf16)

KERNEL_EARLY(decode_head_norm_silu_q8_1)
KERNEL_BOUNDS(decode_head_norm_silu_q8_1, 256,
              (u64 rows, u32 heads, u32 d, u32 padded, float eps, const float* x, const float* alpha, const float* gate,
               u64 gate_row, u8* blocks)) {
  decode::headNormAll({rows, heads, d, padded, eps, x, alpha, gate, gate_row, blocks});
}

KERNEL_EARLY(decode_silu_group_norm_q8_1)
KERNEL(decode_silu_group_norm_q8_1, (u64 rows, u32 groups, u32 d, u32 padded, float eps, const float* x, const float* alpha,
                                     const float* gate, u64 gate_row, u8* blocks)) {
  decode::groupNormAll({rows, groups, d, padded, eps, x, alpha, gate, gate_row, blocks});
}

KERNEL_EARLY(decode_route)
KERNEL_BOUNDS(decode_route, 64,
              (u32 tokens, u32 experts, u32 chosen, u32 groups, u32 open_groups, u32 best, bool sigmoid, bool renormalise,
               float scale, const float* logits, u64 logits_row, const float* bias, const float* correction,
               float* weights, u32* ids)) {
  decode::routeAll({tokens, experts, chosen, groups, open_groups, best, sigmoid, renormalise, scale, logits, logits_row,
                    bias, correction, weights, ids});
}

KERNEL_EARLY(decode_router)
KERNEL_BOUNDS(decode_router, 128,
              (u32 tokens, u32 hidden, u32 rows, const float* x, const float* weight, u32* counters, u32 experts,
               u32 chosen, u32 groups, u32 open_groups, u32 best, bool sigmoid, bool renormalise, float scale,
               float* logits, const float* bias, const float* correction, float* weights, u32* ids)) {
  decode::routerAll({hidden, rows, x, weight, logits, counters},
                    {tokens, experts, chosen, groups, open_groups, best, sigmoid, renormalise, scale, logits, rows, bias,
                     correction, weights, ids});
}

KERNEL_EARLY(decode_group)
KERNEL(decode_group, (u32 pairs, u32 experts, u32 chosen, u32 tile, u32 tiles, const u32* ids, u32* places, u32* sources,
                      u32* owners, u32* out)) {
  decode::group({pairs, experts, chosen, tile, tiles, ids, places, sources, owners, out});
}
