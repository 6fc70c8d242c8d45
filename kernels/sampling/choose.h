// One token from each row of logits, a block a row: what packages/engine/src/sampling/choose.ts does on the host.
#pragma once

namespace sampling {

constexpr u32 NONE = 0xffffffffu;
enum Kind : u32 { LEAVE = 0, GREEDY = 1, DRAW = 2 };
enum Flag : u32 { MASKED = 1, LOG_PROBABILITY = 2 };

/** How the token of a row is chosen: 12 words (core's backend/sampling.ts). */
struct Params {
  u32 kind, flags;
  float inverse;  // 1 / temperature
  u32 topK;       // 0: all
  u32 topP;       // in 2^-32; 0: all
  float least;    // of logits below the largest that are kept
  u32 typicalP;   // in 2^-32; 0: all
  u32 uniform;    // in 2^-32
  u32 firstEdit, edits;
  u32 top, unused;  // likeliest tokens to list
};

struct Problem {
  u64 rows;
  u32 vocab, top;
  float* logits;
  const Params* params;
  u32* edits;        // id, factor of logits from 0 up, factor of others, what is added
  const u32* masks;  // a row of bits each, or null
  u32* out;          // id, log probability, ids of the likeliest, their log probabilities

  X_DEVICE u32* outOf(u64 row) const { return out + row * (2 + 2 * top); }
  X_DEVICE const u32* maskOf(u64 row) const { return masks + row * ((vocab + 31) / 32); }
};

/** A row whose largest logit is `max`, and which tokens of it are kept. */
struct Row {
  const float* x;
  float max, inverse;
  u32 key = NONE, last = NONE;  // up to this key, and of that one up to this id
  float least = -lanes::highest<float>();
  float mean = 0.0f, furthest = lanes::highest<float>();  // of scaled logits, where typicalP

  X_DEVICE float scaled(u32 i) const { return multiplyThenAdd(x[i] - max, inverse, 0.0f); }
  /** Ascending from the likeliest token on. */
  X_DEVICE u32 keyOf(u32 i) const { return sort::keyOf(x[i], ~0u); }
  X_DEVICE float distance(u32 i) const { return m::fabs(scaled(i) - mean); }
  X_DEVICE bool keeps(u32 i) const {
    const u32 k = keyOf(i);
    return (k < key || (k == key && i <= last)) && x[i] - max >= least && distance(i) <= furthest;
  }
  X_DEVICE u64 weight(u32 i) const { return keeps(i) ? weightOf(scaled(i)) : 0; }
};

/** A bin for each 64th of a unit: logits of a model are spread over many. */
X_DEVICE u32 binOf(float distance) { return (u32)m::fmin(distance * 64.0f, (float)(BINS - 1)); }

/** The value of an ascending key of sort/key.h. */
X_DEVICE float valueOf(u32 key) {
  constexpr u32 sign = 0x80000000u;
  return bitCast<float>(key >= sign ? key - sign : sign | (sign - key));
}

struct ByLogit {
  const Row& row;
  X_DEVICE u32 coarse(u32 i) const { return binOf(-row.scaled(i)); }
  X_DEVICE u32 fine(u32 i) const { return row.keyOf(i); }
};

struct ByDistance {
  const Row& row;
  X_DEVICE u32 coarse(u32 i) const { return binOf(row.distance(i)); }
  X_DEVICE u32 fine(u32 i) const { return sort::keyOf(row.distance(i), 0u); }
};

/** Keeps the tokens before a group, and `count` of the group. */
X_DEVICE void keepUpTo(Row& row, u64* bins, u32 n, u32 key, u64 count, u64 all) {
  const Row before = row;
  row.key = key;
  // Of equals that were cut before, those remain.
  row.last = key == before.key ? before.last : NONE;
  if (count >= all) return;
  const auto isOne = [&](u32 i) -> u64 { return before.keyOf(i) == key && before.keeps(i) ? 1 : 0; };
  row.last = byId(bins, n, isOne, [count](u64) { return count - 1; });
}

X_DEVICE u32 draw(const Params& s, u64* bins, const float* x, u32 n, float max) {
  Row row = {x, max, s.inverse};
  const auto weight = [&row](u32 i) { return row.weight(i); };
  if (s.topK > 0 && s.topK < n) {
    const u32 k = s.topK;
    const Group group = inOrder(
        bins, n, ByLogit{row}, [](u32) -> u64 { return 1; }, [k](u64) -> u64 { return k - 1; });
    keepUpTo(row, bins, n, group.key, group.rest + 1, group.size);
  }
  if (s.topP > 0) {
    const u32 p = s.topP;
    const auto target = [p](u64 total) {
      const u64 mass = shareOf(p, total);
      return mass > 0 ? mass - 1 : 0;
    };
    const Group group = inOrder(bins, n, ByLogit{row}, weight, target);
    // Equal logits weigh the same.
    const float value = valueOf(~group.key);
    const u64 each = weightOf(multiplyThenAdd(value - max, s.inverse, 0.0f));
    keepUpTo(row, bins, n, group.key, group.rest / each + 1, group.size / each);
  }
  row.least = s.least;
  if (s.typicalP > 0) {
    u64 sum = 0, moment = 0;
    X_FOR_BLOCK(i, n) {
      if (!row.keeps((u32)i)) continue;
      const float z = row.scaled((u32)i);
      sum += weightOf(z);
      moment += momentOf(z);
    }
    sum = blockReduce<Sum>(sum);
    moment = blockReduce<Sum>(moment);
    row.mean = -(float)((double)moment / (double)sum);
    const u32 p = s.typicalP;
    const auto target = [p](u64 total) {
      const u64 mass = shareOf(p, total);
      return mass > 0 ? mass - 1 : 0;
    };
    const Group group = inOrder(bins, n, ByDistance{row}, weight, target);
    row.furthest = valueOf(group.key);
  }
  const u32 uniform = s.uniform;
  return byId(bins, n, weight, [uniform](u64 total) { return shareOf(uniform, total); });
}

/** The likeliest tokens in order, with log probabilities; NONE behind the last that is possible. */
X_DEVICE void list(const float* x, u32 n, u32 count, float logSum, u32* ids, u32* values) {
  float bound = lanes::highest<float>();
  u32 from = 0;
#pragma unroll 1
  for (u32 j = 0; j < count; ++j) {
    auto best = reduce::Best<float>::none<MaxNan>();
    X_FOR_BLOCK(i, n) {
      const float v = x[i];
      if (v < bound || (v == bound && i >= from)) best.take<MaxNan>(v, (u32)i);
    }
#if X_HOST
    const u32 at = best.index;
#else
    const u32 at = reduce::winnerOf<MaxNan>(best);
#endif
    bound = at == NONE ? lanes::lowest<float>() : x[at];
    from = at + 1;
    const bool isOne = bound > lanes::lowest<float>();
    if (threadIndex() == 0) {
      ids[j] = isOne ? at : NONE;
      values[j] = bitCast<u32>(bound - logSum);
    }
  }
}

/** Writes what was chosen. All threads of a block. */
X_DEVICE void put(const Problem& p, u64 row, u32 id, float logSum) {
  const Params& s = p.params[row];
  const float* x = p.logits + row * p.vocab;
  u32* out = p.outOf(row);
  if (threadIndex() == 0) {
    out[0] = id;
    out[1] = bitCast<u32>(x[id] - logSum);
  }
  if (s.edits == 0) return;
  const u32* edits = p.edits + 4 * (u64)s.firstEdit;
  barrier();
  X_FOR_BLOCK(e, s.edits) if (edits[4 * e] == id) out[1] = bitCast<u32>(bitCast<float>(edits[4 * e + 1]) - logSum);
}

/** Edits of ids in [first, first + count). */
X_DEVICE void edit(const Problem& p, const Params& s, float* x, u32 first, u32 count) {
  u32* edits = p.edits + 4 * (u64)s.firstEdit;
  X_FOR_BLOCK(e, s.edits) {
    u32* own = edits + 4 * e;
    if (own[0] - first >= count) continue;
    const float before = x[own[0]];
    x[own[0]] = multiplyThenAdd(before, bitCast<float>(own[before >= 0.0f ? 1 : 2]), bitCast<float>(own[3]));
    // For the log probability of the token.
    own[1] = bitCast<u32>(before);
  }
}

X_DEVICE bool isPossible(float max) { return max > lanes::lowest<float>() && max < lanes::highest<float>(); }

X_DEVICE void chooseRow(const Problem& p, u64 row, u64* bins) {
  const Params s = p.params[row];
  const u32 n = p.vocab;
  float* x = p.logits + row * n;
  u32* out = p.outOf(row);
  if (s.kind == LEAVE) {
    if (threadIndex() == 0) out[0] = NONE;
    return;
  }
  if (s.flags & MASKED) {
    const u32* mask = p.maskOf(row);
    X_FOR_BLOCK(i, n) if (!(mask[i / 32] >> i % 32 & 1)) x[i] = lanes::lowest<float>();
    barrier();
  }
  float logSum = 0.0f;
  if (s.flags & LOG_PROBABILITY) {
    const float max = x[reduce::indexOverBlockAt<MaxNan>(x, n)];
    logSum = max + m::log(reduce::overBlock<Sum, float>(n, [=](u64 i) { return m::exp(x[i] - max); }).result());
    list(x, n, s.top, logSum, out + 2, out + 2 + p.top);
  }
  if (s.edits > 0) {
    barrier();
    edit(p, s, x, 0, n);
    barrier();
  }
  u32 id = reduce::indexOverBlockAt<MaxNan>(x, n);
  const float max = x[id];
  if (!isPossible(max)) {
    if (threadIndex() == 0) out[0] = NONE;
    return;
  }
  if (s.kind == DRAW) id = draw(s, bins, x, n, max);
  put(p, row, id, logSum);
}

X_DEVICE void chooseAll(const Problem& p) {
  X_SHARED(u64, bins, BINS);
#if X_HOST
  X_FOR_SPLIT(row, p.rows) chooseRow(p, row, bins);
#else
  const u64 row = split::block();
  if (row < p.rows) chooseRow(p, row, bins);
#endif
}

}  // namespace sampling
