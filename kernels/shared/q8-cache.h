// A cache in 8 bits: of each 32 values of a head a scale, f16, and a byte each, the value over the scale and 128. Values are those of
// ggml's q8_0; scales lie apart, so that bytes are at the places of the values that they stand for.
#pragma once

namespace kv {

/** The type of such a cache's values. */
struct Q8 {};
/** Values that share a scale: sizes of heads are multiples of it. */
constexpr u32 GROUP = 32;
constexpr u32 ZERO = 128;

/** Bytes from one address to another. Where several pointers are one and ways from it, CDNA's scalar registers hold them. */
X_DEVICE u64 wayTo(const void* from, const void* to) { return opaque((u64)to - (u64)from); }

/** Values of a cache from one on: `at` counts them from its first. */
struct Q8Rows {
  const u8* codes;
  u64 toScales;
  u64 at;
  X_DEVICE static Q8Rows of(const u8* codes, const f16* scales) { return {codes, wayTo(codes, scales), opaque((u64)0)}; }
  /** @param near of the same cache */
  X_DEVICE static Q8Rows of(const u8* near, const u8* codes, const f16* scales) {
    return of(near + wayTo(near, codes), scales);
  }
  X_DEVICE Q8Rows operator+(u64 n) const { return {codes, toScales, at + n}; }
  X_DEVICE const u8* code() const { return codes + at; }
  X_DEVICE const f16* scale() const { return (const f16*)(codes + toScales) + at / GROUP; }
};

/** The same to write to. */
struct Q8Target {
  u8* codes;
  f16* scales;
  X_DEVICE Q8Target operator+(u64 n) const { return {codes + n, scales + n / GROUP}; }
};

template <class K>
struct RowsOf {
  typedef const K* Type;
  typedef K* Target;
};
template <>
struct RowsOf<Q8> {
  typedef Q8Rows Type;
  typedef Q8Target Target;
};
/** Where values of a cache of K lie, to be read. */
template <class K>
using Rows = typename RowsOf<K>::Type;
template <class K>
using Target = typename RowsOf<K>::Target;

/** What a byte stands for, before its scale: exact, by the last bits of a number that has its place there. */
X_DEVICE float valueOf(u8 code) { return bitCast<float>(0x4b000000u | code) - (8388608.0f + (float)ZERO); }

/** The larger magnitude; NaN where one is. */
X_DEVICE float larger(float a, float b) { return b > a || b != b ? b : a; }

/** What values of a group are multiplied with before they are rounded: of one with an infinity 0, since its scale says all. */
X_DEVICE float factorOf(float largest) { return largest > 0.0f ? 127.0f / largest : 0.0f; }

/** Halves away from zero; where the factor or the value is NaN, so is the scale. */
X_DEVICE u8 codeOf(float value, float factor) {
  const float scaled = value * factor;
  const i32 rounded = (i32)(scaled < 0.0f ? scaled - 0.5f : scaled + 0.5f);
  return (u8)((i32)ZERO + (scaled == scaled ? rounded : 0));
}

/** Writes get(0) to get(n - 1), n a multiple of GROUP. All lanes of a warp. */
template <class Get>
X_DEVICE void putGroups(u32 n, const Q8Target& to, Get get) {
#if X_HOST
  for (u32 g = 0; g < n / GROUP; ++g) {
    float values[GROUP], largest = 0.0f;
    for (u32 i = 0; i < GROUP; ++i) {
      values[i] = get(g * GROUP + i);
      largest = larger(largest, m::fabs(values[i]));
    }
    const float factor = factorOf(largest);
    for (u32 i = 0; i < GROUP; ++i) to.codes[g * GROUP + i] = codeOf(values[i], factor);
    to.scales[g] = cast<f16>(largest / 127.0f);
  }
#else
  // All lanes go through every step, since they share groups.
#pragma unroll 1
  for (u32 base = 0; base < n; base += WARP) {
    const u32 e = base + laneId();
    const float value = e < n ? get(e) : 0.0f;
    float largest = m::fabs(value);
#pragma unroll
    for (u32 mask = GROUP / 2; mask > 0; mask /= 2) largest = larger(largest, shuffleXor(largest, mask));
    if (e >= n) continue;
    to.codes[e] = codeOf(value, factorOf(largest));
    if (e % GROUP == 0) to.scales[e / GROUP] = cast<f16>(largest / 127.0f);
  }
#endif
}

/** As `append` of paged-append.h, a warp a head of a token. */
X_DEVICE void appendQ8(u64 tokens, u64 kvHeads, u32 d, u32 dv, u64 poolSlots, const u32* slots, const float* k, u64 kHead,
                       u64 kRow, const float* v, u64 vHead, u64 vRow, const Q8Target& kPool, const Q8Target& vPool) {
  const u64 each = dv > 0 ? 2 * kvHeads : kvHeads, items = tokens * each;
  const auto one = [&](u64 item) {
    const u64 token = item / each, row = item - token * each, slot = slots[token];
    if (slot >= poolSlots) return;
    const bool isKey = row < kvHeads;
    const u64 head = isKey ? row : row - kvHeads, place = slot * kvHeads + head;
    const float* from = isKey ? k + head * kHead + token * kRow : v + head * vHead + token * vRow;
    putGroups(isKey ? d : dv, isKey ? kPool + place * d : vPool + place * dv, [=](u32 e) { return from[e]; });
  };
#if X_HOST
  X_FOR_SPLIT(item, items) one(item);
#else
  const u64 step = split::blocks() * warpsInBlock();
  for (u64 item = split::block() * warpsInBlock() + warpId(); item < items; item += step) one(item);
#endif
}

/** `count` blocks of `blockValues` values, a multiple of EIGHT, one after the other; one beyond the pool is its first. */
template <class T>
X_DEVICE void unpack(u64 count, u64 blockValues, u64 poolBlocks, const u32* blocks, const Q8Rows& from, T* out) {
  constexpr u32 EIGHT = 8;
  const u64 each = blockValues / EIGHT;
  X_FOR_EACH(i, count * each) {
    const u64 block = i / each, e = (i - block * each) * EIGHT, own = blocks[block];
    const Q8Rows at = from + ((own < poolBlocks ? own : 0) * blockValues + e);
    const Vec<u8, EIGHT> codes = loadVec<EIGHT>(at.code());
    const float scale = to_acc(*at.scale());
    constexpr u32 PART = vecWidth<T> < EIGHT ? vecWidth<T> : EIGHT;
#pragma unroll
    for (u32 first = 0; first < EIGHT; first += PART) {
      Vec<T, PART> values;
#pragma unroll
      for (u32 j = 0; j < PART; ++j) values[j] = from_acc<T>(valueOf(codes[first + j]) * scale);
      storeVec(out + i * EIGHT + first, values);
    }
  }
}

}  // namespace kv
