// The activation of a layer without a gate, of a product whose bias is still to be added: as q8_1 blocks for the next product, or
// as numbers.
#pragma once

namespace decode {

/** act(x + bias) of rows of n values, which begin every `row` values. */
struct Activated {
  u64 rows;
  u32 n, padded;  // values of a row, and of one in blocks; n is a multiple of 32 where there are blocks
  const float* x;
  u64 row;
  const float* bias;  // [n], or null
  u8* blocks;         // as q8_1, or null
  float* y;           // [rows, n], or null
};

#if X_HOST
/** `count` values of a row from `at` on. */
template <class Act>
X_DEVICE void activate(const Activated& p, const float* x, u32 at, u32 count, float* y) {
  const float* bias = p.bias;
  if (bias)
    for (u32 e = 0; e < count; ++e) y[e] = Act::apply(x[at + e] + bias[at + e]);
  else
    for (u32 e = 0; e < count; ++e) y[e] = Act::apply(x[at + e]);
}
#endif

template <class Act>
X_DEVICE void activatedAll(const Activated& p) {
  early::await();
  early::letNextBegin();
#if X_HOST
  // So many values at once as the first cache holds beside their blocks.
  constexpr u32 PART = 1024;
  alignas(64) float part[PART];
  const u32 parts = (p.n + PART - 1) / PART;
  X_FOR_SPLIT(item, p.rows * parts) {
    const u64 row = item / parts;
    const u32 at = (u32)(item % parts) * PART, count = p.n - at < PART ? p.n - at : PART;
    float* y = p.y ? p.y + row * p.n + at : part;
    activate<Act>(p, p.x + row * p.row, at, count, y);
    if (!p.blocks) continue;
    u8* blocks = p.blocks + row * (p.padded / 32) * quant::Q8_1::BYTES;
    for (u32 g = 0; g < count; g += 32) quant::quantizeGroup(y + g, 32, blocks + (at + g) / 32 * quant::Q8_1::BYTES);
    if (at + count == p.n) quant::padRow(blocks, p.n, p.padded);
  }
#else
  const u32 width = p.blocks ? p.padded : p.n, quads = (width + 3) / 4;
  const u64 total = p.rows * quads;
  // All threads of a block go through every step, since lanes share blocks.
  for (u64 base = split::block() * blockThreads(); base < total; base += split::blocks() * blockThreads()) {
    const u64 i = base + threadIndex(), row = i / quads;
    const u32 at = (u32)(i - row * quads) * 4;
    float values[4] = {};
#pragma unroll
    for (u32 e = 0; e < 4; ++e) {
      if (i >= total || at + e >= p.n) continue;
      values[e] = Act::apply(p.x[row * p.row + at + e] + (p.bias ? p.bias[at + e] : 0.0f));
      if (p.y) p.y[row * p.n + at + e] = values[e];
    }
    if (p.blocks) quant::quantizeQuad(values, p.blocks + i / 8 * quant::Q8_1::BYTES, i < total);
  }
#endif
}

}  // namespace decode
