// What stands beside attention over a cache in blocks (paged.h): the parts of a token's keys made one row, and keys and values
// written into the pool.
#pragma once

namespace paged {

/** How a row of the result is made of its parts. All threads of a block. */
struct Weights {
  float* of;    // [MAX_PARTS], in shared memory; zeros behind the parts
  float whole;  // their sum, with those of the parts

  /** @param sink the score that takes part without a value; null: none */
  X_DEVICE static Weights make(const float* at, u32 dv, u32 parts, const float* sink, float* shared) {
    const float* scores = at + dv;
    const u32 step = dv + 2;
    float top = lanes::lowest<float>(), whole = 0.0f;
    // What a part without keys left in memory may be NaN; the sum of one with keys may be too, and is then seen.
    X_FOR_BLOCK(i, parts) {
      const float score = scores[i * step];
      if (scores[i * step + 1] > 0.0f && score > top) top = score;
    }
    top = blockReduce<Max>(top);
    // A token that sees nothing gives 0 with a sink too.
    const bool beside = sink && top != lanes::lowest<float>();
    if (beside && *sink > top) top = *sink;
    top = attention::finite(top);
    X_FOR_BLOCK(i, MAX_PARTS) {
      const float own = i < parts ? scores[i * step + 1] : 0.0f, weight = own == 0.0f ? 0.0f : m::exp(scores[i * step] - top);
      shared[i] = weight;
      if (weight != 0.0f) whole += weight * own;
    }
    whole = blockReduce<Sum>(whole);
    if (beside) whole += m::exp(*sink - top);
    barrier();
    return {shared, whole};
  }
};

/** Elements of parts that a thread has on their way at once. */
constexpr u32 BATCH = X_HOST ? 1 : X_NVPTX ? 16 : 4;

/** What parts from `first` on have for an element, which is `at` in the first part of all; behind the last part that again. */
X_DEVICE void loadParts(const float* at, u32 step, u32 parts, u32 first, float (&values)[BATCH]) {
  const float *from = at + first * step, *last = at + (parts - 1) * step;
#pragma unroll
  for (u32 i = 0; i < BATCH; ++i) {
    values[i] = *from;
    from = from < last ? from + step : last;
  }
}

/** Gives every element of a row, whose parts begin at `at`, to put(e, value). All threads of a block. */
template <class Put>
X_DEVICE void mergeRow(const float* at, u32 dv, u32 parts, const float* sink, float* shared, Put put) {
  float values[BATCH];
  const u32 own = threadIndex();
  // On their way while weights are made.
  if (own < dv) loadParts(at + own, dv + 2, parts, 0, values);
  const Weights weights = Weights::make(at, dv, parts, sink, shared);
  for (u32 e = own; e < dv; e += blockThreads()) {
    float total = 0.0f;
    for (u32 first = 0; first < parts; first += BATCH) {
      if (first > 0 || e != own) loadParts(at + e, dv + 2, parts, first, values);
#pragma unroll
      for (u32 i = 0; i < BATCH; ++i) {
        const float weight = weights.of[first + i];
        total += weight != 0.0f ? weight * values[i] : 0.0f;
      }
    }
    put(e, weights.whole == 0.0f ? 0.0f : total / weights.whole);
  }
}

template <class T>
X_DEVICE void mergeOf(u64 row, u32 heads, u32 dv, u32 parts, const float* partial, const float* sinks, T* out, float* shared) {
  const float* sink = sinks ? sinks + (u32)row % heads : nullptr;
  const auto put = [=](u32 e, float value) { out[row * dv + e] = from_acc<T>(value); };
  mergeRow(partial + row * parts * (dv + 2), dv, parts, sink, shared, put);
}

/** On GPUs a block a row: a loop's constants would take more scalar registers than there are. */
template <class T>
X_DEVICE void merge(u64 rows, u32 heads, u32 dv, u32 parts, const float* partial, const float* sinks, T* out) {
  early::await();
  early::letNextBegin();
  X_SHARED(float, shared, MAX_PARTS);
#if X_HOST
  X_FOR_SPLIT(row, rows) mergeOf(row, heads, dv, parts, partial, sinks, out, shared);
#else
  if (split::block() < rows) mergeOf(split::block(), heads, dv, parts, partial, sinks, out, shared);
#endif
}

/** Row `row` as q8_1 blocks of a token's heads one after the other, padded with zeros; dv is a multiple of 32. */
X_DEVICE void mergeBlocksOf(u32 row, u32 heads, u32 dv, u32 parts, u32 padded, const float* partial,
                            const float* sinks, u8* blocks, float* shared, float* values) {
  const float* at = partial + (u64)row * parts * (dv + 2);
  const u32 token = row / heads, head = row - token * heads;
  mergeRow(at, dv, parts, sinks ? sinks + head : nullptr, shared, [=](u32 e, float value) { values[e] = value; });
  barrier();
  u8* out = blocks + (u64)token * (padded / 32) * quant::Q8_1::BYTES;
  quant::quantizeEach(dv, out + head * (dv / 32) * quant::Q8_1::BYTES, [=](u64 e) { return values[e]; });
  if (head == heads - 1) quant::padRow(out, heads * dv, padded);
}

/** As {@link merge}; blocks are of whole warps. */
X_DEVICE void mergeBlocks(u32 rows, u32 heads, u32 dv, u32 parts, u32 padded, const float* partial, const float* sinks,
                          u8* blocks) {
  early::await();
  early::letNextBegin();
  X_SHARED(float, shared, MAX_PARTS);
  X_SHARED(float, values, MAX_HEAD);
#if X_HOST
  X_FOR_SPLIT(row, rows) mergeBlocksOf((u32)row, heads, dv, parts, padded, partial, sinks, blocks, shared, values);
#else
  if (split::block() < rows) mergeBlocksOf((u32)split::block(), heads, dv, parts, padded, partial, sinks, blocks, shared, values);
#endif
}

/**
 * Keys [kvHeads, tokens, d] and values [kvHeads, tokens, dv] into the pool's slots; a slot beyond the pool is left out. With
 * dv = 0 there are no values.
 */
template <class T, class K>
X_DEVICE void append(u64 tokens, u64 kvHeads, u64 d, u64 dv, u64 poolSlots, const u32* slots, const T* k, u64 kHead,
                     u64 kRow, const T* v, u64 vHead, u64 vRow, K* kPool, K* vPool) {
  const u64 width = d + dv;
  X_FOR_EACH(i, tokens * kvHeads * width) {
    const u64 e = i % width, head = i / width % kvHeads, token = i / width / kvHeads, slot = slots[token];
    if (slot >= poolSlots) continue;
    if (e < d) kPool[(slot * kvHeads + head) * d + e] = cast<K>(k[head * kHead + token * kRow + e]);
    else vPool[(slot * kvHeads + head) * dv + e - d] = cast<K>(v[head * vHead + token * vRow + e - d]);
  }
}

}  // namespace paged
