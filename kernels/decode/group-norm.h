// Between a layer that carries a state and the product behind it: values times silu of a gate, and RMS norms of groups of them,
// as q8_1 blocks.
#pragma once

namespace decode {

struct GroupNorm {
  u64 rows;
  u32 groups, d, padded;  // d is a multiple of 32, at most 4 * FEW_TILES values a thread; padded is of a row in blocks
  float eps;
  const float* x;      // [rows, groups * d]
  const float* alpha;  // [groups * d]
  const float* gate;   // groups * d values, a row every gateRow values
  u64 gateRow;
  u8* blocks;

  X_DEVICE u8* blocksOf(u64 row) const { return blocks + row * (padded / 32) * quant::Q8_1::BYTES; }
};

/** A group by a block: x is held in registers between the sum and the norm. */
X_DEVICE void groupNorm(const GroupNorm& p, u64 row, u32 group) {
  const u64 at = (u64)group * p.d;
  const float *x = p.x + row * p.groups * p.d + at, *gate = p.gate + row * p.gateRow + at, *alpha = p.alpha + at;
  u8* out = p.blocksOf(row) + at / 32 * quant::Q8_1::BYTES;
  const auto gated = [=](u64 i) { return x[i] * gates::Silu::apply(gate[i]); };
#if X_HOST
  const float squares = sumOf(p.d, [=](u64 i) { return gated(i) * gated(i); });
  const float scale = 1.0f / m::sqrt(squares / (float)p.d + p.eps);
  quant::quantizeEach(p.d, out, [=](u64 i) { return gated(i) * scale * alpha[i]; });
#else
  float v[FEW_TILES][4];
  const auto column = [](u32 t) { return (t * blockThreads() + threadIndex()) * 4; };
#pragma unroll
  for (u32 t = 0; t < FEW_TILES; ++t)
#pragma unroll
    for (u32 e = 0; e < 4; ++e) v[t][e] = column(t) < p.d ? gated(column(t) + e) : 0.0f;
  const float scale = 1.0f / m::sqrt(squaresHeld(v) / (float)p.d + p.eps);
#pragma unroll
  for (u32 t = 0; t < FEW_TILES; ++t) {
    if (t * blockThreads() * 4 >= p.d) break;
    const u32 c = column(t);
#pragma unroll
    for (u32 e = 0; e < 4; ++e) v[t][e] *= c < p.d ? scale * alpha[c + e] : 0.0f;
    quant::quantizeQuad(v[t], out + c / 32 * quant::Q8_1::BYTES, c < p.d);
  }
#endif
  // Zeros behind a row, by whoever has its last group.
  if (group + 1 == p.groups) quant::padRow(p.blocksOf(row), p.groups * p.d, p.padded);
}

X_DEVICE void groupNormAll(const GroupNorm& p) {
  early::await();
  early::letNextBegin();
#if X_HOST
  X_FOR_SPLIT(item, p.rows * p.groups) groupNorm(p, item / p.groups, (u32)(item % p.groups));
#else
  const u64 item = split::block();
  if (item < p.rows * p.groups) groupNorm(p, item / p.groups, (u32)(item % p.groups));
#endif
}

}  // namespace decode
