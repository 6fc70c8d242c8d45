/** Packed sequences of different lengths on one device: candle-nn's tests/varlen_flash_attention.rs and what it leaves out. */
import { type Device, Tensor } from '@x/core';
import { flashAttnVarlenCpu, flashAttnVarlenUnfused, type VarlenOptions } from '@x/nn';
import { describe, expect } from 'vitest';
import { attentionOf, largestError, type Scoring } from './attention-reference';
import { check } from './check';
import { values } from './helpers';

type Precision = 'f32' | 'f16';
/** candle's bounds: the largest error, and the root of the mean of squares. */
const BOUNDS: Record<Precision, [number, number]> = { f32: [1e-5, 5e-5], f16: [2e-3, 1e-3] };
const IMPLEMENTATIONS = { cpu_flash: flashAttnVarlenCpu, unfused: flashAttnVarlenUnfused };

interface Inputs {
  q: Tensor;
  k: Tensor;
  v: Tensor;
  lengths: number[];
}

export function varlenSuite(name: string, device: () => Device): void {
  const d = 64;
  const scale = 1 / 8;

  function inputs(batch: number, heads: number, kvHeads: number, precision: Precision): Inputs {
    const lengths = Array.from(values(batch, 456), (value) => 4 + Math.floor(((value + 1) / 2) * 61));
    const total = lengths.reduce((a, b) => a + b, 0);
    const make = (h: number, seed: number) =>
      Tensor.from(values(total * h * d, seed), { shape: [total, h, d], device: device() }).toDtype(precision);
    return { q: make(heads, 1), k: make(kvHeads, 2), v: make(kvHeads, 3), lengths };
  }

  /** Each sequence by the formula, from the values that the tensors hold, packed again: [total, heads, d]. */
  function reference(
    { q, k, v }: Omit<Inputs, 'lengths'>,
    lengthsQ: number[],
    lengthsK: number[],
    scoring: (seq: number, kv: number) => Scoring,
  ): Float64Array {
    const heads = q.dim(1);
    const width = q.dim(2);
    const parts: number[] = [];
    let [startQ, startK] = [0, 0];
    lengthsQ.forEach((seq, i) => {
      const kv = lengthsK[i];
      const at = (tensor: Tensor, start: number, length: number) =>
        tensor.narrow(0, start, length).transpose(0, 1).toArraySync<Float32Array>();
      const arrays = [at(q, startQ, seq), at(k, startK, kv), at(v, startK, kv)] as [
        Float32Array,
        Float32Array,
        Float32Array,
      ];
      const sizes = { b: 1, heads, kvHeads: k.dim(1), seq, kv, d: width };
      const out = attentionOf(arrays, sizes, scoring(seq, kv));
      for (let s = 0; s < seq; s++) {
        for (let h = 0; h < heads; h++) parts.push(...out.subarray((h * seq + s) * width, (h * seq + s + 1) * width));
      }
      startQ += seq;
      startK += kv;
    });
    return Float64Array.from(parts);
  }

  const causalBias = (seq: number, kv: number): Scoring => ({
    scale,
    bias: (_, i, j) => (j <= i + kv - seq ? 0 : Number.NEGATIVE_INFINITY),
  });

  function expectWithin(actual: Tensor, expected: ArrayLike<number>, precision: Precision): void {
    const [largest, root] = BOUNDS[precision];
    const numbers = actual.toArraySync<Float32Array>();
    const squares = numbers.reduce((sum, value, i) => sum + (value - expected[i]) ** 2, 0);
    expect(largestError(actual, expected)).toBeLessThan(largest);
    expect(Math.sqrt(squares / numbers.length)).toBeLessThan(root);
  }

  describe(`packed sequences on ${name}`, () => {
    const prefill = (kind: string, batch: number, heads: number, kvHeads: number, precisions: Precision[]) => {
      for (const [implementation, forward] of Object.entries(IMPLEMENTATIONS)) {
        for (const precision of precisions) {
          check(`varlen_flash_attention::test_prefill_${kind}_${implementation}_${precision}`, () => {
            const causal = kind.endsWith('_causal') || kind === 'causal';
            const { lengths, ...tensors } = inputs(batch, heads, kvHeads, precision);
            const out = forward(tensors.q, tensors.k, tensors.v, lengths, lengths, scale, { causal });
            expect([out.dtype, out.shape]).toEqual([precision, tensors.q.shape]);
            const expected = reference(tensors, lengths, lengths, causal ? causalBias : () => ({ scale }));
            expectWithin(out, expected, precision);
          });
        }
      }
    };
    prefill('noncausal', 4, 8, 8, ['f32', 'f16']);
    prefill('causal', 4, 8, 8, ['f32', 'f16']);
    prefill('gqa', 3, 12, 4, ['f32']);
    prefill('gqa_causal', 3, 12, 4, ['f32']);

    for (const causal of [false, true]) {
      for (const precision of ['f32', 'f16'] as const) {
        check(`varlen_flash_attention::test_fused_vs_unfused_${causal ? 'causal' : 'noncausal'}_${precision}`, () => {
          const { q, k, v, lengths } = inputs(4, 8, 8, precision);
          const [fused, unfused] = Object.values(IMPLEMENTATIONS).map((forward) =>
            forward(q, k, v, lengths, lengths, scale, { causal }),
          );
          expectWithin(fused, unfused.toArraySync<Float32Array>(), precision);
        });
      }
    }

    check('windows, ALiBi, more keys than queries, empty sequences and queries that see nothing', () => {
      const lengthsQ = [3, 0, 5, 2, 4];
      const lengthsK = [7, 2, 5, 0, 2];
      const width = 8;
      const make = (count: number, h: number, seed: number) =>
        Tensor.from(values(count * h * width, seed), { shape: [count, h, width], device: device() });
      const tensors = { q: make(14, 4, 1), k: make(16, 2, 2), v: make(16, 2, 3) };
      const slopes = [0.5, 0.25, 0.125, 0.0625];
      const cases: [VarlenOptions, ahead: number, behind: number][] = [
        [{}, 99, 99],
        [{ windowLeft: 1 }, 0, 1],
        [{ windowLeft: 1, windowRight: 2 }, 2, 1],
        [{ windowLeft: 0, windowRight: 0 }, 0, 0],
        [{ alibiSlopes: slopes }, 99, 99],
        [{ alibiSlopes: slopes, windowLeft: 3, windowRight: 1 }, 1, 3],
      ];
      for (const [options, ahead, behind] of cases) {
        const expected = reference(tensors, lengthsQ, lengthsK, (seq, kv) => ({
          scale,
          bias: (head, i, j) => {
            const distance = j - (i + kv - seq);
            if (distance > ahead || distance < -behind) return Number.NEGATIVE_INFINITY;
            return options.alibiSlopes ? -slopes[head] * Math.abs(distance) : 0;
          },
        }));
        for (const forward of Object.values(IMPLEMENTATIONS)) {
          const out = forward(tensors.q, tensors.k, tensors.v, lengthsQ, lengthsK, scale, options);
          expect(out.shape).toEqual([14, 4, width]);
          expect(largestError(out, expected)).toBeLessThan(1e-5);
        }
      }
      const run = (lengths: number[], options: VarlenOptions) => () =>
        flashAttnVarlenCpu(tensors.q, tensors.k, tensors.v, lengths, lengthsK, scale, options);
      expect(run(lengthsQ, { causal: true })).toThrow(/sequence 3 has 2 queries and 0 keys/);
      expect(run([14], {})).toThrow(/must agree/);
      expect(run(lengthsQ, { windowRight: 1 })).toThrow(/windowLeft too/);
      expect(run(lengthsQ, { alibiSlopes: [1] })).toThrow(/1 slopes for 4 heads/);
      const none = (n: number) => make(16, n, 1).narrow(0, 0, 0);
      expect(flashAttnVarlenCpu(none(4), none(2), none(2), [], [], 1).shape).toEqual([0, 4, width]);
    });
  });
}
