// How the rows of attention over a cache in blocks (paged.h) are written: from one part of a token's keys, or merged from
// several by the block that ends last. As numbers, or as the q8_1 blocks that the next product reads.
#pragma once

namespace paged {

/** A score beside those of keys, whose largest is `top`: its weight, and what theirs are multiplied with. */
struct Sink {
  float kept, weight;
  X_DEVICE static Sink beside(float score, float top) {
    const float base = attention::finite(score > top ? score : top);
    return {m::exp(top - base), m::exp(score - base)};
  }
};

/** Quads of elements of parts that a thread has on their way at once. */
constexpr u32 BATCH = X_HOST ? 1 : X_NVPTX ? 8 : 4;

#if X_HOST
/** Row `head` of a token, of dv values. */
template <class T, class K>
X_DEVICE void putRow(const Problem<T, K>& p, u64 token, u64 head, const float* values) {
  if constexpr (sameType<T, float>) {
    if (p.quantized) {
      u8* blocks = p.blocksOf(token) + head * (p.dv / 32) * quant::Q8_1::BYTES;
      quant::quantizeEach(p.dv, blocks, [=](u64 e) { return values[e]; });
      return;
    }
  }
  T* out = p.out + (token * p.heads + head) * p.dv;
  for (u32 e = 0; e < p.dv; ++e) out[e] = from_acc<T>(values[e]);
}
#else
/** Elements c to c + 3 of row `head` of a token, where `inside`. All lanes of a warp, each eight beside each other. */
template <class T, class K>
X_DEVICE void putQuad(const Problem<T, K>& p, u64 token, u64 head, u32 c, const Vec<float, 4>& quad, bool inside) {
  if constexpr (sameType<T, float>) {
    if (p.quantized) {
      quant::quantizeQuad(quad.v, p.blocksOf(token) + (head * p.dv + c) / 32 * quant::Q8_1::BYTES, inside);
      return;
    }
  }
  Vec<T, 4> narrow;
#pragma unroll
  for (u32 e = 0; e < 4; ++e) narrow[e] = from_acc<T>(quad[e]);
  if (inside) storeVec(p.out + (token * p.heads + head) * p.dv + c, narrow);
}
#endif

/** Zeros behind the blocks of a token's last head. All threads of a block. */
template <class T, class K>
X_DEVICE void padBlocks(const Problem<T, K>& p, u64 token, u64 head, u32 count) {
  if (p.quantized && head + count == p.heads) quant::padRow(p.blocksOf(token), p.heads * p.dv, p.padded);
}

/** Rows of `count` heads from `head` on, of which get(h, c) gives four elements. All threads of a block. */
template <class T, class K, class Get>
X_DEVICE void putAll(const Problem<T, K>& p, u64 token, u64 head, u32 count, [[maybe_unused]] float* scratch, Get get) {
#if X_HOST
  for (u32 h = 0; h < count; ++h) {
    for (u32 c = 0; c < p.dv; c += 4) storeVec(scratch + h * p.dv + c, get(h, c));
    putRow(p, token, head + h, scratch + h * p.dv);
  }
#else
  const u32 quads = p.dv / 4, total = count * quads;
  // All threads go through every step, since lanes share blocks.
#pragma unroll 1
  for (u32 base = 0; base < total; base += blockThreads()) {
    const u32 i = base + threadIndex(), h = i < total ? i / quads : 0, c = i < total ? (i - h * quads) * 4 : 0;
    putQuad(p, token, head + h, c, get(h, c), i < total);
  }
#endif
  padBlocks(p, token, head, count);
}

/** Elements `at` to `at + 3` of parts from `first` on; behind the last part those of the last. */
X_DEVICE void loadParts(const float* at, u32 step, u32 parts, u32 first, Vec<float, 4> (&quads)[BATCH]) {
  const u32 from = opaque(first);
#pragma unroll
  for (u32 i = 0; i < BATCH; ++i) quads[i] = loadVec<4>(at + (from + i < parts ? from + i : parts - 1) * step);
}

/**
 * What parts are multiplied with, in weights[0] to weights[parts - 1], and zeros behind them up to a multiple of BATCH; gives
 * their sum with those of the parts. All lanes of a warp.
 * @param sink the score that takes part without a value; null: none
 */
X_DEVICE float weighParts(const float* at, u32 dv, u32 parts, const float* sink, float* weights) {
  const float* tails = at + dv;
  const u32 step = dv + TAIL;
  float top = lanes::lowest<float>(), whole = 0.0f;
  for (u32 i = laneId(); i < parts; i += WARP) top = Max::apply(top, tails[i * step]);
  top = warpReduce<Max>(top);
  if (sink && *sink > top) top = *sink;
  top = attention::finite(top);
  for (u32 first = 0; first < parts; first += WARP) {
    const u32 i = first + laneId();
    const float weight = i < parts ? m::exp(tails[i * step] - top) : 0.0f;
    if (i < MAX_PARTS) weights[i] = weight;
    whole += warpReduce<Sum>(i < parts ? weight * tails[i * step + 1] : 0.0f);
  }
  if (sink) whole += m::exp(*sink - top);
  warpBarrier();
  return whole;
}

/** A warp a head. `shared`: KEYS for each head, `scratch` on the host: dv for each. All threads of a block. */
template <class T, class K>
X_DEVICE void mergeParts(const Problem<T, K>& p, u64 token, u64 head, u32 count, u32 parts, float* shared,
                         [[maybe_unused]] float* scratch) {
  const u32 step = p.dv + TAIL;
#pragma unroll 1
  for (u32 h = warpId(); h < count; h += warpsInBlock()) {
    const float* at = p.partialOf(token, head + h);
    float* weights = shared + h * KEYS;
    const u32 own = laneId() * 4;
    Vec<float, 4> quads[BATCH];
    // On their way while weights are made.
    if (own < p.dv) loadParts(at + own, step, parts, 0, quads);
    const float whole = weighParts(at, p.dv, parts, p.sinks ? p.sinks + head + h : nullptr, weights);
#pragma unroll 1
    for (u32 base = 0; base < p.dv; base += WARP * 4) {
      const u32 c = base + own;
      const bool inside = c < p.dv;
      Vec<float, 4> total = {};
      for (u32 first = 0; first < parts; first += BATCH) {
        if (inside && (first > 0 || base > 0)) loadParts(at + c, step, parts, first, quads);
#pragma unroll
        for (u32 i = 0; i < BATCH; ++i) {
          const float weight = weights[first + i];
#pragma unroll
          for (u32 e = 0; e < 4; ++e) total[e] += weight != 0.0f ? weight * quads[i][e] : 0.0f;
        }
      }
#pragma unroll
      for (u32 e = 0; e < 4; ++e) total[e] = whole == 0.0f ? 0.0f : total[e] / whole;
#if X_HOST
      storeVec(scratch + h * p.dv + c, total);
#else
      putQuad(p, token, head + h, c, total, inside);
#endif
    }
#if X_HOST
    putRow(p, token, head + h, scratch + h * p.dv);
#endif
  }
  padBlocks(p, token, head, count);
}

}  // namespace paged
