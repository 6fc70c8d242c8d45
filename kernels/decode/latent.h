// Between the products of multi-head latent attention (DeepSeek-V2, arXiv 2405.04434): the norm of the latent vector and the
// rotation of the key that heads share, both into the cache's slots; of queries the rotated part, and the plain part as the q8_1
// blocks that the product reads which brings it to the latent's width. A warp takes a head or a latent vector.
#pragma once

namespace decode {

template <class K>
struct Latent {
  u64 tokens;
  u32 heads, plain, rotated;  // plain is a multiple of 32, rotated even
  u32 rank, padded;           // padded is of a head's plain part in blocks
  bool interleaved;           // pairs are neighbours; else half of `rotated` lies between them
  float eps;
  const float* q;  // heads of plain + rotated values; a token's begin every qRow values
  u64 qRow;
  const float* latent;  // rank + rotated values, every latentRow values
  u64 latentRow;
  const float* alpha;      // [rank]
  const float *cos, *sin;  // a row a position, of rotated / 2 values; rows begin every tableRow values
  u64 tableRow, tableLength;  // a position beyond the table is its last one
  const u32 *positions, *slots;
  u64 poolSlots;  // a slot beyond these is left out
  float* out;     // [tokens, heads, rank + rotated], of which the first rank values of a head are left alone
  u8* blocks;     // [tokens * heads, padded]
  K* pool;        // [poolSlots, rank + rotated]

  /** Where a position's row of the tables begins. */
  X_DEVICE u64 rowOf(u32 position) const { return (position < tableLength ? position : tableLength - 1) * tableRow; }

  /** Turns what lies at `from` by a token's position, and gives it to put(e, value). All lanes of a warp. */
  template <class Put>
  X_DEVICE void rotate(u64 token, const float* from, Put put) const {
    const u32 half = rotated / 2;
    for (u32 pair = laneId(); pair < half; pair += WARP) {
      const u32 first = interleaved ? 2 * pair : pair, second = interleaved ? first + 1 : pair + half;
      const float x = from[first], y = from[second];
      const u64 row = rowOf(positions[token]) + pair;
      const float c = cos[row], s = sin[row];
      put(first, x * c - y * s);
      put(second, x * s + y * c);
    }
  }

  X_DEVICE void query(u64 token, u32 head) const {
    const u64 row = token * heads + head;
    const float* from = q + token * qRow + (u64)head * (plain + rotated);
    float* to = out + row * (rank + rotated) + rank;
    rotate(token, from + plain, [=](u32 e, float value) { to[e] = value; });
    u8* written = blocks + row * (padded / 32) * quant::Q8_1::BYTES;
#if X_HOST
    for (u32 i = 0; i < plain; i += 32) quant::quantizeGroup(from + i, 32, written + i / 32 * quant::Q8_1::BYTES);
#else
    // All lanes go through every step, since they share blocks.
#pragma unroll 1
    for (u32 base = 0; base < plain; base += WARP * 4) {
      const u32 c = base + laneId() * 4;
      float values[4];
#pragma unroll
      for (u32 e = 0; e < 4; ++e) values[e] = c < plain ? from[c + e] : 0.0f;
      quant::quantizeQuad(values, written + c / 32 * quant::Q8_1::BYTES, c < plain);
    }
#endif
    constexpr u32 WORDS = quant::Q8_1::BYTES / 4;
    for (u32 i = plain / 32 * WORDS + laneId(); i < padded / 32 * WORDS; i += WARP) ((u32*)written)[i] = 0;
  }

  X_DEVICE void key(u64 token) const {
    const float* from = latent + token * latentRow;
    const u32 slot = slots[token];
    const bool writes = slot < poolSlots;
    K* to = pool + (u64)slot * (rank + rotated);
    K* tail = to + rank;
    rotate(token, from + rank, [=](u32 e, float value) {
      if (writes) tail[e] = cast<K>(value);
    });
    float squares = 0.0f;
#pragma unroll 8
    for (u32 i = laneId(); i < rank; i += WARP) squares += from[i] * from[i];
    const float scale = 1.0f / m::sqrt(warpReduce<Sum>(squares) / (float)rank + eps);
    if (!writes) return;
#pragma unroll 8
    for (u32 i = laneId(); i < rank; i += WARP) to[i] = cast<K>(from[i] * scale * alpha[i]);
  }

  X_DEVICE void one(u64 item) const {
    const u64 token = item / (heads + 1);
    const u32 head = (u32)(item - token * (heads + 1));
    if (head < heads) query(token, head);
    else key(token);
  }
};

/** Sends for what a token's rows are turned and normalised with, while the kernel before this one still runs; by a warp. */
template <class K>
X_DEVICE void sendForTables([[maybe_unused]] const Latent<K>& p, [[maybe_unused]] u64 token) {
#if X_EARLY
  const u64 row = p.rowOf(early::peek(p.positions + token));
  const u32 lane = laneId();
  if (lane < 2) early::prefetchLines((lane == 0 ? p.cos : p.sin) + row, p.rotated / 2 * sizeof(float));
  if (lane == 2) early::prefetchLines(p.alpha, p.rank * sizeof(float));
#endif
}

template <class K>
X_DEVICE void latentAll(const Latent<K>& p) {
  const u64 items = p.tokens * (p.heads + 1);
#if X_HOST
  X_FOR_SPLIT(item, items) p.one(item);
#else
  // Enough blocks for all: what a loop keeps would take more scalar registers than there are.
  const u64 item = split::block() * warpsInBlock() + warpId();
  if (item < items) sendForTables(p, item / (p.heads + 1));
  early::await();
  early::letNextBegin();
  if (item < items) p.one(item);
#endif
}

}  // namespace decode
