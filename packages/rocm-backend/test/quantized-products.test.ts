/**
 * Products of activation rows with quantized weights, by each family of kernels: dp4a tiles (the host's loops on `cpu`)
 * and int8 matrix units where the device has them for many rows, streams of weights for few, matrix-vector kernels for one. Weights are random blocks, and activations whole numbers of which
 * q8_1 blocks hold every one exactly, so a result differs from the exact one only by the rounding of f32 sums: any element,
 * scale or minimum out of place shows. Sizes lie around the tiles and slabs; what is beyond the result stays untouched.
 */
import { Layout } from '@x/core';
import { QUANTIZED } from '@x/kernels';
import { kernelDevices } from '@x/testing/devices';
import { at } from '@x/testing/operands';
import { BLOCK_TYPES, randomBlocks } from '@x/testing/quantized/random-blocks';
import { random } from '@x/testing/random';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { blockFormat } from '../../quantized/src/blocks';
import { type QuantizedChoice, RocmDevice, type RocmStorage } from '../src/index';
import { streamLaunch } from '../src/ops/quantized-stream';

const kinds = kernelDevices().map((device) => device.location.kind as 'cpu' | 'cuda' | 'rocm');

/** Where a block has f16 numbers; mxfp4 has an exponent. */
const HALVES = {
  q4_0: [0],
  q4_1: [0, 2],
  q5_0: [0],
  q5_1: [0, 2],
  q8_0: [0],
  q2_K: [80, 82],
  q3_K: [108],
  q4_K: [0, 2],
  q5_K: [0, 2],
  q6_K: [208],
  mxfp4: [],
};
type Type = keyof typeof HALVES;
const TYPES = Object.keys(HALVES) as Type[];
/** Of the terms' magnitudes, where weights and activations are rounded to f16: one unit in its last place. */
const STREAM_ERROR = 2 ** -11;
const FAMILIES = ['mul_mat_', 'mul_mat_mma_', 'mul_mat_mma_few_'];
/** The kernels for matrix units, which GPUs without them lack and the host has as loops like the others. */
const forUnits = (device: RocmDevice): boolean => device.matrixUnits !== undefined || device.location.kind === 'cpu';

/** Rows of activations, rows of weights, columns in blocks of 256: below, at and past 64, 128 and 256, one slab and more. */
const SIZES = [
  { m: 2, n: 97, k: 4608 },
  { m: 8, n: 32, k: 768 },
  { m: 9, n: 33, k: 256 },
  { m: 16, n: 1, k: 768 },
  { m: 33, n: 65, k: 768 },
  { m: 64, n: 131, k: 256 },
  { m: 65, n: 64, k: 1280 },
  { m: 129, n: 97, k: 768 },
  { m: 200, n: 31, k: 256 },
  { m: 259, n: 18, k: 512 },
];

/** `rows` x `k` values in blocks: random bytes, scales and minima of 2^-7 to 2^-3, but in mxfp4 of either sign. */
function weights(type: Type, rows: number, k: number): { bytes: Uint8Array; values: Float32Array } {
  const format = blockFormat(type);
  const blocks = (rows * k) / format.blockSize;
  const next = random(rows * 31 + k + format.blockBytes);
  const bytes = new Uint8Array(blocks * format.blockBytes).map(() => next() * 256);
  const view = new DataView(bytes.buffer);
  for (let block = 0; block < blocks; block++) {
    const begin = block * format.blockBytes;
    for (const at of HALVES[type])
      view.setUint16(begin + at, 0x2000 + next() * 0x1000 + (next() < 0.5 ? 0x8000 : 0), true);
    if (type === 'mxfp4') bytes[begin] = 120 + (bytes[begin] & 3);
  }
  const values = new Float32Array(rows * k);
  format.dequantize(bytes, 0, values, 0, blocks);
  return { bytes, values };
}

/** Whole numbers times 1, 2 or 0.5, the largest of every 32 being 127: a block's scale, so that it is exact. */
function activations(rows: number, k: number): Float32Array {
  const next = random(rows + k);
  const x = new Float32Array(rows * k).map(() => Math.round(next() * 254 - 127));
  for (let block = 0; block < x.length / 32; block++) {
    x[block * 32 + Math.floor(next() * 32)] = next() < 0.5 ? 127 : -127;
    const scale = [0.5, 1, 2][Math.floor(next() * 3)];
    for (let i = 0; i < 32; i++) x[block * 32 + i] *= scale;
  }
  return x;
}

/** Products in doubles, and the sums of their terms' magnitudes, which rounding errors are measured by. */
function exact(x: Float32Array, w: Float32Array, { m, n, k }: { m: number; n: number; k: number }) {
  const sums = new Float64Array(m * n);
  const magnitudes = new Float64Array(m * n);
  for (let i = 0; i < m; i++) {
    for (let j = 0; j < n; j++) {
      let [sum, magnitude] = [0, 0];
      for (let l = 0; l < k; l++) {
        const term = x[i * k + l] * w[j * k + l];
        sum += term;
        magnitude += Math.abs(term);
      }
      sums[i * n + j] = sum;
      magnitudes[i * n + j] = magnitude;
    }
  }
  return { sums, magnitudes };
}

/** The first result that is off by more than rounding, as text. A minimum may be many times the value that it leaves. */
function firstWrong(
  got: Float32Array,
  { sums, magnitudes }: ReturnType<typeof exact>,
  n: number,
  relative = 2e-5,
): string | undefined {
  const at = got.findIndex((value, i) => !(Math.abs(value - sums[i]) <= relative * magnitudes[i] + 1e-3));
  return at < 0 ? undefined : `row ${Math.floor(at / n)}, column ${at % n}: ${got[at]} is not ${sums[at]}`;
}

describe.each(kinds)('quantized products on %s', (kind) => {
  const choices: QuantizedChoice[] = ['auto', 'dp4a', 'mma', 'stream', 'dense'];
  /** Of weights in bf16, rounded once; activations are whole numbers, which bf16 holds. */
  const BF16_ERROR = 2 ** -9 * 1.01 + 2e-5;
  let device: RocmDevice;
  /** Rows from which on a host with tile registers multiplies numbers of bf16 (kernels/quantized/host-amx-pairs.h). */
  const PAIRS = 32;
  const takesPairs = (m: number): boolean => m >= PAIRS && device.hip.properties.archFull.includes(':amx');
  /** Whether products of several rows round to f16: those in streams, where the device has matrix units. */
  const rounds = (choice: QuantizedChoice, m: number): boolean =>
    m > 1 &&
    device.matrixUnits !== undefined &&
    (choice === 'stream' || (choice === 'auto' && kind === 'cuda' && m > 4));
  beforeAll(() => {
    device = RocmDevice.open(kind, 0);
  });
  afterEach(() => {
    device.quantized.choice = 'auto';
  });
  afterAll(() => device.dispose());

  /** Calls with storages that are freed when it is done. */
  function withStorages<T>(data: ArrayBufferView[], use: (...storages: RocmStorage[]) => T): T {
    const storages = data.map((view) => device.fromHost(view, view instanceof Uint8Array ? 'u8' : 'f32'));
    try {
      return use(...storages);
    } finally {
      for (const storage of storages) storage.dispose();
    }
  }

  it.each(TYPES)('%s, with every choice', (type) => {
    for (const size of SIZES) {
      const w = weights(type, size.n, size.k);
      const x = activations(size.m, size.k);
      const expected = exact(x, w.values, size);
      withStorages([w.bytes, x], (blocks, input) => {
        for (const choice of choices) {
          device.quantized.choice = choice;
          const y = device.quantized.matmul(blocks, type, size, at(input, Layout.contiguous([size.m, size.k])));
          const got = new Float32Array(y.toHostSync());
          y.dispose();
          const rounded = rounds(choice, size.m) ? STREAM_ERROR : undefined;
          const isBf16 = device.quantized.formOf(size.m) === 'bf16' || takesPairs(size.m);
          const error = isBf16 ? BF16_ERROR : rounded;
          expect([choice, size, firstWrong(got, expected, size.n, error)]).toEqual([choice, size, undefined]);
        }
      });
    }
  });

  it.each(TYPES)('%s, rows that round as one by itself', (type) => {
    const [n, k] = [37, 768];
    const w = weights(type, n, k);
    const next = random(k);
    const x = Float32Array.from({ length: 16 * k }, () => next() - 0.5);
    const { quantized } = device;
    withStorages([w.bytes, x], (blocks, input) => {
      const product = (m: number, row = 0) => {
        const y = quantized.matmul(blocks, type, { m, n, k }, at(input, Layout.contiguous([m, k], row * k)));
        const got = new Float32Array(y.toHostSync());
        y.dispose();
        return got;
      };
      const alone = Array.from({ length: 16 }, (_, row) => product(1, row));
      const largest = Math.max(...alone.flatMap((row) => [...row].map(Math.abs)));
      quantized.roundsAs = 1;
      try {
        for (const m of [2, 3, 8, 9, 16]) {
          const together = product(m);
          const apart = Math.max(...together.map((y, i) => Math.abs(y - alone[Math.floor(i / n)][i % n])));
          expect([m, apart < 1e-5 * largest, apart]).toEqual([m, true, apart]);
        }
      } finally {
        quantized.roundsAs = undefined;
      }
    });
  });

  it.each(TYPES)('%s, each kernel in other grids and blocks, rows of results apart', (type) => {
    const { warpSize } = device.hip.properties;
    // Formats of 32 have columns that end within a slab, and paddings that 16 bytes do not divide.
    const k = blockFormat(type).blockSize === 32 ? 416 : 768;
    const size = { m: 70, n: 67, k };
    const stride = size.n + 5;
    const w = weights(type, size.n, k);
    const x = activations(size.m, k);
    const expected = exact(x, w.values, size);
    const untouched = new Float32Array(size.m * stride).fill(-77);
    for (const padded of [k, Math.ceil(k / 512) * 512]) {
      withStorages([w.bytes, x, new Uint8Array(size.m * (padded / 32) * 36)], (blocks, input, columns) => {
        // Once for all products: an emulated chip takes longer for it than for them.
        const quantized = { grid: [Math.ceil(padded / 256), size.m, 1], block: 256 } as const;
        device.launch(QUANTIZED, 'quantize_q8_1', quantized, [input.ptr, columns.ptr, k, padded]);
        for (const family of FAMILIES.filter((name) => name === 'mul_mat_' || forUnits(device))) {
          // dp4a's tiles have registers for no more threads.
          const most = Math.min(8 * warpSize, device.matrixUnits && family !== 'mul_mat_' ? 512 : 256);
          for (const [grid, block] of [
            [1, most],
            [5, most],
            [3, 2 * warpSize],
            [2, 33],
          ]) {
            withStorages([untouched], (out) => {
              const args = [blocks.ptr, columns.ptr, out.ptr, k, size.n, size.m, padded, stride];
              device.launch(QUANTIZED, `${family}${type}`, { grid, block }, args);
              const got = new Float32Array(out.toHostSync());
              const inside = got.filter((_, i) => i % stride < size.n);
              const what = [family, padded, grid, block];
              const error = takesPairs(size.m) ? BF16_ERROR : undefined;
              expect([...what, firstWrong(inside, expected, size.n, error)]).toEqual([...what, undefined]);
              expect(got.every((value, i) => i % stride < size.n || value === -77)).toBe(true);
            });
          }
        }
      });
    }
  });

  it.each(TYPES)('%s, streams of weights for each number of columns, in other grids', (type) => {
    if (!forUnits(device)) return;
    const { blockSize } = blockFormat(type);
    // Rows that begin at any multiple of 2 bytes, columns that end within a span and within what warps take beside each other.
    for (const k of [blockSize === 32 ? 416 : 768, 2048 + 256]) {
      const size = { m: 41, n: 67, k };
      const padded = Math.ceil(k / 512) * 512;
      const stride = size.n + 5;
      const w = weights(type, size.n, k);
      const x = activations(size.m, k);
      const expected = exact(x, w.values, size);
      const untouched = new Float32Array(size.m * stride).fill(-77);
      // Another block of each behind the rows, as weights and activations have it.
      const both = [
        Uint8Array.from([...w.bytes, ...new Uint8Array(512)]),
        x,
        new Uint8Array(size.m * (padded / 32) * 36),
      ];
      withStorages(both, (blocks, input, rows) => {
        const quantized = { grid: [Math.ceil(padded / 256), size.m, 1], block: 256 } as const;
        device.launch(QUANTIZED, 'quantize_q8_1', quantized, [input.ptr, rows.ptr, k, padded]);
        for (const columns of [8, 16, 32, 64]) {
          for (const grid of [1, 5, 40]) {
            // For 40 blocks, two tiles of 256 x 64 each.
            const results = [untouched, new Float32Array(40 * 2 * 256 * 64), new Uint32Array(16)];
            withStorages(results, (out, parts, counters) => {
              // On the host the kernels are those of tiles.
              const { kernel, shape } = streamLaunch(device, type, size, columns) ?? {
                kernel: `mul_mat_stream_${type}_${columns}`,
                shape: { block: 128 },
              };
              const args = [blocks.ptr, rows.ptr, out.ptr, k, size.n, size.m, padded, stride, parts.ptr, counters.ptr];
              device.launch(QUANTIZED, kernel, { ...shape, grid }, args);
              const got = new Float32Array(out.toHostSync());
              const inside = got.filter((_, i) => i % stride < size.n);
              const wrong = firstWrong(inside, expected, size.n, takesPairs(size.m) ? BF16_ERROR : STREAM_ERROR);
              expect([k, columns, grid, wrong]).toEqual([k, columns, grid, undefined]);
              expect(got.every((value, i) => i % stride < size.n || value === -77)).toBe(true);
              expect(new Uint32Array(counters.toHostSync())).toEqual(new Uint32Array(16));
            });
          }
        }
      });
    }
  });

  // The host takes 256 columns at a time, 16384 before it begins again, of more than four rows 2048.
  it.each(BLOCK_TYPES)('%s, some rows of activations', (type) => {
    const { blockSize, blockBytes } = blockFormat(type);
    const rest = blockSize === 256 ? 0 : 256 - blockSize;
    for (const [m, k] of [
      ...[1, 3, 9].flatMap((rows) => [256, 768 + rest, rest || 512, 16384 + 256 + rest].map((width) => [rows, width])),
      ...[2, 4, 5, 6, 7, 8, 13, 37].map((rows) => [rows, 2048 + 512 + rest]),
    ]) {
      const size = { m, n: 21, k };
      const bytes = randomBlocks(type, (size.n * k) / blockSize, k);
      const values = new Float32Array(size.n * k);
      blockFormat(type).dequantize(bytes, 0, values, 0, bytes.length / blockBytes);
      const x = activations(m, k);
      withStorages([bytes, x], (blocks, input) => {
        const y = device.quantized.matmul(blocks, type, size, at(input, Layout.contiguous([m, k])));
        const got = new Float32Array(y.toHostSync());
        y.dispose();
        const isDense = (kind === 'cuda' && m >= 16 && !(type in HALVES)) || takesPairs(m);
        const error = isDense ? BF16_ERROR : rounds('auto', m) && type in HALVES ? STREAM_ERROR : undefined;
        expect([m, k, firstWrong(got, exact(x, values, size), size.n, error)]).toEqual([m, k, undefined]);
      });
    }
  });

  // Prompts that are read together, and drafts that are verified, give the texts that each gives alone; where there are tile registers
  // of bf16, as long as they are few rows.
  it.runIf(kind === 'cpu').each(BLOCK_TYPES)('%s, a row of activations alone and in any company', (type) => {
    const { blockSize } = blockFormat(type);
    const [n, most] = [21, takesPairs(PAIRS) ? PAIRS - 1 : 70];
    for (const k of [256, 4096 + 512, 16384 + 4096 + (blockSize === 256 ? 256 : 192)]) {
      const blocks = randomBlocks(type, (n * k) / blockSize, k);
      const x = new Float32Array(most * k).map(random(k));
      const rowsOf = (from: number, m: number): Float32Array =>
        withStorages([blocks, x.subarray(from * k, (from + m) * k)], (weight, input) => {
          const y = device.quantized.matmul(weight, type, { m, n, k }, at(input, Layout.contiguous([m, k])));
          const got = new Float32Array(y.toHostSync());
          y.dispose();
          return got;
        });
      const together = rowsOf(0, most);
      expect(together.every(Number.isFinite)).toBe(true);
      const last = most - 1;
      for (const [from, m] of [...[0, 1, last].map((row) => [row, 1]), [3, 2], [5, 4], [9, 5], [2, 8], [11, last >> 1]])
        expect([k, from, m, rowsOf(from, m)]).toEqual([k, from, m, together.slice(from * n, (from + m) * n)]);
    }
  });

  // A launch for all; rows that no block of warps fills, of types whose launches alone would have other blocks.
  it.each([
    { k: 768, parts: { q4_K: 97, q6_K: 33 } },
    { k: 8192, parts: { q2_K: 5, q5_K: 2, q3_K: 64 } },
    { k: 5632, parts: { q8_0: 21, q4_K: 9 } },
    { k: 2048, parts: { q6_K: 1, q8_0: 11200, q4_K: 3 } },
  ] as { k: number; parts: Partial<Record<Type, number>> }[])(
    'weights of several types beside each other: %o',
    ({ k, parts }) => {
      const types = Object.keys(parts) as Type[];
      const sizes = types.map((type) => ({ m: 1, n: parts[type]!, k }));
      const made = types.map((type, i) => weights(type, sizes[i].n, k));
      const x = activations(1, k);
      withStorages([x, ...made.map(({ bytes }) => bytes)], (input, ...blocks) => {
        const rows = device.quantized.quantizeActivations(at(input, Layout.contiguous([1, k])), { m: 1, k });
        const beside = blocks.map((weight, i) => ({ weight, type: types[i], n: sizes[i].n }));
        const product = device.quantized.matmulBeside(beside, { m: 1, k }, rows)!;
        const got = new Float32Array(product.toHostSync());
        let first = 0;
        for (const [i, size] of sizes.entries()) {
          const own = got.subarray(first, first + size.n);
          expect([types[i], firstWrong(own, exact(x, made[i].values, size), size.n)]).toEqual([types[i], undefined]);
          first += size.n;
        }
        expect(got.length).toBe(first);
        product.dispose();
        rows.dispose();
      });
    },
  );

  it('weights beside each other are several launches for more rows, more weights and other types', () => {
    const [x, bytes] = [activations(2, 256), randomBlocks('q4_K', 1, 1)];
    withStorages([x, bytes], (input, weight) => {
      const rows = [1, 2].map((m) =>
        device.quantized.quantizeActivations(at(input, Layout.contiguous([m, 256])), { m, k: 256 }),
      );
      const beside = (count: number, type: 'q4_K' | 'iq4_xs', m = 1) =>
        device.quantized.matmulBeside(Array(count).fill({ weight, type, n: 1 }), { m, k: 256 }, rows[m - 1]);
      expect([beside(4, 'q4_K'), beside(2, 'iq4_xs'), beside(2, 'q4_K', 2)]).toEqual([undefined, undefined, undefined]);
      const made = beside(3, 'q4_K');
      expect(made?.elemCount).toBe(3);
      for (const storage of [made!, ...rows]) storage.dispose();
    });
  });

  it('a choice that there is not', () => {
    const open = () => RocmDevice.open(kind, 0, { quantized: 'tensor' as 'dp4a' });
    expect(open).toThrow(expect.objectContaining({ code: 'INVALID_ARGUMENT' }));
    expect(open).toThrow(/X_QUANTIZED=tensor is none of auto, dp4a, mma/);
  });
});
