/** Attention over a cache in blocks against `sdpa` of each sequence by itself, on every device. */
import { type DType, memoryStats, scope, Tensor } from '@x/core';
import { testDevices } from '@x/testing/devices';
import { describe, expect, it } from 'vitest';
import {
  type PagedAttentionOptions,
  type PagedCache,
  pagedAppend,
  pagedAttention,
  pagedPrompt,
  pagedUnpack,
  sdpa,
} from '../src';

interface Case {
  heads: number;
  kvHeads: number;
  d: number;
  dv?: number;
  blockSize: number;
  lengths: number[];
  options?: Omit<PagedAttentionOptions, 'rows'>;
}

const CASES: Case[] = [
  { heads: 1, kvHeads: 1, d: 64, blockSize: 16, lengths: [0, 1, 15, 16, 17] },
  { heads: 4, kvHeads: 1, d: 80, blockSize: 16, lengths: [33, 2, 130] },
  { heads: 6, kvHeads: 3, d: 96, blockSize: 32, lengths: [31, 32, 33, 200], options: { window: 20 } },
  { heads: 7, kvHeads: 1, d: 128, blockSize: 32, lengths: [129, 0, 5], options: { softcap: 3, scale: 0.2 } },
  { heads: 2, kvHeads: 2, d: 256, blockSize: 64, lengths: [300], options: { window: 131, softcap: 30 } },
  { heads: 8, kvHeads: 2, d: 64, blockSize: 16, lengths: Array.from({ length: 37 }, (_, i) => (i * 29) % 150) },
  { heads: 3, kvHeads: 1, d: 576, dv: 512, blockSize: 64, lengths: [70, 1] },
  { heads: 2, kvHeads: 1, d: 8, blockSize: 1, lengths: [3, 9] },
  // No kernel has these sizes.
  { heads: 2, kvHeads: 1, d: 20, blockSize: 16, lengths: [5, 40] },
];
const TOLERANCE: Partial<Record<DType, number>> = { f32: 2e-5, f16: 4e-3, bf16: 3e-2 };

const noise = (shape: number[], seed: number) => {
  const count = shape.reduce((product, size) => product * size, 1);
  return Tensor.from(
    new Float32Array(count).map((_, i) => Math.sin(i * 12.9898 + seed * 78.233) * 1.3),
    { shape, device: 'js' },
  );
};

describe.each(testDevices())('paged attention on %s', (device) => {
  it.each(CASES)('%j', ({ heads, kvHeads, d, dv = d, blockSize, lengths, options = {} }) => {
    for (const [dtype, poolDType] of [
      ['f32', 'f32'],
      ['f32', 'f16'],
      ['f16', 'f16'],
      ['bf16', 'bf16'],
      ['f16', 'f32'],
      ['f32', 'bf16'],
    ] as const) {
      const before = memoryStats();
      scope(() => {
        const maxBlocks = Math.max(1, ...lengths.map((length) => Math.ceil(length / blockSize))) + 1;
        const blocks = 1 + lengths.length * maxBlocks;
        // Blocks in no order; behind a length, block 0.
        const tables = new Uint32Array(lengths.length * maxBlocks);
        const order = Array.from({ length: blocks - 1 }, (_, i) => blocks - 1 - i);
        const pool = (width: number) =>
          Tensor.full(Number.NaN, [blocks * blockSize, kvHeads, width], poolDType, device);
        const cache = { keys: pool(d), values: pool(dv), blockSize };
        const q = noise([lengths.length, heads, d], 1).toDtype(dtype);
        const expected: number[][] = [];
        lengths.forEach((length, row) => {
          const used = Math.ceil(length / blockSize);
          for (let i = 0; i < used; i++) tables[row * maxBlocks + i] = order[row * maxBlocks + i];
          if (length === 0) {
            expected.push(new Array<number>(heads * dv).fill(0));
            return;
          }
          const [k, v] = [d, dv].map((width, i) => noise([kvHeads, length, width], 10 + row * 2 + i).toDtype(dtype));
          const slots = new Uint32Array(length).map((_, j) => {
            return tables[row * maxBlocks + Math.floor(j / blockSize)] * blockSize + (j % blockSize);
          });
          pagedAppend(cache, k.toDeviceSync(device), v.toDeviceSync(device), Tensor.from(slots, { device }));
          const { window = length, scale = 1 / Math.sqrt(d), softcap = 1 } = options;
          const seen = Math.min(length, window);
          const [keys, values] = [k, v].map((x) =>
            x
              .toDtype(poolDType)
              .toDtype('f32')
              .narrow(1, length - seen, seen),
          );
          const query = q.narrow(0, row, 1).toDtype('f32').reshape([1, heads, 1, d]);
          const mixed = sdpa(query, keys.unsqueeze(0), values.unsqueeze(0), { scale, softcapping: softcap });
          expected.push(Array.from(mixed.toArraySync<Float32Array>()));
        });
        // Positions that are in a block and behind the length, and block 0, hold NaN for kernels; 0 times NaN is NaN for the composed form.
        const kernels = device.backend.pagedAttention?.supports(dtype, poolDType, d, dv);
        if (!kernels) for (const part of [cache.keys, cache.values]) zeroNaN(part);
        const out = pagedAttention(
          q.toDeviceSync(device),
          cache,
          Tensor.from(tables, { shape: [lengths.length, maxBlocks], device }),
          Tensor.from(Uint32Array.from(lengths), { device }),
          options,
        );
        expect(out.shape).toEqual([lengths.length, heads, dv]);
        expect(out.dtype).toBe(dtype);
        const tolerance = TOLERANCE[dtype]!;
        const rows = out
          .toDtype('f32')
          .reshape([lengths.length, heads * dv])
          .toVecSync<number[][]>();
        rows.forEach((row, i) => {
          let worst = 0;
          row.forEach((value, e) => {
            const error = Math.abs(value - expected[i][e]);
            if (!(error <= worst)) worst = error;
          });
          expect(worst, `${dtype} on ${poolDType}, length ${lengths[i]}`).toBeLessThan(tolerance);
        });
      });
      expect(memoryStats()).toEqual(before);
    }
  });

  it.each([
    { heads: 1, kvHeads: 1, d: 64, blockSize: 16, lengths: [0, 1, 15, 16, 17] },
    { heads: 6, kvHeads: 3, d: 96, blockSize: 32, lengths: [31, 32, 33, 200], options: { window: 20 } },
    { heads: 7, kvHeads: 1, d: 128, blockSize: 32, lengths: [129, 0, 5], options: { softcap: 3, scale: 0.2 } },
    { heads: 3, kvHeads: 1, d: 576, dv: 512, blockSize: 64, lengths: [70, 1] },
    { heads: 4, kvHeads: 2, d: 32, dv: 64, blockSize: 1, lengths: [3, 9] },
  ] satisfies Case[])('over a cache in 8 bits: %j', ({ heads, kvHeads, d, dv = d, blockSize, lengths, ...rest }) => {
    const options: Case['options'] = 'options' in rest ? rest.options : {};
    const before = memoryStats();
    scope(() => {
      const isView = dv < d;
      const maxBlocks = Math.max(...lengths.map((length) => Math.ceil(length / blockSize)));
      const slots = (lengths.length * maxBlocks + 1) * blockSize;
      const zeros = (width: number, dtype: DType) => Tensor.zeros([slots, kvHeads, width], dtype, device);
      const keys = zeros(d, 'u8');
      const keyScales = zeros(d / 32, 'f16');
      const cache = {
        keys,
        values: isView ? keys.narrow(2, 0, dv) : zeros(dv, 'u8'),
        blockSize,
        scales: { keys: keyScales, values: isView ? keyScales : zeros(dv / 32, 'f16') },
      };
      // Every second block of the pool, from its end on.
      const tables = new Uint32Array(lengths.length * maxBlocks).map((_, i) => slots / blockSize - 1 - i);
      lengths.forEach((length, row) => {
        const at = new Uint32Array(length).map((_, j) => {
          return tables[row * maxBlocks + Math.floor(j / blockSize)] * blockSize + (j % blockSize);
        });
        const [k, v] = [d, dv].map((width, i) =>
          noise([kvHeads, length, width], 10 + row * 2 + i).toDeviceSync(device),
        );
        pagedAppend(cache, k, isView ? undefined : v, Tensor.from(at, { device }));
      });
      const all = Tensor.from(tables, { shape: [lengths.length, maxBlocks], device });
      const counts = Tensor.from(Uint32Array.from(lengths), { device });
      const q = noise([lengths.length, heads, d], 1).toDeviceSync(device);
      const numbers = pagedUnpack(cache, all.flattenAll(), 'f32');
      // What was put in, within half a step of its group's largest, and the scale's own rounding.
      lengths.forEach((length, row) => {
        const [k, v] = [d, dv].map((width, i) => noise([kvHeads, length, width], 10 + row * 2 + i));
        for (const [made, wanted] of [[numbers.keys, k], ...(isView ? [] : [[numbers.values, v] as const])] as const) {
          const kept = made
            .narrow(0, row * maxBlocks * blockSize, length)
            .transpose(0, 1)
            .toDeviceSync('js');
          const error = length === 0 ? 0 : kept.sub(wanted).abs().flattenAll().max(0).toScalarSync();
          expect(error).toBeLessThan((1.3 / 127) * 0.57);
        }
      });
      const places = Tensor.arange(0, lengths.length * maxBlocks, 'u32', device).reshape([lengths.length, maxBlocks]);
      for (const dtype of ['f32', 'f16'] as const) {
        const queries = q.toDtype(dtype);
        const out = pagedAttention(queries, cache, all, counts, options);
        const wanted = pagedAttention(queries.toDtype('f32'), numbers, places, counts, options);
        expect(out.dtype).toBe(dtype);
        const difference = out.toDtype('f32').sub(wanted).abs().flattenAll().max(0).toScalarSync();
        expect(difference).toBeLessThan(TOLERANCE[dtype]!);
      }
    });
    expect(memoryStats()).toEqual(before);
  });

  it('keeps NaN, and zeros, in a cache in 8 bits', () => {
    scope(() => {
      const zeros = (width: number, dtype: DType) => Tensor.zeros([2, 1, width], dtype, device);
      const cache = {
        keys: zeros(64, 'u8'),
        values: zeros(64, 'u8'),
        blockSize: 2,
        scales: { keys: zeros(2, 'f16'), values: zeros(2, 'f16') },
      };
      const rows = new Float32Array(128).map((_, i) => (i === 40 ? Number.NaN : i < 64 ? 0 : i - 96));
      const k = Tensor.from(rows, { shape: [1, 2, 64], device });
      pagedAppend(cache, k, k, Tensor.from([0, 1], { dtype: 'u32', device }));
      const { keys } = pagedUnpack(cache, Tensor.from([0], { dtype: 'u32', device }), 'f32');
      const values = keys.flattenAll().toVecSync<number[]>();
      expect(values.slice(0, 32)).toEqual(new Array(32).fill(0));
      expect(values.slice(32, 64).every(Number.isNaN)).toBe(true);
      const errors = values.slice(64).map((value, i) => Math.abs(value - (i - 32)));
      expect(Math.max(...errors)).toBeLessThan(0.15);
    });
  });

  it('refuses scales that do not belong to a cache', () => {
    scope(() => {
      const zeros = (width: number, dtype: DType) => Tensor.zeros([2, 1, width], dtype, device);
      const ids = Tensor.from([0], { dtype: 'u32', device });
      const [keys, scales] = [zeros(64, 'u8'), zeros(2, 'f16')];
      const unpack = (cache: object, dtype: DType = 'f32') =>
        pagedUnpack({ keys, values: keys, blockSize: 2, ...cache } as PagedCache, ids, dtype);
      const bad = { code: 'SHAPE_MISMATCH' };
      expect(() => unpack({ scales: { keys: zeros(1, 'f16'), values: scales } })).toThrow(expect.objectContaining(bad));
      expect(() => unpack({ scales: { keys: scales, values: zeros(2, 'f32') } })).toThrow(expect.objectContaining(bad));
      expect(() =>
        unpack({ keys: zeros(64, 'f16'), values: zeros(64, 'f16'), scales: { keys: scales, values: scales } }),
      ).toThrow(expect.objectContaining(bad));
      expect(() => unpack({ scales: { keys: scales } })).toThrow(/scales.values/);
      expect(() => unpack({ scales: { keys: scales, values: scales } }, 'f64')).toThrow(/f32, f16 or bf16/);
    });
  });

  it('gives many tokens of one sequence its table, and takes views', () => {
    scope(() => {
      const [tokens, heads, kvHeads, d, blockSize] = [21, 4, 2, 64, 16];
      const [k, v] = [1, 2].map((seed) => noise([kvHeads, tokens, d], seed));
      const q = noise([heads, tokens, d], 3);
      const cache = {
        keys: Tensor.zeros([6 * blockSize, kvHeads, d], { device }).narrow(0, 2 * blockSize, 4 * blockSize),
        values: Tensor.zeros([4 * blockSize, kvHeads, d], { device }),
        blockSize,
      };
      const slots = new Uint32Array(tokens).map((_, i) => (i < 16 ? 48 + i : i));
      // Positions first: rows of keys are not contiguous.
      const strided = (x: Tensor) => x.toDeviceSync(device).transpose(0, 1).contiguous().transpose(0, 1);
      pagedAppend(cache, strided(k), strided(v), Tensor.from(slots, { device }));
      const out = pagedAttention(
        q.toDeviceSync(device).transpose(0, 1),
        cache,
        Tensor.from([9, 9, 3, 1], { dtype: 'u32', shape: [2, 2], device }),
        Tensor.from(
          new Uint32Array(tokens).map((_, i) => i + 1),
          { device },
        ),
        { rows: Tensor.full(1, [tokens], 'u32', device) },
      );
      const whole = sdpa(q.unsqueeze(0), k.unsqueeze(0), v.unsqueeze(0), { causal: true }).squeeze(0).transpose(0, 1);
      const difference = out.toDeviceSync('js').sub(whole).abs().flattenAll().max(0).toScalarSync();
      expect(difference).toBeLessThan(2e-5);
    });
  });

  it.each([
    { heads: 2, kvHeads: 1, d: 64, tokens: 5, before: 0 },
    { heads: 6, kvHeads: 2, d: 80, tokens: 70, before: 33, sinks: true },
    { heads: 4, kvHeads: 4, d: 96, tokens: 130, before: 0, window: 50 },
    { heads: 4, kvHeads: 2, d: 128, tokens: 40, before: 100, softcap: 5, window: 64 },
    { heads: 2, kvHeads: 2, d: 192, dv: 128, tokens: 20, before: 7 },
    { heads: 2, kvHeads: 1, d: 256, tokens: 17, before: 64, softcap: 20 },
    { heads: 8, kvHeads: 1, d: 576, dv: 512, tokens: 19, before: 50, inKeys: true },
    // No kernel has these sizes.
    { heads: 2, kvHeads: 1, d: 20, tokens: 6, before: 3 },
  ])('of many tokens of one sequence: %j', (of) => {
    const { heads, kvHeads, d, dv = d, tokens, before, sinks: sunk, inKeys = false, ...options } = of;
    const memory = memoryStats();
    scope(() => {
      const [kv, blockSize] = [before + tokens, 16];
      const blocks = Math.ceil(kv / blockSize);
      const k = noise([kvHeads, kv, d], 1);
      const v = inKeys ? k.narrow(2, 0, dv) : noise([kvHeads, kv, dv], 2);
      const q = noise([heads, tokens, d], 3);
      const sinks = sunk ? noise([heads], 4) : undefined;
      const mask = { causal: true, window: options.window, softcapping: options.softcap, sinks };
      const whole = sdpa(q.unsqueeze(0), k.unsqueeze(0), v.unsqueeze(0), mask).squeeze(0).transpose(0, 1);
      for (const dtype of ['f32', 'f16', 'bf16'] as const) {
        const pool = (width: number) => Tensor.zeros([(blocks + 1) * blockSize, kvHeads, width], { dtype, device });
        const keys = pool(d);
        const cache = { keys, values: inKeys ? keys.narrow(2, 0, dv) : pool(dv), blockSize };
        const table = new Uint32Array(blocks).map((_, i) => blocks - i);
        const slots = new Uint32Array(kv).map((_, j) => {
          return table[Math.floor(j / blockSize)] * blockSize + (j % blockSize);
        });
        const [newKeys, newValues] = [k, v].map((x) => x.toDeviceSync(device));
        pagedAppend(cache, newKeys, inKeys ? undefined : newValues, Tensor.from(slots, { device }));
        const own = { ...options, ...(sinks && { sinks: sinks.toDeviceSync(device) }) };
        const out = pagedPrompt(q.toDeviceSync(device), cache, Tensor.from(table, { device }), before, own);
        expect(out.shape).toEqual([tokens, heads, dv]);
        const difference = out.toDeviceSync('js').sub(whole).abs().flattenAll().max(0).toScalarSync();
        expect(difference, dtype).toBeLessThan(TOLERANCE[dtype]!);
      }
    });
    expect(memoryStats()).toEqual(memory);
  });

  it('has kernels for the head sizes of language models, for steps and for prompts', () => {
    const kernels = device.backend.pagedAttention;
    if (!kernels) return;
    for (const [d, dv] of [64, 80, 96, 128, [192, 128], 256, [576, 512]].map((size) => [size, size].flat()))
      for (const pool of ['f32', 'f16', 'bf16'] as const) {
        for (const dtype of ['f32', 'f16', 'bf16'] as const) expect(kernels.supports(dtype, pool, d, dv)).toBe(true);
        // Blocks are of 32 numbers of a head; others are quantized behind.
        expect(kernels.supportsBlocks('f32', pool, d, dv)).toBe(dv % 32 === 0);
        expect(kernels.supportsPrompt(pool, d, dv)).toBe(true);
      }
  });

  it('refuses what does not fit, with the numbers', () => {
    scope(() => {
      const cache = (blockSize: number) => ({
        keys: Tensor.zeros([32, 2, 16], { device }),
        values: Tensor.zeros([32, 2, 16], { device }),
        blockSize,
      });
      const q = Tensor.zeros([1, 4, 16], { device });
      const tables = Tensor.zeros([1, 2], { dtype: 'u32', device });
      const lengths = Tensor.zeros([1], { dtype: 'u32', device });
      const calls: [() => unknown, string, RegExp][] = [
        [() => pagedAttention(q, cache(12), tables, lengths), 'INVALID_ARGUMENT', /blockSize is 12/],
        [() => pagedAttention(q, cache(64), tables, lengths), 'SHAPE_MISMATCH', /blocks of 64/],
        [() => pagedAttention(q.narrow(2, 0, 8), cache(16), tables, lengths), 'SHAPE_MISMATCH', /1,4,8/],
        [
          () => pagedAttention(q.narrow(1, 0, 3), cache(16), tables, lengths),
          'SHAPE_MISMATCH',
          /3 query heads share 2/,
        ],
        [() => pagedAttention(q, cache(16), tables.toDtype('i64'), lengths), 'INVALID_ARGUMENT', /tables are i64/],
        [() => pagedAttention(q, cache(16), tables, lengths, { window: 0 }), 'INVALID_ARGUMENT', /window/],
        [() => pagedAttention(q, cache(16), tables, lengths, { softcap: -1 }), 'INVALID_ARGUMENT', /softcap is -1/],
        [() => pagedAppend(cache(16), q, q, lengths), 'SHAPE_MISMATCH', /slots \[1\]/],
      ];
      for (const [call, code, message] of calls)
        expect(call).toThrow(expect.objectContaining({ code, message: expect.stringMatching(message) }));
    });
  });
});

/** In place: NaN becomes 0. */
function zeroNaN(tensor: Tensor): void {
  scope(() => {
    const values = tensor.toDtype('f32');
    const clean = values.eq(values).whereCond(values, values.zerosLike());
    tensor.sliceSet(clean.toDtype(tensor.dtype), 0, 0);
  });
}
