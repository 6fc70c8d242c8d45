// QUANTIZED: ggml block formats. Mirrors candle-kernels/src/quantized.cu: every name and parameter list, launched as
// candle launches them or with any other grid and block. What differs: formats are traits (quantized/formats.h) and each
// kernel family is written once; mul_mat_vec writes no row past the last; experts of the q8_0 MoE kernel are strided by
// their own block size; K-format dequantize and q5_k's matrix-vector kernel carry no count, so there grid.x must be exact.
#include "x.h"
#include "shared/barrier.h"
#include "shared/split.h"
#include "shared/arrive.h"
#include "shared/team.h"
#include "shared/mma.h"
#include "shared/wgmma.h"
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
#include "quantized/dequantize.h"
#include "quantized/dot-rows.h"
#include "quantized/staged-rows.h"
#include "quantized/staged-columns.h"
#include "quantized/matvec.h"
#include "quantized/matmul.h"
#include "quantized/mma.h"
#include "quantized/operands.h"
#include "quantized/stream-tiles.h"
#include "quantized/stream.h"

using namespace quant;

// Ours, for products of many rows.
#define DEQUANTIZE_BF16(Q, name) \
  KERNEL(dequantize_block_##name##_bf16, (const u8* x, bf16* y, u64 blocks)) { dequantizePairs<Q>(x, y, blocks); }

// The 32-element formats; PER is the number of elements that one unit of k stands for.
#define DEQUANTIZE(Q, name, PER)                                                                                       \
  KERNEL(dequantize_block_##name##_f32, (const u8* x, float* y, i32 k)) { dequantizeAll<Q>(x, y, (u32)k / (32 / PER)); } \
  KERNEL(dequantize_block_##name##_f16, (const u8* x, f16* y, i32 k)) { dequantizeAll<Q>(x, y, (u32)k / (32 / PER)); } \
  DEQUANTIZE_BF16(Q, name)
DEQUANTIZE(Q4_0, q4_0, 32)
DEQUANTIZE(Q4_1, q4_1, 32)
DEQUANTIZE(Q5_0, q5_0, 1)
DEQUANTIZE(Q5_1, q5_1, 1)
DEQUANTIZE(Q8_0, q8_0, 32)

#define DEQUANTIZE_K(Q, name)                                                                    \
  KERNEL(dequantize_block_##name##_f32, (const u8* x, float* y)) { dequantizeOwn<Q>(x, y); } \
  KERNEL(dequantize_block_##name##_f16, (const u8* x, f16* y)) { dequantizeOwn<Q>(x, y); }   \
  DEQUANTIZE_BF16(Q, name)
DEQUANTIZE_K(Q2_K, q2_K)
DEQUANTIZE_K(Q3_K, q3_K)
DEQUANTIZE_K(Q4_K, q4_K)
DEQUANTIZE_K(Q5_K, q5_K)
DEQUANTIZE_K(Q6_K, q6_K)
DEQUANTIZE_K(Q8_K, q8_K)

// With one column ptxas would take 40 to 48 registers, too few for the loads in flight (tools/bench/quantized.ts); with eight staged
// ones of q4_K 179, and a multiprocessor would have one block.
#define VEC_BLOCKS(n) ((n) == 1 ? 4 : 2)
#define VEC(Q, name, n)                                                                                                \
  KERNEL_EARLY(mul_mat_vec_##name##_q8_1_cuda##n)                                                                      \
  KERNEL_BLOCKS(mul_mat_vec_##name##_q8_1_cuda##n, 256, VEC_BLOCKS(n),                                                 \
                (const u8* x, const u8* y, float* dst, i32 ncols_x, i32 nrows_x, i32 nrows_y, i32 nrows_dst)) {        \
    mulMatVecKernel<Q, n>(x, y, dst, ncols_x, nrows_x, nrows_y, nrows_dst);                                            \
  }
#define MATRIX_MMA(Q, name, size, rows, columns)                                                                       \
  KERNEL_BOUNDS(mul_mat_mma##size##name, MMA_BOUND,                                                                    \
                (const u8* x, const u8* y, float* dst, i32 ncols_x, i32 nrows_x, i32 ncols_y, i32 nrows_y, i32 nrows_dst)) { \
    X_SHARED(u8, memory, (MmaMemory<Q, rows, columns>));                                                               \
    mulMatMma<Q, rows, columns>(x, y, dst, ncols_x, nrows_x, ncols_y, nrows_y, nrows_dst, memory);                     \
  }
#define MATRIX_MMA_GROUPED(Q, name)                                                                                    \
  KERNEL_BOUNDS(mul_mat_mma_grouped_##name, MMA_BOUND,                                                                 \
                (const u8* x, const u8* y, float* dst, i32 ncols_x, i32 nrows_x, const u32* tiles, i32 tile_count,     \
                 i32 nrows_y)) {                                                                                       \
    X_SHARED(u8, memory, (MmaMemory<Q, 32, TILE>));                                                                    \
    mulMatMmaGrouped<Q>(x, y, dst, ncols_x, nrows_x, tiles, tile_count, nrows_y, memory);                              \
  }
#define STREAM_BOUND(Q, columns) (STREAM_WARPS<Q, columns> * WARP)
// These do not begin early themselves, which made steps of 8 and 64 sequences up to 4 % slower.
#define MATRIX_STREAM(Q, name, columns)                                                                                \
  KERNEL_BLOCKS(mul_mat_stream_##name##_##columns, STREAM_BOUND(Q, columns), (columns > 32 ? 1 : columns > 8 ? 2 : 3), \
                (const u8* x, const u8* y, float* dst, i32 ncols_x, i32 nrows_x, i32 ncols_y, i32 nrows_y, i32 nrows_dst, \
                 float* parts, u32* counters)) {                                                                       \
    mulMatStream<Q, columns>(x, y, dst, ncols_x, nrows_x, ncols_y, nrows_y, nrows_dst, parts, counters);               \
  }
// Of NVIDIA alone.
#if X_NVPTX || X_LISTED
#define MATRIX_STREAM_GROUPED(Q, name, columns)                                                                        \
  KERNEL_EARLY(mul_mat_stream_grouped_##name##_##columns)                                                              \
  KERNEL_BLOCKS(mul_mat_stream_grouped_##name##_##columns, STREAM_BOUND(Q, columns), (columns > 32 ? 1 : 2),           \
                (const u8* x, const u8* y, float* dst, i32 ncols_x, i32 nrows_x, const u32* tiles, i32 tile_count,     \
                 i32 nrows_y, float* parts, u32* counters)) {                                                          \
    mulMatStreamGrouped<Q, columns>(x, y, dst, ncols_x, nrows_x, tiles, tile_count, nrows_y, parts, counters);         \
  }
#else
#define MATRIX_STREAM_GROUPED(Q, name, columns)
#endif
#if X_MMA_KERNELS
#define UNITS(Q, name)                                                                                                 \
  MATRIX_MMA(Q, name, _, 64, 128)                                                                                      \
  MATRIX_MMA(Q, name, _few_, 32, 64)                                                                                   \
  MATRIX_MMA_GROUPED(Q, name)                                                                                          \
  MATRIX_STREAM(Q, name, 8)                                                                                            \
  MATRIX_STREAM(Q, name, 16)                                                                                           \
  MATRIX_STREAM(Q, name, 32)                                                                                           \
  MATRIX_STREAM(Q, name, 64)                                                                                           \
  MATRIX_STREAM_GROUPED(Q, name, 16)                                                                                   \
  MATRIX_STREAM_GROUPED(Q, name, 64)                                                                                   \
  MATRIX_STREAM_GROUPED(Q, name, 128)
#else
#define UNITS(Q, name)
#endif
#define ROWS_AND_TILES(Q, name)                                                                                        \
  KERNEL(get_rows_##name, (const u8* src0, const u32* ids, float* dst, i64 ne00, u64 nb01)) {                          \
    getRows<Q>(src0, ids, dst, (u64)ne00, nb01);                                                                       \
  }                                                                                                                    \
  KERNEL_BOUNDS(mul_mat_##name, 256,                                                                                   \
                (const u8* x, const u8* y, float* dst, i32 ncols_x, i32 nrows_x, i32 ncols_y, i32 nrows_y, i32 nrows_dst)) { \
    X_SHARED(Tiles, tile, 1);                                                                                          \
    mulMat<Q>(x, y, dst, ncols_x, nrows_x, ncols_y, nrows_y, nrows_dst, tile[0]);                                      \
  }                                                                                                                    \
  KERNEL_BOUNDS(mul_mat_grouped_##name, 256,                                                                           \
                (const u8* x, const u8* y, float* dst, i32 ncols_x, i32 nrows_x, const u32* tiles, i32 tile_count,     \
                 i32 nrows_y)) {                                                                                       \
    X_SHARED(Tiles, tile, 1);                                                                                          \
    mulMatGrouped<Q>(x, y, dst, ncols_x, nrows_x, tiles, tile_count, nrows_y, tile[0]);                                \
  }
#define MATRIX(Q, name)                                                                                                \
  ROWS_AND_TILES(Q, name)                                                                                              \
  VEC(Q, name, 1)                                                                                                      \
  VEC(Q, name, 2)                                                                                                      \
  VEC(Q, name, 3)                                                                                                      \
  VEC(Q, name, 4)                                                                                                      \
  VEC(Q, name, 5)                                                                                                      \
  VEC(Q, name, 6)                                                                                                      \
  VEC(Q, name, 7)                                                                                                      \
  VEC(Q, name, 8)                                                                                                      \
  UNITS(Q, name)
MATRIX(Q4_0, q4_0)
MATRIX(Q4_1, q4_1)
MATRIX(Q5_0, q5_0)
MATRIX(Q5_1, q5_1)
MATRIX(Q8_0, q8_0)
MATRIX(Q2_K, q2_K)
MATRIX(Q3_K, q3_K)
MATRIX(Q4_K, q4_K)
MATRIX(Q5_K, q5_K)
MATRIX(Q6_K, q6_K)

#define VEC_F32(Q, name)                                                                                \
  KERNEL(dequantize_mul_mat_vec_##name, (const u8* x, const float* y, float* dst, i32 ncols, i32 nrows)) { \
    dequantizeMulMatVec<Q>(x, y, dst, (u32)ncols, (u32)nrows);                                          \
  }
VEC_F32(Q4_0, q4_0_cuda)
VEC_F32(Q4_1, q4_1_cuda)
VEC_F32(Q5_0, q5_0_cuda)
VEC_F32(Q5_1, q5_1_cuda)
VEC_F32(Q8_0, q8_0_cuda)
VEC_F32(Q2_K, q2_k)
VEC_F32(Q3_K, q3_k)
VEC_F32(Q4_K, q4_k)
VEC_F32(Q6_K, q6_k)
KERNEL(dequantize_mul_mat_vec_q5_k, (const u8* x, const float* y, float* dst, i32 ncols)) {
  dequantizeMulMatVec<Q5_K>(x, y, dst, (u32)ncols, (u32)split::blocks());
}

#define MOE(Q, name)                                                                                                   \
  KERNEL_EARLY(indexed_moe_forward_##name##_q8_1)                                                                      \
  KERNEL_BOUNDS(indexed_moe_forward_##name##_q8_1, 256,                                                                \
                (const u8* weights, const u8* inputs, const u32* indices, float* out, i32 n, i32 k, i32 batch, i32 topk, \
                 i32 k_padded, i32 input_dim1)) {                                                                      \
    indexedMoe<Q>(weights, inputs, indices, out, n, k, batch, topk, k_padded, input_dim1);                             \
  }
MOE(Q2_K, q2k)
MOE(Q3_K, q3k)
MOE(Q4_K, q4k)
MOE(Q5_K, q5k)
MOE(Q6_K, q6k)
MOE(Q8_0, q8_0)
MOE(Q4_0, q4_0)
MOE(Q4_1, q4_1)
MOE(Q5_0, q5_0)
MOE(Q5_1, q5_1)

// Formats that candle has no kernels for, or for q8_1 and q8_K only some.
#define UP_TO(Q, name, n)                                                                                              \
  KERNEL_EARLY(mul_mat_vec_##name##_q8_1_upto##n)                                                                      \
  KERNEL_BLOCKS(mul_mat_vec_##name##_q8_1_upto##n, 256, VEC_BLOCKS(n),                                                 \
                (const u8* x, const u8* y, float* dst, i32 ncols_x, i32 nrows_x, i32 nrows_y, i32 nrows_dst, i32 ncols_y)) { \
    mulMatVecUpTo<Q, n>(x, y, dst, ncols_x, nrows_x, nrows_y, nrows_dst, ncols_y);                                     \
  }
#define PRODUCTS(Q, name, moe)                                                                                         \
  ROWS_AND_TILES(Q, name)                                                                                              \
  UP_TO(Q, name, 1)                                                                                                    \
  UP_TO(Q, name, 2)                                                                                                    \
  UP_TO(Q, name, 4)                                                                                                    \
  UP_TO(Q, name, 8)                                                                                                    \
  MOE(Q, moe)
// k of the dequantize kernels counts blocks.
#define SMALL(Q, name)      \
  DEQUANTIZE(Q, name, 32)   \
  PRODUCTS(Q, name, name)
#define SUPERBLOCK(Q, name) \
  DEQUANTIZE_K(Q, name)     \
  PRODUCTS(Q, name, name)
SMALL(Q8_1_Weight, q8_1)
SMALL(IQ4_NL, iq4_nl)
SMALL(MXFP4, mxfp4)
UNITS(MXFP4, mxfp4)
SMALL(NVFP4, nvfp4)
PRODUCTS(Q8_K, q8_K, q8k)
SUPERBLOCK(IQ4_XS, iq4_xs)
SUPERBLOCK(IQ3_XXS, iq3_xxs)
SUPERBLOCK(IQ3_S, iq3_s)
SUPERBLOCK(IQ2_XXS, iq2_xxs)
SUPERBLOCK(IQ2_XS, iq2_xs)
SUPERBLOCK(IQ2_S, iq2_s)
SUPERBLOCK(IQ1_S, iq1_s)
SUPERBLOCK(IQ1_M, iq1_m)
SUPERBLOCK(TQ1_0, tq1_0)
SUPERBLOCK(TQ2_0, tq2_0)

// Ours: weights that are read with the same column.
KERNEL_EARLY(mul_mat_vec_beside_q8_1)
KERNEL_BLOCKS(mul_mat_vec_beside_q8_1, 256, VEC_BLOCKS(1),
              (const u8* x0, const u8* x1, const u8* x2, const u8* y, float* dst, u32 columns, u32 rows0, u32 rows1,
               u32 rows2, u32 blocks0, u32 blocks1, u32 blocks2, u32 types)) {
  mulMatVecBeside({x0, rows0, blocks0}, {x1, rows1, blocks1}, {x2, rows2, blocks2}, y, dst, columns, types);
}

#define PLAIN_ROWS(T, name)                                                                        \
  KERNEL(get_rows_##name, (const u8* src0, const u32* ids, float* dst, i64 ne00, u64 nb01)) {      \
    getRowsPlain<T>(src0, ids, dst, (u64)ne00, nb01);                                              \
  }
PLAIN_ROWS(float, f32)
PLAIN_ROWS(f16, f16)
PLAIN_ROWS(bf16, bf16)

KERNEL_EARLY(quantize_q8_1)
KERNEL_EARLY(quantize_q8_1_f16)
KERNEL_EARLY(quantize_q8_1_bf16)
KERNEL(quantize_q8_1, (const float* x, u8* y, i32 kx, i32 kx_padded)) { quantizeRows(x, y, (u32)kx, (u32)kx_padded); }
KERNEL(quantize_q8_1_f16, (const f16* x, u8* y, i32 kx, i32 kx_padded)) { quantizeRows(x, y, (u32)kx, (u32)kx_padded); }
KERNEL(quantize_q8_1_bf16, (const bf16* x, u8* y, i32 kx, i32 kx_padded)) { quantizeRows(x, y, (u32)kx, (u32)kx_padded); }
