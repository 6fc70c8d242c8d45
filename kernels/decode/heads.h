// What lies between the product for queries, keys and values and the attention: norms of heads, rotation, and keys and
// values into the cache's slots, in one launch. A warp takes a head, whose elements it has in registers in pairs: those
// that are rotated together, and behind them neighbours.
#pragma once

namespace decode {

/** Elements of a head at most. */
constexpr u32 MAX_HEAD = 512;  // launchers: DECODE_MAX_HEAD
/** Threads of a block at most. */
[[maybe_unused]] constexpr u32 HEAD_THREADS = 256;

/** Blocks of prompts' heads that an NVIDIA multiprocessor has room for: waits for memory are hidden by other warps. */
[[maybe_unused]] constexpr u32 PROMPT_BLOCKS = 6;

#if X_HOST
#define X_FOR_PAIRS(i, pairs) for (u32 i = 0; i < (pairs); ++i)
#else
#define X_FOR_PAIRS(i, pairs) _Pragma("unroll") for (u32 i = 0; i < PAIRS; ++i)
#endif

/** Of a cache of K. */
template <class K>
struct Heads {
  u64 tokens;
  u32 heads, kvHeads, d, dv;  // of even sizes up to MAX_HEAD
  u32 rotated;                // elements of a head that are rotated, the first ones; even
  bool interleaved;           // pairs are neighbours; else half of `rotated` lies between them
  float scale, eps;           // queries are multiplied by scale
  const float* q;  // a row a token, heads one after the other; rows begin every qRow values
  u64 qRow;
  const float* k;
  u64 kRow;
  const float* v;
  u64 vRow;
  const float *qNorm, *kNorm;  // [d] each, or null
  const float *cos, *sin;      // a row a position, of rotated / 2 values; rows begin every tableRow values
  u64 tableRow, tableLength;   // a position beyond the table is its last one
  const u32 *positions, *slots;
  u64 poolSlots;  // a slot beyond these is left out
  float* out;     // queries [tokens, heads, d]
  kv::Target<K> kPool, vPool;  // [poolSlots, kvHeads, d or dv]
  u64 wide = ~0ull;      // tokens that `out` is of; queries of later ones are in qNarrow
  K* qNarrow = nullptr;  // [tokens - wide, heads, d]

  /** Where a position's row of the tables begins. */
  X_DEVICE u64 row(u32 position) const { return (position < tableLength ? position : tableLength - 1) * tableRow; }
};

/** Normalises and rotates a head of up to MOST keys or queries, and gives it to put(e, value). All lanes of a warp. */
template <u32 MOST, class K, class Put>
X_DEVICE void rotateHead(const Heads<K>& p, u32 position, const float* from, const float* norm, float factor, Put put) {
  constexpr u32 PAIRS = MOST / 2 / WARP;
  const u32 pairs = p.d / 2, half = p.rotated / 2;
  const u64 row = p.row(position);
  float x[PAIRS], y[PAIRS], c[PAIRS], s[PAIRS];
  float squares = 0.0f;
  const auto first = [&](u32 pair) { return pair < half && !p.interleaved ? pair : 2 * pair; };
  const auto second = [&](u32 pair) { return pair < half && !p.interleaved ? pair + half : 2 * pair + 1; };
  // On their way before the first address that a position gives.
  X_FOR_PAIRS(i, pairs) {
    const u32 pair = i * WARP + laneId();
    const bool inside = pair < pairs;
    x[i] = inside ? from[first(pair)] : 0.0f;
    y[i] = inside ? from[second(pair)] : 0.0f;
  }
  X_FOR_PAIRS(i, pairs) {
    const u32 pair = i * WARP + laneId();
    const bool turns = pair < half;
    c[i] = turns ? p.cos[row + pair] : 1.0f;
    s[i] = turns ? p.sin[row + pair] : 0.0f;
  }
  if (norm) {
    X_FOR_PAIRS(i, pairs) squares += x[i] * x[i] + y[i] * y[i];
    const float scale = 1.0f / m::sqrt(warpReduce<Sum>(squares) / (float)p.d + p.eps);
    X_FOR_PAIRS(i, pairs) {
      const u32 pair = i * WARP + laneId();
      if (pair >= pairs) continue;
      x[i] = x[i] * scale * norm[first(pair)];
      y[i] = y[i] * scale * norm[second(pair)];
    }
  }
  X_FOR_PAIRS(i, pairs) {
    const u32 pair = i * WARP + laneId();
    if (pair >= pairs) continue;
    put(first(pair), (x[i] * c[i] - y[i] * s[i]) * factor);
    put(second(pair), (x[i] * s[i] + y[i] * c[i]) * factor);
  }
}

/**
 * Head `head` of a token, of up to MOST elements: its queries, then its keys, then its values. What names places is loaded before
 * any is looked at.
 */
template <u32 MOST, class K>
X_DEVICE void oneHead(const Heads<K>& p, u64 token, u32 head) {
  const u32 position = p.positions[token], slot = p.slots[token];
  const bool writes = slot < p.poolSlots;
  if (head < p.heads) {
    const float* from = p.q + token * p.qRow + (u64)head * p.d;
    const bool isNarrow = token >= p.wide;
    const u64 at = ((isNarrow ? token - p.wide : token) * p.heads + head) * p.d;
    rotateHead<MOST>(p, position, from, p.qNorm, p.scale, [=, &p](u32 e, float value) {
      if constexpr (sameType<K, kv::Q8>) p.out[at + e] = value;
      else if (isNarrow) p.qNarrow[at + e] = cast<K>(value);
      else p.out[at + e] = value;
    });
    return;
  }
  head -= p.heads;
  if (head < p.kvHeads) {
    const float* from = p.k + token * p.kRow + (u64)head * p.d;
    const kv::Target<K> to = p.kPool + ((u64)slot * p.kvHeads + head) * p.d;
    if constexpr (sameType<K, kv::Q8>) {
      // Values of a group are pairs of several lanes. Launches give each warp so much.
      float* turned = dynamicShared<float>() + warpId() * MAX_HEAD;
      rotateHead<MOST>(p, position, from, p.kNorm, 1.0f, [=](u32 e, float value) { turned[e] = value; });
      warpBarrier();
      if (writes) kv::putGroups(p.d, to, [=](u32 e) { return turned[e]; });
      warpBarrier();
    } else {
      rotateHead<MOST>(p, position, from, p.kNorm, 1.0f, [=](u32 e, float value) {
        if (writes) to[e] = cast<K>(value);
      });
    }
    return;
  }
  head -= p.kvHeads;
  const float* from = p.v + token * p.vRow + (u64)head * p.dv;
  const kv::Target<K> to = p.vPool + ((u64)slot * p.kvHeads + head) * p.dv;
  if (!writes) return;
  if constexpr (sameType<K, kv::Q8>) kv::putGroups(p.dv, to, [=](u32 e) { return from[e]; });
  else
    for (u32 e = laneId(); e < p.dv; e += WARP) to[e] = cast<K>(from[e]);
}

/** Sends for what a token's heads are turned and normalised with, while the kernel before this one still runs; by a warp. */
template <class K>
X_DEVICE void sendForTables([[maybe_unused]] const Heads<K>& p, [[maybe_unused]] u64 token) {
#if X_EARLY
  const u64 row = p.row(early::peek(p.positions + token));
  const u32 lane = laneId();
  if (lane < 2) early::prefetchLines((lane == 0 ? p.cos : p.sin) + row, p.rotated / 2 * sizeof(float));
  const float* norm = lane == 2 ? p.qNorm : lane == 3 ? p.kNorm : nullptr;
  if (norm) early::prefetchLines(norm, p.d * sizeof(float));
#endif
}

/** A warp a head, of all heads of all tokens. */
template <class K>
X_DEVICE void eachHead(const Heads<K>& p) {
  const u32 each = p.heads + 2 * p.kvHeads;
#if X_HOST
  X_FOR_SPLIT(item, p.tokens * each) oneHead<MAX_HEAD>(p, item / each, (u32)(item % each));
#else
  const u64 step = split::blocks() * warpsInBlock(), begin = split::block() * warpsInBlock() + warpId();
  // Heads that have room in fewer registers are done sooner; AMD's scalar registers do not hold several loops.
  if (X_NVPTX && p.d <= 128)
    for (u64 item = begin; item < p.tokens * each; item += step) oneHead<128>(p, item / each, (u32)(item % each));
  else if (X_NVPTX && p.d <= 256)
    for (u64 item = begin; item < p.tokens * each; item += step) oneHead<256>(p, item / each, (u32)(item % each));
  else
    for (u64 item = begin; item < p.tokens * each; item += step) oneHead<MAX_HEAD>(p, item / each, (u32)(item % each));
#endif
}

/** Of a decode step, where every wait shows. */
template <class K>
X_DEVICE void headsAll(const Heads<K>& p) {
#if !X_HOST
  const u32 each = p.heads + 2 * p.kvHeads;
  const u64 begin = split::block() * warpsInBlock() + warpId();
  if (begin < p.tokens * each) sendForTables(p, begin / each);
#endif
  early::await();
  early::letNextBegin();
  eachHead(p);
}

/** Of prompts, which fill the device. */
template <class K>
X_DEVICE void promptHeadsAll(const Heads<K>& p) {
  early::await();
  early::letNextBegin();
  eachHead(p);
}

}  // namespace decode
