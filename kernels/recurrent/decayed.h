// Heads whose states are matrices that decay by one number a row: the scan of Mamba 2, and the gated delta rule, which writes
// the difference from what the state has for a key. Columns of a state do not depend on each other: LANES threads have one,
// interleaved in registers, and a block those of one head and sequence that its threads have room for. What is read is
// computed from the state before the row, so that a row is one round of exchanges between lanes:
//   S' = decay S + w kT,  S' q = decay (S q) + w (k . q)
#pragma once

namespace recurrent {

constexpr u32 LANES = X_HOST ? 1 : 8;
/** Columns that a thread has a part of: on the host they share what depends on keys and queries only. */
constexpr u32 AT_ONCE = X_HOST ? 4 : 1;

struct Decayed {
  Spans at;
  u32 heads, keyHeads, valueDim;
  u32 group;  // head h has the keys of head h / group % keyHeads
  const float* q;  // [rows, keyHeads * KEYS], as k; rows begin every so many values
  u64 qRow;
  const float* k;
  u64 kRow;
  const float* v;  // [rows, heads * valueDim]
  u64 vRow;
  const float* dt;  // [rows, heads]
  u64 dtRow;
  const float* dtBias;  // [heads], as a
  const float* a;
  float* states;  // [slots, heads, valueDim, KEYS]
  float* out;     // [rows, heads * valueDim]
};

struct Ssd {
  const float* d;  // [heads]
  float dtMin, dtMax;
};

struct Delta {
  const float* beta;  // [rows, heads]
  u64 betaRow;
  float scale, eps;
};

/** Sum over the LANES threads of a column; all lanes of the warp. */
X_DEVICE float overLanes(float v) {
#pragma unroll
  for (u32 mask = LANES / 2; mask > 0; mask /= 2) v += shuffleXor(v, mask);
  return v;
}

#if X_HOST
#define X_FOR_KEYS(e) for (u32 e = 0; e < KEYS; ++e)
#else
#define X_FOR_KEYS(e) _Pragma("unroll") for (u32 e = 0; e < EACH; ++e)
#endif

/** @param column the first of AT_ONCE; those from valueDim on are computed and left out */
template <u32 KEYS, class Rule>
X_DEVICE void columns(const Decayed& p, const Rule& rule, u32 sequence, u32 head, u32 column) {
  constexpr bool isDelta = sameType<Rule, Delta>;
  constexpr u32 EACH = KEYS / LANES;
  const u32 lane = threadIndex() % LANES;
  const u64 size = (u64)p.heads * p.valueDim * KEYS;
  const float* first = p.at.first(p.states, sequence, size);
  float* last = p.at.last(p.states, sequence, size);
  const u32 keyHead = head / p.group % p.keyHeads;
  float s[AT_ONCE][EACH];
#pragma unroll
  for (u32 j = 0; j < AT_ONCE; ++j) {
    X_FOR_KEYS(e) {
      const bool inside = first && column + j < p.valueDim;
      s[j][e] = inside ? first[((u64)head * p.valueDim + column + j) * KEYS + e * LANES + lane] : 0.0f;
    }
  }
  const float rate = p.a[head], bias = p.dtBias[head];
  const u32 end = p.at.end(sequence);
  for (u32 row = p.at.starts[sequence]; row < end; ++row) {
    const float* ks = p.k + row * p.kRow + (u64)keyHead * KEYS;
    const float* qs = p.q + row * p.qRow + (u64)keyHead * KEYS;
#if X_HOST
    const float *k = ks, *q = qs;
#else
    float k[EACH], q[EACH];
    X_FOR_KEYS(e) {
      k[e] = ks[e * LANES + lane];
      q[e] = qs[e * LANES + lane];
    }
#endif
    float step = softplus(p.dt[row * p.dtRow + head] + bias);
    if constexpr (!isDelta) step = step < rule.dtMin ? rule.dtMin : step > rule.dtMax ? rule.dtMax : step;
    const float decay = m::exp(rate * step);
    float kq = 0.0f, kk = 0.0f, qq = 0.0f;
    X_FOR_KEYS(e) {
      kq += k[e] * q[e];
      if constexpr (isDelta) {
        kk += k[e] * k[e];
        qq += q[e] * q[e];
      }
    }
    kq = overLanes(kq);
    float perKey = 1.0f, perQuery = 1.0f;
    if constexpr (isDelta) {
      perKey = 1.0f / m::sqrt(overLanes(kk) + rule.eps);
      perQuery = rule.scale / m::sqrt(overLanes(qq) + rule.eps);
    }
#pragma unroll
    for (u32 j = 0; j < AT_ONCE; ++j) {
      float sk = 0.0f, sq = 0.0f;
      X_FOR_KEYS(e) {
        sq += s[j][e] * q[e];
        if constexpr (isDelta) sk += s[j][e] * k[e];
      }
      sq = overLanes(sq);
      const bool inside = column + j < p.valueDim;
      const u64 place = (u64)head * p.valueDim + column + j;
      const float v = inside ? p.v[row * p.vRow + place] : 0.0f;
      float write, read;
      if constexpr (isDelta) {
        const float share = sigmoid(rule.beta[row * rule.betaRow + head]);
        write = share * (v - decay * overLanes(sk) * perKey) * perKey;
        read = (decay * sq + write * kq) * perQuery;
      } else {
        write = step * v;
        read = decay * sq + write * kq + rule.d[head] * v;
      }
      X_FOR_KEYS(e) s[j][e] = decay * s[j][e] + write * k[e];
      if (inside && lane == 0) p.out[(u64)row * p.heads * p.valueDim + place] = read;
    }
  }
  if (!last) return;
#pragma unroll
  for (u32 j = 0; j < AT_ONCE; ++j) {
    X_FOR_KEYS(e) {
      if (column + j < p.valueDim) last[((u64)head * p.valueDim + column + j) * KEYS + e * LANES + lane] = s[j][e];
    }
  }
}

/** A block a sequence, head and part of its columns. Whole warps. */
template <u32 KEYS, class Rule>
X_DEVICE void decayed(const Decayed& p, const Rule& rule) {
  early::await();
  early::letNextBegin();
  const u32 width = X_HOST ? AT_ONCE : blockThreads() / LANES;
  const u32 parts = (p.valueDim + width - 1) / width;
  X_FOR_SPLIT(item, (u64)p.at.sequences * p.heads * parts) {
    const u32 column = (u32)(item % parts) * width + threadIndex() / LANES;
    const u64 head = item / parts;
    columns<KEYS>(p, rule, (u32)(head / p.heads), (u32)(head % p.heads), column);
  }
}

}  // namespace recurrent
