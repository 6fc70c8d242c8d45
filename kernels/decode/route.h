// Mixtures of experts: which experts a token takes (route), and the pairs of token and expert by expert (group), in tiles
// that products with experts take. Neither reads nor writes what a launch depends on.
#pragma once

namespace decode {

constexpr u32 MAX_EXPERTS = 1024;  // launchers: ROUTE_MAX_EXPERTS
constexpr u32 MAX_CHOSEN = 64;  // launchers: ROUTE_MAX_CHOSEN

struct Route {
  u32 tokens, experts, chosen;
  u32 groups, openGroups;  // experts lie in so many groups of equal size, of which a token may take so many
  u32 best;                // a group is as good as one or two of its experts together
  bool sigmoid;            // else the scores are a softmax
  bool renormalise;        // weights are divided by their sum
  float scale;
  const float* logits;               // [tokens, experts], rows begin every logitsRow values
  u64 logitsRow;
  const float *bias, *correction;    // [experts] or null: added to logits; added to scores for the choice only
  float* weights;                    // [tokens, chosen]
  u32* ids;
};

/** Larger where `key` is, and of equal ones where the index is smaller; NaN is below all numbers, and above 0. */
X_DEVICE u64 ranked(float key, u32 index) {
  const u32 bits = bitCast<u32>(key + 0.0f);
  const u32 ordered = key != key ? 1 : (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
  return (u64)ordered << 32 | (u64)(0xffffffffu - index);
}

/**
 * Gives put(i, place) the places of the `chosen` best of `count` keys, the best first; no two keys are equal. All threads of the
 * block. GPUs count for each key how many are better: no choice waits for the one before it.
 */
template <class Put>
X_DEVICE void takeBest(const u64* keys, u32 count, u32 chosen, Put put) {
#if X_HOST
  u64 before = ~(u64)0;
  for (u32 c = 0; c < chosen; ++c) {
    u64 best = 0;
    for (u32 i = 0; i < count; ++i) best = keys[i] < before && keys[i] > best ? keys[i] : best;
    put(c, 0xffffffffu - (u32)best);
    before = best;
  }
#else
  X_FOR_BLOCK(i, count) {
    const u64 own = keys[i];
    u32 better = 0;
    for (u32 j = 0; j < count; ++j) better += keys[j] > own;
    if (better < chosen) put(better, (u32)i);
  }
#endif
  barrier();
}

/** All threads of a block. */
X_DEVICE void routeToken(const Route& p, u32 token, float* scores, u64* keys, u64* groupKeys, u32* picks) {
  const float* row = p.logits + token * p.logitsRow;
  const auto logit = [=](u64 e) { return p.bias ? row[e] + p.bias[e] : row[e]; };
  float top = lanes::lowest<float>(), sum = 0.0f;
  if (!p.sigmoid) {
    X_FOR_BLOCK(e, p.experts) top = Max::apply(top, logit(e));
    top = blockReduce<Max>(top);
    X_FOR_BLOCK(e, p.experts) sum += m::exp(logit(e) - top);
    sum = blockReduce<Sum>(sum);
  }
  X_FOR_BLOCK(e, p.experts) {
    const float score = p.sigmoid ? 1.0f / (1.0f + m::exp(-logit(e))) : m::exp(logit(e) - top) / sum;
    scores[e] = score;
    keys[e] = ranked(p.correction ? score + p.correction[e] : score, (u32)e);
  }
  barrier();
  if (p.openGroups < p.groups) {
    const u32 size = p.experts / p.groups;
    X_FOR_BLOCK(g, p.groups) {
      float first = lanes::lowest<float>(), second = first;
      for (u32 e = (u32)g * size; e < ((u32)g + 1) * size; ++e) {
        const float key = p.correction ? scores[e] + p.correction[e] : scores[e];
        if (key > first) second = first, first = key;
        else if (key > second) second = key;
      }
      groupKeys[g] = ranked(p.best == 2 ? first + second : first, (u32)g);
    }
    barrier();
    takeBest(groupKeys, p.groups, p.openGroups, [=](u32 i, u32 group) {
      if (i + 1 == p.openGroups) picks[0] = group;
    });
    const u64 last = p.openGroups > 0 ? groupKeys[picks[0]] : ~(u64)0;
    X_FOR_BLOCK(e, p.experts) if (groupKeys[(u32)e / size] < last) keys[e] = ranked(lanes::lowest<float>(), (u32)e);
    barrier();
  }
  takeBest(keys, p.experts, p.chosen, [=](u32 c, u32 expert) { picks[c] = expert; });
  float total = 0.0f;
  if (p.renormalise)
    for (u32 c = 0; c < p.chosen; ++c) total += scores[picks[c]];
  X_FOR_BLOCK(c, p.chosen) {
    const u32 expert = picks[c];
    const u64 at = (u64)token * p.chosen + c;
    p.weights[at] = (p.renormalise ? scores[expert] / total : scores[expert]) * p.scale;
    p.ids[at] = expert;
  }
  barrier();
}

/** On GPUs a block a token: what a loop keeps would take more scalar registers than there are. */
X_DEVICE void routeAll(const Route& p) {
  early::await();
  early::letNextBegin();
  X_SHARED(float, scores, MAX_EXPERTS);
  X_SHARED(u64, keys, MAX_EXPERTS);
  X_SHARED(u64, groupKeys, MAX_EXPERTS);
  X_SHARED(u32, picks, MAX_CHOSEN);
#if X_HOST
  X_FOR_SPLIT(token, p.tokens) routeToken(p, (u32)token, scores, keys, groupKeys, picks);
#else
  if (split::block() < p.tokens) routeToken(p, (u32)split::block(), scores, keys, groupKeys, picks);
#endif
}

struct Group {
  u32 pairs, experts, chosen;  // `chosen` pairs of a token follow one another
  u32 tile, tiles;             // pairs of a tile at most; tiles that there is room for
  const u32* ids;              // [pairs]
  u32* places;                 // [pairs]: where a pair goes
  u32 *sources, *owners;       // [pairs]: the token and the expert of what lies in a place
  u32* out;                    // [tiles, 3]: expert, first place, the place behind the last; empty ones at the end
};

/** One block, of any size. */
X_DEVICE void group(const Group& p) {
  early::await();
  early::letNextBegin();
  X_SHARED(u32, counts, MAX_EXPERTS);
  X_SHARED(u32, next, MAX_EXPERTS);
  if (split::block() != 0) return;
  X_FOR_BLOCK(e, p.experts) counts[e] = 0;
  barrier();
  X_FOR_BLOCK(i, p.pairs) atomicAdd(counts + (p.ids[i] < p.experts ? p.ids[i] : p.experts - 1), 1u);
  barrier();
  X_FOR_BLOCK(e, p.experts) {
    u32 start = 0, tile = 0;
    for (u32 j = 0; j < (u32)e; ++j) start += counts[j], tile += (counts[j] + p.tile - 1) / p.tile;
    next[e] = start;
    const u32 end = start + counts[e];
    for (u32 at = start; at < end; at += p.tile, ++tile) {
      p.out[tile * 3] = (u32)e;
      p.out[tile * 3 + 1] = at;
      p.out[tile * 3 + 2] = end - at < p.tile ? end : at + p.tile;
    }
    if (e == p.experts - 1)
      for (; tile < p.tiles; ++tile) p.out[tile * 3] = 0, p.out[tile * 3 + 1] = p.pairs, p.out[tile * 3 + 2] = p.pairs;
  }
  barrier();
  // Places within an expert are in no order: products of a place do not depend on others.
  X_FOR_BLOCK(i, p.pairs) {
    const u32 expert = p.ids[i] < p.experts ? p.ids[i] : p.experts - 1;
    const u32 place = atomicAdd(next + expert, 1u);
    p.places[i] = place;
    p.sources[place] = (u32)i / p.chosen;
    p.owners[place] = expert;
  }
}

}  // namespace decode
