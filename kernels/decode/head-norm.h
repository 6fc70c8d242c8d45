// Between a layer that carries a state and the product behind it: norms of heads, each times silu of a gate, as q8_1 blocks.
#pragma once

namespace decode {

struct HeadNorm {
  u64 rows;
  u32 heads, d, padded;  // d is a multiple of 32 up to MAX_HEAD; padded is of a row in blocks
  float eps;
  const float* x;      // [rows, heads * d]
  const float* alpha;  // [d]
  const float* gate;   // heads * d values, a row every gateRow values
  u64 gateRow;
  u8* blocks;

  X_DEVICE u8* blocksOf(u64 row) const { return blocks + row * (padded / 32) * quant::Q8_1::BYTES; }
};

/** A head by a warp, all lanes of it. */
X_DEVICE void headNorm(const HeadNorm& p, u64 row, u32 head) {
  const u64 at = (u64)head * p.d;
  const float *x = p.x + row * p.heads * p.d + at, *gate = p.gate + row * p.gateRow + at;
  u8* out = p.blocksOf(row) + at / 32 * quant::Q8_1::BYTES;
#if X_HOST
  float values[MAX_HEAD], squares = 0.0f;
  for (u32 i = 0; i < p.d; ++i) squares += x[i] * x[i];
  const float scale = 1.0f / m::sqrt(squares / (float)p.d + p.eps);
  for (u32 i = 0; i < p.d; ++i) values[i] = x[i] * scale * p.alpha[i] * gates::Silu::apply(gate[i]);
  for (u32 i = 0; i < p.d; i += 32) quant::quantizeGroup(values + i, 32, out + i / 32 * quant::Q8_1::BYTES);
#else
  constexpr u32 QUADS = MAX_HEAD / 4 / WARP;
  float v[QUADS][4];
  float squares = 0.0f;
#pragma unroll
  for (u32 q = 0; q < QUADS; ++q) {
    const u32 c = (q * WARP + laneId()) * 4;
#pragma unroll
    for (u32 e = 0; e < 4; ++e) {
      v[q][e] = c < p.d ? x[c + e] : 0.0f;
      squares += v[q][e] * v[q][e];
    }
  }
  const float scale = 1.0f / m::sqrt(warpReduce<Sum>(squares) / (float)p.d + p.eps);
#pragma unroll
  for (u32 q = 0; q < QUADS; ++q) {
    if (q * WARP * 4 >= p.d) break;
    const u32 c = (q * WARP + laneId()) * 4;
#pragma unroll
    for (u32 e = 0; e < 4; ++e)
      if (c < p.d) v[q][e] = v[q][e] * scale * p.alpha[c + e] * gates::Silu::apply(gate[c + e]);
    quant::quantizeQuad(v[q], out + c / 32 * quant::Q8_1::BYTES, c < p.d);
  }
#endif
  // Zeros behind a row, by whoever has its last head.
  if (head + 1 < p.heads) return;
  constexpr u32 WORDS = quant::Q8_1::BYTES / 4;
  u32* words = (u32*)p.blocksOf(row);
  for (u32 i = p.heads * p.d / 32 * WORDS + laneId(); i < p.padded / 32 * WORDS; i += WARP) words[i] = 0;
}

/** Blocks of whole warps, enough of them for all heads: no loop, out of which registers would be taken. */
X_DEVICE void headNormAll(const HeadNorm& p) {
  early::await();
  early::letNextBegin();
#if X_HOST
  X_FOR_SPLIT(item, p.rows * p.heads) headNorm(p, item / p.heads, (u32)(item % p.heads));
#else
  const u64 item = split::block() * warpsInBlock() + warpId();
  if (item < p.rows * p.heads) headNorm(p, item / p.heads, (u32)(item % p.heads));
#endif
}

}  // namespace decode
