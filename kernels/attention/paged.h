// Attention over a cache in blocks: keys and values of a sequence lie in blocks of a pool, which its table names in order.
// Each token is one query, whose number of visible keys lies on the device like the tables: a launch holds no length, so
// one that was captured serves every step.
//
// A block of threads takes a tile of heads that share keys, and a part of a token's keys; the last of several parts to be
// done merges them (paged-merge.h). Keys go in steps of KEYS: scores by lanes that share a key, weights by a warp a head,
// then the sum of values by threads that share a column. A short part is all latency, so that what does not depend on each
// other is on its way at once: queries and the length, keys and values.
#pragma once

namespace paged {

/** Where keys [start, start + n) lie. All threads of a block. */
template <class T, class K>
X_DEVICE void place(const Problem<T, K>& p, u32* slots, const u32* table, u32 start, u32 n) {
#pragma unroll 1
  for (u32 j = threadIndex(); j < n; j += blockThreads())
    slots[j] = (u32)p.slot(table[(start + j) >> p.blockShift], start + j);
}

/** Adds the products of EACH elements of keys with those of a tile's queries. */
template <u32 HEADS, u32 SUMS>
X_DEVICE void multiply(const float (&x)[EACH], const float* queries, u32 d, float (&dot)[HEADS][SUMS]) {
#pragma unroll
  for (u32 h = 0; h < HEADS; ++h) {
    float q[EACH];
#pragma unroll
    for (u32 e = 0; e < EACH; e += 4) {
      const Vec<float, 4> quad = loadVec<4>(queries + h * d + e);
#pragma unroll
      for (u32 i = 0; i < 4; ++i) q[e + i] = quad[i];
    }
#pragma unroll
    for (u32 e = 0; e < EACH; ++e) dot[h][e % SUMS] += x[e] * q[e];
  }
}

/** Scores of n keys, which lie in `slots`, in shared.weights. */
template <u32 HEADS, class T, class K>
X_DEVICE void score(const Problem<T, K>& p, const Shared<HEADS>& shared, const u32* slots, u32 kvHead, u32 n) {
  const u32 lane = threadIndex() % LANES, first = threadIndex() / LANES, step = (blockThreads() + LANES - 1) / LANES;
  constexpr u32 AT_ONCE = EACH_AT_ONCE<K>;
  constexpr u32 SUMS = X_HOST ? EACH : 1;  // one chain of additions would keep the host from using vectors
  // Every lane goes through every step, since lanes exchange sums.
  for (u32 base = 0; base < n; base += step * KEYS_AT_ONCE) {
    Rows<K> keys[KEYS_AT_ONCE];
#pragma unroll
    for (u32 i = 0; i < KEYS_AT_ONCE; ++i) {
      const u32 j = base + i * step + first;
      keys[i] = p.k + ((u64)slots[j < n ? j : n - 1] * p.kvHeads + kvHead) * p.d;
    }
    float dot[KEYS_AT_ONCE][HEADS][SUMS] = {};
    for (u32 at = lane * EACH; at < p.d; at += LANES * EACH * AT_ONCE) {
      Raw<K> raw[AT_ONCE][KEYS_AT_ONCE];
#pragma unroll
      for (u32 a = 0; a < AT_ONCE; ++a)
#pragma unroll
        for (u32 i = 0; i < KEYS_AT_ONCE; ++i)
          if (a == 0 || at + a * LANES * EACH < p.d) raw[a][i].load(keys[i] + at + a * LANES * EACH);
#pragma unroll
      for (u32 a = 0; a < AT_ONCE; ++a) {
        if (a > 0 && at + a * LANES * EACH >= p.d) break;
#pragma unroll
        for (u32 i = 0; i < KEYS_AT_ONCE; ++i) {
          float x[EACH];
          raw[a][i].widen(x);
          multiply(x, shared.q + at + a * LANES * EACH, p.d, dot[i]);
        }
      }
    }
#pragma unroll
    for (u32 i = 0; i < KEYS_AT_ONCE; ++i) {
      const u32 j = base + i * step + first;
#pragma unroll
      for (u32 h = 0; h < HEADS; ++h) {
        float total = dot[i][h][0];
#pragma unroll
        for (u32 e = 1; e < SUMS; ++e) total += dot[i][h][e];
#pragma unroll
        for (u32 mask = LANES / 2; mask > 0; mask /= 2) total += shuffleXor(total, mask);
        if (lane == 0 && j < n) shared.weights[h * KEYS + j] = total * p.scale;
      }
    }
  }
}

/** Scores to weights, relative to the largest score so far. */
template <u32 HEADS>
X_DEVICE void weigh(const Shared<HEADS>& shared, u32 n, float softcap) {
  for (u32 h = warpId(); h < HEADS; h += warpsInBlock()) {
    float* weights = shared.weights + h * KEYS;
    // Here, where tanh stands in the code once.
    if (softcap > 0.0f)
      for (u32 j = laneId(); j < n; j += WARP) weights[j] = softcap * m::tanh(weights[j] / softcap);
    const float before = shared.top[h];
    float top = before;
    for (u32 j = laneId(); j < n; j += WARP) top = weights[j] > top ? weights[j] : top;
    top = warpReduce<Max>(top);
    const float base = attention::finite(top);
    float sum = 0.0f;
    for (u32 j = laneId(); j < n; j += WARP) {
      const float weight = m::exp(weights[j] - base);
      weights[j] = weight;
      sum += weight;
    }
    sum = warpReduce<Sum>(sum);
    warpBarrier();  // all lanes have read the top that lane 0 replaces
    if (laneId() == 0) {
      const float kept = m::exp(before - base);
      shared.top[h] = top;
      shared.kept[h] = kept;
      shared.sum[h] = shared.sum[h] * kept + sum;
    }
  }
}

#if X_HOST
/** Weighted values, in shared.values from the first step to the last. */
template <u32 HEADS, class K>
struct Values {
  X_DEVICE void clear(const Shared<HEADS>& shared, u32 dv) {
    for (u32 i = 0; i < HEADS * dv; ++i) shared.values[i] = 0.0f;
  }
  X_DEVICE void sendFor(const u32*, Rows<K>, u64, u32, u32) {}
  X_DEVICE void add(const Shared<HEADS>& shared, const u32* slots, Rows<K> v, u64 row, u32 dv, u32 n) {
    for (u32 h = 0; h < HEADS; ++h)
      for (u32 e = 0; e < dv; ++e) shared.values[h * dv + e] *= shared.kept[h];
    for (u32 j = 0; j < n; ++j) {
      const Rows<K> value = v + slots[j] * row;
      for (u32 at = 0; at < dv; at += EACH) {
        Raw<K> raw;
        float x[EACH];
        raw.load(value + at);
        raw.widen(x);
        for (u32 h = 0; h < HEADS; ++h) {
          float* sum = shared.values + h * dv + at;
          const float weight = shared.weights[h * KEYS + j];
#pragma unroll
          for (u32 e = 0; e < EACH; ++e) sum[e] += weight * x[e];
        }
      }
    }
  }
  X_DEVICE void store(const Shared<HEADS>&, u32) {}
  X_DEVICE Vec<float, 4> total(const Shared<HEADS>& shared, u32 h, u32 c, u32 dv) {
    return loadVec<4>(shared.values + h * dv + c);
  }
};
#else
/** Weighted values: a thread has a column of every so many keys in registers, and they are added up at the end. */
template <u32 HEADS, class K>
struct Values {
  static constexpr u32 AHEAD = VALUES_AHEAD<K>;
  float sums[HEADS][EACH];
  Raw<K> ahead[AHEAD > 0 ? AHEAD : 1];

  X_DEVICE static u32 stripes(u32 dv) { return blockThreads() / (dv / EACH); }
  X_DEVICE void clear(const Shared<HEADS>&, u32) {
#pragma unroll
    for (u32 h = 0; h < HEADS; ++h)
#pragma unroll
      for (u32 e = 0; e < EACH; ++e) sums[h][e] = 0.0f;
  }
  /** The first of those that `add` adds. */
  X_DEVICE void sendFor(const u32* slots, Rows<K> v, u64 row, u32 dv, u32 n) {
    const u32 columns = dv / EACH, column = threadIndex() % columns, stripe = threadIndex() / columns, step = stripes(dv);
#pragma unroll
    for (u32 i = 0; i < AHEAD; ++i) {
      const u32 j = stripe + i * step;
      if (stripe < step && j < n) ahead[i].load(v + slots[j] * row + column * EACH);
    }
  }
  X_DEVICE void take(const Shared<HEADS>& shared, const Raw<K>& raw, u32 j) {
    float x[EACH];
    raw.widen(x);
#pragma unroll
    for (u32 h = 0; h < HEADS; ++h) {
      const float weight = shared.weights[h * KEYS + j];
#pragma unroll
      for (u32 e = 0; e < EACH; ++e) sums[h][e] += weight * x[e];
    }
  }
  X_DEVICE void add(const Shared<HEADS>& shared, const u32* slots, Rows<K> v, u64 row, u32 dv, u32 n) {
    const u32 columns = dv / EACH, column = threadIndex() % columns, stripe = threadIndex() / columns, step = stripes(dv);
#pragma unroll
    for (u32 h = 0; h < HEADS; ++h)
#pragma unroll
      for (u32 e = 0; e < EACH; ++e) sums[h][e] *= shared.kept[h];
    if (stripe >= step) return;
#pragma unroll
    for (u32 i = 0; i < AHEAD; ++i)
      if (stripe + i * step < n) take(shared, ahead[i], stripe + i * step);
    // Nothing is stored, so that the values of several keys are on their way at once.
#pragma unroll 4
    for (u32 j = stripe + AHEAD * step; j < n; j += step) {
      Raw<K> raw;
      raw.load(v + slots[j] * row + column * EACH);
      take(shared, raw, j);
    }
  }
  X_DEVICE void store(const Shared<HEADS>& shared, u32 dv) {
    const u32 columns = dv / EACH, column = threadIndex() % columns, stripe = threadIndex() / columns;
    if (stripe >= stripes(dv)) return;
#pragma unroll
    for (u32 h = 0; h < HEADS; ++h)
#pragma unroll
      for (u32 e = 0; e < EACH; e += 4) {
        const Vec<float, 4> quad = {{sums[h][e], sums[h][e + 1], sums[h][e + 2], sums[h][e + 3]}};
        storeVec(shared.values + (stripe * HEADS + h) * dv + column * EACH + e, quad);
      }
  }
  /** Elements c to c + 3 of a head. */
  X_DEVICE Vec<float, 4> total(const Shared<HEADS>& shared, u32 h, u32 c, u32 dv) {
    Vec<float, 4> sum = {};
    for (u32 stripe = 0; stripe < stripes(dv); ++stripe) {
      const Vec<float, 4> part = loadVec<4>(shared.values + (opaque(stripe) * HEADS + h) * dv + c);
#pragma unroll
      for (u32 e = 0; e < 4; ++e) sum[e] += part[e];
    }
    return sum;
  }
};
#endif

/** A tile of a token's heads, of one head of keys, and a part of the keys. */
struct Item {
  u32 token, kvHead, head, count;  // `count` heads from `head` on
  u32 tile, part;                  // tiles are counted over all tokens

  template <u32 HEADS>
  X_DEVICE static Item of(u32 index, u32 heads, u32 kvHeads, u32 parts) {
    const u32 group = heads / kvHeads, tiles = (group + HEADS - 1) / HEADS;
    const u32 tile = index / parts, part = index - tile * parts;
    const u32 pair = tile / tiles, first = (tile - pair * tiles) * HEADS;
    const u32 token = pair / kvHeads, kvHead = pair - token * kvHeads, left = group - first;
    return {token, kvHead, kvHead * group + first, left < HEADS ? left : HEADS, tile, part};
  }
};

/** Queries that lie in memory. */
template <u32 HEADS, class T, class K>
struct Stored {
  const Problem<T, K>& p;
  const Item& item;
  float first[HEADS];

  X_DEVICE float query(u32 h, u32 e) const {
    return h < item.count ? to_acc(p.q[item.token * p.qRow + (item.head + h) * p.qHead + e]) : 0.0f;
  }
  /** What does not depend on a length. */
  X_DEVICE void begin() {
#pragma unroll
    for (u32 h = 0; h < HEADS; ++h) first[h] = threadIndex() < p.d ? query(h, threadIndex()) : 0.0f;
  }
  X_DEVICE void put(const Part&, float* to) {
    for (u32 e = threadIndex(); e < p.d; e += blockThreads())
#pragma unroll
      for (u32 h = 0; h < HEADS; ++h) to[h * p.d + e] = e == threadIndex() ? first[h] : query(h, e);
  }
};

/** All threads of a block. `queries`: as {@link Stored}. */
template <u32 HEADS, class Queries, class T, class K>
X_DEVICE void attend(const Problem<T, K>& p, const Item& item, Queries queries) {
  const Shared<HEADS> shared(p.d);
  const u32* length = p.lengths + item.token;
  queries.begin();
  const u32* table = p.table(p.rows ? p.rows[item.token] : item.token);
  const Part part = p.part(*length, item.part);
  if (item.part >= part.parts) return;
  const u32 begin = part.begin, end = part.end;
  queries.put(part, shared.q);
  X_FOR_BLOCK(h, HEADS) {
    shared.top[h] = lanes::lowest<float>();
    shared.sum[h] = 0.0f;
  }
  const Rows<K> v = p.v + item.kvHead * p.vRow;
  const u64 row = p.kvHeads * p.vRow;
  Values<HEADS, K> values;
  values.clear(shared, p.dv);
  u32 *slots = shared.slots, *next = slots + KEYS;
  place(p, slots, table, begin, end - begin < KEYS ? end - begin : KEYS);
  barrier();
  for (u32 start = begin; start < end; start += KEYS) {
    const u32 n = end - start < KEYS ? end - start : KEYS, left = end - start - n;
    values.sendFor(slots, v, row, p.dv, n);
    score<HEADS>(p, shared, slots, item.kvHead, n);
    place(p, next, table, start + KEYS, left < KEYS ? left : KEYS);
    barrier();
    weigh<HEADS>(shared, n, p.softcap);
    barrier();
    values.add(shared, slots, v, row, p.dv, n);
    if (left > 0) barrier();
    u32* const done = slots;
    slots = next;
    next = done;
  }
  values.store(shared, p.dv);
  // Of several parts the merge adds the sink, once.
  if (p.sinks && part.parts == 1) {
    barrier();
    X_FOR_BLOCK(h, item.count) {
      const Sink sink = Sink::beside(p.sinks[item.head + h], shared.top[h]);
      shared.kept[h] = sink.kept;
      shared.sum[h] = shared.sum[h] * sink.kept + sink.weight;
    }
  }
  barrier();
  const auto whole = [&](u32 h, u32 c) {
    Vec<float, 4> quad = values.total(shared, h, c, p.dv);
    const float kept = p.sinks ? shared.kept[h] : 1.0f, sum = shared.sum[h];
#pragma unroll
    for (u32 e = 0; e < 4; ++e) quad[e] = begin < end ? quad[e] * kept / sum : 0.0f;
    return quad;
  };
  // What is not needed before this would fill scalar registers until here.
  const u32 token = opaque(item.token), head = opaque(item.head);
  if (part.parts == 1) {
    putAll(p, token, head, item.count, shared.values, whole);
    return;
  }
  float* partial = p.partialOf(token, head) + opaque(item.part) * (p.dv + TAIL);
  const u64 step = (u64)p.parts * (p.dv + TAIL);
  const u32 quads = p.dv / 4;
#pragma unroll 1
  for (u32 i = threadIndex(); i < item.count * quads; i += blockThreads()) {
    const u32 h = i / quads, c = (i - h * quads) * 4;
    storeVec(partial + h * step + c, values.total(shared, h, c, p.dv));
  }
  X_FOR_BLOCK(h, item.count) {
    partial[h * step + p.dv] = shared.top[h];
    partial[h * step + p.dv + 1] = shared.sum[h];
  }
  if (lastToArrive(p.counters + opaque(item.tile), part.parts))
    mergeParts(p, token, head, item.count, part.parts, shared.weights, shared.values);
}

/** On GPUs a block an item: what a loop keeps would take more scalar registers than there are. */
template <u32 HEADS, class T, class K>
X_DEVICE void attendAll(const Problem<T, K>& p, u32 items) {
#if X_HOST
  X_FOR_SPLIT(index, items) {
    const Item item = Item::of<HEADS>((u32)index, p.heads, p.kvHeads, p.parts);
    attend<HEADS>(p, item, Stored<HEADS, T, K>{p, item, {}});
  }
#else
  const bool inside = split::block() < items;
  const Item item = Item::of<HEADS>(inside ? (u32)split::block() : 0, p.heads, p.kvHeads, p.parts);
  if (inside) sendForKeys(p, item.token, item.kvHead, item.part);
  early::await();
  // The next kernel begins when blocks end, as behind products of one column.
  if (inside) attend<HEADS>(p, item, Stored<HEADS, T, K>{p, item, {}});
#endif
}

}  // namespace paged
