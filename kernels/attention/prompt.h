// Attention of many tokens of one sequence over its cache in blocks (paged.h), on ordinary FMA units with the online softmax:
// any sizes of heads, windows, soft caps and sinks. A block of threads takes ROWS queries, tokens and heads that share keys,
// and walks their keys KEYS at a time; 16 threads have the same MICRO queries, each every 16th key and every 16th column.
#pragma once

namespace prompt {

#if X_HOST
[[maybe_unused]] constexpr u32 THREADS = 1;
#else
constexpr u32 THREADS = 256;  // launchers: PROMPT_THREADS
#endif
/** Queries of a block, and keys at a time. */
[[maybe_unused]] constexpr u32 ROWS = 64;  // launchers: PROMPT_ROWS
[[maybe_unused]] constexpr u32 KEYS = 64;

template <class K>
struct Problem {
  u32 tokens, heads, kvHeads;
  u32 d, dv;
  u32 blockShift;  // a block has 2^blockShift positions
  u32 blocks;      // of the pool
  u32 before;      // keys in front of the tokens
  u32 window;      // keys that a query sees at most; 0: all
  float scale, softcap;
  const float* q;  // [heads, tokens, d], its last dimension contiguous
  u64 qHead, qRow;
  const K *k, *v;  // [blocks, 2^blockShift, kvHeads, d or dv]
  u64 vRow;        // from one value to the next
  const float* sinks;
  const u32* table;  // the blocks of positions 0 to before + tokens
  float* out;        // [tokens, heads, dv]

  X_DEVICE u64 slot(u32 j) const {
    const u32 block = table[j >> blockShift];
    return ((u64)(block < blocks ? block : 0) << blockShift) + (j & ((1u << blockShift) - 1));
  }
  X_DEVICE u32 end(u32 token) const { return before + token + 1; }
  X_DEVICE u32 begin(u32 token) const { return window && window < end(token) ? end(token) - window : 0; }
  X_DEVICE float capped(float score) const { return softcap > 0.0f ? softcap * m::tanh(score / softcap) : score; }
};

#if X_HOST

/** A query at a time. */
template <u32 DV, class K>
X_DEVICE void attendAll(const Problem<K>& p) {
  const u32 group = p.heads / p.kvHeads;
  X_FOR_SPLIT(item, (u64)p.tokens * p.heads) {
    const u32 token = (u32)(item / p.heads), head = (u32)(item % p.heads), kvHead = head / group;
    const float* q = p.q + head * p.qHead + token * p.qRow;
    float values[DV] = {};
    float top = lanes::lowest<float>(), sum = 0.0f;
    for (u32 j = p.begin(token); j < p.end(token); ++j) {
      const u64 slot = p.slot(j);
      const K *k = p.k + (slot * p.kvHeads + kvHead) * p.d, *v = p.v + (slot * p.kvHeads + kvHead) * p.vRow;
      float dot = 0.0f;
      for (u32 e = 0; e < p.d; ++e) dot += q[e] * to_acc(k[e]);
      const float score = p.capped(dot * p.scale), before = top;
      top = score > top ? score : top;
      const float base = attention::finite(top), kept = m::exp(before - base), weight = m::exp(score - base);
      sum = sum * kept + weight;
      for (u32 e = 0; e < p.dv; ++e) values[e] = values[e] * kept + weight * to_acc(v[e]);
    }
    float kept = 1.0f;
    if (p.sinks) {
      const paged::Sink sink = paged::Sink::beside(p.sinks[head], top);
      kept = sink.kept, sum = sum * sink.kept + sink.weight;
    }
    for (u32 e = 0; e < p.dv; ++e) p.out[item * p.dv + e] = values[e] * kept / sum;
  }
}

#else

constexpr u32 LANES = 16, MICRO = 4, DEPTH = 16, STRIDE = KEYS + 4;

/** DV: columns of values that there are registers for. */
template <u32 DV>
struct Memory {
  static constexpr u32 COLUMNS = DV / LANES, CHUNK = DV > 256 ? 8 : 16;  // keys whose values are in shared memory at once
  alignas(16) float weights[ROWS * STRIDE];
  union {
    struct {
      alignas(16) float q[DEPTH * STRIDE], k[DEPTH * STRIDE];
    };
    alignas(16) float values[CHUNK * DV];
  };
};

/** Caps a thread's scores, through its places among the weights: so tanh stands in the code once. */
template <class K>
X_DEVICE void capScores(const Problem<K>& p, float (&scores)[MICRO][MICRO], float* places) {
#pragma unroll
  for (u32 i = 0; i < MICRO; ++i)
#pragma unroll
    for (u32 j = 0; j < MICRO; ++j) places[i * STRIDE + LANES * j] = scores[i][j];
#pragma unroll 1
  for (u32 n = 0; n < MICRO * MICRO; ++n) {
    float& score = places[n / MICRO * STRIDE + LANES * (n % MICRO)];
    score = p.capped(score);
  }
#pragma unroll
  for (u32 i = 0; i < MICRO; ++i)
#pragma unroll
    for (u32 j = 0; j < MICRO; ++j) scores[i][j] = places[i * STRIDE + LANES * j];
}

/** The tile of ROWS queries from row0 on of a head of keys: row r is head r % group of token r / group. */
template <u32 DV, class K>
X_DEVICE void attendTile(const Problem<K>& p, u32 kvHead, u32 row0, Memory<DV>& memory) {
  typedef Memory<DV> M;
  const u32 group = p.heads / p.kvHeads, rows = p.tokens * group;
  const u32 lane = threadIndex() % LANES, own = threadIndex() / LANES * MICRO;
  const u32 last = (row0 + ROWS < rows ? row0 + ROWS : rows) - 1;
  const u32 end = p.end(last / group), begin = p.begin(row0 / group) / KEYS * KEYS;
  float out[MICRO][M::COLUMNS] = {};
  float top[MICRO], sum[MICRO];
#pragma unroll
  for (u32 i = 0; i < MICRO; ++i) top[i] = lanes::lowest<float>(), sum[i] = 0.0f;
#pragma unroll 1
  for (u32 key0 = begin; key0 < end; key0 += KEYS) {
    float scores[MICRO][MICRO] = {};
#pragma unroll 1
    for (u32 d0 = 0; d0 < p.d; d0 += DEPTH) {
      X_FOR_BLOCK(i, ROWS * DEPTH) {
        const u32 e = (u32)i % DEPTH, r = (u32)i / DEPTH, row = row0 + r, key = key0 + r;
        float x = 0.0f, y = 0.0f;
        if (d0 + e < p.d) {
          if (row < rows) x = p.q[(kvHead * group + row % group) * p.qHead + (row / group) * p.qRow + d0 + e];
          if (key < end) y = to_acc(p.k[(p.slot(key) * p.kvHeads + kvHead) * p.d + d0 + e]);
        }
        memory.q[e * STRIDE + r] = x;
        memory.k[e * STRIDE + r] = y;
      }
      barrier();
#pragma unroll 4
      for (u32 e = 0; e < DEPTH; ++e) {
        float x[MICRO], y[MICRO];
#pragma unroll
        for (u32 i = 0; i < MICRO; ++i) x[i] = memory.q[e * STRIDE + own + i], y[i] = memory.k[e * STRIDE + lane + LANES * i];
#pragma unroll
        for (u32 i = 0; i < MICRO; ++i)
#pragma unroll
          for (u32 j = 0; j < MICRO; ++j) scores[i][j] += x[i] * y[j];
      }
      barrier();
    }
#pragma unroll
    for (u32 i = 0; i < MICRO; ++i)
#pragma unroll
      for (u32 j = 0; j < MICRO; ++j) scores[i][j] *= p.scale;
    if (p.softcap > 0.0f) capScores(p, scores, memory.weights + own * STRIDE + lane);
#pragma unroll
    for (u32 i = 0; i < MICRO; ++i) {
      const u32 token = (row0 + own + i < rows ? row0 + own + i : last) / group;
      const u32 from = p.begin(token), to = p.end(token);
      float best = top[i];
#pragma unroll
      for (u32 j = 0; j < MICRO; ++j) {
        const u32 key = key0 + lane + LANES * j;
        scores[i][j] = key >= from && key < to ? scores[i][j] : lanes::lowest<float>();
        best = scores[i][j] > best ? scores[i][j] : best;
      }
#pragma unroll
      for (u32 mask = LANES / 2; mask > 0; mask /= 2) {
        const float other = shuffleXor(best, mask);
        best = other > best ? other : best;
      }
      const float base = attention::finite(best), kept = m::exp(top[i] - base);
      top[i] = best;
      sum[i] *= kept;
#pragma unroll
      for (u32 j = 0; j < MICRO; ++j) {
        const float weight = m::exp(scores[i][j] - base);
        memory.weights[(own + i) * STRIDE + lane + LANES * j] = weight;
        sum[i] += weight;
      }
#pragma unroll
      for (u32 c = 0; c < M::COLUMNS; ++c) out[i][c] *= kept;
    }
#pragma unroll 1
    for (u32 chunk = 0; chunk < KEYS && key0 + chunk < end; chunk += M::CHUNK) {
      X_FOR_BLOCK(i, M::CHUNK * DV) {
        const u32 e = (u32)i % DV, key = key0 + chunk + (u32)i / DV;
        float x = 0.0f;
        if (e < p.dv && key < end) x = to_acc(p.v[(p.slot(key) * p.kvHeads + kvHead) * p.vRow + e]);
        memory.values[i] = x;
      }
      barrier();
#pragma unroll 2
      for (u32 j = 0; j < M::CHUNK; ++j) {
        float weights[MICRO];
#pragma unroll
        for (u32 i = 0; i < MICRO; ++i) weights[i] = memory.weights[(own + i) * STRIDE + chunk + j];
#pragma unroll
        for (u32 c = 0; c < M::COLUMNS; ++c) {
          const float value = memory.values[j * DV + lane + LANES * c];
#pragma unroll
          for (u32 i = 0; i < MICRO; ++i) out[i][c] += weights[i] * value;
        }
      }
      barrier();
    }
  }
#pragma unroll
  for (u32 i = 0; i < MICRO; ++i) {
    const u32 row = row0 + own + i;
    float total = sum[i];
#pragma unroll
    for (u32 mask = LANES / 2; mask > 0; mask /= 2) total += shuffleXor(total, mask);
    if (row >= rows) continue;
    const u32 head = kvHead * group + row % group;
    float kept = 1.0f;
    if (p.sinks) {
      const paged::Sink sink = paged::Sink::beside(p.sinks[head], top[i]);
      kept = sink.kept, total = total * sink.kept + sink.weight;
    }
    float* to = p.out + ((u64)(row / group) * p.heads + head) * p.dv;
#pragma unroll
    for (u32 c = 0; c < M::COLUMNS; ++c)
      if (lane + LANES * c < p.dv) to[lane + LANES * c] = out[i][c] * kept / total;
  }
  barrier();
}

/** A block a tile, those with many keys first. */
template <u32 DV, class K>
X_DEVICE void attendAll(const Problem<K>& p) {
  X_SHARED(Memory<DV>, memory, 1);
  const u32 tiles = (p.tokens * (p.heads / p.kvHeads) + ROWS - 1) / ROWS;
  const u64 block = split::block();
  if (block >= (u64)tiles * p.kvHeads) return;
  attendTile<DV>(p, (u32)block % p.kvHeads, (tiles - 1 - (u32)block / p.kvHeads) * ROWS, memory[0]);
}

#endif

}  // namespace prompt
