// Attention over a cache in blocks: keys and values of a sequence lie in blocks of a pool, which its table names in order.
// Each token is one query, whose number of visible keys lies on the device like the tables: a launch holds no length, so
// one that was captured serves every step.
//
// A block of threads takes a tile of heads that share keys, and a part of a token's keys; with several parts a second
// kernel merges them. Keys go in steps of KEYS: scores by lanes that share a key, weights by a warp a head, then the sum
// of values by threads that share a column.
#pragma once

namespace paged {

/** Elements of a row that a thread takes at once: sizes of heads are multiples of it. */
constexpr u32 EACH = 8;
/** Keys whose weights are in shared memory at once. */
constexpr u32 KEYS = 128;
/** Keys of a part are a multiple of it: few enough that a short sequence has parts for many blocks. */
constexpr u32 GRAIN = 32;
constexpr u32 MAX_PARTS = 64;
/** Elements of a head at most. */
constexpr u32 MAX_HEAD = 576;
#if X_HOST
[[maybe_unused]] constexpr u32 THREADS = 1;
constexpr u32 LANES = 1;
/** Keys of a thread that are on their way at once. */
constexpr u32 KEYS_AT_ONCE = 1;
#else
constexpr u32 THREADS = 128;
/** Threads that share a key. */
constexpr u32 LANES = 8;
constexpr u32 KEYS_AT_ONCE = 2;
#endif

template <class T, class K>
struct Problem {
  u32 heads, kvHeads;
  u32 d, dv;
  u32 blockShift;  // a block has 2^blockShift positions
  u32 maxBlocks;   // blocks that a row of the table names
  u32 sequences;   // rows of the table
  u32 blocks;      // of the pool
  u32 parts;
  u32 window;  // keys that a query sees at most; 0: all
  float scale, softcap;
  const T* q;  // [tokens, heads, d], its last dimension contiguous
  u64 qRow, qHead;
  const K *k, *v;  // [blocks, 2^blockShift, kvHeads, d or dv]
  u64 vRow;        // from one value to the next: dv, or d where values are the first elements of keys
  const float* sinks;  // [heads]: a score of each head that has no value; null: none
  const u32 *tables, *rows, *lengths;
  float* partial;  // [tokens, heads, parts, dv + 2]: weighted values, their largest score, the sum of weights
  T* out;          // [tokens, heads, dv]

  /** Keys that a token may look at: a length beyond its table is cut. */
  X_DEVICE u32 length(u64 token) const {
    const u32 most = maxBlocks << blockShift, wanted = lengths[token];
    return wanted < most ? wanted : most;
  }
  X_DEVICE const u32* table(u64 token) const {
    const u64 row = rows ? rows[token] : token;
    return tables + (row < sequences ? row : 0) * maxBlocks;
  }
  /** Where position j lies in the pool; block 0 stands for one that does not exist. */
  X_DEVICE u64 slot(const u32* table, u32 j) const {
    const u32 block = table[j >> blockShift];
    return ((u64)(block < blocks ? block : 0) << blockShift) + (j & ((1u << blockShift) - 1));
  }
};

template <class K>
X_DEVICE void loadEach(const K* from, float* to) {
  constexpr u32 N = vecWidth<K> < EACH ? vecWidth<K> : EACH;
#pragma unroll
  for (u32 i = 0; i < EACH; i += N) {
    const Vec<K, N> values = loadVec<N>(from + i);
#pragma unroll
    for (u32 e = 0; e < N; ++e) to[i + e] = to_acc(values[e]);
  }
}

/** What a block keeps in shared memory; launches say how much (packages/rocm-backend/src/ops/paged-attention.ts). */
template <u32 HEADS>
struct Shared {
  float *q, *weights, *top, *sum, *kept, *values;
  u32* slots;
  X_DEVICE Shared(u32 d) {
    q = dynamicShared<float>();       // [HEADS, d]
    weights = q + HEADS * d;          // [HEADS, KEYS]
    top = weights + HEADS * KEYS;     // [HEADS] each
    sum = top + HEADS;
    kept = sum + HEADS;
    slots = (u32*)(kept + HEADS);     // [KEYS]
    values = (float*)(slots + KEYS);  // [threads that share a column, HEADS, dv]
  }
};

/** Scores of keys [start, start + n) in shared.weights. */
template <u32 HEADS, class T, class K>
X_DEVICE void score(const Problem<T, K>& p, const Shared<HEADS>& shared, u64 kvHead, const u32* table, u32 start, u32 n) {
  const u32 lane = threadIndex() % LANES, first = threadIndex() / LANES, step = (blockThreads() + LANES - 1) / LANES;
  constexpr u32 SUMS = X_HOST ? EACH : 1;  // one chain of additions would keep the host from using vectors
  // Every lane goes through every step, since lanes exchange sums.
  for (u32 base = 0; base < n; base += step * KEYS_AT_ONCE) {
    const K* keys[KEYS_AT_ONCE];
    u32 slots[KEYS_AT_ONCE];
#pragma unroll
    for (u32 i = 0; i < KEYS_AT_ONCE; ++i) {
      const u32 j = base + i * step + first;
      const u64 slot = p.slot(table, start + (j < n ? j : n - 1));
      slots[i] = (u32)slot;
      keys[i] = p.k + (slot * p.kvHeads + kvHead) * p.d;
    }
    float dot[KEYS_AT_ONCE][HEADS][SUMS] = {};
    for (u32 at = lane * EACH; at < p.d; at += LANES * EACH) {
      float x[KEYS_AT_ONCE][EACH];
#pragma unroll
      for (u32 i = 0; i < KEYS_AT_ONCE; ++i) loadEach(keys[i] + at, x[i]);
#pragma unroll
      for (u32 h = 0; h < HEADS; ++h) {
        const float* q = shared.q + h * p.d + at;
#pragma unroll
        for (u32 e = 0; e < EACH; ++e)
#pragma unroll
          for (u32 i = 0; i < KEYS_AT_ONCE; ++i) dot[i][h][e % SUMS] += x[i][e] * q[e];
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
        total *= p.scale;
        if (p.softcap > 0.0f) total = p.softcap * m::tanh(total / p.softcap);
        if (lane == 0 && j < n) shared.weights[h * KEYS + j] = total;
      }
      if (lane == 0 && j < n) shared.slots[j] = slots[i];
    }
  }
}

/** Scores to weights, relative to the largest score so far. */
template <u32 HEADS>
X_DEVICE void weigh(const Shared<HEADS>& shared, u32 n) {
  for (u32 h = warpId(); h < HEADS; h += warpsInBlock()) {
    float* weights = shared.weights + h * KEYS;
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
template <u32 HEADS>
struct Values {
  X_DEVICE void clear(const Shared<HEADS>& shared, u32 dv) {
    for (u32 i = 0; i < HEADS * dv; ++i) shared.values[i] = 0.0f;
  }
  template <class K>
  X_DEVICE void add(const Shared<HEADS>& shared, const K* v, u64 row, u32 dv, u32 n) {
    for (u32 h = 0; h < HEADS; ++h)
      for (u32 e = 0; e < dv; ++e) shared.values[h * dv + e] *= shared.kept[h];
    for (u32 j = 0; j < n; ++j) {
      const K* value = v + shared.slots[j] * row;
      for (u32 at = 0; at < dv; at += EACH) {
        float x[EACH];
        loadEach(value + at, x);
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
  X_DEVICE float total(const Shared<HEADS>& shared, u32 h, u32 e, u32 dv) { return shared.values[h * dv + e]; }
};
#else
/** Weighted values: a thread has a column of every so many keys in registers, and they are added up at the end. */
template <u32 HEADS>
struct Values {
  float sums[HEADS][EACH];

  X_DEVICE static u32 stripes(u32 dv) { return blockThreads() / (dv / EACH); }
  X_DEVICE void clear(const Shared<HEADS>&, u32) {
#pragma unroll
    for (u32 h = 0; h < HEADS; ++h)
#pragma unroll
      for (u32 e = 0; e < EACH; ++e) sums[h][e] = 0.0f;
  }
  template <class K>
  X_DEVICE void add(const Shared<HEADS>& shared, const K* v, u64 row, u32 dv, u32 n) {
    const u32 columns = dv / EACH, column = threadIndex() % columns, stripe = threadIndex() / columns;
#pragma unroll
    for (u32 h = 0; h < HEADS; ++h)
#pragma unroll
      for (u32 e = 0; e < EACH; ++e) sums[h][e] *= shared.kept[h];
    const u32 step = stripes(dv);
    // Nothing is stored, so that the values of several keys are on their way at once.
#pragma unroll 4
    for (u32 j = stripe < step ? stripe : n; j < n; j += step) {
      float x[EACH];
      loadEach(v + shared.slots[j] * row + column * EACH, x);
#pragma unroll
      for (u32 h = 0; h < HEADS; ++h) {
        const float weight = shared.weights[h * KEYS + j];
#pragma unroll
        for (u32 e = 0; e < EACH; ++e) sums[h][e] += weight * x[e];
      }
    }
  }
  X_DEVICE void store(const Shared<HEADS>& shared, u32 dv) {
    const u32 columns = dv / EACH, column = threadIndex() % columns, stripe = threadIndex() / columns;
    if (stripe >= stripes(dv)) return;
#pragma unroll
    for (u32 h = 0; h < HEADS; ++h)
#pragma unroll
      for (u32 e = 0; e < EACH; ++e) shared.values[(stripe * HEADS + h) * dv + column * EACH + e] = sums[h][e];
  }
  X_DEVICE float total(const Shared<HEADS>& shared, u32 h, u32 e, u32 dv) {
    float sum = 0.0f;
    for (u32 stripe = 0; stripe < stripes(dv); ++stripe) sum += shared.values[(stripe * HEADS + h) * dv + e];
    return sum;
  }
};
#endif

/** A score beside those of keys, whose largest is `top`: its weight, and what theirs are multiplied with. */
struct Sink {
  float kept, weight;
  X_DEVICE static Sink beside(float score, float top) {
    const float base = attention::finite(score > top ? score : top);
    return {m::exp(top - base), m::exp(score - base)};
  }
};

/** `count` heads from `head` on, of one head of keys, for part `part` of a token's keys. All threads of a block. */
template <u32 HEADS, class T, class K>
X_DEVICE void attend(const Problem<T, K>& p, u64 token, u64 head, u32 count, u32 part) {
  const u32 length = p.length(token), from = p.window && p.window < length ? length - p.window : 0;
  const u32 grains = (length - from + GRAIN - 1) / GRAIN;
  const u32 each = (grains + p.parts - 1) / p.parts * GRAIN;
  const u64 begin = from + (u64)each * part;
  const u64 all = begin + each < length ? begin + each : length;
  const u32 end = (u32)all;
  float* partial = p.partial + ((token * p.heads + head) * p.parts + part) * (p.dv + 2);
  T* out = p.out + (token * p.heads + head) * p.dv;
  if (begin >= end) {
    // Nothing to see here: no weight in the merged sum; a token that sees nothing at all gives 0.
    if (p.parts > 1) X_FOR_BLOCK(h, count) partial[h * p.parts * (p.dv + 2) + p.dv + 1] = 0.0f;
    else X_FOR_BLOCK(i, count * p.dv) out[i] = from_acc<T>(0.0f);
    return;
  }
  const u64 kvHead = head / (p.heads / p.kvHeads);
  const u32* table = p.table(token);
  const Shared<HEADS> shared(p.d);
#pragma unroll
  for (u32 h = 0; h < HEADS; ++h) {
    const T* q = p.q + token * p.qRow + (head + h) * p.qHead;
    for (u32 e = threadIndex(); e < p.d; e += blockThreads()) shared.q[h * p.d + e] = h < count ? to_acc(q[e]) : 0.0f;
  }
  X_FOR_BLOCK(h, HEADS) {
    shared.top[h] = lanes::lowest<float>();
    shared.sum[h] = 0.0f;
  }
  Values<HEADS> values;
  values.clear(shared, p.dv);
  barrier();
  for (u32 start = (u32)begin; start < end; start += KEYS) {
    const u32 n = end - start < KEYS ? end - start : KEYS;
    score<HEADS>(p, shared, kvHead, table, start, n);
    barrier();
    weigh<HEADS>(shared, n);
    barrier();
    values.add(shared, p.v + kvHead * p.vRow, p.kvHeads * p.vRow, p.dv, n);
    barrier();
  }
  values.store(shared, p.dv);
  // Of several parts the merge adds the sink, once.
  if (p.sinks && p.parts == 1) X_FOR_BLOCK(h, count) {
    const Sink sink = Sink::beside(p.sinks[head + h], shared.top[h]);
    shared.kept[h] = sink.kept;
    shared.sum[h] = shared.sum[h] * sink.kept + sink.weight;
  }
  barrier();
  for (u32 h = 0; h < count; ++h)
    for (u32 e = threadIndex(); e < p.dv; e += blockThreads()) {
      const float total = values.total(shared, h, e, p.dv);
      if (p.parts > 1) partial[h * p.parts * (p.dv + 2) + e] = total;
      else out[h * p.dv + e] = from_acc<T>((p.sinks ? total * shared.kept[h] : total) / shared.sum[h]);
    }
  if (p.parts > 1) X_FOR_BLOCK(h, count) {
    partial[h * p.parts * (p.dv + 2) + p.dv] = shared.top[h];
    partial[h * p.parts * (p.dv + 2) + p.dv + 1] = shared.sum[h];
  }
  barrier();
}

template <u32 HEADS, class T, class K>
X_DEVICE void attendItem(const Problem<T, K>& p, u32 item) {
  const u32 kvHeads = (u32)p.kvHeads, group = (u32)p.heads / kvHeads, tiles = (group + HEADS - 1) / HEADS;
  const u32 above = item / p.parts, part = item - above * p.parts;
  const u32 pair = above / tiles, first = (above - pair * tiles) * HEADS;
  const u32 token = pair / kvHeads, kvHead = pair - token * kvHeads, left = group - first;
  attend<HEADS>(p, token, kvHead * group + first, left < HEADS ? left : HEADS, part);
}

/** On GPUs a block an item: what a loop keeps would take more scalar registers than there are. */
template <u32 HEADS, class T, class K>
X_DEVICE void attendAll(const Problem<T, K>& p, u32 items) {
  early::await();
  early::letNextBegin();
#if X_HOST
  X_FOR_SPLIT(item, items) attendItem<HEADS>(p, (u32)item);
#else
  if (split::block() < items) attendItem<HEADS>(p, (u32)split::block());
#endif
}

}  // namespace paged
