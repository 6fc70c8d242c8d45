/**
 * Every kernel of attention over a cache in blocks, in every dtype of queries and of the cache: against attention in f64 on
 * the host. See every-kernel.test.ts.
 */
import { Device, type DType, type PagedPool, type StoragePart, Tensor } from '@x/core';
import { kernelDevices } from '@x/testing/devices';
import { describe, expect, it } from 'vitest';
import type { RocmDevice } from '../src/index';

const DTYPES = ['f32', 'f16', 'bf16'] as const;
/** Weights of a sum that is 1, on values up to about 4. */
const ERROR = { f32: 1e-5, f16: 4e-3, bf16: 3e-2 };

interface Case {
  heads: number;
  kvHeads: number;
  d: number;
  dv: number;
  blockSize: number;
  /** Of each token: what it sees of its own sequence. */
  lengths: number[];
  window: number;
  softcap: number;
  /** A score of each head beside those of keys. */
  sinks?: number[];
  /** Values are the first elements of keys. */
  valuesInKeys?: boolean;
}

const CASES: Case[] = [
  { heads: 6, kvHeads: 2, d: 16, dv: 8, blockSize: 8, lengths: [0, 21, 32], window: 30, softcap: 5 },
  // One item for a whole device, and room for more keys than a step has.
  { heads: 1, kvHeads: 1, d: 8, dv: 16, blockSize: 64, lengths: [150], window: 0, softcap: 0 },
  // Several steps of a part.
  { heads: 1, kvHeads: 1, d: 8, dv: 8, blockSize: 64, lengths: [8300], window: 0, softcap: 0 },
  // A sink above all scores, one among them, and one below: whole, and beside keys in parts.
  ...[
    { heads: 3, blockSize: 32, lengths: [9, 0, 32], sinks: [90, 0.5, -90] },
    { heads: 2, lengths: [150], sinks: [0.5, 90] },
  ].map((of) => ({ kvHeads: 1, d: 24, dv: 16, blockSize: 64, window: 0, softcap: 0, valuesInKeys: true, ...of })),
];

describe.each(kernelDevices())('every paged attention on %s', (device) => {
  const backend = device.backend as RocmDevice;

  describe.each(DTYPES)('of %s', (dtype) => {
    it.each(DTYPES)('over a cache of %s', (poolDType) => {
      for (const { heads, kvHeads, d, dv, blockSize, lengths, window, softcap, sinks, ...rest } of CASES) {
        const { valuesInKeys = false } = rest;
        const tokens = lengths.length;
        const maxBlocks = Math.ceil(Math.max(...lengths) / blockSize);
        const blocks = tokens * maxBlocks + 1;
        // Blocks of the sequences lie in the pool from its end on, and across each other.
        const block = (token: number, i: number) => blocks - 1 - (i * tokens + token);
        const scale = 1 / Math.sqrt(d);

        const q = numbers([tokens, heads, d], dtype, 1);
        const counts = lengths.map((length) => Math.max(length, 1));
        const kept = counts.reduce((sum, count) => sum + count, 0);
        const k = numbers([kvHeads, kept, d], dtype, 2);
        const v = valuesInKeys ? k.narrow(2, 0, dv).contiguous() : numbers([kvHeads, kept, dv], dtype, 3);
        const slots = counts.flatMap((count, token) =>
          Array.from(
            { length: count },
            (_, j) => block(token, Math.floor(j / blockSize)) * blockSize + (j % blockSize),
          ),
        );
        const tables = lengths.flatMap((_, token) => Array.from({ length: maxBlocks }, (_, i) => block(token, i)));

        const on = (x: Tensor) => x.toDeviceSync(device).storageAndLayout();
        const part = (values: number[]): StoragePart => {
          return [on(Tensor.fromArray(Uint32Array.from(values), [values.length], { device: Device.js() })).storage, 0];
        };
        const zeros = (size: number): StoragePart => [backend.zeros(size, poolDType), 0];
        const slotCount = blocks * blockSize * kvHeads;
        const poolKeys = zeros(slotCount * d);
        const pool: PagedPool = {
          keys: poolKeys,
          values: valuesInKeys ? poolKeys : zeros(slotCount * dv),
          valueRow: valuesInKeys ? d : dv,
          blocks,
          blockSize,
          kvHeads,
          d,
          dv,
        };
        const [keys, values, queries] = [on(k), on(v), on(q)];
        backend.pagedAttention.append(keys, valuesInKeys ? undefined : values, part(slots), pool);

        const beside = sinks && on(Tensor.from(Float32Array.from(sinks), { device: 'js' })).storage;
        const problem = { tokens, heads, scale, window, softcap, ...(beside && { sinks: [beside, 0] as StoragePart }) };
        const at = { tables: part(tables), sequences: tokens, maxBlocks, lengths: part(lengths) };
        const before = backend.launchCount;
        const out = backend.pagedAttention.attend(problem, queries, pool, at);
        expect(backend.launchCount - before).toBe(1);
        const result = Tensor.fromStorage(out, [tokens, heads, dv], device);

        const [rows, cached, added] = [q, k.toDtype(poolDType), v.toDtype(poolDType)].map(valuesOf);
        let begin = 0;
        const expected = lengths.flatMap((length, token) => {
          const first = begin;
          begin += counts[token];
          const from = window > 0 ? Math.max(0, length - window) : 0;
          return Array.from({ length: heads }, (_, head) => {
            const row = Math.floor(head / (heads / kvHeads)) * kept + first;
            const seen = { keys: cached, values: added, from: row + from, to: row + length };
            return mixed(rows.slice((token * heads + head) * d), seen, { d, dv, scale, softcap, sink: sinks?.[head] });
          }).flat();
        });
        expectClose(valuesOf(result), expected, ERROR[dtype]);
      }
    });
  });

  it.each([
    { heads: 2, kvHeads: 2, d: 32, dv: 64 },
    { heads: 4, kvHeads: 2, d: 96, dv: 32 },
    { heads: 8, kvHeads: 2, d: 64, dv: 64 },
    { heads: 3, kvHeads: 1, d: 64, dv: 32, valuesInKeys: true },
  ])('over a cache in 8 bits, and what it holds: %j', ({ heads, kvHeads, d, dv, valuesInKeys = false }) => {
    const [tokens, blockSize, maxBlocks] = [3, 16, 10];
    const lengths = [0, 7, 150];
    const blocks = tokens * maxBlocks;
    const kept = blocks * blockSize;
    const on = (x: Tensor) => x.toDeviceSync(device).storageAndLayout();
    const part = (values: number[]): StoragePart => [
      on(Tensor.fromArray(Uint32Array.from(values), [values.length], { device: Device.js() })).storage,
      0,
    ];
    const zeros = (size: number, dtype: DType): StoragePart => [backend.zeros(size, dtype), 0];
    const [q, k, v] = [
      [tokens, heads, d],
      [kvHeads, kept, d],
      [kvHeads, kept, dv],
    ].map((shape, i) => numbers(shape, 'f32', i + 1));
    const [keys, keyScales] = [zeros(kept * kvHeads * d, 'u8'), zeros((kept * kvHeads * d) / 32, 'f16')];
    const sizes = { blocks, blockSize, kvHeads, d, dv };
    const pool: PagedPool = {
      keys,
      values: valuesInKeys ? keys : zeros(kept * kvHeads * dv, 'u8'),
      scales: {
        keys: keyScales,
        values: valuesInKeys ? keyScales : zeros((kept * kvHeads * dv) / 32, 'f16'),
      },
      valueRow: valuesInKeys ? d : dv,
      ...sizes,
    };
    const all = Array.from({ length: kept }, (_, i) => i);
    backend.pagedAttention.append(on(k), valuesInKeys ? undefined : on(v), part(all), pool);
    const ids = part(all.slice(0, blocks));
    const unpacked = (width: number, codes: StoragePart, scales: StoragePart, dtype: DType) => {
      const blockValues = blockSize * kvHeads * width;
      const problem = { count: blocks, blocks: ids, blockValues, poolBlocks: blocks, codes, scales };
      return Tensor.fromStorage(backend.pagedAttention.unpack(problem, dtype), [kept, kvHeads, width], device);
    };
    const wide = unpacked(d, keys, keyScales, 'f32');
    const worst = wide.toDeviceSync('js').sub(k.transpose(0, 1)).abs().flattenAll().max(0).toScalarSync() as number;
    // Half a step of a group whose largest value is 4.5 or so.
    expect(worst).toBeLessThan(0.02);
    for (const dtype of ['f16', 'bf16'] as const) {
      const narrow = unpacked(d, keys, keyScales, dtype);
      const difference = narrow.toDtype('f32').sub(wide).abs().flattenAll().max(0).toScalarSync() as number;
      expect(difference).toBeLessThan({ f16: 4e-3, bf16: 2e-2 }[dtype]);
    }
    const at = { tables: ids, sequences: tokens, maxBlocks, lengths: part(lengths) };
    const problem = { tokens, heads, scale: 0.2, window: 0, softcap: 0 };
    const out = backend.pagedAttention.attend(problem, on(q), pool, at);
    const numbersOf = (x: Tensor): StoragePart => [x.storageAndLayout().storage, 0];
    const values = valuesInKeys ? numbersOf(wide) : numbersOf(unpacked(dv, pool.values, pool.scales!.values, 'f32'));
    const plain = { keys: numbersOf(wide), values, valueRow: pool.valueRow, ...sizes };
    const wanted = backend.pagedAttention.attend(problem, on(q), plain, at);
    const [got, expected] = [out, wanted].map((storage) =>
      valuesOf(Tensor.fromStorage(storage, [tokens, heads, dv], device)),
    );
    expectClose(got, expected, ERROR.f32);
    expect(expected.some((value) => Math.abs(value) > 0.1)).toBe(true);
  });

  // Each kernel with a width that it fills and one that it does not, plain and with all that scores may have.
  it.each([8, 64, 72, 128, 136, 256, 264, 512])('of a prompt, over values of %i', (dv) => {
    const [heads, kvHeads, d, tokens, blockSize] = [4, 2, 40, 5, 4];
    const scale = 1 / Math.sqrt(d);
    for (const poolDType of DTYPES)
      for (const { before, window, softcap, sinks } of [
        { before: 0, window: 0, softcap: 0 },
        { before: 6, window: 4, softcap: 5, sinks: [0.5, 90, -90, 1] },
      ]) {
        const kept = before + tokens;
        // Blocks from the end of the pool on.
        const table = Array.from({ length: Math.ceil(kept / blockSize) }, (_, i) => 4 - i);
        const slots = Array.from(
          { length: kept },
          (_, j) => table[Math.floor(j / blockSize)] * blockSize + (j % blockSize),
        );
        const [q, k, v] = [
          [heads, tokens, d],
          [kvHeads, kept, d],
          [kvHeads, kept, dv],
        ].map((shape, i) => numbers(shape, 'f32', i + 1));
        const on = (x: Tensor) => x.toDeviceSync(device).storageAndLayout();
        const part = (x: Uint32Array | Float32Array): StoragePart => [on(Tensor.from(x, { device: 'js' })).storage, 0];
        const zeros = (width: number): StoragePart => [backend.zeros(5 * blockSize * kvHeads * width, poolDType), 0];
        const sizes = { blocks: 5, blockSize, kvHeads, d, dv };
        const pool: PagedPool = { keys: zeros(d), values: zeros(dv), valueRow: dv, ...sizes };
        backend.pagedAttention.append(on(k), on(v), part(Uint32Array.from(slots)), pool);
        const problem = { tokens, heads, before, scale, window, softcap };
        const beside = sinks && { sinks: part(Float32Array.from(sinks)) };
        const out = backend.pagedAttention.attendPrompt(
          { ...problem, ...beside },
          on(q),
          pool,
          part(Uint32Array.from(table)),
        );
        const [rows, keys, values] = [q, k.toDtype(poolDType), v.toDtype(poolDType)].map(valuesOf);
        const expected = Array.from({ length: tokens * heads }, (_, item) => {
          const [token, head] = [Math.floor(item / heads), item % heads];
          const [row, to] = [Math.floor(head / (heads / kvHeads)) * kept, before + token + 1];
          const seen = { keys, values, from: row + (window > 0 ? Math.max(0, to - window) : 0), to: row + to };
          return mixed(rows.slice((head * tokens + token) * d), seen, { d, dv, scale, softcap, sink: sinks?.[head] });
        });
        expectClose(valuesOf(Tensor.fromStorage(out, [tokens, heads, dv], device)), expected.flat(), ERROR.f32);
      }
  });
});

/** What one query gets of keys and values [from, to), rows of d and dv: sink is a score beside theirs. */
function mixed(
  q: number[],
  { keys, values, from, to }: { keys: number[]; values: number[]; from: number; to: number },
  { d, dv, scale, softcap, sink }: { d: number; dv: number; scale: number; softcap: number; sink?: number },
): number[] {
  const weights = Array.from({ length: to - from }, (_, j) => {
    let dot = 0;
    for (let e = 0; e < d; e++) dot += q[e] * keys[(from + j) * d + e];
    return Math.exp(softcap > 0 ? softcap * Math.tanh((dot * scale) / softcap) : dot * scale);
  });
  const sum = weights.reduce((a, b) => a + b, sink === undefined ? 0 : Math.exp(sink));
  return Array.from({ length: dv }, (_, e) => {
    const total = weights.reduce((all, weight, j) => all + weight * values[(from + j) * dv + e], 0);
    return weights.length === 0 ? 0 : total / sum;
  });
}

function expectClose(actual: number[], expected: number[], error: number): void {
  expect(actual).toHaveLength(expected.length);
  for (let i = 0; i < expected.length; i++)
    expect(Math.abs(actual[i] - expected[i]), `element ${i}: ${actual[i]} for ${expected[i]}`).toBeLessThan(error);
}

/** Normal numbers of a fixed stream, the same on every device. */
function numbers(shape: number[], dtype: DType, seed: number): Tensor {
  const host = Device.js();
  host.setSeed(seed);
  return Tensor.randn(0, 1, shape, 'f32', host).toDtype(dtype);
}

function valuesOf(x: Tensor): number[] {
  return x.toDtype('f64').flattenAll().toVecSync() as number[];
}
