/** Attention on one device: candle-nn's tests/sdpa.rs and tests/cpu_flash_attn.rs, and what they leave out. */
import { type Device, Tensor, Var } from '@x/core';
import {
  AttnMask,
  causalDecodeF32Interleaved,
  flashAttn,
  InterleavedKvCache,
  RotatingKvCache,
  runCausalAttnCpu,
  runFlashAttnCpu,
  sdpa,
} from '@x/nn';
import { describe, expect } from 'vitest';
import { onlineAttention } from '../../../nn/src/attention/online';
import {
  attentionOfTensors,
  largestError,
  randomInputs,
  type Scoring,
  sumOfRelativeErrors,
} from './attention-reference';
import { check } from './check';

const HIDDEN = Number.NEGATIVE_INFINITY;
/** Query i sees keys up to offset + i. */
const causal = (offset: number) => (_: number, i: number, j: number) => (j <= i + offset ? 0 : HIDDEN);

export function attentionSuite(name: string, device: () => Device): void {
  describe(`sdpa on ${name}`, () => {
    const inputs = (seq: number, kv: number, seed: number) =>
      randomInputs({ b: 4, heads: 3, kvHeads: 3, seq, kv, d: 64 }, device(), seed);
    const scale = 1 / 8;
    const cases: Record<string, [seq: number, kv: number, cap: number, bound: number]> = {
      sdpa_full: [16, 16, 1, 0.02],
      sdpa_vector: [1, 1, 1, 0],
      sdpa_full_softcapping: [1, 4, 50, 0.002],
      sdpa_vector_softcapping: [1, 1, 50, 0.0001],
      sdpa_vector_cross: [1, 24, 1, 0.0013],
    };
    Object.entries(cases).forEach(([title, [seq, kv, softcapping, bound]], i) => {
      check(`sdpa::${title}`, () => {
        const { q, k, v } = inputs(seq, kv, 42 + 10 * i);
        const out = sdpa(q, k, v, { scale, softcapping });
        expect(out.shape).toEqual(q.shape);
        const cap = softcapping === 1 ? undefined : softcapping;
        expect(largestError(out, attentionOfTensors(q, k, v, { scale, cap }))).toBeLessThan(5e-6);
        // candle's measure, against the device's own products.
        const scores = q.mul(scale).matmul(k.t());
        const weights = (cap ? scores.div(cap).tanh().mul(cap) : scores).softmaxLastDim();
        const plain = weights.matmul(v).toArraySync<Float32Array>();
        expect(sumOfRelativeErrors(out, plain)).toBeLessThanOrEqual(bound);
      });
    });

    check('as many queries as kernels of f32 are for', () => {
      for (const [seq, kv, d] of [
        [64, 64, 64],
        [70, 131, 128],
      ]) {
        const { q, k, v } = randomInputs({ b: 1, heads: 4, kvHeads: 2, seq, kv, d }, device(), seq);
        const out = sdpa(q, k, v, { causal: true });
        const scoring = { scale: 1 / Math.sqrt(d), bias: causal(kv - seq) };
        expect(largestError(out, attentionOfTensors(q, k, v, scoring))).toBeLessThan(5e-6);
      }
    });

    check('grouped queries, masks of both kinds, causal order and a default scale', () => {
      const sizes = { b: 2, heads: 6, kvHeads: 2, seq: 5, kv: 9, d: 16 };
      const { q, k, v } = randomInputs(sizes, device(), 5);
      const expected = (scoring: Omit<Scoring, 'scale'>) => attentionOfTensors(q, k, v, { scale: 0.25, ...scoring });
      expect(largestError(sdpa(q, k, v), expected({}))).toBeLessThan(1e-5);
      expect(largestError(sdpa(q, k, v, { causal: true }), expected({ bias: causal(4) }))).toBeLessThan(1e-5);
      const bias = (_: number, i: number, j: number) => ((i * 7 + j * 3) % 4 === 0 ? HIDDEN : i - j / 2);
      const added = Tensor.from(
        new Float32Array(45).map((_, at) => bias(0, Math.floor(at / 9), at % 9)),
        { shape: [5, 9], device: device() },
      );
      expect(largestError(sdpa(q, k, v, { mask: added }), expected({ bias }))).toBeLessThan(1e-5);
      const visible = added.ne(HIDDEN);
      const hides = (h: number, i: number, j: number) => (bias(h, i, j) === HIDDEN ? HIDDEN : 0);
      for (const mask of [visible, visible.unsqueeze(0), visible.toDtype('u32'), visible.toDtype('i64').neg()]) {
        expect(largestError(sdpa(q, k, v, { mask }), expected({ bias: hides }))).toBeLessThan(1e-5);
      }
      const capped = sdpa(q, k, v, { mask: added, causal: true, softcapping: 0.5 });
      const both = (h: number, i: number, j: number) => bias(h, i, j) + causal(4)(h, i, j);
      expect(largestError(capped, expected({ bias: both, cap: 0.5 }))).toBeLessThan(1e-5);
      for (const dtype of ['f16', 'bf16', 'f64'] as const) {
        const narrow = sdpa(q.toDtype(dtype), k.toDtype(dtype), v.toDtype(dtype), { causal: true });
        expect(narrow.dtype).toBe(dtype);
        expect(largestError(narrow, expected({ bias: causal(4) }))).toBeLessThan(
          { f16: 6e-3, bf16: 6e-2, f64: 1e-6 }[dtype],
        );
      }
      expect(() => sdpa(q, k.narrow(1, 0, 1), v.narrow(2, 0, 3))).toThrow(/give \[b, heads, seq, d\]/);
      expect(() => sdpa(q.narrow(1, 0, 5), k, v)).toThrow(/5 query heads share 2/);
    });

    check('gradients reach q, k and v', () => {
      const { q, k, v } = randomInputs({ b: 1, heads: 2, kvHeads: 1, seq: 3, kv: 4, d: 4 }, device(), 9);
      const vars = [q, k, v].map((tensor) => Var.fromTensor(tensor));
      const grads = ([a, b, c]: Tensor[], flash: boolean) => {
        const out = flash
          ? flashAttn(a.transpose(1, 2), b.transpose(1, 2), c.transpose(1, 2), 0.5, {
              mask: AttnMask.causalWithOffset(1),
            })
          : sdpa(a, b, c, { causal: true, scale: 0.5 });
        const store = out.sqr().sumAll().backward();
        return vars.map((variable) => store.get(variable)!);
      };
      const [plain, flash] = [grads(vars, false), grads(vars, true)];
      plain.forEach((grad, i) => {
        expect(grad.abs().sumAll().toScalarSync()).toBeGreaterThan(0.1);
        expect(largestError(flash[i], grad.toArraySync<Float32Array>())).toBeLessThan(1e-5);
      });
    });

    check('the mask of a rotating cache', () => {
      using cache = new RotatingKvCache(2, 4);
      const whole = randomInputs({ b: 1, heads: 2, kvHeads: 2, seq: 7, kv: 7, d: 4 }, device(), 12);
      // Three tokens, then three more that push two out, each seeing itself and up to four before it that are still held.
      for (const [start, count] of [
        [0, 3],
        [3, 3],
      ]) {
        const [q, k, v] = [whole.q, whole.k, whole.v].map((tensor) => tensor.narrow(2, start, count));
        const mask = cache.attnMask(count, device());
        const positions = cache.positions(count);
        const held = cache.append(k, v);
        const out = sdpa(q, held.k, held.v, { mask });
        const oldest = Math.max(0, start + count - 4);
        const seen = [whole.k, whole.v].map((tensor) => tensor.narrow(2, oldest, start + count - oldest));
        const bias = (_: number, i: number, j: number) => (oldest + j <= start + i ? 0 : HIDDEN);
        expect(positions.slice().sort((a, b) => a - b)).toEqual(seen[0].dim(2) === 3 ? [0, 1, 2] : [2, 3, 4, 5]);
        const expected = attentionOfTensors(q, seen[0], seen[1], { scale: 0.5, bias });
        expect(largestError(out, expected)).toBeLessThan(1e-5);
      }
    });
  });

  describe(`flash attention on ${name}`, () => {
    type Case = { heads: number; kvHeads?: number; d: number; seq: number; kv: number };
    /** Compares `run`, which gets [b, seq, heads, d], with the formula. */
    const compare = (
      { heads, kvHeads = heads, d, seq, kv }: Case,
      run: (q: Tensor, k: Tensor, v: Tensor, scale: number) => Tensor,
      scoring: Omit<Scoring, 'scale'>,
      b = 1,
    ) => {
      const { q, k, v } = randomInputs({ b, heads, kvHeads, seq, kv, d }, device(), heads + seq + kv);
      const scale = 1 / Math.sqrt(d);
      const out = run(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), scale);
      expect(out.shape).toEqual([b, heads, seq, d]);
      expect(largestError(out, attentionOfTensors(q, k, v, { scale, ...scoring }))).toBeLessThan(1e-5);
    };
    const masked = (mask: AttnMask) => (q: Tensor, k: Tensor, v: Tensor, scale: number) =>
      flashAttn(q, k, v, scale, { mask });

    check('cpu_flash_attn::causal_decode_b1', () => {
      compare({ heads: 4, d: 16, seq: 1, kv: 32 }, masked(AttnMask.causalWithOffset(31)), {});
    });

    check('cpu_flash_attn::causal_prefill_b1', () => {
      compare({ heads: 4, d: 16, seq: 8, kv: 8 }, masked(AttnMask.causal()), { bias: causal(0) });
    });

    check('cpu_flash_attn::causal_prefill_with_offset', () => {
      compare({ heads: 4, d: 16, seq: 4, kv: 12 }, masked(AttnMask.causalWithOffset(8)), { bias: causal(8) });
    });

    check('cpu_flash_attn::causal_decode_gqa', () => {
      compare({ heads: 8, kvHeads: 2, d: 16, seq: 1, kv: 20 }, masked(AttnMask.causalWithOffset(19)), {});
    });

    check('cpu_flash_attn::standard_no_mask_b1', () => {
      compare({ heads: 4, d: 16, seq: 8, kv: 8 }, masked(AttnMask.none), {});
    });

    check('cpu_flash_attn::standard_with_mask_b1', () => {
      const mask = Tensor.from(
        new Float32Array(16).map((_, at) => causal(0)(0, Math.floor(at / 4), at % 4)),
        { shape: [1, 4, 4], device: device() },
      );
      compare({ heads: 2, d: 8, seq: 4, kv: 4 }, masked(AttnMask.mask(mask)), { bias: causal(0) });
      const byName = (q: Tensor, k: Tensor, v: Tensor, scale: number) => runFlashAttnCpu(q, k, v, mask, scale);
      compare({ heads: 2, d: 8, seq: 4, kv: 4 }, byName, { bias: causal(0) });
    });

    check('cpu_flash_attn::interleaved_kv_decode', () => {
      const { q, k, v } = randomInputs({ b: 1, heads: 8, kvHeads: 2, seq: 1, kv: 20, d: 16 }, device(), 77);
      const expected = attentionOfTensors(q, k, v, { scale: 0.25 });
      const joined = Tensor.cat([k, v], 3).squeeze(0).transpose(0, 1).contiguous();
      const out = causalDecodeF32Interleaved(q.squeeze(0).squeeze(1), joined, 0.25);
      expect(out.shape).toEqual([8, 1, 16]);
      expect(largestError(out, expected)).toBeLessThan(1e-5);
      using cache = new InterleavedKvCache(16);
      cache.append(k.narrow(2, 0, 13), v.narrow(2, 0, 13));
      const held = cache.append(k.narrow(2, 13, 7), v.narrow(2, 13, 7));
      expect(held.toVecSync()).toEqual(joined.toVecSync());
      expect(cache.currentSeqLen).toBe(20);
      expect(() => causalDecodeF32Interleaved(q.squeeze(0), joined.narrow(2, 0, 30), 1)).toThrow(/2 \* d/);
    });

    check('several batch entries, softcapping, ALiBi, and both at once', () => {
      const sizes = { heads: 6, kvHeads: 3, d: 8, seq: 5, kv: 7 };
      const slope = (head: number) => 2 ** ((-8 * (head + 1)) / 8);
      const alibi = (h: number, i: number, j: number) => causal(2)(h, i, j) - slope(h) * Math.abs(i + 2 - j);
      const run = (q: Tensor, k: Tensor, v: Tensor, scale: number) =>
        runCausalAttnCpu(q, k, v, scale, 2, { maxBias: 8, softcap: 0.7 });
      compare(sizes, run, { bias: alibi, cap: 0.7 }, 3);
      const plain = (q: Tensor, k: Tensor, v: Tensor, scale: number) => flashAttn(q, k, v, scale, { maxBias: 8 });
      compare(sizes, plain, { bias: (h, i, j) => -slope(h) * Math.abs(i + 2 - j) }, 2);
      const mask = Tensor.arange(0, 35, 'f32', device()).reshape([5, 7]).affine(-0.1, 0);
      const scaled = (q: Tensor, k: Tensor, v: Tensor, scale: number) =>
        flashAttn(q, k, v, scale, { mask: AttnMask.mask(mask), maxBias: 8 });
      compare(sizes, scaled, { bias: (h, i, j) => slope(h) * -0.1 * (i * 7 + j) }, 2);
    });

    check('blocks of keys give what all keys at once give, also where a query sees none of a block', () => {
      const { q, k, v } = randomInputs({ b: 2, heads: 4, kvHeads: 2, seq: 6, kv: 23, d: 8 }, device(), 3);
      // Scores that rise along the keys, so that every block has a new largest one.
      const rising = (_: number, i: number, j: number) => (j <= i * 4 ? j : HIDDEN);
      const bias = Tensor.from(
        new Float32Array(6 * 23).map((_, at) => rising(0, Math.floor(at / 23), at % 23)),
        { shape: [6, 23], device: device() },
      );
      const expected = attentionOfTensors(q, k, v, { scale: 0.3, bias: rising });
      for (const block of [1, 5, 23, 512]) {
        const out = onlineAttention(q, k, v, {
          scale: 0.3,
          block,
          bias: (start, count) => bias.narrow(1, start, count),
        });
        expect(largestError(out, expected)).toBeLessThan(1e-5);
      }
      const blind = onlineAttention(q, k, v, {
        scale: 1,
        bias: (_, count) => Tensor.full(HIDDEN, [1, count], 'f32', device()),
      });
      expect(blind.abs().maxAll().toScalarSync()).toBe(0);
    });

    check('a causal offset that leaves keys out', () => {
      compare({ heads: 2, d: 4, seq: 2, kv: 9 }, masked(AttnMask.causalWithOffset(3)), { bias: causal(3) });
    });

    check('a captured graph gives what the function gives', () => {
      const sizes = { b: 1, heads: 4, kvHeads: 2, kv: 40, d: 64 };
      for (const [seq, dtype] of [
        [1, 'f32'],
        [24, 'f16'],
      ] as const) {
        const { q, k, v } = randomInputs({ ...sizes, seq }, device(), 5);
        const [a, b, c] = [q, k, v].map((tensor) => tensor.toDtype(dtype));
        const attend = () => sdpa(a, b, c, { scale: 1 / 8, causal: true });
        using graph = device().capture(attend);
        for (const seed of [6, 7]) {
          const next = randomInputs({ ...sizes, seq }, device(), seed);
          for (const [to, from] of [
            [a, next.q],
            [b, next.k],
            [c, next.v],
          ] as const) {
            to.copyFrom(from.toDtype(dtype));
          }
          expect(graph.replay().toArraySync()).toEqual(attend().toArraySync());
        }
      }
    });
  });
}
