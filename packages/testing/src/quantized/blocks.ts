/**
 * Every block type on one device against the TypeScript reference: values, rows, products and products of experts.
 * Activations are whole numbers of at most 127 in which every 32 neighbours hold a 127, so that rounding them to 8 bits
 * loses nothing: what remains is the rounding of f32 sums, on devices with kernels and without.
 */
import { type Device, f16ToF32, f32ToF16, Tensor } from '@x/core';
import { blockFormat, QMatMul, QTensor, type QuantType } from '@x/quantized';
import { describe, expect, test } from 'vitest';
import { random } from '../random';
import { exactProduct, numbersOf } from './helpers';
import { BLOCK_TYPES, randomBlocks } from './random-blocks';

/** Values of an odd number of blocks, below and above the 512 to which kernels pad rows of activations. */
const ODD: Record<number, readonly [number, number]> = { 32: [160, 544], 64: [192, 576], 256: [256, 768] };

/** What sums in f32 may be off by, of the sum of their terms' magnitudes. */
const F32_SUM = 2 ** -20;

function wholeNumbers(rows: number, k: number, seed: number): Float32Array {
  const next = random(seed);
  return new Float32Array(rows * k).map((_, i) => (i % 32 === 5 ? 127 : Math.floor(next() * 255) - 127));
}

/** A weight of random blocks, and its values by the reference. */
function weightOf(type: QuantType, shape: readonly number[], device: Device): [weight: QTensor, values: Float32Array] {
  const count = shape.reduce((a, b) => a * b, 1);
  const format = blockFormat(type);
  const bytes = randomBlocks(type, count / format.blockSize, count);
  const values = new Float32Array(count);
  format.dequantize(bytes, 0, values, 0, count / format.blockSize);
  return [QTensor.fromBytes(type, shape, bytes, device), values];
}

/** GPUs look at ids only when asked to. */
function looksAtIds(device: Device): boolean {
  return ['js', 'cpu'].includes(device.kind) || Number(process.env.X_DEBUG) >= 1;
}

/** Each within `relative` of the sum of its terms' magnitudes. */
function expectProduct(
  got: Float32Array,
  x: Float32Array,
  weight: Float32Array,
  size: { m: number; n: number; k: number },
  relative = F32_SUM,
): void {
  const exact = exactProduct(x, weight, size);
  const magnitudes = exactProduct(x.map(Math.abs), weight.map(Math.abs), size);
  expect(got.length).toBe(exact.length);
  for (let i = 0; i < exact.length; i++) {
    if (Math.abs(got[i] - exact[i]) <= relative * magnitudes[i]) continue;
    const place = `row ${Math.floor(i / size.n)} of ${size.m}, column ${i % size.n} of ${size.n}, k ${size.k}`;
    throw new Error(`${place}: ${got[i]}, the reference has ${exact[i]}`);
  }
}

export function blockSuite(name: string, open: () => Device): void {
  describe(`every block type on ${name}`, () => {
    test.each(BLOCK_TYPES)('%s: values and rows are the reference', (type) => {
      const device = open();
      const k = ODD[blockFormat(type).blockSize][1];
      const [weight, values] = weightOf(type, [7, k], device);
      using blocks = weight;
      expect(blocks.kind).toBe('blocks');
      using f32 = blocks.dequantize();
      expect(numbersOf(f32)).toEqual(values);
      using f16 = blocks.dequantizeF16();
      expect(numbersOf(f16)).toEqual(values.map((value) => f16ToF32(f32ToF16(value))));
      using ids = Tensor.from(Uint32Array.of(6, 0, 3), { device });
      using rows = blocks.embedding(ids);
      const expected = [6, 0, 3].flatMap((id) => [...values.subarray(id * k, (id + 1) * k)]);
      expect(numbersOf(rows)).toEqual(Float32Array.from(expected));
    });

    test.each(BLOCK_TYPES)('%s: products of 1 to 70 rows', (type) => {
      const device = open();
      const lengths = ODD[blockFormat(type).blockSize];
      // A pair of rows and one more; more than a tile.
      for (const [n, k, rows] of [
        [7, lengths[1], [1, 2, 3, 4, 5, 6, 7, 8]],
        [67, lengths[0], [1, 9, 33, 70]],
      ] as const) {
        const [weight, values] = weightOf(type, [n, k], device);
        using blocks = weight;
        using map = QMatMul.fromQTensor(blocks);
        expect(map.kind).toBe('quantized');
        for (const m of rows) {
          const x = wholeNumbers(m, k, m);
          using input = Tensor.from(x, { shape: [m, k], device });
          using y = map.forward(input);
          expectProduct(numbersOf(y), x, values, { m, n, k });
        }
      }
    });

    test.each(BLOCK_TYPES)('%s: f16 and bf16 activations', (type) => {
      const device = open();
      const [m, n, k] = [3, 5, ODD[blockFormat(type).blockSize][1]];
      const [weight, values] = weightOf(type, [n, k], device);
      using blocks = weight;
      using map = QMatMul.fromQTensor(blocks);
      // Whole numbers up to 127 are exact in both dtypes; a power of two keeps them so, and sums within f16.
      const x = wholeNumbers(m + 1, k, 11).map((value) => value / 1024);
      using input = Tensor.from(x, { shape: [m + 1, k], device });
      for (const [dtype, rounding] of [
        ['f16', 2 ** -11],
        ['bf16', 2 ** -8],
      ] as const) {
        using narrow = input.toDtype(dtype);
        // Not at the start of its storage.
        using later = narrow.narrow(0, 1, m);
        using y = map.forward(later);
        expect([y.dtype, y.shape]).toEqual([dtype, [m, n]]);
        expectProduct(numbersOf(y), x.subarray(k), values, { m, n, k }, rounding);
      }
    });

    test.each(['q4_0', 'q6_K'] as const)('%s: rows and experts that are not there', async (type) => {
      const device = open();
      const k = 256;
      const [tableBlocks, values] = weightOf(type, [300, k], device);
      using table = tableBlocks;
      using byte = Tensor.from([255, 0], { dtype: 'u8', device });
      using rows = table.embedding(byte);
      const first = numbersOf(rows);
      expect(first).toEqual(Float32Array.of(...values.subarray(255 * k, 256 * k), ...values.subarray(0, k)));
      using floats = Tensor.zeros([2], 'f32', device);
      expect(() => table.embedding(floats)).toThrow(expect.objectContaining({ code: 'DTYPE_MISMATCH' }));
      using weight = weightOf(type, [3, 4, k], device)[0];
      using input = Tensor.ones([1, 1, k], 'f32', device);
      const looks = looksAtIds(device);
      const error = (id: number | bigint) =>
        expect.objectContaining({
          code: 'INDEX_OUT_OF_RANGE',
          message: expect.stringMatching(new RegExp(` ${id} `)),
        });
      for (const [dtype, id] of [
        ['u32', 300],
        ['u32', 4294967295],
        ['i16', -1],
        ['i32', -2147483648],
        ['i64', 2n ** 32n + 1n],
        ['i64', -1n],
      ] as const) {
        const list = (typeof id === 'bigint' ? [0n, id] : [0, id]) as number[];
        using ids = Tensor.from(list, { dtype, device });
        using pairs = ids.reshape([1, 2]);
        const read = (make: () => Tensor) => {
          using made = make();
          return made.toArraySync();
        };
        expect(() => weight.indexedMoeForwardSync(input, pairs)).toThrow(error(id));
        await expect(weight.indexedMoeForward(input, pairs)).rejects.toEqual(error(id));
        for (const make of [
          () => table.embedding(ids),
          () => weight.indexedMoeForwardSync(input, pairs, { readIds: false }),
        ]) {
          if (looks) expect(() => read(make)).toThrow(error(id));
          else expect(read(make).length).toBeGreaterThan(0);
        }
        using good = table.embedding(byte);
        expect(numbersOf(good)).toEqual(first);
      }
    });

    test.each(BLOCK_TYPES)('%s: products of experts', async (type) => {
      const device = open();
      const [experts, n, k] = [3, 7, ODD[blockFormat(type).blockSize][0]];
      const [weight, values] = weightOf(type, [experts, n, k], device);
      using blocks = weight;
      // Six pairs are the indexed kernel's; forty are sorted by expert where their ids are read.
      for (const [tokens, shared] of [
        [3, true],
        [3, false],
        [20, true],
      ] as const) {
        const chosen = new Uint32Array(tokens * 2).map((_, pair) => (pair * 5 + (pair >> 2)) % experts);
        const width = shared ? 1 : 2;
        const x = wholeNumbers(tokens * width, k, tokens);
        using ids = Tensor.from(chosen, { shape: [tokens, 2], device });
        using input = Tensor.from(x, { shape: [tokens, width, k], device });
        using y = await blocks.indexedMoeForward(input, ids);
        using unread = blocks.indexedMoeForwardSync(input, ids, { readIds: false });
        expect(y.shape).toEqual([tokens, 2, n]);
        for (const got of [numbersOf(y), numbersOf(unread)]) {
          for (const [pair, expert] of chosen.entries()) {
            const row = shared ? pair >> 1 : pair;
            const part = values.subarray(expert * n * k, (expert + 1) * n * k);
            const products = got.subarray(pair * n, (pair + 1) * n);
            expectProduct(products, x.subarray(row * k, (row + 1) * k), part, { m: 1, n, k });
          }
        }
      }
    });

    test('experts: ids that are not read stay inside the weight', () => {
      const device = open();
      if (device.backend.quantized === undefined) return;
      const [weight, values] = weightOf('iq4_nl', [2, 3, 32], device);
      using blocks = weight;
      const x = wholeNumbers(1, 32, 1);
      using input = Tensor.from(x, { shape: [1, 1, 32], device });
      using ids = Tensor.from(Uint32Array.of(1e9, 0), { shape: [1, 2], device });
      using y = blocks.indexedMoeForwardSync(input, ids, { readIds: false });
      if (looksAtIds(device)) {
        expect(() => numbersOf(y)).toThrow(expect.objectContaining({ code: 'INDEX_OUT_OF_RANGE' }));
      }
      expectProduct(numbersOf(y).subarray(0, 3), x, values.subarray(96), { m: 1, n: 3, k: 32 });
      expect(() => blocks.indexedMoeForwardSync(input, ids)).toThrow(/no expert 1000000000 among 2/);
    });
  });
}
