// RECURRENT: layers that carry a state of fixed size from token to token, for prompts and for single tokens alike. Ours:
// candle's models write these layers of operations. Values and states are f32. A batch is sequences one behind the other
// (recurrent/spans.h), of any number of rows each; states are read from one slot of a pool and written to another.
//   causal_conv1d_f32                  a short convolution: recurrent/conv.h
//   selective_scan_f32                 Mamba: recurrent/scan.h
//   ssd_f32_d{32,64,128,256}           Mamba 2, for keys of so many values: recurrent/decayed.h
//   gated_delta_rule_f32_d{...}        Gated DeltaNet: the same
//   selective_scan_chunks_f32          the first of them for prompts: recurrent/scan-chunks.h
//   {ssd,gated_delta_rule}_{tables,chunks}_f32_d{...}  the others for prompts, in two launches: recurrent/chunk-tables.h and decayed-chunks.h
//   lstm_{t}, lstm_pack_{t}            by weights of t, f32 or bf16: long short-term memory over rows of equal length: recurrent/lstm.h
//   lstm_backward_f32                    its gradient: recurrent/lstm-gradient.h
#include "x.h"
#include "shared/split.h"
#include "shared/barrier.h"
#include "shared/rough.h"
#include "shared/turn.h"
#include "shared/pairs.h"
#include "shared/mma.h"
#include "recurrent/spans.h"
#include "recurrent/conv.h"
#include "recurrent/scan.h"
#include "recurrent/decayed.h"
#include "recurrent/chunks.h"
#include "recurrent/chunk-tables.h"
#include "recurrent/chunk-tiles.h"
#include "recurrent/decayed-chunks.h"
#include "recurrent/scan-chunks.h"
#include "recurrent/lstm-units.h"
#include "recurrent/lstm.h"
#include "recurrent/lstm-gradient.h"

KERNEL_EARLY(causal_conv1d_f32)
KERNEL(causal_conv1d_f32, (u32 sequences, u64 rows, const u32* starts, const u32* from, const u32* to, u32 slots,
                           u32 channels, u32 taps, bool silu, const float* x, u64 x_row, const float* weight,
                           const float* bias, float* states, float* out, const float* in_gate,
                           const float* out_gate)) {
  recurrent::convolve({{sequences, rows, starts, from, to, slots}, channels, taps, silu, x, x_row, weight, bias, states, out,
                       {in_gate, out_gate}});
}

KERNEL_EARLY(selective_scan_f32)
KERNEL_BOUNDS(selective_scan_f32, 128,
              (u32 sequences, u64 rows, const u32* starts, const u32* from, const u32* to, u32 slots, u32 channels, u32 n,
               const float* x, u64 x_row, const float* dt, u64 dt_row, const float* dt_bias, const float* a,
               const float* b, u64 b_row, const float* c, u64 c_row, const float* d, float* states, float* out)) {
  recurrent::scan({{sequences, rows, starts, from, to, slots}, channels, n, x, x_row, dt, dt_row, dt_bias, a, b, b_row, c,
                   c_row, d, states, out});
}

// Of kernels by chunks a multiprocessor has few blocks: registers for two of them, where ptxas would spill for four.
KERNEL_EARLY(selective_scan_chunks_f32)
KERNEL_BLOCKS(selective_scan_chunks_f32, 128, 2,
              (u32 sequences, u64 rows, const u32* starts, const u32* from, const u32* to, u32 slots, u32 channels, u32 n,
               const float* x, u64 x_row, const float* dt, u64 dt_row, const float* dt_bias, const float* a,
               const float* b, u64 b_row, const float* c, u64 c_row, const float* d, float* states, float* out)) {
  recurrent::scanChunks({{sequences, rows, starts, from, to, slots}, channels, n, x, x_row, dt, dt_row, dt_bias, a, b,
                         b_row, c, c_row, d, states, out});
}

#define DECAYED_PARAMETERS                                                                                              \
  u32 sequences, u64 rows, const u32 *starts, const u32 *from, const u32 *to, u32 slots, u32 heads, u32 key_heads,      \
      u32 value_dim, u32 group, const float *q, u64 q_row, const float *k, u64 k_row, const float *v, u64 v_row,        \
      const float *dt, u64 dt_row, const float *dt_bias, const float *a
#define SSD_PARAMETERS DECAYED_PARAMETERS, const float *d, float dt_min, float dt_max, float *states, float *out
#define DELTA_PARAMETERS                                                                                                \
  DECAYED_PARAMETERS, const float *beta, u64 beta_row, float scale, float eps, float *states, float *out
#define DECAYED_PROBLEM                                                                                                 \
  {{sequences, rows, starts, from, to, slots}, heads, key_heads, value_dim, group, q, q_row, k, k_row, v, v_row, dt,    \
   dt_row, dt_bias, a, states, out}
#define SSD_RULE recurrent::Ssd{d, dt_min, dt_max}
#define DELTA_RULE recurrent::Delta{beta, beta_row, scale, eps}

#define DECAYED_BY(KEYS, rule, PARAMETERS, RULE)                                                                        \
  KERNEL_EARLY(rule##_f32_d##KEYS)                                                                                      \
  KERNEL_BOUNDS(rule##_f32_d##KEYS, 128, (PARAMETERS)) { recurrent::decayed<KEYS>(DECAYED_PROBLEM, RULE); }             \
  KERNEL_EARLY(rule##_tables_f32_d##KEYS)                                                                               \
  KERNEL_BOUNDS(rule##_tables_f32_d##KEYS, 128, (PARAMETERS, float* tables)) {                                          \
    recurrent::tabulate<KEYS>(DECAYED_PROBLEM, RULE, tables);                                                           \
  }                                                                                                                     \
  KERNEL_EARLY(rule##_chunks_f32_d##KEYS)                                                                               \
  KERNEL_BLOCKS(rule##_chunks_f32_d##KEYS, 128, 2, (PARAMETERS, float* tables)) {                                       \
    recurrent::decayedChunks<KEYS>(DECAYED_PROBLEM, RULE, tables);                                                      \
  }
#define DECAYED(KEYS)                                             \
  DECAYED_BY(KEYS, ssd, SSD_PARAMETERS, SSD_RULE)                 \
  DECAYED_BY(KEYS, gated_delta_rule, DELTA_PARAMETERS, DELTA_RULE)
DECAYED(32)
DECAYED(64)
DECAYED(128)
DECAYED(256)

#define LSTM(T, t)                                                                                                      \
  KERNEL_BOUNDS(lstm_pack_##t, 128, (u32 hidden, const T* weights, float* packed)) {                                    \
    recurrent::packGates(hidden, weights, packed);                                                                      \
  }                                                                                                                     \
  KERNEL_BOUNDS(lstm_##t, 1024,                                                                                         \
                (u64 rows, u64 steps, u32 hidden, bool reversed, const float* gates, const float* bias,                 \
                 const float* packed, const float* h, const float* c, float* outputs, float* cells, float* open)) {      \
    recurrent::Lstm<T>{rows, steps, hidden, reversed, gates, bias, packed, h, c, outputs, cells, open}.run();           \
  }
LSTM(float, f32)
LSTM(bf16, bf16)
KERNEL_BOUNDS(lstm_backward_f32, 1024,
              (u64 rows, u64 steps, u32 hidden, bool reversed, const float* open, const float* cells, const float* weights,
               const float* c, const float* grad, float* gates)) {
  recurrent::LstmGradient{rows, steps, hidden, reversed, open, cells, weights, c, grad, gates}.run();
}
