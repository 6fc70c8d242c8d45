// Attention of parts of several sequences over a cache in blocks: against paged attention a token on the host.
import { Device, memoryStats, scope, Tensor } from '@x/core';
import { testDevices } from '@x/testing/devices';
import { generator } from '@x/testing/operands';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { pagedAttention, pagedVarlen, TILE_NUMBERS, type VarlenPart, varlenRows, varlenTiles } from '../src';

let before: ReturnType<typeof memoryStats>;
beforeEach(() => {
  before = memoryStats();
});
afterEach(() => expect(memoryStats()).toEqual(before));

const BLOCK = 32;

interface Case {
  /** Tokens of each sequence, and keys in front of them. */
  parts: readonly (readonly [count: number, before: number])[];
  heads: number;
  kvHeads: number;
  d: number;
  /** Where values are the first columns of the keys, how many. */
  dv?: number;
  window?: number;
  softcap?: number;
  sinks?: boolean;
  /** Rows behind those of the sequences. */
  padded?: number;
}

const CASES: Record<string, Case> = {
  'one token': { parts: [[1, 0]], heads: 2, kvHeads: 2, d: 64 },
  'lengths about a tile': {
    parts: [
      [128, 0],
      [129, 0],
      [127, 3],
      [1, 40],
    ].map(pair),
    heads: 2,
    kvHeads: 1,
    d: 64,
  },
  'heads of 128, grouped': {
    parts: [
      [70, 0],
      [33, 95],
    ].map(pair),
    heads: 6,
    kvHeads: 2,
    d: 128,
  },
  'keys in front': {
    parts: [
      [5, 200],
      [17, 31],
      [40, 64],
    ].map(pair),
    heads: 2,
    kvHeads: 2,
    d: 64,
  },
  'a window': {
    parts: [
      [150, 100],
      [9, 0],
      [3, 7],
    ].map(pair),
    heads: 2,
    kvHeads: 1,
    d: 64,
    window: 40,
  },
  'a window of one key': { parts: [[130, 5]].map(pair), heads: 1, kvHeads: 1, d: 128, window: 1 },
  'a window that is wider': { parts: [[20, 5]].map(pair), heads: 1, kvHeads: 1, d: 128, window: 500 },
  sinks: {
    parts: [
      [70, 20],
      [4, 0],
    ].map(pair),
    heads: 4,
    kvHeads: 2,
    d: 64,
    sinks: true,
  },
  'sinks and a window': { parts: [[140, 20]].map(pair), heads: 2, kvHeads: 2, d: 128, sinks: true, window: 33 },
  'heads of 96': {
    parts: [
      [70, 0],
      [33, 95],
    ].map(pair),
    heads: 4,
    kvHeads: 2,
    d: 96,
  },
  'heads of 32': { parts: [[40, 30]].map(pair), heads: 2, kvHeads: 1, d: 32, window: 11 },
  'heads of 256, grouped': {
    parts: [
      [150, 10],
      [33, 95],
    ].map(pair),
    heads: 4,
    kvHeads: 2,
    d: 256,
  },
  'heads of 256, a window, a cap and sinks': {
    parts: [[140, 20]].map(pair),
    heads: 2,
    kvHeads: 1,
    d: 256,
    window: 33,
    softcap: 5,
    sinks: true,
  },
  'heads of 192 and a cap': { parts: [[20, 70]].map(pair), heads: 2, kvHeads: 2, d: 192, softcap: 2 },
  'heads of 64 and a cap': { parts: [[130, 70]].map(pair), heads: 2, kvHeads: 2, d: 64, softcap: 3 },
  'values in keys': {
    parts: [
      [130, 10],
      [3, 95],
    ].map(pair),
    heads: 4,
    kvHeads: 1,
    d: 576,
    dv: 512,
    padded: 70,
  },
  'rows of no sequence': {
    parts: [
      [20, 9],
      [3, 0],
    ].map(pair),
    heads: 2,
    kvHeads: 1,
    d: 64,
    padded: 140,
  },
};

function pair([count, before]: number[]): [number, number] {
  return [count, before];
}

function noise(shape: number[], seed: number): Tensor {
  const next = generator(seed);
  return Tensor.from(
    new Float32Array(shape.reduce((a, b) => a * b)).map(() => 3 * next() - 1.5),
    { shape, device: Device.js() },
  );
}

const ids = (values: readonly number[], device: Device) => Tensor.from(Uint32Array.from(values), { device });

/** The blocks of each sequence: of all of them in turn, so that neighbours in a sequence are none in the pool. */
function blocksOf(parts: Case['parts']): number[][] {
  const all = parts.map(([count, before]) => new Array<number>(Math.ceil((count + before) / BLOCK)).fill(0));
  let next = 0;
  for (let i = 0; all.some((blocks) => i < blocks.length); i++)
    for (const blocks of all) if (i < blocks.length) blocks[i] = next++;
  return all;
}

describe.each(testDevices())('varlen attention over blocks on %s', (device) => {
  const dtypes = ['f16', 'bf16'] as const;
  it.each(Object.keys(CASES).flatMap((key) => dtypes.map((dtype) => [key, dtype] as const)))('%s, %s', (key, dtype) => {
    const { parts, heads, kvHeads, d, dv = d, window, softcap, sinks, padded = 0 } = CASES[key];
    const blocks = blocksOf(parts);
    const tokens = parts.reduce((sum, [count]) => sum + count, padded);
    const slots = blocks.flat().length * BLOCK;
    scope(() => {
      const [q, k, v] = [heads, kvHeads, kvHeads].map((count, i) =>
        noise([i === 0 ? tokens : slots, count, d], i + 1).toDtype(dtype),
      );
      const scores = sinks ? noise([heads], 4).mul(2) : undefined;
      const cacheOn = (on: Device) => {
        const keys = k.toDeviceSync(on);
        return { keys, values: dv === d ? v.toDeviceSync(on) : keys.narrow(2, 0, dv), blockSize: BLOCK };
      };
      const cache = cacheOn(device);
      const rows = varlenRows(cache);
      const options = { scale: 0.2, ...(window !== undefined && { window }), ...(softcap && { softcap }) };
      const give = (on: Device) => ({ ...options, ...(scores && { sinks: scores.toDeviceSync(on) }) });
      expect(rows !== undefined).toBe(hasKernel(device, dtype, d));
      const places: VarlenPart[] = [];
      let [start, table] = [0, 0];
      for (const [i, [count, front]] of parts.entries()) {
        places.push({ start, count, before: front, table });
        start += count;
        table += blocks[i].length;
      }
      if (padded > 0) places.push({ start, count: padded, before: -1, table: 0 });
      // With a tile of nothing at the end.
      const numbers = [...varlenTiles(places, rows ?? 128), 0, 0, 0, 0];
      const tiles = ids(numbers, device).reshape([numbers.length / TILE_NUMBERS, TILE_NUMBERS]);
      const at = { tiles, tables: ids(blocks.flat(), device) };
      const attend = () => pagedVarlen(q.toDeviceSync(device), cache, at, give(device));
      if (rows === undefined) {
        expect(attend).toThrow(/no kernel/);
        return;
      }
      const made = attend();
      expect([made.shape, made.dtype]).toEqual([[tokens, heads, dv], dtype]);
      const width = Math.max(...blocks.map((own) => own.length));
      const js = Device.js();
      const tables = ids(
        blocks.flatMap((own) => Array.from({ length: width }, (_, i) => own[i] ?? 0)),
        js,
      );
      const each = parts.flatMap(([count, front], i) => Array.from({ length: count }, (_, j) => [i, front + j + 1]));
      for (let i = 0; i < padded; i++) each.push([0, 0]);
      const [of, lengths] = [0, 1].map((i) =>
        ids(
          each.map((own) => own[i]),
          js,
        ),
      );
      const { keys, values } = cacheOn(js);
      const wide = { keys: keys.toDtype('f32'), values: values.toDtype('f32'), blockSize: BLOCK };
      const expected = pagedAttention(q.toDtype('f32'), wide, tables.reshape([parts.length, width]), lengths, {
        ...give(js),
        rows: of,
      });
      const difference = made.toDeviceSync('js').toDtype('f32').sub(expected).abs().flattenAll().max(0).toScalarSync();
      expect(difference).toBeLessThan(dtype === 'f16' ? 2e-3 : 1.6e-2);
      // A view of wider rows gives the same.
      const joined = Tensor.cat([q, q], 1).toDeviceSync(device).narrow(1, heads, heads);
      const again = pagedVarlen(joined, cache, at, give(device));
      expect(again.sub(made).abs().flattenAll().max(0).toDtype('f32').toScalarSync()).toBe(0);
    });
  });

  it('says what does not fit', () => {
    scope(() => {
      const on = (shape: number[], dtype: 'f16' | 'f32' = 'f16') => Tensor.zeros(shape, { dtype, device });
      const cache = { keys: on([64, 2, 64]), values: on([64, 2, 64]), blockSize: BLOCK };
      const tiles = ids([0, 2, 1, 0], device).reshape([1, 4]);
      const at = { tiles, tables: ids([0], device) };
      const q = on([2, 4, 64]);
      expect(() => pagedVarlen(on([2, 4, 32]), cache, at)).toThrow(/give \[tokens, heads, d\]/);
      expect(() => pagedVarlen(on([2, 3, 64]), cache, at)).toThrow(/3/);
      expect(() => pagedVarlen(q, cache, { ...at, tiles: ids([0, 2, 1], device) })).toThrow(/\[count, 4\]/);
      expect(() => pagedVarlen(q, cache, { ...at, tables: on([2], 'f32') })).toThrow(/tables of u32/);
      expect(() => pagedVarlen(q, cache, at, { window: 0 })).toThrow(/window/);
      expect(() => pagedVarlen(q, cache, at, { scale: Number.NaN })).toThrow(/scale/);
      expect(() => pagedVarlen(q, cache, at, { scale: -1 })).toThrow(/positive/);
      expect(() => pagedVarlen(q, cache, at, { softcap: 0 })).toThrow(/softcap is 0/);
      expect(() => pagedVarlen(q, cache, at, { sinks: on([3], 'f32') })).toThrow(/sinks/);
      expect(() => pagedVarlen(on([2, 4, 64], 'f32'), cache, at)).toThrow(/no kernel for queries of f32/);
      expect(() => pagedVarlen(q, undefined as never, at)).toThrow(/cache/);
      // Values that are no part of the keys, as they are in latent attention.
      const apart = { keys: on([64, 1, 576]), values: on([64, 1, 512]), blockSize: BLOCK };
      expect(varlenRows(apart)).toBeUndefined();
      expect(() => pagedVarlen(on([2, 4, 576]), apart, at)).toThrow(/no kernel/);
      const part = { start: 0, count: 3, before: 0, table: 0 };
      expect([...varlenTiles([part], 2)]).toEqual([2, 1, 3, 0, 0, 2, 1, 0]);
      for (const parts of [
        undefined,
        {},
        [1],
        [{ ...part, count: -1 }],
        [{ ...part, before: -2 }],
        [{ ...part, start: 0.5 }],
      ])
        expect(() => varlenTiles(parts as never, 2)).toThrow(/parts/);
      expect(() => varlenTiles([part], 0)).toThrow(/rows/);
      expect(() => pagedVarlen(q, cache, undefined as never)).toThrow(/at/);
    });
  });
});

/** On the host and where there are matrix units; AMD's are for few sizes, and those of RDNA have no room for queries of 576 values. */
function hasKernel(device: Device, dtype: 'f16' | 'bf16', d: number): boolean {
  if (device.kind === 'cpu') return true;
  const problem = { b: 1, heads: 2, kvHeads: 2, seq: 128, kv: 128, d: 64, scale: 1, causal: true };
  const units = device.backend.attention?.supports(dtype, problem) === true;
  return units && (device.kind === 'cuda' || [64, 128, 256].includes(d) || (d === 576 && isCdna(device)));
}

function isCdna(device: Device): boolean {
  return (device.backend as unknown as { hip: { properties: { warpSize: number } } }).hip.properties.warpSize === 64;
}
