// What attention is asked for, and the plain form of it, a warp a query: for the host and for GPUs without matrix units.
#pragma once

namespace attention {

/** [b, heads, rows, d] whose last dimension is contiguous; strides in elements. */
template <class T>
struct Heads {
  const T* data;
  u64 batch, head, row;
  X_DEVICE const T* at(u64 b, u64 h) const { return data + b * batch + h * head; }
};

template <class T>
struct Problem {
  u64 b, heads, kvHeads;
  u32 seq, kv;
  Heads<T> q, k, v;
  T* out;  // [b, heads, seq, d]
  float scale;
  bool causal;

  /** Keys that query `row` may look at: the last query sees all, the one before it one fewer, and so on. */
  X_DEVICE u32 visible(u32 row) const {
    if (!causal) return kv;
    const u32 after = seq - 1 - row;
    return row >= seq || after == 0 ? kv : after < kv ? kv - after : 0;
  }
};

// A score of minus infinity leaves no weight, and no NaN where nothing is seen yet.
X_DEVICE float finite(float top) { return top == lanes::lowest<float>() ? 0.0f : top; }

/** Blocks are whole warps. */
template <u32 D, class T>
X_DEVICE void attendPlain(const Problem<T>& p) {
  constexpr u32 EACH = (D + WARP - 1) / WARP;
  const u64 warps = split::blocks() * warpsInBlock();
  for (u64 i = split::block() * warpsInBlock() + warpId(); i < p.b * p.heads * p.seq; i += warps) {
    const u32 row = (u32)(i % p.seq);
    const u64 head = i / p.seq % p.heads, b = i / p.seq / p.heads, kvHead = head / (p.heads / p.kvHeads);
    const T *q = p.q.at(b, head) + row * p.q.row, *k = p.k.at(b, kvHead), *v = p.v.at(b, kvHead);
    float values[EACH] = {};
    float top = lanes::lowest<float>(), sum = 0.0f;
    for (u32 j = 0, end = p.visible(row); j < end; ++j, k += p.k.row, v += p.v.row) {
      float dot = 0.0f;
      for (u32 d = laneId(); d < D; d += WARP) dot += to_acc(q[d]) * to_acc(k[d]);
      const float score = warpReduce<Sum>(dot) * p.scale, before = top;
      top = score > top ? score : top;
      const float kept = m::exp(before - finite(top)), weight = m::exp(score - finite(top));
      sum = sum * kept + weight;
      for (u32 d = laneId(), e = 0; d < D; d += WARP, ++e) values[e] = values[e] * kept + weight * to_acc(v[d]);
    }
    T* out = p.out + i * D;
    for (u32 d = laneId(), e = 0; d < D; d += WARP, ++e) out[d] = from_acc<T>(values[e] / sum);
  }
}

}  // namespace attention
