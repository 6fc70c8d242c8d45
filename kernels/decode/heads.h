// What lies between the product for queries, keys and values and the attention: norms of heads, rotation, and keys and
// values into the cache's slots, in one launch. A warp takes a head, whose elements it has in registers in pairs: those
// that are rotated together, and behind them neighbours.
#pragma once

namespace decode {

/** Elements of a head at most. */
constexpr u32 MAX_HEAD = 512;
constexpr u32 PAIRS = MAX_HEAD / 2 / WARP;

#if X_HOST
#define X_FOR_PAIRS(i, pairs) for (u32 i = 0; i < (pairs); ++i)
#else
#define X_FOR_PAIRS(i, pairs) _Pragma("unroll") for (u32 i = 0; i < PAIRS; ++i)
#endif

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
  K *kPool, *vPool;  // [poolSlots, kvHeads, d or dv]
};

/** Normalises and rotates a head of keys or queries. All lanes of a warp. */
template <class K, class O>
X_DEVICE void rotateHead(const Heads<K>& p, u64 token, const float* from, const float* norm, float factor, O* to) {
  const u32 pairs = p.d / 2, half = p.rotated / 2;
  const u64 wanted = p.positions[token], last = p.tableLength - 1;
  const u64 row = (wanted < last ? wanted : last) * p.tableRow;
  float x[PAIRS], y[PAIRS], c[PAIRS], s[PAIRS];
  float squares = 0.0f;
  const auto first = [&](u32 pair) { return pair < half && !p.interleaved ? pair : 2 * pair; };
  const auto second = [&](u32 pair) { return pair < half && !p.interleaved ? pair + half : 2 * pair + 1; };
  X_FOR_PAIRS(i, pairs) {
    const u32 pair = i * WARP + laneId();
    const bool inside = pair < pairs, turns = pair < half;
    x[i] = inside ? from[first(pair)] : 0.0f;
    y[i] = inside ? from[second(pair)] : 0.0f;
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
    to[first(pair)] = cast<O>((x[i] * c[i] - y[i] * s[i]) * factor);
    to[second(pair)] = cast<O>((x[i] * s[i] + y[i] * c[i]) * factor);
  }
}

/** Head `head` of a token: its queries, then its keys, then its values. */
template <class K>
X_DEVICE void oneHead(const Heads<K>& p, u64 token, u32 head) {
  if (head < p.heads) {
    const float* from = p.q + token * p.qRow + (u64)head * p.d;
    rotateHead(p, token, from, p.qNorm, p.scale, p.out + (token * p.heads + head) * p.d);
    return;
  }
  const u64 slot = p.slots[token];
  if (slot >= p.poolSlots) return;
  head -= p.heads;
  if (head < p.kvHeads) {
    const float* from = p.k + token * p.kRow + (u64)head * p.d;
    rotateHead(p, token, from, p.kNorm, 1.0f, p.kPool + (slot * p.kvHeads + head) * p.d);
    return;
  }
  head -= p.kvHeads;
  const float* from = p.v + token * p.vRow + (u64)head * p.dv;
  K* to = p.vPool + (slot * p.kvHeads + head) * p.dv;
  for (u32 e = laneId(); e < p.dv; e += WARP) to[e] = cast<K>(from[e]);
}

template <class K>
X_DEVICE void headsAll(const Heads<K>& p) {
  early::await();
  early::letNextBegin();
  const u32 each = p.heads + 2 * p.kvHeads;
#if X_HOST
  X_FOR_SPLIT(item, p.tokens * each) oneHead(p, item / each, (u32)(item % each));
#else
  const u64 step = split::blocks() * warpsInBlock();
  for (u64 item = split::block() * warpsInBlock() + warpId(); item < p.tokens * each; item += step)
    oneHead(p, item / each, (u32)(item % each));
#endif
}

}  // namespace decode
