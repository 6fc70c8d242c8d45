// The choice of choose.h where several blocks share a row, in four launches: its largest logit, which ends greedy choices; bins of all
// tokens; a list of those that may be the last to be kept; and the draw among all that are kept. Each time the block that comes
// last goes on with what all have found. The same numbers are added, so the same token is chosen.
#pragma once

namespace sampling {

/** Tokens that a list has room for; where more are wanted one block looks at the whole row. */
constexpr u32 LISTED = 2048;
/** Of so many each is compared with each. */
constexpr u32 FEW = 256;
/** Logits that a thread loads before it goes on with the first one. */
constexpr u32 AT_ONCE = X_HOST ? 1 : 8;

/** What the blocks of a row tell each other, from one launch to the next. */
struct Found {
  u32 kind;  // LEAVE once it is chosen
  float max;
  u32 listed;     // tokens that wanted to be in the list
  u32 key, last;  // of those kept: Row's
  u32 bin;
  u64 rest;  // what the target is beyond the bins before it
};

/** Of a row; see {@link bytesOfRow}. */
struct Work {
  Found* found;
  u64 *bins, *sums;          // [BINS] and [parts]
  u32 *best, *spans;         // [parts, 2]: largest logits and their ids; where a part's tokens are in the list, and how many
  u32* ids;                  // [LISTED]
  float* values;

  /** As packages/rocm-backend/src/ops/sampling.ts has it. */
  X_DEVICE static u64 bytesOfRow(u32 parts) { return sizeof(Found) + 8 * (u64)BINS + 24 * (u64)parts + 8 * (u64)LISTED; }
  X_DEVICE static Work of(u8* all, u64 row, u32 parts) {
    u8* at = all + row * bytesOfRow(parts);
    u64* bins = (u64*)(at + sizeof(Found));
    u64* sums = bins + BINS;
    u32* best = (u32*)(sums + parts);
    u32* spans = best + 2 * parts;
    u32* ids = spans + 2 * parts;
    return {(Found*)at, bins, sums, best, spans, ids, (float*)(ids + LISTED)};
  }
};

struct Shares {
  const Problem& p;
  u32 parts;
  u8* work;
  u32* counters;  // zeros, one a row
};

/** A block's part of a row. */
struct Part {
  const Shares& all;
  u64 row;
  u32 index, first, count;
  Params s;
  float* x;
  Work work;

  X_DEVICE static Part of(const Shares& all, u64 item) {
    const u64 row = item / all.parts;
    const u32 index = (u32)(item - row * all.parts), n = all.p.vocab;
    const u32 each = ((n + all.parts - 1) / all.parts + 31) / 32 * 32, first = index * each < n ? index * each : n;
    const u32 count = n - first < each ? n - first : each;
    return {all, row, index, first, count, all.p.params[row], all.p.logits + row * n, Work::of(all.work, row, all.parts)};
  }
  /** Rows of log probabilities are one block's from first to last. */
  X_DEVICE bool isShared() const { return s.kind != LEAVE && !(s.flags & LOG_PROBABILITY); }
  X_DEVICE bool draws() const { return isShared() && s.kind == DRAW && work.found->kind == DRAW; }
  X_DEVICE bool countsTokens() const { return s.topK > 0 && s.topK < all.p.vocab; }
  X_DEVICE bool hasBins() const { return countsTokens() || s.topP > 0; }
  X_DEVICE bool isLast() const { return lastToArrive(all.counters + row, all.parts); }
  X_DEVICE Row rowOf() const { return {x, work.found->max, s.inverse}; }
};

X_DEVICE void scanPart(const Part& part) {
  const auto& [all, row, index, first, count, s, x, work] = part;
  if (!part.isShared()) return;
  for (u32 j = threadIndex() * all.parts + index; j < BINS; j += blockThreads() * all.parts) work.bins[j] = 0;
  if (s.flags & MASKED) {
    const u32* mask = all.p.maskOf(row);
    X_FOR_BLOCK(j, count) {
      const u64 i = first + j;
      if (!(mask[i / 32] >> i % 32 & 1)) x[i] = lanes::lowest<float>();
    }
  }
  if (s.edits > 0) {
    barrier();
    edit(all.p, s, x, first, count);
  }
  barrier();
  const u32 at = count > 0 ? first + reduce::indexOverBlockAt<MaxNan>(x + first, count) : NONE;
  if (threadIndex() == 0) {
    work.best[2 * index] = bitCast<u32>(at == NONE ? 0.0f : x[at]);
    work.best[2 * index + 1] = at;
  }
  if (!part.isLast()) return;
  auto best = reduce::Best<float>::none<MaxNan>();
  X_FOR_BLOCK(j, all.parts) best.merge<MaxNan>(bitCast<float>(work.best[2 * j]), work.best[2 * j + 1]);
#if X_HOST
  const u32 id = best.index;
#else
  const u32 id = reduce::winnerOf<MaxNan>(best);
#endif
  const float max = x[id];
  const bool isPossible = sampling::isPossible(max);
  if (threadIndex() == 0) {
    if (!isPossible) all.p.outOf(row)[0] = NONE;
    *work.found = {isPossible && s.kind == DRAW ? (u32)DRAW : (u32)LEAVE, max, 0, NONE, NONE, 0, 0};
  }
  if (isPossible && s.kind == GREEDY) put(all.p, row, id, 0.0f);
}

/** take(j, look(j)) for j below count, looking at some of them before the first one is taken. */
template <class Look, class Take>
X_DEVICE void lookAndTake(u32 count, Look look, Take take) {
  typedef decltype(look(0u)) Seen;
  const u32 step = blockThreads();
  for (u32 j = threadIndex(); j < count; j += AT_ONCE * step) {
    Seen seen[AT_ONCE];
#pragma unroll
    for (u32 k = 0; k < AT_ONCE; ++k) seen[k] = j + k * step < count ? look(j + k * step) : Seen{};
#pragma unroll
    for (u32 k = 0; k < AT_ONCE; ++k)
      if (j + k * step < count) take(j + k * step, seen[k]);
  }
}

/**
 * Tokens of the row by their bins, or what these weigh. Of a part's tokens those behind its own first topK are not among the row's
 * either, so that few bins are added to the row's.
 */
X_DEVICE void countPart(const Part& part, u64* bins) {
  if (!part.draws() || !part.hasBins()) return;
  const auto& [all, row, index, first, count, s, x, work] = part;
  const Row own = part.rowOf();
  const ByLogit order{own};
  const bool ofTokens = part.countsTokens();
  clear(bins);
  // NVIDIA adds 32 bits in shared memory at once, and 64 by comparing and swapping.
  u32* counts = (u32*)bins;
  const u32 topK = s.topK, topP = s.topP, from = first;
  if (ofTokens) {
    lookAndTake(count, [&](u32 j) { return order.coarse(from + j); }, [&](u32, u32 bin) { atomicAdd(counts + bin, 1u); });
  } else {
    lookAndTake(count, [&](u32 j) { return own.weight(from + j); },
                [&](u32 j, u64 m) {
                  if (m > 0) atomicAdd(bins + order.coarse(from + j), m);
                });
  }
  barrier();
  u32 end = BINS;
  if (ofTokens) {
    const Place place = locate(counts, [topK](u64) -> u64 { return topK - 1; });
    if (place.size > 0) end = place.bin + 1;
  }
  X_FOR_BLOCK(j, end) {
    const u64 sum = ofTokens ? counts[j] : bins[j];
    if (sum > 0) atomicAdd(work.bins + j, sum);
  }
  if (!part.isLast()) return;
  X_FOR_BLOCK(j, BINS) bins[j] = work.bins[j];
  barrier();
  const Place place = locate(bins, [=](u64 total) -> u64 {
    if (ofTokens) return topK - 1;
    const u64 mass = shareOf(topP, total);
    return mass > 0 ? mass - 1 : 0;
  });
  if (threadIndex() == 0) {
    work.found->bin = place.bin;
    work.found->rest = place.rest;
  }
}

/** A list of tokens, by id but for what drawOfFew looks at. */
struct List {
  u32* ids;
  float* values;
  u32 n;
};

/** Whether token a of a list is likelier than b: before it in the order of all. */
X_DEVICE bool isBefore(const List& list, const u32* keys, u32 a, u32 b) {
  return keys[a] < keys[b] || (keys[a] == keys[b] && list.ids[a] < list.ids[b]);
}

/** Sum of weights[j] of those tokens of a list for which is(j). */
template <class Is>
X_DEVICE u64 sumWhere(const u64* weights, u32 n, Is is) {
  u64 sum = 0;
#pragma unroll 8
  for (u32 j = 0; j < n; ++j) sum += is(j) ? weights[j] : 0;
  return sum;
}

/** The id that is drawn among the first topK of few tokens. `space`: 3 * FEW. */
X_DEVICE u32 drawOfFew(const Params& s, const List& list, float max, u64* space) {
  u64 *weights = space, *kept = space + FEW, *chosen = space + 2 * FEW;
  u32* keys = (u32*)(chosen + 1);
  const Row row = {list.values, max, s.inverse};
  const u32 n = list.n;
  X_FOR_BLOCK(t, n) keys[t] = row.keyOf((u32)t);
  barrier();
  X_FOR_BLOCK(t, n) {
    u32 rank = 0;
#pragma unroll 8
    for (u32 j = 0; j < n; ++j) rank += isBefore(list, keys, j, (u32)t) ? 1 : 0;
    weights[t] = rank < s.topK ? weightOf(row.scaled((u32)t)) : 0;
  }
  barrier();
  const auto all = [](u32) { return true; };
  const u64 mass = shareOf(s.topP, sumWhere(weights, n, all)), target = mass > 0 ? mass - 1 : 0;
  X_FOR_BLOCK(t, n) {
    const bool isLikely = s.topP == 0 || sumWhere(weights, n, [&](u32 j) { return isBefore(list, keys, j, (u32)t); }) <= target;
    kept[t] = isLikely && list.values[t] - max >= s.least ? weights[t] : 0;
  }
  barrier();
  const u64 drawn = shareOf(s.uniform, sumWhere(kept, n, all));
  X_FOR_BLOCK(t, n) {
    const u64 before = sumWhere(kept, n, [&](u32 j) { return list.ids[j] < list.ids[t]; });
    if (before <= drawn && drawn - before < kept[t]) *chosen = list.ids[t];
  }
  barrier();
  return (u32)*chosen;
}

/** The last token of a bin that a share of the weight keeps. */
X_DEVICE void keepOfBin(const Part& part, const List& list, u64* bins) {
  Found& found = *part.work.found;
  Row row = {list.values, found.max, part.s.inverse};
  const auto weight = [&row](u32 i) { return row.weight(i); };
  const u64 rest = found.rest;
  const Group group = inBin(bins, list.n, ByLogit{row}, weight, {found.bin, rest, 0});
  const u64 each = weightOf(multiplyThenAdd(valueOf(~group.key) - found.max, part.s.inverse, 0.0f));
  keepUpTo(row, bins, list.n, group.key, group.rest / each + 1, group.size / each);
  barrier();
  if (threadIndex() == 0) {
    found.key = row.key;
    found.last = row.last == NONE ? NONE : list.ids[row.last];
  }
}

/** Adds this part's tokens of the bins up to the last one that is kept, or of that alone, to the row's list. */
X_DEVICE void addToList(const Part& part, u32* start) {
  const Work& work = part.work;
  const u32 index = opaque(part.index), first = opaque(part.first), count = opaque(part.count);
  const float* x = part.x;
  const Row own = part.rowOf();
  const ByLogit order{own};
  const u32 bin = opaque(work.found->bin);
  const bool upTo = part.countsTokens();
  const auto isWanted = [&](u32 j) {
    if (j >= count) return false;
    const u32 its = order.coarse(first + j);
    return upTo ? its <= bin : its == bin;
  };
  // Of a thread's tokens one comes after the other, so that the list is by id.
  const u32 each = (count + blockThreads() - 1) / blockThreads(), begin = threadIndex() * each;
  u32 mine = 0;
#pragma unroll 4
  for (u32 j = begin; j < begin + each; ++j) mine += isWanted(j) ? 1 : 0;
  const auto [before, total] = running(mine);
  if (threadIndex() == 0) {
    start[0] = total > 0 ? atomicAdd(&work.found->listed, total) : 0;
    work.spans[2 * index] = start[0];
    work.spans[2 * index + 1] = total;
  }
  barrier();
  if (mine == 0 || start[0] + total > LISTED) return;
  u32 place = start[0] + before;
  for (u32 j = begin; j < begin + each; ++j) {
    if (!isWanted(j)) continue;
    work.ids[place] = first + j;
    work.values[place++] = x[first + j];
  }
}

/** The list in shared memory, as parts came to it, or one part after the other. `spans`: two a part. */
X_DEVICE void takeList(const Part& part, const List& list, u32* spans, bool isSorted) {
  const Work& work = part.work;
  if (isSorted) X_FOR_BLOCK(j, 2 * part.all.parts) spans[j] = work.spans[j];
  barrier();
  X_FOR_BLOCK(e, list.n) {
    u32 from = (u32)e;
    if (isSorted) {
      u32 at = 0, before = 0;
      while (before + spans[2 * at + 1] <= e) before += spans[2 * at++ + 1];
      from = spans[2 * at] + (u32)e - before;
    }
    list.ids[e] = work.ids[from];
    list.values[e] = work.values[from];
  }
  barrier();
}

X_DEVICE void listPart(const Part& part, u64* bins, u32* ids, float* values) {
  if (!part.draws() || !part.hasBins()) return;
  addToList(part, (u32*)bins);
  if (!part.isLast()) return;
  const Work& work = part.work;
  const List list = {ids, values, opaque(work.found->listed)};
  if (list.n > LISTED) return;
  const Params& s = part.s;
  const bool isFew = part.countsTokens() && list.n <= FEW && s.typicalP == 0;
  takeList(part, list, (u32*)bins, !isFew);
  if (!part.countsTokens()) return keepOfBin(part, list, bins);
  const float max = work.found->max;
  const u32 id = isFew ? drawOfFew(s, list, max, bins) : list.ids[draw(s, bins, list.values, list.n, max)];
  barrier();
  if (threadIndex() == 0) work.found->kind = LEAVE;
  put(part.all.p, part.row, id, 0.0f);
}

/** What is not chosen yet. */
X_DEVICE void drawPart(const Part& part, u64* bins) {
  const auto& [all, row, index, first, count, s, x, work] = part;
  if (!part.isShared()) {
    if (index == 0) chooseRow(all.p, row, bins);
    return;
  }
  if (!part.draws()) return;
  const Found found = *work.found;
  // All tokens in another order, or more in a bin than a list has room for.
  if (s.typicalP > 0 || found.listed > LISTED) {
    if (index == 0) put(all.p, row, draw(s, bins, x, all.p.vocab, found.max), 0.0f);
    return;
  }
  Row own = part.rowOf();
  own.key = found.key;
  own.last = found.last;
  own.least = s.least;
  u64 sum = 0;
  X_FOR_BLOCK(j, count) sum += own.weight(first + (u32)j);
  sum = blockReduce<Sum>(sum);
  if (threadIndex() == 0) work.sums[index] = sum;
  if (!part.isLast()) return;
  u64 total = 0;
  for (u32 j = 0; j < all.parts; ++j) total += work.sums[j];
  u64 rest = shareOf(s.uniform, total);
  u32 at = 0;
  while (work.sums[at] <= rest) rest -= work.sums[at++];
  const Part its = Part::of(all, row * all.parts + at);
  const auto weight = [&](u32 j) { return own.weight(its.first + j); };
  put(all.p, row, its.first + byId(bins, its.count, weight, [rest](u64) { return rest; }), 0.0f);
}

/** visit(part) for the parts that are this block's. */
template <class Visit>
X_DEVICE void forParts(const Shares& all, Visit visit) {
#if X_HOST
  X_FOR_SPLIT(item, all.p.rows * all.parts) visit(Part::of(all, item));
#else
  const u64 item = split::block();
  if (item < all.p.rows * all.parts) visit(Part::of(all, item));
#endif
}

}  // namespace sampling
