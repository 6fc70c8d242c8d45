/** Mixtures of experts: the choice, the order of pairs, and products in groups, against the same on the host. */
import { BLOCK_TYPES, type BlockType, memoryStats, scope, Tensor } from '@x/core';
import { type RouteOptions, routeExperts, routeTokens } from '@x/nn';
import { ExpertOrder, QTensor } from '@x/quantized';
import { kernelDevices } from '@x/testing/devices';
import { randomBlocks } from '@x/testing/quantized/random-blocks';
import { describe, expect, it } from 'vitest';
import type { RocmDevice } from '../src/index';

const noise = (count: number, seed: number) =>
  new Float32Array(count).map((_, i) => Math.sin(i * 12.9898 + seed * 78.233) * 1.3);

interface Routing extends Omit<RouteOptions, 'correction' | 'bias'> {
  tokens: number;
  experts: number;
  corrected?: boolean;
}

const ROUTINGS: Routing[] = [
  { tokens: 3, experts: 8, chosen: 2, renormalise: true },
  { tokens: 1, experts: 1, chosen: 1 },
  { tokens: 5, experts: 130, chosen: 8, scale: 2.5, corrected: true, scores: 'sigmoid' },
  { tokens: 2, experts: 8, chosen: 8, scores: 'sigmoid', renormalise: true },
  { tokens: 4, experts: 32, chosen: 4, groups: { count: 8, chosen: 2, best: 1 }, scale: 1.5 },
  {
    ...{ tokens: 3, experts: 256, chosen: 8, corrected: true, scores: 'sigmoid' as const },
    ...{ groups: { count: 8, chosen: 4, best: 2 as const }, renormalise: true, scale: 2.5 },
  },
  { tokens: 2, experts: 1024, chosen: 64, renormalise: true },
];

/** In f64, by sorting. */
function routed(logits: Float32Array, correction: Float32Array | undefined, of: Routing) {
  const { tokens, experts, chosen, scores = 'softmax', renormalise = false, scale = 1, groups } = of;
  const best = (keys: number[], count: number) =>
    keys
      .map((_, i) => i)
      .sort((a, b) => keys[b] - keys[a] || a - b)
      .slice(0, count);
  return Array.from({ length: tokens }, (_, token) => {
    const row = Array.from(logits.subarray(token * experts, (token + 1) * experts));
    const top = Math.max(...row);
    const sum = row.reduce((total, x) => total + Math.exp(x - top), 0);
    const values = row.map((x) => (scores === 'softmax' ? Math.exp(x - top) / sum : 1 / (1 + Math.exp(-x))));
    let keys = values.map((value, i) => value + (correction?.[i] ?? 0));
    if (groups) {
      const size = experts / groups.count;
      const judged = Array.from({ length: groups.count }, (_, g) => {
        const inside = keys.slice(g * size, (g + 1) * size).sort((a, b) => b - a);
        return inside.slice(0, groups.best).reduce((a, b) => a + b, 0);
      });
      const open = best(judged, groups.chosen);
      keys = keys.map((key, i) => (open.includes(Math.floor(i / size)) ? key : Number.NEGATIVE_INFINITY));
    }
    const ids = best(keys, chosen);
    const total = renormalise ? ids.reduce((all, id) => all + values[id], 0) : 1;
    return { ids, weights: ids.map((id) => (values[id] / total) * scale) };
  });
}

describe.each(kernelDevices())('experts on %s', (device) => {
  const backend = device.backend;

  it.each(ROUTINGS)('are chosen as %j says', (of) => {
    const { tokens, experts, corrected, ...options } = of;
    const logits = noise(tokens * experts, experts);
    const correction = corrected ? noise(experts, 5) : undefined;
    const expected = routed(logits, correction, of);
    const before = memoryStats();
    scope(() => {
      for (const on of [device, 'js'] as const) {
        const made = routeExperts(Tensor.from(logits, { shape: [tokens, experts], device: on }), {
          ...options,
          ...(correction && { correction: Tensor.from(correction, { device: on }) }),
        });
        expect(made.ids.dtype).toBe('u32');
        expect(made.ids.toVecSync()).toEqual(expected.map(({ ids }) => ids));
        const weights = made.weights.toVecSync<number[][]>();
        expected.forEach((token, i) => {
          token.weights.forEach((weight, c) => {
            expect(Math.abs(weights[i][c] - weight)).toBeLessThan(2e-6 * Math.max(1, weight));
          });
        });
      }
    });
    expect(memoryStats()).toEqual(before);
  });

  it('are chosen of logits in rows of a wider matrix, with a bias', () => {
    scope(() => {
      for (const scores of ['softmax', 'sigmoid'] as const) {
        const made = (['js', device] as const).map((on) => {
          const logits = Tensor.from(noise(3 * 11, 2), { shape: [3, 11], device: on }).narrow(1, 2, 8);
          const bias = Tensor.from(noise(8, 3), { device: on });
          const options = { chosen: 3, scores, renormalise: true };
          const { ids, weights } = routeExperts(logits, { ...options, bias });
          const expected = routeExperts(logits.broadcastAdd(bias), options);
          expect(ids.toVecSync()).toEqual(expected.ids.toVecSync());
          expect(weights.toVecSync()).toEqual(expected.weights.toVecSync());
          return ids.toVecSync();
        });
        expect(made[1]).toEqual(made[0]);
      }
    });
  });

  it.each([
    { tokens: 1, hidden: 96, experts: 128, others: 0, chosen: 8 },
    { tokens: 5, hidden: 37, experts: 9, others: 1, chosen: 3 },
    { tokens: 8, hidden: 520, experts: 33, others: 3, chosen: 2 },
    { tokens: 9, hidden: 64, experts: 4, others: 1, chosen: 4 },
  ])('are chosen by a product with a router of %j', ({ tokens, hidden, experts, others, chosen }) => {
    const before = memoryStats();
    scope(() => {
      const x = Tensor.from(noise(tokens * hidden, 1), { shape: [tokens, hidden], device });
      const weight = Tensor.from(noise((experts + others) * hidden, 2), { shape: [experts + others, hidden], device });
      const bias = Tensor.from(noise(experts, 3), { device });
      const correction = Tensor.from(noise(experts, 4), { device });
      for (const options of [
        {},
        { bias },
        { bias, correction, scores: 'sigmoid', renormalise: true, scale: 2 },
      ] as const) {
        // Twice, since blocks leave counters for the next launch.
        for (let turn = 0; turn < 2; turn++) {
          const made = routeTokens(x, weight, experts, { chosen, ...options });
          const logits = x.matmul(weight.t());
          expect(made.logits.sub(logits).abs().maxAll().toScalarSync()).toBeLessThan(1e-4);
          const own = routeExperts(made.logits.narrow(1, 0, experts), { chosen, ...options });
          expect(made.ids.toVecSync()).toEqual(own.ids.toVecSync());
          expect(made.weights.sub(own.weights).abs().maxAll().toScalarSync()).toBeLessThan(1e-6);
        }
      }
    });
    expect(memoryStats()).toEqual(before);
  });

  it('take the first of equal ones, and something where there are no numbers', () => {
    scope(() => {
      const rows = [
        [1, 1, 1, 1, 1],
        [Number.NaN, Number.NaN, Number.NaN, Number.NaN, Number.NaN],
        [Number.NEGATIVE_INFINITY, 0, Number.NEGATIVE_INFINITY, 0, Number.NEGATIVE_INFINITY],
      ];
      const logits = Tensor.from(Float32Array.from(rows.flat()), { shape: [3, 5], device });
      const { ids } = routeExperts(logits, { chosen: 3, renormalise: true });
      expect(ids.toVecSync()).toEqual([
        [0, 1, 2],
        [0, 1, 2],
        [1, 3, 0],
      ]);
    });
  });

  it('say what does not go together', () => {
    scope(() => {
      const logits = Tensor.zeros([2, 8], 'f32', device);
      const error = expect.objectContaining({ code: 'SHAPE_MISMATCH', message: expect.stringContaining('[2, 8]') });
      const groups = { count: 4, chosen: 2, best: 1 as const };
      for (const options of [
        { chosen: 9 },
        { chosen: 5, groups },
        { chosen: 1, groups: { ...groups, count: 3 } },
        { chosen: 1, groups: { ...groups, chosen: 5 } },
        { chosen: 1, groups: { count: 8, chosen: 1, best: 2 as const } },
        { chosen: 1, correction: Tensor.zeros([7], 'f32', device) },
      ])
        expect(() => routeExperts(logits, options)).toThrow(error);
    });
  });

  // More than a tile of one expert, experts that nobody takes, and one pair.
  it.each([
    { tokens: 90, chosen: 2, experts: 5, skew: 3 },
    { tokens: 7, chosen: 3, experts: 40, skew: 1 },
    { tokens: 1, chosen: 1, experts: 1, skew: 1 },
  ])('pairs in the order of %j', ({ tokens, chosen, experts, skew }) => {
    const ids = idsOf(tokens, chosen, experts, skew);
    const before = memoryStats();
    scope(() => {
      const order = ExpertOrder.of(Tensor.from(ids, { shape: [tokens, chosen], device }), experts)!;
      const [places, sources, owners] = [order.places, order.sources, order.owners].map((x) => x.toVecSync<number[]>());
      expect([...places].sort((a, b) => a - b)).toEqual(Array.from(ids, (_, i) => i));
      places.forEach((place, pair) => {
        expect([sources[place], owners[place]]).toEqual([Math.floor(pair / chosen), ids[pair]]);
      });
      expect(owners).toEqual([...owners].sort((a, b) => a - b));
    });
    expect(memoryStats()).toEqual(before);
  });

  it.each(['f32', 'f16', 'bf16'] as const)('multiply rows of %s in groups', (dtype) => {
    for (const [experts, n, k] of [
      [5, 70, 33],
      [3, 8, 64],
    ])
      for (const input of dtype === 'f32' ? (['f32'] as const) : (['f32', dtype] as const)) {
        const numbers = Tensor.from(noise(experts * n * k, 1), { shape: [experts, n, k] });
        grouped(QTensor.fromTensor(numbers.toDtype(dtype)), input);
      }
  });

  const types = Object.keys(BLOCK_TYPES) as BlockType[];
  it.each(types)('multiply rows with blocks of %s in groups', (type) => {
    const [experts, n, k] = [3, 70, BLOCK_TYPES[type].blockSize * 2];
    const bytes = randomBlocks(type, experts * n * 2, 5);
    const { quantized } = backend as RocmDevice;
    try {
      // With and without matrix units.
      for (quantized.choice of ['dp4a', 'mma'] as const) grouped(QTensor.fromBytes(type, [experts, n, k], bytes, 'js'));
    } finally {
      quantized.choice = 'auto';
    }
  });

  /** Against products with each expert by itself. */
  function grouped(weight: QTensor, input: 'f32' | 'f16' | 'bf16' = 'f32'): void {
    scope(() => {
      const [experts, n, k] = weight.shape;
      const [tokens, chosen] = [41, 2];
      const ids = Tensor.from(idsOf(tokens, chosen, experts, 2), { shape: [tokens, chosen] });
      const x = Tensor.from(noise(tokens * k, 3), { shape: [tokens, k] }).toDtype(input);
      const own = weight.kind === 'dense' ? QTensor.fromTensor(weight.data.toDeviceSync(device)) : onto(weight);
      const order = ExpertOrder.of(ids.toDeviceSync(device), experts)!;
      const rows = x.toDeviceSync(device).indexSelect(order.sources, 0);
      const made = own.groupedMoe(rows, order).indexSelect(order.places, 0).reshape([tokens, chosen, n]).toDtype('f32');
      const expected = own
        .indexedMoeForwardSync(x.unsqueeze(1).toDeviceSync(device), ids.toDeviceSync(device))
        .toDtype('f32');
      const largest = expected.abs().flattenAll().max(0).toScalarSync() as number;
      const difference = made.sub(expected).abs().flattenAll().max(0).toScalarSync() as number;
      expect(largest).toBeGreaterThan(1e-3);
      expect(difference / largest).toBeLessThan(input === 'f32' ? 1e-5 : 1e-2);
      expect(() => own.groupedMoe(rows.narrow(0, 0, 3), order)).toThrow(
        expect.objectContaining({ code: 'SHAPE_MISMATCH' }),
      );
    });
  }

  const onto = (weight: QTensor) => QTensor.fromBytes(weight.type, weight.shape, weight.toBytesSync(), device);

  it('has kernels for what models have', () => {
    expect(backend.experts!.supports(1024)).toBe(true);
    expect(backend.experts!.supports(4096)).toBe(false);
    expect(backend.experts!.supportsRoute(512, 10)).toBe(true);
    expect(backend.experts!.supportsRoute(8, 9)).toBe(false);
  });
});

/** Experts of pairs, different ones of a token, the first ones more often. */
function idsOf(tokens: number, chosen: number, experts: number, skew: number): Uint32Array {
  return new Uint32Array(tokens * chosen).map((_, pair) => {
    const token = Math.floor(pair / chosen);
    const first = Math.floor((((token * 7919) % 1000) ** skew / 1000 ** skew) * experts);
    return (first + (pair % chosen)) % experts;
  });
}
