/** The experts of few tokens in two kernels, and of many in a few more, against the same of a product and an operation a step. */
import {
  BLOCK_TYPES,
  type BlockType,
  type GateActivation,
  memoryStats,
  type QuantizedActivations,
  scope,
  Tensor,
} from '@x/core';
import {
  ExpertOrder,
  fusesGate,
  fusesMix,
  type GatedExpertsOptions,
  gatedExperts,
  gatedExpertsBeside,
  groupedExperts,
  type MixedExpertsOptions,
  mixedExperts,
  mixedExpertsInto,
  QMatMul,
  QTensor,
  quantizedRows,
} from '@x/quantized';
import { kernelDevices } from '@x/testing/devices';
import { randomBlocks } from '@x/testing/quantized/random-blocks';
import { describe, expect, it } from 'vitest';
import { noise } from './decode-operands';

const TYPES = Object.keys(BLOCK_TYPES) as BlockType[];
const EXPERTS = 5;

interface Sizes {
  tokens: number;
  topk: number;
  /** Blocks along the input and along what experts have inside; rows of the result. */
  inputs: number;
  insides: number;
  hidden: number;
}

/** Tokens that share experts, rows that fill no warp, widths that fill no padding. */
const SIZES: Sizes[] = [
  { tokens: 1, topk: 3, inputs: 1, insides: 1, hidden: 71 },
  { tokens: 3, topk: 2, inputs: 3, insides: 2, hidden: 1 },
  { tokens: 8, topk: 1, inputs: 2, insides: 1, hidden: 34 },
];

/** Whole blocks of at least 32 values. */
const widthOf = (type: BlockType, blocks: number) => blocks * Math.max(64, BLOCK_TYPES[type].blockSize);

/** Experts that neighbouring tokens share, none twice by a token. */
const idsOf = (tokens: number, topk: number) =>
  new Uint32Array(tokens * topk).map((_, i) => (Math.floor(i / topk) * 3 + (i % topk) * 2) % EXPERTS);

function composedGate(gate: Tensor, up: Tensor, activation: GateActivation): Tensor {
  if (activation === 'silu') return gate.silu().mul(up);
  if (activation === 'gelu') return gate.gelu().mul(up);
  const { clamped: limit } = activation;
  const most = gate.minimum(limit);
  return most.mul(most.mul(1.702).sigmoid()).mul(up.clamp(-limit, limit).add(1));
}

function expectAlike(actual: Tensor, expected: Tensor, what: string, bound = 8e-3): void {
  expect(actual.shape).toEqual(expected.shape);
  const [got, wanted] = [actual, expected].map((x) => x.flattenAll().toVecSync<number[]>());
  const most = wanted.reduce((largest, value) => Math.max(largest, Math.abs(value)), 0);
  // Values inside that lie between two quants may be rounded either way. NaN is the worst there is.
  let worst = 0;
  const error = (i: number) => Math.abs(got[i] - wanted[i]);
  for (let i = 1; i < got.length; i++) if (!(error(i) <= error(worst))) worst = i;
  expect(error(worst), `${what} ${worst}: ${got[worst]} for ${wanted[worst]}`).toBeLessThanOrEqual(bound * most);
}

describe.each(kernelDevices())('fused experts on %s', (device) => {
  const numbers = (shape: number[], seed: number, range = 1) =>
    Tensor.from(
      noise(
        shape.reduce((a, b) => a * b),
        seed,
        range,
      ),
      { shape, device },
    );
  const blocks = (type: BlockType, shape: number[], seed: number) => {
    const count = shape.reduce((a, b) => a * b) / BLOCK_TYPES[type].blockSize;
    return QTensor.fromBytes(type, shape, randomBlocks(type, count, seed), device);
  };
  const addBias = (x: Tensor, bias: Tensor | undefined, ids: Tensor) =>
    bias ? x.add(bias.indexSelect(ids.flattenAll(), 0).reshape(x.shape)) : x;

  function compare(type: BlockType, sizes: Sizes, activation: GateActivation, withBiases: boolean): void {
    const { tokens, topk, inputs, insides, hidden } = sizes;
    const [k, n] = [widthOf(type, inputs), widthOf(type, insides)];
    const what = `${type} ${JSON.stringify({ ...sizes, activation, withBiases })}`;
    scope(() => {
      const [gate, up] = [1, 2].map((seed) => blocks(type, [EXPERTS, n, k], seed));
      const down = blocks(type, [EXPERTS, hidden, n], 3);
      expect([fusesGate({ gate, up }), fusesMix(down)]).toEqual([true, true]);
      const x = numbers([tokens, k], 4, 0.5);
      const ids = Tensor.from(idsOf(tokens, topk), { shape: [tokens, topk], device });
      const mix = numbers([tokens, topk], 5);
      const [gateBias, upBias, bias] = withBiases
        ? [numbers([EXPERTS, n], 6), numbers([EXPERTS, n], 7), numbers([EXPERTS, hidden], 8)]
        : [];
      const base = withBiases ? numbers([tokens, hidden], 9) : undefined;
      // A column of a wider matrix.
      const baseGate = withBiases ? numbers([tokens, 3], 10).narrow(1, 1, 1) : undefined;
      const fused = () => {
        const inside = gatedExperts({ gate, up }, quantizedRows(x)!, ids, { activation, gateBias, upBias });
        expect([inside.rows, inside.width]).toEqual([tokens * topk, n]);
        return mixedExperts(down, inside, ids, { mix, bias, base, baseGate });
      };
      const product = (weights: QTensor, rows: Tensor, own: Tensor | undefined) =>
        addBias(weights.indexedMoeForwardSync(rows, ids), own, ids);
      const rows = x.unsqueeze(1);
      const inside = composedGate(product(gate, rows, gateBias), product(up, rows, upBias), activation);
      const sum = mix
        .unsqueeze(1)
        .matmul(product(down, inside, bias))
        .squeeze(1);
      const made = fused();
      expectAlike(made, base ? sum.add(base.mul(baseGate!.sigmoid())) : sum, what);
      expect(fused().toVecSync(), what).toEqual(made.toVecSync());
    });
  }

  it.each(TYPES)('of %s are the product, the activation and the sum', (type) => {
    const before = memoryStats();
    for (const sizes of SIZES) compare(type, sizes, 'silu', false);
    compare(type, SIZES[0], { clamped: 0.4 }, true);
    compare(type, SIZES[1], 'gelu', true);
    expect(memoryStats()).toEqual(before);
  });

  /** With an expert that all tokens take, of `wide` blocks inside. */
  function compareShared(type: BlockType, sizes: Sizes, wide: number, withGate: boolean): void {
    const { tokens, topk, inputs, insides, hidden } = sizes;
    const [k, n, shared] = [widthOf(type, inputs), widthOf(type, insides), widthOf(type, wide)];
    scope(() => {
      const [gate, up] = [1, 2].map((seed) => blocks(type, [EXPERTS, n, k], seed));
      const down = blocks(type, [EXPERTS, hidden, n], 3);
      const both = blocks(type, [2 * shared, k], 4);
      const last = blocks(type, [hidden, shared], 5);
      const x = numbers([tokens, k], 4, 0.5);
      const ids = Tensor.from(idsOf(tokens, topk), { shape: [tokens, topk], device });
      const mix = numbers([tokens, topk], 5);
      const baseGate = withGate ? numbers([tokens, 3], 10).narrow(1, 1, 1) : undefined;
      const rows = quantizedRows(x)!;
      const inside = gatedExperts({ gate, up }, rows, ids, { activation: 'silu' });
      const alone = gatedExperts({ both }, rows, undefined, { activation: 'silu' });
      const base = mixedExperts(last, alone, undefined, {});
      const expected = mixedExperts(down, inside, ids, { mix, base, baseGate });
      const beside = gatedExpertsBeside({ gate, up }, { both }, rows, ids, 'silu');
      expect([beside.own.rows, beside.own.width, beside.shared.rows, beside.shared.width]).toEqual([
        tokens * topk,
        n,
        tokens,
        shared,
      ]);
      // What lies between the launches is the same bits, what is behind a row's values included.
      const bytesOf = ({ blocks, rows, width }: QuantizedActivations) =>
        blocks.narrow(0, 0, rows * Math.ceil(width / 512) * (512 / 32) * 36).toArraySync();
      for (const [made, wanted] of [
        [beside.own, inside],
        [beside.shared, alone],
      ])
        expect(bytesOf(made)).toEqual(bytesOf(wanted));
      const made = mixedExperts(down, beside.own, ids, { mix, baseGate, shared: { weight: last, x: beside.shared } });
      expectAlike(made, expected, `${type} ${JSON.stringify({ ...sizes, wide, withGate })}`, 1e-5);
    });
  }

  it.each(['q4_K', 'q6_K', 'q8_0', 'q5_0', 'mxfp4', 'iq3_s'] as const)('of %s with one for all tokens', (type) => {
    const before = memoryStats();
    compareShared(type, SIZES[0], 2, true);
    compareShared(type, SIZES[1], 1, false);
    compareShared(type, { tokens: 2, topk: 3, inputs: 5, insides: 1, hidden: 130 }, 3, true);
    expect(memoryStats()).toEqual(before);
  });

  it('refuse one for all tokens whose weights do not fit', () => {
    scope(() => {
      const [gate, up, down] = [1, 2, 3].map((seed) => blocks('q8_0', [EXPERTS, 64, 64], seed));
      const ids = Tensor.from(idsOf(1, 2), { shape: [1, 2], device });
      const x = quantizedRows(numbers([1, 64], 4))!;
      const other = blocks('q4_0', [128, 64], 5);
      const code = (code: string, message: RegExp) =>
        expect.objectContaining({ code, message: expect.stringMatching(message) });
      expect(() => gatedExpertsBeside({ gate, up }, { both: other }, x, ids, 'silu')).toThrow(
        code('DTYPE_MISMATCH', /q4_0 beside others in q8_0/i),
      );
      const inside = gatedExperts({ gate, up }, x, ids, { activation: 'silu' });
      const shared = (weight: QTensor) => () => mixedExperts(down, inside, ids, { shared: { weight, x } });
      expect(shared(other)).toThrow(code('DTYPE_MISMATCH', /q4_0/i));
      expect(shared(blocks('q8_0', [32, 64], 6))).toThrow(code('SHAPE_MISMATCH', /32 ?(,|x|×) ?64.*64 rows/));
      expect(shared(blocks('q8_0', [64, 96], 6))).toThrow(code('SHAPE_MISMATCH', /64 values/));
    });
  });

  it('are as exact over long rows and more blocks than fit the grid of a small device', () => {
    compare('q4_K', { tokens: 2, topk: 4, inputs: 9, insides: 3, hidden: 130 }, 'silu', true);
    compare('q8_0', { tokens: 1, topk: 5, inputs: 45, insides: 15, hidden: 300 }, { clamped: 7 }, true);
  });

  // Pairs an expert, on average: those that small tiles are for, one of which is full, and more than fill a large one.
  it.each([
    { tokens: 9, type: 'q4_K', downType: 'q6_K', activation: 'silu' },
    { tokens: 45, type: 'mxfp4', downType: 'mxfp4', activation: { clamped: 0.4 } },
    { tokens: 170, type: 'q4_K', downType: 'q6_K', activation: 'gelu' },
    { tokens: 345, type: 'q5_0', downType: 'q8_0', activation: { clamped: 7 } },
    { tokens: 170, type: 'mxfp4', downType: 'q2_K', activation: 'silu' },
    { tokens: 45, type: 'iq4_nl', downType: 'q3_K', activation: 'silu' },
  ] as const)('of many tokens in groups: $tokens of $type and $downType', (problem) => {
    const { tokens, type, downType, activation } = problem;
    const before = memoryStats();
    scope(() => {
      const [topk, k, n, hidden] = [2, 512, 256, 512];
      const [gate, up] = [1, 2].map((seed) => blocks(type, [EXPERTS, n, k], seed));
      const down = blocks(downType, [EXPERTS, hidden, n], 3);
      const x = numbers([tokens, k], 4, 0.5);
      // Most tokens take the first experts.
      const chosen = new Uint32Array(tokens * topk).map((_, i) => {
        const first = i % 7 < 4 ? 0 : (i >> 1) % EXPERTS;
        return (first + (i % topk)) % EXPERTS;
      });
      const ids = Tensor.from(chosen, { shape: [tokens, topk], device });
      const all = {
        ...{ activation, gateBias: numbers([EXPERTS, n], 6), upBias: numbers([EXPERTS, n], 7) },
        ...{ mix: numbers([tokens, topk], 5), bias: numbers([EXPERTS, hidden], 8), base: numbers([tokens, hidden], 9) },
        baseGate: numbers([tokens, 3], 10).narrow(1, 1, 1),
      };
      const none = { activation, mix: all.mix };
      for (const types of [undefined, [type, downType]]) {
        const order = ExpertOrder.of(ids, EXPERTS, types)!;
        for (const options of [all, none]) {
          const made = groupedExperts({ gate, up, down }, x, ids, order, options);
          expectAlike(made, byEight({ gate, up, down }, x, ids, options), JSON.stringify(problem), 2e-2);
          expect(groupedExperts({ gate, up, down }, x, ids, order, options).toVecSync()).toEqual(made.toVecSync());
        }
      }
      const other = ExpertOrder.of(ids.narrow(0, 0, 3).contiguous(), EXPERTS)!;
      const error = expect.objectContaining({ code: 'SHAPE_MISMATCH' });
      expect(() => groupedExperts({ gate, up, down }, x, ids, other, none)).toThrow(error);
      expect(() => groupedExperts({ gate, up, down: gate }, x, ids, other, none)).toThrow(error);
      const order = ExpertOrder.of(ids, EXPERTS)!;
      const mistyped = expect.objectContaining({ code: 'DTYPE_MISMATCH', message: expect.stringContaining('f16') });
      expect(() => groupedExperts({ gate, up, down }, x.toDtype('f16'), ids, order, none)).toThrow(mistyped);
    });
    expect(memoryStats()).toEqual(before);
  });

  /** The same by the kernels for few tokens. */
  function byEight(
    { gate, up, down }: { gate: QTensor; up: QTensor; down: QTensor },
    x: Tensor,
    ids: Tensor,
    { mix, base, baseGate, ...rest }: GatedExpertsOptions & MixedExpertsOptions,
  ): Tensor {
    const parts: Tensor[] = [];
    for (let at = 0; at < x.dim(0); at += 8) {
      const count = Math.min(8, x.dim(0) - at);
      const own = (tensor: Tensor) => tensor.narrow(0, at, count).contiguous();
      const inside = gatedExperts({ gate, up }, quantizedRows(own(x))!, own(ids), rest);
      const options = { ...rest, mix: own(mix!), base: base && own(base), baseGate: baseGate && own(baseGate) };
      parts.push(mixedExperts(down, inside, own(ids), options));
    }
    return Tensor.cat(parts, 0);
  }

  it('of one weight are a layer that all tokens take', () => {
    scope(() => {
      const [rows, n, k, hidden] = [2, 96, 160, 37];
      const both = blocks('q5_0', [2 * n, k], 1);
      const down = blocks('q5_0', [hidden, n], 2);
      const [bias, x] = [numbers([hidden], 3), numbers([rows, k], 4)];
      expect(fusesGate({ both })).toBe(true);
      const inside = gatedExperts({ both }, quantizedRows(x)!, undefined, { activation: 'silu' });
      const made = mixedExperts(down, inside, undefined, { bias });
      const product = QMatMul.fromQTensor(both).forward(x);
      const gated = composedGate(product.narrow(1, 0, n), product.narrow(1, n, n), 'silu');
      expectAlike(made, QMatMul.fromQTensor(down).forward(gated).broadcastAdd(bias), 'a layer');
      // What the first kernel writes is for any product.
      const plain = QMatMul.fromQTensor(down).forwardBlocks(inside);
      expectAlike(made, plain.broadcastAdd(bias), 'its blocks');
    });
  });

  it('of heads, each token of one, go into the first columns of a matrix', () => {
    scope(() => {
      const [tokens, heads, k, n, wide] = [3, 4, 128, 66, 80];
      const weight = blocks('q5_0', [heads, n, k], 1);
      const x = quantizedRows(numbers([tokens * heads, k], 2))!;
      const ids = Tensor.from(
        new Uint32Array(tokens * heads).map((_, i) => i % heads),
        {
          shape: [tokens * heads, 1],
          device,
        },
      );
      const made = mixedExperts(weight, x, ids, {});
      const out = Tensor.full(7, [tokens * heads, wide], { device });
      mixedExpertsInto(out, weight, x, ids);
      expect(out.narrow(1, 0, n).contiguous().toVecSync()).toEqual(made.toVecSync());
      expect(
        out
          .narrow(1, n, wide - n)
          .sub(7)
          .abs()
          .flattenAll()
          .max(0)
          .toScalarSync(),
      ).toBe(0);
      const narrow = Tensor.zeros([tokens * heads, n - 1], { device });
      for (const wrong of [narrow, out.narrow(0, 0, 2), out.narrow(1, 0, n), out.toDtype('f16')]) {
        expect(() => mixedExpertsInto(wrong, weight, x, ids)).toThrow(
          expect.objectContaining({ code: 'SHAPE_MISMATCH', message: expect.stringContaining('12 rows of 66 values') }),
        );
      }
    });
  });

  it('say which weights they are for', () => {
    scope(() => {
      const [gate, other] = [blocks('q8_0', [2, 32, 64], 1), blocks('q4_0', [2, 32, 64], 1)];
      const odd = blocks('q8_0', [2, 33, 64], 1);
      expect(
        [
          { gate, up: other },
          { gate, up: odd },
          { gate: odd, up: odd },
        ].map(fusesGate),
      ).toEqual([false, false, false]);
      expect(fusesMix(QTensor.fromTensor(numbers([2, 3, 4], 1)))).toBe(false);
      const x = quantizedRows(numbers([1, 32], 1))!;
      const ids = Tensor.from(Uint32Array.of(1), { shape: [1, 1], device });
      const error = expect.objectContaining({
        code: 'SHAPE_MISMATCH',
        message: expect.stringContaining('[2, 32, 64]'),
      });
      expect(() => gatedExperts({ gate, up: gate }, x, ids, { activation: 'silu' })).toThrow(error);
      expect(() => mixedExperts(gate, x, ids, {})).toThrow(error);
      expect(quantizedRows(numbers([1, 33], 1))).toBeUndefined();
    });
  });
});
