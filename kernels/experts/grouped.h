// Experts of many tokens: what lies between the products of pairs of token and expert, which are in the order of their experts
// (decode/route.h). Tokens become the blocks of their pairs, gate and up the blocks that the next product reads, and what each
// of a token's experts gives is added up in the order of the choice.
#pragma once

namespace experts {

/** Calls use(row) with the row that this block is for, which y counts, and z where y is not enough; on the host with several. */
template <class Use>
X_DEVICE void eachRow(u64 rows, Use use) {
  const u64 own = blockY() + (u64)gridY() * blockZ();
#if X_HOST
  for (u64 row = own; row < rows; row += (u64)gridY() * gridZ()) use(row);
#else
  if (own < rows) use(own);
#endif
}

/** Rows that the next product reads: q8_1 blocks, or on NVIDIA operands (quant::operands). */
struct Target {
  u8* blocks;
  f16* operands;  // null where there are blocks
  bool fourWay;
  u32 padded;  // values of a row, with the zeros behind it
};

/** Row `row` of n values, get(0) to get(n - 1): the x axis shares them, blocks of whole warps on GPUs, as many as have all at once. */
template <class Get>
X_DEVICE void putRow(const Target& p, u64 row, u32 n, Get get) {
  const u32 groups = p.padded / GROUP;
  u8* out = p.blocks + row * groups * quant::Q8_1::BYTES;
#if X_HOST
  const u64 end = (u64)groups * (blockX() + 1) / gridX();
  for (u64 g = (u64)groups * blockX() / gridX(); g < end; ++g) {
    const u32 first = (u32)g * GROUP, count = first >= n ? 0 : n - first < GROUP ? n - first : GROUP;
    float values[GROUP];
    for (u32 i = 0; i < count; ++i) values[i] = get(first + i);
    quant::quantizeGroup(values, count, out + g * quant::Q8_1::BYTES);
  }
#else
  const u32 at = (blockX() * blockThreads() + threadIndex()) * 4;
  float values[4];
#pragma unroll
  for (u32 e = 0; e < 4; ++e) values[e] = at + e < n ? get(at + e) : 0.0f;
#if X_NVPTX
  if (p.operands) {
    if (at < p.padded) quant::operands::write(p.operands + row * p.padded, at, p.fourWay, values);
    return;
  }
#endif
  quant::quantizeQuad(values, out + at / GROUP * quant::Q8_1::BYTES, at < p.padded);
#endif
}

struct Rows {
  const float* x;      // [tokens, k]
  const u32* sources;  // [pairs]: the token of each, or null: each pair has a row
  u64 pairs;
  u32 k;
  Target to;  // [pairs, k]
};

X_DEVICE void rowsAll(const Rows& p) {
  early::await();
  early::letNextBegin();
  eachRow(p.pairs, [&](u64 pair) {
    const float* x = p.x + (p.sources ? p.sources[pair] : pair) * p.k;
    putRow(p.to, pair, p.k, [=](u32 i) { return x[i]; });
  });
}

struct Combined {
  const float *gate, *up;  // [pairs, n], the products without their biases
  const u32* owners;       // [pairs]: the expert of each
  u64 pairs;
  Gate gates;
  Target to;  // [pairs, n]
};

X_DEVICE void combineAll(const Combined& p) {
  early::await();
  early::letNextBegin();
  eachRow(p.pairs, [&](u64 pair) {
    const float *gate = p.gate + pair * p.gates.n, *up = p.up + pair * p.gates.n;
    const u32 expert = p.owners[pair];
    putRow(p.to, pair, p.gates.n, [=](u32 i) { return p.gates.apply(gate[i], up[i], (u64)expert * p.gates.n + i); });
  });
}

struct Summed {
  const float* given;  // [pairs, n], by expert
  const u32* places;   // [tokens, topk]: where they are
  const u32* ids;      // [tokens, topk]
  Mix mix;
  float* out;  // [tokens, n]
  u64 tokens;
};

#if !X_HOST
/** Columns i to i + WIDTH - 1 of a token, of rows that begin at multiples of so many values. */
template <u32 WIDTH>
X_DEVICE void sumColumns(const Summed& p, u64 token, u32 i, float gate) {
  typedef Vec<float, WIDTH> Columns;
  const u32 n = p.mix.n;
  Columns sum = {};
  for (u32 c = 0; c < p.mix.topk; ++c) {
    const u64 pair = token * p.mix.topk + c;
    const float weight = p.mix.weightOf(pair);
    const Columns given = loadVec<WIDTH>(p.given + (u64)p.places[pair] * n + i);
    const float* bias = p.mix.bias ? p.mix.bias + (u64)p.ids[pair] * n + i : nullptr;
#pragma unroll
    for (u32 e = 0; e < WIDTH; ++e) sum[e] += weight * (bias ? given[e] + bias[e] : given[e]);
  }
  if (p.mix.base) {
    const float* base = p.mix.base + token * n + i;
#pragma unroll
    for (u32 e = 0; e < WIDTH; ++e) sum[e] += gate * base[e];
  }
  storeVec(p.out + token * n + i, sum);
}
#endif

X_DEVICE void sumToken(const Summed& p, u64 token) {
  const u32 n = p.mix.n;
  const float gate = p.mix.base ? p.mix.gateOf(token) : 0.0f;
#if X_HOST
  constexpr u32 AT_ONCE = 256;  // columns, for which a pair's numbers are read once
  const u32 end = (u32)((u64)n * (blockX() + 1) / gridX());
  for (u32 first = (u32)((u64)n * blockX() / gridX()); first < end; first += AT_ONCE) {
    const u32 count = end - first < AT_ONCE ? end - first : AT_ONCE;
    float sums[AT_ONCE] = {};
    for (u32 c = 0; c < p.mix.topk; ++c) {
      const u64 pair = token * p.mix.topk + c;
      const float weight = p.mix.weightOf(pair);
      const float* given = p.given + (u64)p.places[pair] * n + first;
      const float* bias = p.mix.bias ? p.mix.bias + (u64)p.ids[pair] * n + first : nullptr;
      if (bias)
        for (u32 i = 0; i < count; ++i) sums[i] += weight * (given[i] + bias[i]);
      else
        for (u32 i = 0; i < count; ++i) sums[i] += weight * given[i];
    }
    float* out = p.out + token * n + first;
    const float* base = p.mix.base ? p.mix.base + token * n + first : nullptr;
    for (u32 i = 0; i < count; ++i) out[i] = base ? sums[i] + gate * base[i] : sums[i];
  }
#else
  const bool wide = n % 4 == 0 && aligned16(p.given) && aligned16(p.out);
  const u32 begin = blockX() * blockThreads() + threadIndex(), step = gridX() * blockThreads();
  if (wide)
    for (u32 i = begin; i < n / 4; i += step) sumColumns<4>(p, token, i * 4, gate);
  else
    for (u32 i = begin; i < n; i += step) sumColumns<1>(p, token, i, gate);
#endif
}

X_DEVICE void sumAll(const Summed& p) {
  early::await();
  early::letNextBegin();
  eachRow(p.tokens, [&](u64 token) { sumToken(p, token); });
}

}  // namespace experts
