// ATTENTION: softmax(q . kT * scale) . v in one kernel. Ours: candle calls the FlashAttention sources on CUDA and Metal's
// sdpa, neither under a kernel name of its own. q [b, heads, seq, d], k and v [b, kv_heads, kv, d], whose last dimension is
// contiguous and whose rows begin at multiples of 16 bytes; heads is a multiple of kv_heads, seq and kv are
// below 2^31, scale is positive; out is contiguous.
//   attention_{d}_{t}    on matrix units: 256 threads, NVIDIA (128 + 4 * 64) * d * 2 bytes of dynamic shared memory;
//                        elsewhere whole warps of any number, each a query
//   attention_paged_{1,2,4}_{t}_{kv}, attention_append_{t}_{kv}    over a cache in blocks: attention/paged.h,
//                        attention/paged-append.h
//   attention_step_{1,2,4}_{kv}    of single tokens, from what a product gives: attention/step.h
//   attention_paged_{1,2,4}_f32_q8_0, attention_append_f32_q8_0, attention_unpack_q8_0_{t}    over a cache in 8 bits:
//                        shared/q8-cache.h
//   attention_prompt_{dv}_{kv}    many tokens of one sequence over the same, in f32, values of up to dv: attention/prompt.h
//   attention_varlen_{d}_{t}    of tiles of several sequences over a cache in blocks, of heads of up to d values: attention/varlen.h;
//                        256 threads where matrix units are and on NVIDIA shared memory as above, of 256 and 576 values for
//                        (128 + 4 * 64) * 256 * 2 and (64 + 2 * 64) * 576 * 2 bytes or, before compute capability 9.0, half and two
//                        thirds of it; else any number of whole warps
//   attention_{d}_f32    on FMA units: NVIDIA 128 threads and 64 * (d + 256) * 4 bytes, AMD 256 threads; on the host, as
//                        of f16 and bf16 there, attention/host.h, or bf16 in tile registers, attention/host-amx.h
//   attention_packed_{t}    within sequences that lie one after the other: attention/packed.h; any number of whole warps
#include "x.h"
#include "shared/barrier.h"
#include "shared/amx.h"
#include "shared/pairs.h"
#include "shared/split.h"
#include "shared/mma.h"
#include "shared/wgmma.h"
#include "shared/rough.h"
#include "shared/turn.h"
#include "attention/problem.h"
#include "attention/slabs.h"
#include "attention/flash.h"
#include "attention/chunks.h"
#include "attention/fma.h"
#include "attention/host.h"
#include "attention/host-amx.h"
#include "attention/varlen.h"
#include "quantized/activations.h"
#include "shared/arrive.h"
#include "shared/q8-cache.h"
#include "attention/paged-problem.h"
#include "attention/paged-merge.h"
#include "attention/paged.h"
#include "attention/paged-append.h"
#include "decode/heads.h"
#include "attention/step.h"
#include "attention/packed.h"
#include "attention/packed-host.h"
#include "attention/prompt.h"

namespace attention {

#if X_HOST
[[maybe_unused]] constexpr u32 THREADS_F32 = 1;
#else
constexpr u32 THREADS_F32 = fma::THREADS;
#endif

template <u32 D, class T>
X_DEVICE void attend(const Problem<T>& p) {
#if X_HOST
#if X_AMX
  if constexpr (sameType<T, bf16>)
    if (tiles::pay(p.seq)) return tiles::attendTiles(p, D);
#endif
  attendTiles<D>(p);
#else
  if constexpr (sameType<T, float>) fma::attendFma<D>(p);
#if X_MMA
  else attendMma<D>(p);
#else
  else attendPlain<D>(p);
#endif
#endif
}

}  // namespace attention

#define ATTENTION(D, T, t, threads)                                                                                     \
  KERNEL_BOUNDS(attention_##D##_##t, threads,                                                                           \
                (u64 b, u64 heads, u64 kv_heads, u64 seq, u64 kv, const T* q, u64 q_batch_stride, u64 q_head_stride,    \
                 u64 q_row_stride, const T* k, u64 k_batch_stride, u64 k_head_stride, u64 k_row_stride, const T* v,     \
                 u64 v_batch_stride, u64 v_head_stride, u64 v_row_stride, T* out, float scale, bool causal)) {          \
    attention::attend<D, T>({b, heads, kv_heads, (u32)seq, (u32)kv, {q, q_batch_stride, q_head_stride, q_row_stride},   \
                             {k, k_batch_stride, k_head_stride, k_row_stride},                                          \
                             {v, v_batch_stride, v_head_stride, v_row_stride}, out, scale, causal});                    \
  }
ATTENTION(64, bf16, bf16, 256)
ATTENTION(64, f16, f16, 256)
ATTENTION(64, float, f32, attention::THREADS_F32)
ATTENTION(128, bf16, bf16, 256)
ATTENTION(128, f16, f16, 256)
ATTENTION(128, float, f32, attention::THREADS_F32)

#define VARLEN(D, T, t)                                                                                                 \
  KERNEL_BOUNDS(attention_varlen_##D##_##t, 256,                                                                        \
                (const u32* tiles, u32 count, u32 heads, u32 kv_heads, u32 d, u32 dv, u32 block_shift, u32 blocks,      \
                 u32 window, float scale, float softcap, const T* q, u64 q_row, u64 q_head, const T* k, const T* v,     \
                 u64 v_row, const u32* tables, const float* sinks, T* out)) {                                           \
    attention::attendVarlen<D, T>({tiles, count, heads, kv_heads, d, dv, block_shift, blocks, window, scale, softcap,   \
                                   q, q_row, q_head, k, v, v_row, tables, sinks, out});                                 \
  }
#define VARLEN_EACH(D)  \
  VARLEN(D, bf16, bf16) \
  VARLEN(D, f16, f16)
VARLEN_EACH(64)
VARLEN_EACH(128)
VARLEN_EACH(256)
// Queries of 576 values take more registers than RDNA has.
#if X_HOST || X_MMA_NVIDIA || X_MMA_CDNA || X_LISTED
VARLEN_EACH(576)
#endif

#define PAGED_HEADS(HEADS, T, t, K, kv)                                                                                 \
  KERNEL_EARLY(attention_paged_##HEADS##_##t##_##kv)                                                                    \
  KERNEL_BLOCKS(attention_paged_##HEADS##_##t##_##kv, paged::THREADS, paged::BLOCKS<K>,                                 \
                (u32 items, u32 heads, u32 kv_heads, u32 d, u32 dv, u32 block_shift, u32 max_blocks, u32 sequences,     \
                 u32 blocks, u32 parts, u32 window, float scale, float softcap, const T* q, u64 q_row, u64 q_head,      \
                 const K* k, const K* v, u64 v_row, const float* sinks, const u32* tables, const u32* rows,             \
                 const u32* lengths, float* partial, u32* counters, T* out, u8* quantized, u32 padded)) {               \
    paged::attendAll<HEADS, T, K>({heads, kv_heads, d, dv, block_shift, max_blocks, sequences, blocks, parts, window,   \
                                   scale, softcap, q, q_row, q_head, k, v, v_row, sinks, tables, rows, lengths,         \
                                   partial, counters, out, quantized, padded}, items);                                  \
  }
#define PAGED(T, t, K, kv)                                                                                              \
  PAGED_HEADS(1, T, t, K, kv)                                                                                           \
  PAGED_HEADS(2, T, t, K, kv)                                                                                           \
  PAGED_HEADS(4, T, t, K, kv)                                                                                           \
  KERNEL_EARLY(attention_append_##t##_##kv)                                                                             \
  KERNEL(attention_append_##t##_##kv,                                                                                   \
         (u64 tokens, u64 kv_heads, u64 d, u64 dv, u64 pool_slots, const u32* slots, const T* k, u64 k_head, u64 k_row, \
          const T* v, u64 v_head, u64 v_row, K* k_pool, K* v_pool)) {                                                   \
    early::await();                                                                                                     \
    early::letNextBegin();                                                                                              \
    paged::append<T, K>(tokens, kv_heads, d, dv, pool_slots, slots, k, k_head, k_row, v, v_head, v_row, k_pool, v_pool); \
  }
#define PAGED_EACH(T, t)                                                                                                \
  PAGED(T, t, float, f32)                                                                                               \
  PAGED(T, t, f16, f16)                                                                                                 \
  PAGED(T, t, bf16, bf16)
PAGED_EACH(float, f32)
PAGED_EACH(f16, f16)
PAGED_EACH(bf16, bf16)

#define STEP(HEADS, K, kv)                                                                                              \
  KERNEL_EARLY(attention_step_##HEADS##_##kv)                                                                           \
  KERNEL_BLOCKS(attention_step_##HEADS##_##kv, paged::THREADS, paged::STEP_BLOCKS,                                      \
                (u32 items, u32 tokens, u32 heads, u32 kv_heads, u32 d, u32 dv, u32 rotated, bool interleaved,          \
                 float scale, float eps, const float* q, u64 q_row, const float* k, u64 k_row, const float* v,          \
                 u64 v_row, const float* q_norm, const float* k_norm, const float* cos, const float* sin,               \
                 u64 table_row, u64 table_length, const u32* positions, const u32* slots, K* k_pool, K* v_pool,         \
                 u32 block_shift, u32 max_blocks, u32 blocks, u32 parts, u32 window, float softcap, const float* sinks, \
                 const u32* tables, const u32* lengths, float* partial, u32* counters, u8* quantized, u32 padded)) {    \
    paged::stepAll<HEADS, K>({heads, kv_heads, d, dv, block_shift, max_blocks, tokens, blocks, parts, window, 1.0f,     \
                              softcap, nullptr, 0, 0, k_pool, v_pool, dv, sinks, tables, nullptr, lengths, partial,     \
                              counters, nullptr, quantized, padded},                                                    \
                             {tokens, heads, kv_heads, d, dv, rotated, interleaved, scale, eps, q, q_row, k, k_row, v,  \
                              v_row, q_norm, k_norm, cos, sin, table_row, table_length, positions, slots,               \
                              (u64)blocks << block_shift, nullptr, k_pool, v_pool}, items);                             \
  }
#define STEP_EACH(K, kv) \
  STEP(1, K, kv)         \
  STEP(2, K, kv)         \
  STEP(4, K, kv)
STEP_EACH(float, f32)
STEP_EACH(f16, f16)
STEP_EACH(bf16, bf16)

#define Q8(HEADS)                                                                                                       \
  KERNEL_EARLY(attention_paged_##HEADS##_f32_q8_0)                                                                      \
  KERNEL_BLOCKS(attention_paged_##HEADS##_f32_q8_0, paged::THREADS, paged::BLOCKS<kv::Q8>,                              \
                (u32 items, u32 heads, u32 kv_heads, u32 d, u32 dv, u32 block_shift, u32 max_blocks, u32 sequences,     \
                 u32 blocks, u32 parts, u32 window, float scale, float softcap, const float* q, u64 q_row, u64 q_head,  \
                 const u8* k, const f16* k_scales, const u8* v, const f16* v_scales, u64 v_row, const float* sinks,     \
                 const u32* tables, const u32* rows, const u32* lengths, float* partial, u32* counters, float* out,     \
                 u8* quantized, u32 padded)) {                                                                          \
    paged::attendAll<HEADS, float, kv::Q8>({heads, kv_heads, d, dv, block_shift, max_blocks, sequences, blocks, parts,  \
                                            window, scale, softcap, q, q_row, q_head, kv::Q8Rows::of(k, k_scales),      \
                                            kv::Q8Rows::of(k, v, v_scales), v_row, sinks, tables, rows, lengths,        \
                                            partial, counters, out, quantized, padded}, items);                         \
  }
Q8(1)
Q8(2)
Q8(4)

KERNEL_EARLY(attention_append_f32_q8_0)
KERNEL(attention_append_f32_q8_0,
       (u64 tokens, u64 kv_heads, u64 d, u64 dv, u64 pool_slots, const u32* slots, const float* k, u64 k_head, u64 k_row,
        const float* v, u64 v_head, u64 v_row, u8* k_pool, f16* k_scales, u8* v_pool, f16* v_scales)) {
  early::await();
  early::letNextBegin();
  kv::appendQ8(tokens, kv_heads, (u32)d, (u32)dv, pool_slots, slots, k, k_head, k_row, v, v_head, v_row,
                  {k_pool, k_scales}, {v_pool, v_scales});
}

#define UNPACK(T, t)                                                                                                    \
  KERNEL_EACH(attention_unpack_q8_0_##t,                                                                                \
              (u64 count, u64 block_values, u64 pool_blocks, const u32* blocks, const u8* codes, const f16* scales,     \
               T* out)) {                                                                                               \
    kv::unpack<T>(count, block_values, pool_blocks, blocks, kv::Q8Rows::of(codes, scales), out);                        \
  }
UNPACK(float, f32)
UNPACK(f16, f16)
UNPACK(bf16, bf16)

#define PACKED(T, t)                                                                                                    \
  KERNEL_BOUNDS(attention_packed_##t, 256,                                                                              \
                (const u32* tiles, u64 count, u64 heads, u64 kv_heads, u32 d, u32 before, u32 after, float scale,       \
                 const float* slopes, const T* q, u64 q_row, u64 q_head, const T* k, u64 k_row, u64 k_head, const T* v, \
                 u64 v_row, u64 v_head, T* out)) {                                                                      \
    packed::attend<T>({tiles, count, heads, kv_heads, d, before, after, scale, slopes, {q, q_row, q_head},              \
                       {k, k_row, k_head}, {v, v_row, v_head}, out});                                                   \
  }
PACKED(float, f32)
PACKED(f16, f16)
PACKED(bf16, bf16)

#define PROMPT(DV, K, kv)                                                                                               \
  KERNEL_BOUNDS(attention_prompt_##DV##_##kv, prompt::THREADS,                                                          \
                (u32 tokens, u32 heads, u32 kv_heads, u32 d, u32 dv, u32 block_shift, u32 blocks, u32 before, u32 window, \
                 float scale, float softcap, const float* q, u64 q_head, u64 q_row, const K* k, const K* v, u64 v_row,  \
                 const float* sinks, const u32* table, float* out)) {                                                   \
    prompt::attendAll<DV, K>({tokens, heads, kv_heads, d, dv, block_shift, blocks, before, window, scale, softcap, q,   \
                              q_head, q_row, k, v, v_row, sinks, table, out});                                          \
  }
#define PROMPT_EACH(DV)   \
  PROMPT(DV, float, f32)  \
  PROMPT(DV, f16, f16)    \
  PROMPT(DV, bf16, bf16)
PROMPT_EACH(64)
PROMPT_EACH(128)
PROMPT_EACH(256)
PROMPT_EACH(512)
