// What attention over a cache in blocks is asked for (paged.h), and how a token's keys are cut into parts.
#pragma once

namespace paged {

using kv::Q8Rows;
using kv::Rows;

/** Elements of a row that a thread takes at once: sizes of heads are multiples of it. */
constexpr u32 EACH = 8;  // launchers: PAGED_EACH
/** Keys whose weights are in shared memory at once. */
constexpr u32 KEYS = 128;  // launchers: PAGED_KEYS
/** Keys of a part are a multiple of it: few enough that a short sequence has parts for many blocks. */
constexpr u32 GRAIN = 32;  // launchers: PAGED_GRAIN
/** Keys that are one part, whatever the launch has room for: merging takes longer than a second look at so few. */
constexpr u32 WHOLE = 64;
constexpr u32 MAX_PARTS = 64;  // launchers: PAGED_MAX_PARTS
/** Numbers behind the values of a part: their largest score, the sum of weights, and two that leave rows aligned. */
constexpr u32 TAIL = 4;  // launchers: PAGED_TAIL
#if X_HOST
[[maybe_unused]] constexpr u32 THREADS = 1;
constexpr u32 LANES = 1;
/** Keys of a thread that are on their way at once. */
constexpr u32 KEYS_AT_ONCE = 1;
#else
constexpr u32 THREADS = 128;  // launchers: PAGED_THREADS
/** Threads that share a key. */
constexpr u32 LANES = 8;
constexpr u32 KEYS_AT_ONCE = 2;
#endif
/** Of each of these keys so many parts of EACH elements, and values that are on their way while scores are made. */
template <class K>
constexpr u32 EACH_AT_ONCE = X_NVPTX && sizeof(K) < 4 ? 2 : 1;
template <class K>
constexpr u32 VALUES_AHEAD = X_NVPTX ? (sizeof(K) < 4 ? 4 : 2) : 0;
/** Blocks that an NVIDIA processor has at a time, of which launches make as many (BLOCKS_PER_CU of paged-attention.ts). */
template <class K>
constexpr u32 BLOCKS = sizeof(K) < 4 ? 4 : 3;

/** Keys [begin, end) of one part, and how many parts have any. A token that sees nothing has one part, an empty one. */
struct Part {
  u32 begin, end, parts;
};

template <class T, class K>
struct Problem {
  u32 heads, kvHeads;
  u32 d, dv;
  u32 blockShift;  // a block has 2^blockShift positions
  u32 maxBlocks;   // blocks that a row of the table names
  u32 sequences;   // rows of the table
  u32 blocks;      // of the pool
  u32 parts;       // at most
  u32 window;      // keys that a query sees at most; 0: all
  float scale, softcap;
  const T* q;  // [tokens, heads, d], its last dimension contiguous
  u64 qRow, qHead;
  Rows<K> k, v;    // [blocks, 2^blockShift, kvHeads, d or dv]
  u64 vRow;        // from one value to the next: dv, or d where values are the first elements of keys
  const float* sinks;  // [heads]: a score of each head that has no value; null: none
  const u32 *tables, *rows, *lengths;
  float* partial;  // [tokens, heads, parts, dv + TAIL]; not read or written where there is one part
  u32* counters;   // for each tile of a token's heads, how many parts are done: zeros before and after
  T* out;          // [tokens, heads, dv]; not with quantized
  u8* quantized;   // [tokens, padded / 32] blocks of q8_1: a token's heads one after the other; f32 only; or null
  u32 padded;

  X_DEVICE u32 room() const { return maxBlocks << blockShift; }
  /** @param row of the table */
  X_DEVICE const u32* table(u32 row) const { return tables + (u64)(row < sequences ? row : 0) * maxBlocks; }
  /** Where position j lies in the pool, whose block is `block`; block 0 stands for one that does not exist. */
  X_DEVICE u64 slot(u32 block, u32 j) const {
    return ((u64)(block < blocks ? block : 0) << blockShift) + (j & ((1u << blockShift) - 1));
  }
  X_DEVICE u8* blocksOf(u64 token) const { return quantized + token * (padded / 32) * quant::Q8_1::BYTES; }
  X_DEVICE float* partialOf(u64 token, u64 head) const { return partial + (token * heads + head) * parts * (dv + TAIL); }

  /** @param wanted keys that the token sees: one beyond its table is cut */
  X_DEVICE Part part(u32 wanted, u32 index) const {
    const u32 length = wanted < room() ? wanted : room(), from = window && window < length ? length - window : 0;
    const u32 n = length - from;
    if (parts == 1 || n <= WHOLE) return {index == 0 ? from : length, length, 1};
    const u32 each = ((n + GRAIN - 1) / GRAIN + parts - 1) / parts * GRAIN;
    const u64 begin = from + (u64)each * index, end = begin + each;
    return {begin < length ? (u32)begin : length, end < length ? (u32)end : length, (n + each - 1) / each};
  }
};

/** EACH elements as they lie in memory. */
template <class K>
struct Raw {
  static constexpr u32 N = vecWidth<K> < EACH ? vecWidth<K> : EACH;
  Vec<K, N> parts[EACH / N];

  X_DEVICE void load(const K* from) {
#pragma unroll
    for (u32 i = 0; i < EACH / N; ++i) parts[i] = loadVec<N>(from + i * N);
  }
  X_DEVICE void widen(float (&to)[EACH]) const {
#pragma unroll
    for (u32 i = 0; i < EACH; ++i) to[i] = to_acc(parts[i / N][i % N]);
  }
};

template <>
struct Raw<kv::Q8> {
  Vec<u8, EACH> codes;
  f16 scale;

  X_DEVICE void load(const Q8Rows& from) {
    codes = loadVec<EACH>(from.code());
    scale = *from.scale();
  }
  X_DEVICE void widen(float (&to)[EACH]) const {
    const float each = to_acc(scale);
#pragma unroll
    for (u32 i = 0; i < EACH; ++i) to[i] = kv::valueOf(codes[i]) * each;
  }
};

/** What a block keeps in shared memory; launches say how much (packages/rocm-backend/src/ops/paged-attention.ts). */
template <u32 HEADS>
struct Shared {
  float *q, *weights, *top, *sum, *kept, *values;
  u32* slots;
  X_DEVICE Shared(u32 d) {
    q = dynamicShared<float>();        // [HEADS, d]
    weights = q + HEADS * d;           // [HEADS, KEYS]
    slots = (u32*)(weights + HEADS * KEYS);  // [2, KEYS]: one step's and the next one's
    top = (float*)(slots + 2 * KEYS);  // [HEADS] each
    sum = top + HEADS;
    kept = sum + HEADS;
    values = kept + 2 * HEADS;         // [threads that share a column, HEADS, dv], at a multiple of 16 bytes
  }
};

/** Sends for n values. */
template <class K>
X_DEVICE void sendFor(const K* from, u32 n) {
  early::prefetchLines(from, n * sizeof(K));
}
X_DEVICE void sendFor(const Q8Rows& from, u32 n) {
  early::prefetchLines(from.code(), n);
  early::prefetchLines(from.scale(), n / kv::GROUP * sizeof(f16));
}

/** Sends for the keys and values of a part, while the kernel before this one still runs. All threads of a block. */
template <class T, class K>
X_DEVICE void sendForKeys([[maybe_unused]] const Problem<T, K>& p, [[maybe_unused]] u32 token, [[maybe_unused]] u32 kvHead,
                          [[maybe_unused]] u32 index) {
#if X_EARLY
  // Nothing that comes of these words depends on them: they may be about to be written.
  const u32* table = p.table(p.rows ? early::peek(p.rows + token) : token);
  const Part part = p.part(early::peek(p.lengths + token), index);
  const u32 j = part.begin + threadIndex();
  if (j >= part.end) return;
  const u64 at = p.slot(early::peek(table + (j >> p.blockShift)), j) * p.kvHeads + kvHead;
  sendFor(p.k + at * p.d, p.d);
  sendFor(p.v + at * p.vRow, p.dv);
#endif
}

}  // namespace paged
