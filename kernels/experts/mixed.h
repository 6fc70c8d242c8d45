// The second half of experts for few tokens: products with the down weights of the experts that a token chose, times what the
// router gives each, added up in the order of the choice, and behind them what an expert of all tokens gave, or gives here. A team
// (shared/team.h) takes a pair of rows of all of a token's experts as if they were one long row, so that short rows fill it, too.
#pragma once

namespace experts {

/** How what a token's experts give is added up. */
struct Mix {
  const float* weights;  // [tokens, topk], or null: ones
  const float* bias;     // [experts, n], or null
  const float* base;     // [tokens, n], added at the end, or null
  const float* gates;    // [tokens], whose sigmoid multiplies base, or null; one every gatesRow values
  u64 gatesRow;
  u32 n, topk;

  X_DEVICE float weightOf(u64 pair) const { return weights ? weights[pair] : 1.0f; }
  /** What multiplies a token's row of base. */
  X_DEVICE float gateOf(u64 token) const {
    return gates ? 1.0f / (1.0f + m::exp(-gates[token * gatesRow])) : 1.0f;
  }
};

/** The expert that all tokens take, in the place of Mix::base; what multiplies that multiplies what it gives. */
struct SharedDown {
  const u8* weights;  // [n, k] in blocks of the type that the others have, or null: there is none
  const u8* inputs;   // [tokens, k] in q8_1
  u32 k, kPadded;     // as those of Mixed
};

struct Mixed {
  const u8* weights;  // [experts, n, k] in blocks
  const u8* inputs;   // [tokens * topk, k] in q8_1
  const u32* ids;     // [tokens, topk], or null: each token takes the only expert
  Mix mix;
  float* out;  // [tokens, n], rows begin every outRow values
  u64 outRow;
  u32 n, k, tokens, topk;
  u32 kPadded;  // values that rows in q8_1 have room for
  SharedDown shared;

  X_DEVICE const u8* sharedInputOf(u64 token) const { return shared.inputs + token * (shared.kPadded / 32 * quant::Q8_1::BYTES); }
  X_DEVICE u32 expertOf(u64 pair) const { return ids ? ids[pair] : 0; }
  X_DEVICE const u8* inputOf(u64 pair) const { return inputs + pair * (kPadded / 32 * quant::Q8_1::BYTES); }
};

template <class Q>
X_DEVICE void mixedToken(const Mixed& p, u64 token) {
  const u64 rowBytes = (u64)(p.k / Q::SIZE) * Q::BYTES, expertBytes = rowBytes * p.n;
#if X_HOST
  constexpr u64 AT_ONCE = 256;  // rows, for which activations are brought into order once
  const u64 sharedBytes = (u64)(p.shared.k / Q::SIZE) * Q::BYTES;
  const float gate = p.mix.base || p.shared.weights ? p.mix.gateOf(token) : 0.0f;
  const u64 end = (u64)p.n * (blockX() + 1) / gridX();
  for (u64 row = (u64)p.n * blockX() / gridX(); row < end; row += AT_ONCE) {
    const u64 count = end - row < AT_ONCE ? end - row : AT_ONCE;
    float sums[AT_ONCE] = {}, part[AT_ONCE];
    for (u32 c = 0; c < p.topk; ++c) {
      const u64 pair = token * p.topk + c, expert = p.expertOf(pair);
      const float mix = p.mix.weightOf(pair);
      quant::hostColumn<Q>(p.weights + expert * expertBytes + row * rowBytes, 0, count, p.k, p.inputOf(pair), part);
      if (p.mix.bias)
        for (u64 i = 0; i < count; ++i) part[i] += p.mix.bias[expert * p.n + row + i];
      for (u64 i = 0; i < count; ++i) sums[i] += mix * part[i];
    }
    if (p.shared.weights) {
      quant::hostColumn<Q>(p.shared.weights + row * sharedBytes, 0, count, p.shared.k, p.sharedInputOf(token), part);
      for (u64 i = 0; i < count; ++i) sums[i] += gate * part[i];
    }
    float* out = p.out + token * p.outRow + row;
    const float* base = p.mix.base ? p.mix.base + token * p.n + row : nullptr;
    for (u64 i = 0; i < count; ++i) out[i] = base ? sums[i] + gate * base[i] : sums[i];
  }
#else
  constexpr u32 PAIR = quant::PAIR;
  const float gate = p.mix.base || p.shared.weights ? p.mix.gateOf(token) : 0.0f;
  X_SHARED(float, partial, quant::MOST_WARPS * PAIR);
  const u32 parts = p.k / 32, steps = parts / quant::PARTS_AT_ONCE<Q>, own = p.topk * steps;
  const Team team = teamFor((p.n + PAIR - 1) / PAIR, blockX(), gridX());
  for (u64 row = team.index * PAIR; row < p.n; row += team.count * PAIR) {
    float sums[PAIR] = {};
    // One step of a row of `bytes`, times `mix`.
    const auto add = [&](const u8* weights, u64 bytes, const u8* input, u32 step, u32 of, float mix) {
      const u8* rows[PAIR];
#pragma unroll
      for (u32 r = 0; r < PAIR; ++r) rows[r] = weights + (row + r < p.n ? row + r : p.n - 1) * bytes;
      // A zero that is seen would look like a product that is rounded (tools/kernels/roundings.ts).
      float acc[1][PAIR];
#pragma unroll
      for (u32 r = 0; r < PAIR; ++r) acc[0][r] = opaque(0.0f);
      quant::dotRows<Q, 1>(rows, input, 0, of * quant::PARTS_AT_ONCE<Q>, Team{step, of, 0, 1, true}, acc);
#pragma unroll
      for (u32 r = 0; r < PAIR; ++r) sums[r] += mix * acc[0][r];
    };
#pragma unroll 1
    for (u32 s = team.thread; s < own; s += team.threads) {
      const u32 c = s / steps;
      const u64 pair = token * p.topk + c;
      add(p.weights + p.expertOf(pair) * expertBytes, rowBytes, p.inputOf(pair), s - c * steps, steps, p.mix.weightOf(pair));
    }
    if (p.shared.weights) {
      // By the threads behind those with the last steps above.
      const u32 last = p.shared.k / 32 / quant::PARTS_AT_ONCE<Q>;
#pragma unroll 1
      for (u32 s = (team.thread + team.threads - own % team.threads) % team.threads; s < last; s += team.threads) {
        // Computed here, and not kept in scalar registers, of which there are too few.
        const u64 bytes = (u64)(opaque(p.shared.k) / Q::SIZE) * Q::BYTES;
        add(p.shared.weights, bytes, p.sharedInputOf(token), s, last, gate);
      }
    }
    if (p.mix.bias) {
      for (u32 c = team.thread; c < p.topk; c += team.threads) {
        const u64 pair = token * p.topk + c;
        const float* bias = p.mix.bias + (u64)p.expertOf(pair) * p.n;
        const float mix = p.mix.weightOf(pair);
#pragma unroll
        for (u32 r = 0; r < PAIR; ++r)
          if (row + r < p.n) sums[r] += mix * bias[row + r];
      }
    }
    warpReduceEach<Sum>(sums);
    if (!team.isWarp) {
#pragma unroll
      for (u32 r = 0; r < PAIR; ++r)
        if (laneId() == 0) partial[warpId() * PAIR + r] = sums[r];
      barrier();
#pragma unroll
      for (u32 r = 0; r < PAIR; ++r) sums[r] = quant::sumOfWarps(partial + r, PAIR);
      barrier();
    }
#pragma unroll
    for (u32 r = 0; r < PAIR; ++r) {
      if (team.thread != 0 || row + r >= p.n) continue;
      p.out[token * p.outRow + row + r] = p.mix.base ? sums[r] + gate * p.mix.base[token * p.n + row + r] : sums[r];
    }
  }
#endif
}

/** The x axis shares the rows; y counts the tokens, and z where y is not enough. */
template <class Q>
X_DEVICE void mixedAll(const Mixed& p) {
  early::letNextBegin();
  early::await();
  const u64 first = blockY() + (u64)gridY() * blockZ();
#if X_HOST
  for (u64 token = first; token < p.tokens; token += (u64)gridY() * gridZ()) mixedToken<Q>(p, token);
#else
  // No loop: what it keeps would take more scalar registers than there are.
  if (first < p.tokens) mixedToken<Q>(p, first);
#endif
}

}  // namespace experts
