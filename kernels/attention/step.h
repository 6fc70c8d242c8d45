// Attention of single tokens over a cache in blocks, from what the product before it gives: queries are normalised and rotated
// by the blocks that use them, and keys and values go into the cache by the block that looks at the newest position. So a
// token's sequence is no other one's of the launch. As decode/heads.h and then paged.h.
#pragma once

namespace paged {

/** Elements of a head at most. */
constexpr u32 MAX_STEP_HEAD = 256;  // launchers: PAGED_MAX_STEP_HEAD
/** As {@link BLOCKS}, for any cache. */
[[maybe_unused]] constexpr u32 STEP_BLOCKS = 3;  // launchers: PAGED_STEP_BLOCKS

/** Queries, and a new key and value, as a product gives them. */
template <u32 HEADS, class K>
struct Fresh {
  const decode::Heads<K>& p;
  const Item& item;
  u32 position, slot;
  float value;

  X_DEVICE const float* values() const { return p.v + item.token * p.vRow + (u64)item.kvHead * p.dv; }
  X_DEVICE void begin() {
    position = p.positions[item.token];
    slot = p.slots[item.token];
    value = threadIndex() < p.dv ? values()[threadIndex()] : 0.0f;
  }
  X_DEVICE void put(const Part& part, float* to) {
    const bool isNewest = item.part + 1 == part.parts, writes = isNewest && slot < p.poolSlots;
    const u64 place = (u64)slot * p.kvHeads + item.kvHead;
    const u32 vectors = HEADS + (isNewest ? 1 : 0);
    K* key = p.kPool + place * p.d;
    for (u32 h = warpId(); h < vectors; h += warpsInBlock()) {
      float* query = to + h * p.d;
      if (h >= item.count && h < HEADS) {
        for (u32 e = laneId(); e < p.d; e += WARP) query[e] = 0.0f;
        continue;
      }
      const bool isQuery = h < HEADS;
      const float* from = isQuery ? p.q + item.token * p.qRow + (u64)(item.head + h) * p.d
                                  : p.k + item.token * p.kRow + (u64)item.kvHead * p.d;
      const float* norm = isQuery ? p.qNorm : p.kNorm;
      const float factor = isQuery ? p.scale : 1.0f;
      decode::rotateHead<MAX_STEP_HEAD>(p, position, from, norm, factor, [=](u32 e, float x) {
        if (isQuery) query[e] = x;
        else if (writes) key[e] = cast<K>(x);
      });
    }
    if (!writes) return;
    for (u32 e = threadIndex(); e < p.dv; e += blockThreads())
      p.vPool[place * p.dv + e] = cast<K>(e == threadIndex() ? value : values()[e]);
  }
};

/** As {@link attendAll}; p.q is not read, and p.scale is 1. */
template <u32 HEADS, class K>
X_DEVICE void stepAll(const Problem<float, K>& p, const decode::Heads<K>& heads, u32 items) {
#if X_HOST
  X_FOR_SPLIT(index, items) {
    const Item item = Item::of<HEADS>((u32)index, p.heads, p.kvHeads, p.parts);
    attend<HEADS>(p, item, Fresh<HEADS, K>{heads, item, 0, 0, 0.0f});
  }
#else
  const bool inside = split::block() < items;
  const Item item = Item::of<HEADS>(inside ? (u32)split::block() : 0, p.heads, p.kvHeads, p.parts);
  if (inside) {
    sendForKeys(p, item.token, item.kvHead, item.part);
    if (warpId() == 0) decode::sendForTables(heads, item.token);
  }
  early::await();
  // The next kernel begins when blocks end, as behind products of one column.
  if (inside) attend<HEADS>(p, item, Fresh<HEADS, K>{heads, item, 0, 0, 0.0f});
#endif
}

}  // namespace paged
