// Keys and values into the pool of a cache in blocks, of products that other kernels have turned and laid out.
#pragma once

namespace paged {

/**
 * Keys [kvHeads, tokens, d] and values [kvHeads, tokens, dv] into the pool's slots; a slot beyond the pool is left out. With
 * dv = 0 there are no values.
 */
template <class T, class K>
X_DEVICE void append(u64 tokens, u64 kvHeads, u64 d, u64 dv, u64 poolSlots, const u32* slots, const T* k, u64 kHead,
                     u64 kRow, const T* v, u64 vHead, u64 vRow, K* kPool, K* vPool) {
  const u64 width = d + dv;
  X_FOR_EACH(i, tokens * kvHeads * width) {
    const u64 e = i % width, head = i / width % kvHeads, token = i / width / kvHeads, slot = slots[token];
    if (slot >= poolSlots) continue;
    if (e < d) kPool[(slot * kvHeads + head) * d + e] = cast<K>(k[head * kHead + token * kRow + e]);
    else vPool[(slot * kvHeads + head) * dv + e - d] = cast<K>(v[head * vHead + token * vRow + e - d]);
  }
}

}  // namespace paged
