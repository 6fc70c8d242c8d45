/** The DECODE kernels against what lies between two products computed in f64 on the host, on every device with kernels. */
import { bf16ToF32, type DType, type GatedProblem, type HeadsProblem, Layout } from '@x/core';
import { DECODE } from '@x/kernels';
import { kernelDevices } from '@x/testing/devices';
import { at } from '@x/testing/operands';
import { describe, expect, it } from 'vitest';
import type { RocmDevice } from '../src/index';
import { EPS, expectBlocks, expectNear, gelu, memory, noise, q8_0, rmsNorm, silu } from './decode-operands';

describe.each(kernelDevices())('decode on %s', (device) => {
  const backend = device.backend as RocmDevice;
  const { decode, quantized } = backend;
  const { part, numbers, disposeAll } = memory(device);

  const NORMS = [
    { rows: 1, n: 32 },
    { rows: 3, n: 96 },
    { rows: 9, n: 576 },
    { rows: 2, n: 2048 },
    { rows: 1, n: 4096 },
    { rows: 4, n: 5120 },
    // Rows that no block has in registers.
    { rows: 2, n: 16416 },
  ];
  it.each(NORMS)('norms of $rows rows of $n values', ({ rows, n }) => {
    for (const kind of ['none', 'zero', 'plain', 'normed'] as const) {
      for (const as of ['blocks', 'both', 'f32', 'f16', 'bf16'] as const) {
        const x = noise(rows * n, 1);
        const delta = kind === 'zero' ? new Float32Array(rows * n) : noise(rows * n, 2);
        const [alpha, deltaAlpha] = [noise(n, 3), noise(n, 4)];
        const added = kind === 'normed' ? rmsNorm(delta, deltaAlpha, n) : delta;
        const sum = Float64Array.from(x, (value, i) => value + (kind === 'none' ? 0 : added[i]));
        const expected = rmsNorm(sum, alpha, n);
        const result = decode.norm(
          {
            rows,
            n,
            eps: EPS,
            x: part(x, as === 'f32' ? 3 : 0),
            alpha: part(alpha),
            ...(kind !== 'none' && { delta: part(delta) }),
            ...(kind === 'normed' && { deltaAlpha: part(deltaAlpha) }),
          },
          as,
        );
        const label = `${kind} as ${as}`;
        expect(result.sum === undefined).toBe(kind === 'none');
        if (result.sum) expectNear(numbers(result.sum), sum, 2e-6, label);
        if (as === 'blocks') expectBlocks(result.normed, rows, n, expected, label);
        else
          expectNear(numbers(result.normed), expected, { both: 4e-6, f32: 4e-6, f16: 2e-3, bf16: 1.6e-2 }[as], label);
        expect(result.blocks === undefined).toBe(as !== 'both');
        if (result.blocks) expectBlocks(result.blocks, rows, n, expected, label);
        result.blocks?.dispose();
        result.sum?.dispose();
        result.normed.dispose();
        disposeAll();
      }
    }
  });

  it.each([
    { rows: 1, heads: 32, d: 128 },
    { rows: 3, heads: 5, d: 32 },
    { rows: 9, heads: 3, d: 480 },
  ])('norms of $heads heads of $d values times a gate, $rows rows', ({ rows, heads, d }) => {
    const n = heads * d;
    const [x, alpha, gate] = [noise(rows * n, 1), noise(d, 2), noise(rows * (n + 3), 3)];
    const expected = rmsNorm(x, alpha, d).map((value, i) => value * silu(gate[Math.floor(i / n) * (n + 3) + (i % n)]));
    expect(decode.supportsHeadNorm(rows, d)).toBe(true);
    const operands = { x: part(x, 1), alpha: part(alpha, 3), gate: part(gate, 2), gateRow: n + 3 };
    const blocks = decode.headNorm({ rows, heads, d, eps: EPS, ...operands });
    expectBlocks(blocks, rows, n, expected, 'head norms');
    blocks.dispose();
    disposeAll();
    expect([0, 33, 544].map((size) => decode.supportsHeadNorm(1, size))).toEqual([false, false, false]);
  });

  it('gives norms of any length as numbers, and of blocks of 32 only as blocks', () => {
    const [x, alpha] = [noise(3 * 45, 1), noise(45, 2)];
    const problem = { rows: 3, n: 45, eps: EPS, x: part(x), alpha: part(alpha) };
    const { normed } = decode.norm(problem, 'f32');
    expectNear(numbers(normed), rmsNorm(x, alpha, 45), 4e-6, '45 values');
    expect(() => decode.norm(problem, 'blocks')).toThrow(expect.objectContaining({ name: 'UnsupportedError' }));
    normed.dispose();
    disposeAll();
  });

  it.each([
    { rows: 1, n: 64 },
    { rows: 8, n: 352 },
    { rows: 9, n: 1024 },
    { rows: 2, n: 11008 },
  ])('gates of $rows rows of $n values, side by side and apart', ({ rows, n }) => {
    const both = noise(rows * 2 * n, 5, 4);
    const at = (row: number, half: number, i: number) => both[row * 2 * n + half * n + i];
    for (const activation of ['silu', 'gelu'] as const) {
      const act = activation === 'silu' ? silu : gelu;
      const expected = new Float64Array(rows * n).map((_, i) => {
        const row = Math.floor(i / n);
        return act(at(row, 0, i % n)) * at(row, 1, i % n);
      });
      const [storage] = part(both);
      const beside = { rows, n, gate: [storage, 0], gateRow: 2 * n, up: [storage, n], upRow: 2 * n } as const;
      const split = (half: number) => new Float32Array(rows * n).map((_, i) => at(Math.floor(i / n), half, i % n));
      // An address that is no multiple of 16.
      const apart = { rows, n, gate: part(split(0), 1), gateRow: n, up: part(split(1)), upRow: n };
      for (const problem of [beside, apart]) {
        const blocks = decode.gated(activation, problem);
        expectBlocks(blocks, rows, n, expected, activation);
        blocks.dispose();
        expectGatedNumbers(activation, problem, expected);
        for (const [dtype, tolerance] of [
          ['f32', 4e-6],
          ['f16', 6e-4],
          ['bf16', 5e-3],
        ] as const) {
          const wide = decode.gated(activation, problem, dtype);
          expectNear(numbers(wide), expected, tolerance, `${activation} in ${dtype}`);
          wide.dispose();
        }
      }
      disposeAll();
    }
  });

  it('gates of any number of values as numbers', () => {
    const [gate, up] = [noise(3 * 45, 5, 4), noise(3 * 50, 6)];
    const expected = Float64Array.from(gate, (value, i) => silu(value) * up[Math.floor(i / 45) * 50 + (i % 45)]);
    const problem = { rows: 3, n: 45, gate: part(gate, 1), gateRow: 45, up: part(up), upRow: 50 };
    const wide = decode.gated('silu', problem, 'f32');
    expectNear(numbers(wide), expected, 4e-6, '45 values');
    const narrow = decode.gated('silu', problem, 'bf16');
    expectNear(numbers(narrow), expected, 5e-3, '45 values in bf16');
    narrow.dispose();
    expect(() => decode.gated('silu', problem)).toThrow(expect.objectContaining({ name: 'UnsupportedError' }));
    wide.dispose();
    disposeAll();
  });

  /** As the kernel gives them to products of many rows. */
  function expectGatedNumbers(activation: string, problem: GatedProblem, expected: Float64Array): void {
    const { rows, n, gateRow, upRow } = problem;
    const result = backend.allocUninit(rows * n, 'bf16');
    const [gate, up] = [problem.gate, problem.up].map((operand) => backend.address(operand));
    const shape = { grid: 3, block: 2 * backend.hip.properties.warpSize };
    const args = [rows, n, n, gate, gateRow, up, upRow, 0, result.ptr];
    backend.launch(DECODE, `decode_gated_q8_1_${activation}`, shape, args);
    const got = Float64Array.from(new Uint16Array(result.toHostSync()), bf16ToF32);
    result.dispose();
    const wrong = got.findIndex((value, i) => Math.abs(value - expected[i]) > 2 ** -8 * Math.abs(expected[i]) + 1e-6);
    expect(wrong < 0 ? undefined : `${activation} ${wrong}: ${got[wrong]} for ${expected[wrong]}`).toBeUndefined();
  }

  interface HeadsCase {
    tokens: number;
    heads: number;
    kvHeads: number;
    d: number;
    dv?: number;
    rotated?: number;
    interleaved?: boolean;
    norms?: boolean;
  }
  const HEADS: HeadsCase[] = [
    { tokens: 1, heads: 1, kvHeads: 1, d: 64 },
    { tokens: 2, heads: 4, kvHeads: 1, d: 80, rotated: 32, norms: true },
    { tokens: 9, heads: 8, kvHeads: 1, d: 96, interleaved: true },
    { tokens: 3, heads: 8, kvHeads: 2, d: 128, interleaved: true, rotated: 64, norms: true },
    { tokens: 5, heads: 4, kvHeads: 4, d: 128, dv: 64 },
    { tokens: 4, heads: 2, kvHeads: 1, d: 256, norms: true },
    { tokens: 1, heads: 3, kvHeads: 3, d: 512, dv: 6, rotated: 2 },
    { tokens: 70, heads: 2, kvHeads: 2, d: 10, rotated: 0 },
  ];
  it.each(HEADS)('heads of %j', (sizes) => {
    for (const dtype of ['f32', 'f16', 'bf16', 'q8_0'] as const) {
      if (!decode.supportsHeads(dtype, sizes.d, sizes.dv ?? sizes.d)) continue;
      const { tokens, heads, kvHeads, d, dv = d, rotated = d, interleaved = false, norms = false } = sizes;
      const [blocks, blockSize, length, scale] = [8, 16, 40, 0.31];
      // Queries and keys in one row, values in another; rows of the tables are parts of wider ones.
      const row = (heads + kvHeads) * d;
      const [qk, v] = [noise(tokens * row, 6), noise(tokens * kvHeads * dv, 7)];
      const table = noise(length * (rotated + 5), 8);
      const [qNorm, kNorm] = [noise(d, 9), noise(d, 10)];
      // A position beyond the tables is the last one; a slot beyond the pool is left out.
      const positions = new Uint32Array(tokens).map((_, i) => (i === 4 ? 1000 : (i * 7) % length));
      const slots = new Uint32Array(tokens).map((_, i) => (i === 2 ? blocks * blockSize : (i * 5 + 3) % 128));
      const [qkStorage] = part(qk);
      const [tableStorage] = part(table);
      const isQ8 = dtype === 'q8_0';
      const zeros = (width: number, of: DType) => backend.zeros(blocks * blockSize * kvHeads * width, of);
      const [keys, values] = [d, dv].map((width) => zeros(width, isQ8 ? 'u8' : dtype));
      const scales = isQ8 ? [d, dv].map((width) => zeros(width / 32, 'f16')) : [];
      const kept = (rows: typeof keys, i: number) => {
        if (!isQ8) return numbers(rows);
        const own = numbers(scales[i]);
        return numbers(rows).map((code, at) => (code - 128) * own[Math.floor(at / 32)]);
      };
      const problem: HeadsProblem = {
        tokens,
        heads,
        q: [qkStorage, 0],
        qRow: row,
        k: [qkStorage, heads * d],
        kRow: row,
        v: part(v),
        vRow: kvHeads * dv,
        eps: EPS,
        rotated,
        interleaved,
        cos: [tableStorage, 1],
        sin: [tableStorage, 2 + rotated / 2],
        tableRow: rotated + 5,
        tableLength: length,
        positions: part(positions),
        slots: part(slots),
        scale,
        ...(norms && { qNorm: part(qNorm), kNorm: part(kNorm) }),
      };
      const head = (token: number, from: number, weights: Float32Array) => {
        const own = qk.subarray(token * row + from, token * row + from + d);
        const x = norms ? rmsNorm(own, weights, d) : Float64Array.from(own);
        const at = Math.min(positions[token], length - 1) * (rotated + 5);
        for (let p = 0; p < rotated / 2; p++) {
          const [a, b] = interleaved ? [2 * p, 2 * p + 1] : [p, p + rotated / 2];
          const [cos, sin] = [table[at + 1 + p], table[at + 2 + rotated / 2 + p]];
          [x[a], x[b]] = [x[a] * cos - x[b] * sin, x[a] * sin + x[b] * cos];
        }
        return x;
      };
      const queries: number[] = [];
      const wanted = { keys: new Float64Array(128 * kvHeads * d), values: new Float64Array(128 * kvHeads * dv) };
      for (let token = 0; token < tokens; token++) {
        for (let h = 0; h < heads; h++) queries.push(...head(token, h * d, qNorm).map((value) => value * scale));
        if (slots[token] >= 128) continue;
        for (let h = 0; h < kvHeads; h++) {
          wanted.keys.set(head(token, (heads + h) * d, kNorm), (slots[token] * kvHeads + h) * d);
          const from = (token * kvHeads + h) * dv;
          wanted.values.set(v.subarray(from, from + dv), (slots[token] * kvHeads + h) * dv);
        }
      }
      const out = decode.heads(problem, {
        keys: [keys, 0],
        values: [values, 0],
        ...(isQ8 && { scales: { keys: [scales[0], 0], values: [scales[1], 0] } }),
        valueRow: dv,
        blocks,
        blockSize,
        kvHeads,
        d,
        dv,
      });
      const tolerance = { f32: 4e-6, f16: 2e-3, bf16: 1.6e-2, q8_0: 2.5e-2 }[dtype];
      expectNear(numbers(out), queries, 4e-6, 'queries');
      expectNear(kept(keys, 0), wanted.keys, tolerance, `keys in ${dtype}`);
      expectNear(kept(values, 1), wanted.values, tolerance, `values in ${dtype}`);
      for (const storage of [out, keys, values, ...scales]) storage.dispose();
      disposeAll();
    }
  });

  it('says which heads it has kernels for', () => {
    expect(decode.supportsHeads('f16', 128, 64)).toBe(true);
    expect(decode.supportsHeads('f16', 514, 64)).toBe(false);
    expect(decode.supportsHeads('f16', 63, 64)).toBe(false);
    expect(decode.supportsHeads('u8', 64, 64)).toBe(false);
    expect(decode.supportsHeads('q8_0', 128, 96)).toBe(true);
    expect(decode.supportsHeads('q8_0', 128, 80)).toBe(false);
  });

  it('gives products what they would make of the numbers themselves', () => {
    const [n, k] = [48, 576];
    for (const m of [1, 3, 8, 9]) {
      const [x, alpha] = [noise(m * k, 11), noise(k, 12)];
      const weight = quantized.allocate('q8_0', n * k);
      backend.write(weight, 0, q8_0(noise(n * k, 13)));
      const problem = { rows: m, n: k, eps: EPS, x: part(x), alpha: part(alpha) };
      const inNumbers = decode.norm(problem, 'f32').normed;
      const inBlocks = decode.norm(problem, 'blocks').normed;
      const layout = Layout.contiguous([m, k]);
      const direct = quantized.matmul(weight, 'q8_0', { m, n, k }, at(inNumbers, layout));
      const fused = quantized.matmulActivations(weight, 'q8_0', { m, n, k }, inBlocks);
      const shared = quantized.quantizeActivations(at(inNumbers, layout), { m, k });
      const twice = quantized.matmulActivations(weight, 'q8_0', { m, n, k }, shared);
      expect(numbers(twice)).toEqual(numbers(direct));
      expectNear(numbers(fused), numbers(direct), 2e-2, `${m} rows`);
      for (const storage of [weight, inNumbers, inBlocks, direct, fused, shared, twice]) storage.dispose();
      disposeAll();
    }
  });
});
