// EXPERTS: a mixture of experts. For few tokens it is two launches between its router and the next norm. Ours: candle has a launch
// a step of it (indexed_moe_forward_* of QUANTIZED, an activation, weights, a sum). Experts are block formats of QUANTIZED, and
// with one expert and no ids the same kernels are for a layer that all tokens take.
//   experts_gated_{type}   activation(gate * x) * (up * x) of each token's experts, as q8_1: experts/gated.h
//   experts_mixed_{type}   down * x of each token's experts by the router's weights, and their sum: experts/mixed.h
//   experts_rows, experts_combine, experts_sum   what lies between the products of many tokens' experts: experts/grouped.h
// Nothing is added atomically: the same operands on the same device give the same bits. They do not begin early themselves,
// which made mixtures of small experts 5 to 8 % slower, but let the next kernel do so (x/early.h).
#include "x.h"
#include "shared/barrier.h"
#include "shared/split.h"
#include "shared/team.h"
#include "shared/gates.h"
#include "quantized/lookup.h"
#include "quantized/activations.h"
#include "quantized/formats.h"
#include "quantized/codebooks.h"
#include "quantized/level-formats.h"
#include "quantized/codebook-formats.h"
#include "quantized/host.h"
#include "quantized/host-vectors.h"
#include "quantized/host-codebooks.h"
#include "quantized/host-steps.h"
#include "quantized/host-scales.h"
#include "quantized/host-dot.h"
#include "shared/turn.h"
#include "shared/amx.h"
#include "quantized/host-products.h"
#include "quantized/host-panels.h"
#include "quantized/host-amx.h"
#include "quantized/host-amx-pairs.h"
#include "quantized/host-mmla.h"
#include "quantized/host-matmul.h"
#include "quantized/dot-rows.h"
#include "experts/gated.h"
#include "experts/mixed.h"
#include "experts/grouped.h"

using namespace quant;

#define EXPERTS(Q, name)                                                                                               \
  KERNEL_BLOCKS(experts_gated_##name, 512, 2,                                                                          \
                (const u8* gate, const u8* up, const u8* inputs, const u32* ids, const float* gate_bias,               \
                 const float* up_bias, u8* blocks, u32 n, u32 k, u32 tokens, u32 topk, u32 k_padded, u32 n_padded,     \
                 u32 activation, float limit, const u8* shared_gate, const u8* shared_up, u8* shared_blocks,           \
                 u32 shared_n, u32 shared_n_padded)) {                                                                 \
    experts::gatedAll<Q>({gate, up, inputs, ids, blocks, n, k, tokens, topk, k_padded, n_padded,                       \
                          {gate_bias, up_bias, n, activation, limit},                                                  \
                          {shared_gate, shared_up, shared_blocks, shared_n, shared_n_padded}});                        \
  }                                                                                                                    \
  KERNEL_BLOCKS(experts_mixed_##name, 256, 3,                                                                          \
                (const u8* weights, const u8* inputs, const u32* ids, const float* mix, const float* bias,             \
                 const float* base, const float* gates, u64 gates_row, float* out, u64 out_row, u32 n, u32 k,          \
                 u32 tokens, u32 topk, u32 k_padded, const u8* shared, const u8* shared_inputs, u32 shared_k,          \
                 u32 shared_k_padded)) {                                                                               \
    experts::mixedAll<Q>({weights, inputs, ids, {mix, bias, base, gates, gates_row, n, topk}, out, out_row, n, k,      \
                          tokens, topk, k_padded, {shared, shared_inputs, shared_k, shared_k_padded}});                \
  }
EXPERTS(Q4_0, q4_0)
EXPERTS(Q4_1, q4_1)
EXPERTS(Q5_0, q5_0)
EXPERTS(Q5_1, q5_1)
EXPERTS(Q8_0, q8_0)
EXPERTS(Q8_1_Weight, q8_1)
EXPERTS(Q2_K, q2_K)
EXPERTS(Q3_K, q3_K)
EXPERTS(Q4_K, q4_K)
EXPERTS(Q5_K, q5_K)
EXPERTS(Q6_K, q6_K)
EXPERTS(Q8_K, q8_K)
EXPERTS(IQ4_NL, iq4_nl)
EXPERTS(IQ4_XS, iq4_xs)
EXPERTS(IQ3_XXS, iq3_xxs)
EXPERTS(IQ3_S, iq3_s)
EXPERTS(IQ2_XXS, iq2_xxs)
EXPERTS(IQ2_XS, iq2_xs)
EXPERTS(IQ2_S, iq2_s)
EXPERTS(IQ1_S, iq1_s)
EXPERTS(IQ1_M, iq1_m)
EXPERTS(TQ1_0, tq1_0)
EXPERTS(TQ2_0, tq2_0)
EXPERTS(MXFP4, mxfp4)
EXPERTS(NVFP4, nvfp4)

KERNEL_EARLY(experts_rows)
KERNEL(experts_rows, (const float* x, const u32* sources, u8* blocks, f16* operands, bool four_way, u64 pairs, u32 k,
                      u32 k_padded)) {
  experts::rowsAll({x, sources, pairs, k, {blocks, operands, four_way, k_padded}});
}
KERNEL_EARLY(experts_combine)
KERNEL(experts_combine, (const float* gate, const float* up, const u32* owners, const float* gate_bias, const float* up_bias,
                         u8* blocks, f16* operands, bool four_way, u64 pairs, u32 n, u32 n_padded, u32 activation,
                         float limit)) {
  experts::combineAll({gate, up, owners, pairs, {gate_bias, up_bias, n, activation, limit},
                       {blocks, operands, four_way, n_padded}});
}
KERNEL_EARLY(experts_sum)
KERNEL(experts_sum, (const float* given, const u32* places, const u32* ids, const float* mix, const float* bias,
                     const float* base, const float* gates, u64 gates_row, float* out, u64 tokens, u32 n, u32 topk)) {
  experts::sumAll({given, places, ids, {mix, bias, base, gates, gates_row, n, topk}, out, tokens});
}
