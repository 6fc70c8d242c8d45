// The first half of experts for few tokens: products of a token with the gate and up weights of each expert that it chose,
// and what the activation makes of both, as the q8_1 blocks that the second half reads. 32 rows of an expert are one block of
// results and a thread block's work, so that nothing between the two halves goes through memory in f32. Beside them an expert of
// another width that all tokens take, whose weights have the same type.
#pragma once

namespace experts {

/** Rows of a group: values of a q8_1 block. */
constexpr u32 GROUP = 32;

/** Values of `activation`; `Clamped` is gpt-oss's: gate * sigmoid(1.702 * gate) * (up + 1), with both limited. */
enum Activation : u32 { SILU, GELU, CLAMPED };

/** What becomes of the gate and up of an expert's row. */
struct Gate {
  const float *gateBias, *upBias;  // [experts, n], or null
  u32 n;
  u32 activation;
  float limit;  // of CLAMPED

  /** @param at of the biases */
  X_DEVICE float apply(float g, float u, u64 at) const {
    if (gateBias) g += gateBias[at];
    if (upBias) u += upBias[at];
    if (activation == CLAMPED) {
      // As minimum and clamp do, NaN stays NaN.
      g = g > limit ? limit : g;
      u = u > limit ? limit : u < -limit ? -limit : u;
      return m::overOneOrMore(g, 1.0f + m::exp(-1.702f * g)) * (u + 1.0f);
    }
    return (activation == GELU ? gates::Gelu::apply(g) : gates::Silu::apply(g)) * u;
  }
};

/** A row of blocks to be made: of a pair of token and expert, or of a token and the expert that all take. */
struct GatedRow {
  const u8 *gate, *up;  // [n, k] in blocks
  const u8* input;
  u8* blocks;
  u32 n, groups;  // a multiple of 32; groups that there is room for, zeros behind n
  u64 bias;       // of the first value
};

/** The expert that all tokens take; there are no biases then. */
struct Shared {
  const u8 *gate, *up;  // [n, k] in blocks, or null: there is none
  u8* blocks;           // [tokens, n] in q8_1
  u32 n, nPadded;       // as those of Gated
};

struct Gated {
  const u8 *gate, *up;  // [experts, n, k] in blocks
  const u8* inputs;     // [tokens, k] in q8_1
  const u32* ids;       // [tokens, topk], or null: each token takes the only expert
  u8* blocks;           // [tokens * topk, n] in q8_1
  u32 n, k;             // multiples of 32
  u32 tokens, topk;
  u32 kPadded, nPadded;  // values that rows in q8_1 have room for; zeros behind n
  Gate gates;
  Shared shared;

  X_DEVICE u64 pairs() const { return (u64)tokens * topk; }
  X_DEVICE u64 tasks() const { return shared.gate ? pairs() + tokens : pairs(); }
  X_DEVICE const u8* inputOf(u64 token) const { return inputs + token * (kPadded / GROUP * quant::Q8_1::BYTES); }
  /** @param rowBytes of a weight */
  X_DEVICE GatedRow rowOf(u64 task, u64 rowBytes) const {
    if (task >= pairs()) {
      const u64 token = task - pairs();
      const u32 groups = shared.nPadded / GROUP;
      return {shared.gate, shared.up, inputOf(token), shared.blocks + token * groups * quant::Q8_1::BYTES, shared.n, groups, 0};
    }
    const u64 first = (u64)(ids ? ids[task] : 0) * n;
    const u32 groups = nPadded / GROUP;
    return {gate + first * rowBytes, up + first * rowBytes, inputOf(task / topk), blocks + task * groups * quant::Q8_1::BYTES,
            n, groups, first};
  }
};

#if !X_HOST
/** Lanes that share a row of so many steps, as a power of two: all of a warp, or fewer where a row is short. */
X_DEVICE u32 rowLanes(u32 steps) {
  u32 width = 1;
  while (width < WARP && width < steps) width *= 2;
  return width;
}

/** A group of a row by the whole block: its results lie in `values` when all threads are through. */
template <class Q>
X_DEVICE void gatedGroup(const Gated& p, const GatedRow& own, u32 group, float* values) {
  const u64 rowBytes = (u64)(p.k / Q::SIZE) * Q::BYTES;
  const u64 first = (u64)group * GROUP * rowBytes;
  const u32 parts = p.k / 32, width = rowLanes(parts / quant::PARTS_AT_ONCE<Q>);
  const u32 teams = blockThreads() / width, team = threadIndex() / width, lane = threadIndex() % width;
  // Every lane goes through every step, since lanes exchange sums.
  for (u32 base = 0; base < GROUP; base += teams) {
    const u32 r = base + team, row = r < GROUP ? r : GROUP - 1;
    const u8* rows[quant::PAIR] = {own.gate + first + row * rowBytes, own.up + first + row * rowBytes};
    float acc[1][quant::PAIR] = {};
    quant::dotRows<Q, 1>(rows, own.input, 0, parts, Team{lane, width, 0, 1, true}, acc);
    float g = acc[0][0], u = acc[0][1];
    for (u32 mask = width / 2; mask > 0; mask /= 2) {
      g += shuffleXor(g, mask);
      u += shuffleXor(u, mask);
    }
    if (lane == 0 && r < GROUP) values[r] = p.gates.apply(g, u, own.bias + group * GROUP + row);
  }
}
#endif

/**
 * A row of blocks for each pair of token and expert, and behind them one a token for the shared expert: y counts them, and z where y
 * is not enough. On GPUs blocks of whole warps, and one for each group along x: what loops keep would take more scalar registers
 * than there are.
 */
template <class Q>
X_DEVICE void gatedAll(const Gated& p) {
  const u64 rowBytes = (u64)(p.k / Q::SIZE) * Q::BYTES;
  early::letNextBegin();
  early::await();
#if X_HOST
  for (u64 task = blockY() + (u64)gridY() * blockZ(); task < p.tasks(); task += (u64)gridY() * gridZ()) {
    const GatedRow own = p.rowOf(task, rowBytes);
    const u32 whole = own.n / GROUP;
    constexpr u64 AT_ONCE = 8;  // groups, for which activations are brought into order once
    const u64 end = (u64)own.groups * (blockX() + 1) / gridX();
    for (u64 g = (u64)own.groups * blockX() / gridX(); g < end; g += AT_ONCE) {
      const u64 left = end - g < AT_ONCE ? end - g : AT_ONCE, count = g >= whole ? 0 : whole - g < left ? whole - g : left;
      const u64 first = g * GROUP;
      float gate[AT_ONCE * GROUP], up[AT_ONCE * GROUP];
      if (count > 0) {
        quant::hostColumn<Q>(own.gate + first * rowBytes, 0, count * GROUP, p.k, own.input, gate);
        quant::hostColumn<Q>(own.up + first * rowBytes, 0, count * GROUP, p.k, own.input, up);
      }
      for (u64 i = 0; i < count * GROUP; ++i) gate[i] = p.gates.apply(gate[i], up[i], own.bias + first + i);
      for (u64 i = 0; i < left; ++i)
        quant::quantizeGroup(gate + i * GROUP, i < count ? GROUP : 0, own.blocks + (g + i) * quant::Q8_1::BYTES);
    }
  }
#else
  X_SHARED(float, values, GROUP);
  const u64 task = blockY() + (u64)gridY() * blockZ();
  const u32 group = blockX();
  if (task >= p.tasks()) return;
  const GatedRow own = p.rowOf(task, rowBytes);
  if (group >= own.groups) return;
  const bool isWhole = group < own.n / GROUP;
  if (isWhole) gatedGroup<Q>(p, own, group, values);
  barrier();
  if (warpId() != 0) return;
  const u32 member = threadIndex() % 8;
  float four[4];
#pragma unroll
  for (u32 e = 0; e < 4; ++e) four[e] = isWhole ? values[4 * member + e] : 0.0f;
  quant::quantizeQuad(four, own.blocks + (u64)group * quant::Q8_1::BYTES, threadIndex() < 8);
#endif
}

}  // namespace experts
