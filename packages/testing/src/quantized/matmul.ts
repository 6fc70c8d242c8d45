/**
 * candle's tests of products with quantized weights (candle-core/tests/quantized_tests.rs and the unit tests of its
 * quantized/cuda.rs), on any device. Where candle has expected values for each of its devices, those of Metal, which keeps
 * activations in f32, are for our devices without kernels, and those of its CPU and of CUDA for devices with kernels, which
 * round activations to 8 bits.
 */
import { type Device, Tensor } from '@x/core';
import { QMatMul, type QuantType } from '@x/quantized';
import { describe, expect, test } from 'vitest';
import { random } from '../random';
import {
  CANDLE_TYPES,
  checkedMatmulError,
  cosineDotError,
  counting,
  DOT_ERROR,
  dotError,
  exactProduct,
  numbersOf,
  OTHER_TYPES,
  product,
  rounded,
  weightOf,
} from './helpers';
import { stdRng } from './rust-random';

/**
 * q4_0 products of [3, 64] and [4, 64] counted from 0, and from the middle; with exact activations, and with rounded ones
 * as candle's CPU and CUDA compute. The first weight row of the centred product has values half-way between two levels:
 * candle rounds them otherwise than the reference tool whose bytes ours are, so its column is our own, or NaN and
 * not compared; the exact list is our own as well, since Metal's arithmetic is not exact.
 */
const COUNTED = {
  exact: [[84946, 214126, 344757, 473798, 213458, 604350, 1000469, 1387990, 341970, 994574, 1656181, 2302182]],
  rounded: [
    [85120, 214562, 345455, 474748, 213475, 604465, 1000686, 1388317, 341876, 994283, 1655709, 2301518],
    [84866, 214045, 344676, 473707, 213425, 604313, 1000431, 1387960, 342030, 994630, 1656248, 2302250],
  ],
};
const CENTRED = {
  exact: [[244519, -19714, -285433, -550453, 23952, 21654, 19400, 18369, -196614, 63022, 324233, 587191]],
  rounded: [
    [244378, -19596, -285051, -549815, 23949, 21651, 19398, 18367, -196985, 63012, 324585, 587902],
    [NaN, -19762, -285476, -550498, NaN, 21645, 19395, 18364, NaN, 63030, 324120, 587079],
  ],
};

/**
 * Four entries of candle's [11, 512] × [21, 512] product with each weight type, with exact activations. candle's own are
 * those of another search of scales; see the ramps in quantize.ts.
 */
const RANDOM: [candle: string, type: QuantType, values: number[]][] = [
  ['q2k', 'q2_K', [1.505, 1.287, 0.822, 1.342]],
  ['q3k', 'q3_K', [1.019, 1.423, -0.316, 1.488]],
  ['q4k', 'q4_K', [1.108, 1.385, -0.318, 1.631]],
  ['q5k', 'q5_K', [1.23, 1.508, -0.203, 1.762]],
  ['q6k', 'q6_K', [1.28, 1.504, -0.152, 1.728]],
  ['q8k', 'q8_K', [1.26, 1.519, -0.205, 1.696]],
];

/**
 * How far such an entry may lie from its value: an activation in [-0.5, 0.5) rounded to 127 steps is off by 0.0011 on
 * average, 512 of them times weights of 0.29 add up to 0.0075. Four times that never happens.
 */
const ROUNDED_ACTIVATIONS = 0.03;

function randomTensors(m: number, k: number, n: number): [lhs: Float32Array, rhs: Float32Array] {
  const next = stdRng(314159265358979n);
  return [new Float32Array(m * k).map(() => next() - 0.5), new Float32Array(n * k).map(() => next() - 0.5)];
}

/** Within 1 of one of the lists: f32 sums of this size are themselves good to some tenths. */
function expectOneOf(got: Float32Array, lists: readonly (readonly number[])[]): void {
  const distances = lists.map((list) =>
    Math.max(...list.map((value, i) => (Number.isNaN(value) ? 0 : Math.abs(got[i] - value)))),
  );
  expect(Math.min(...distances)).toBeLessThanOrEqual(1);
}

export function matmulSuite(name: string, open: () => Device): void {
  const isExact = () => open().backend.quantized === undefined;

  /** candle's `test_matmul`. */
  function checkMatmul(type: QuantType): void {
    // Three levels stand for all of 0 to 1 in a ternary weight.
    expect(checkedMatmulError(type, open())).toBeLessThanOrEqual(type.startsWith('tq') ? 0.3 : 0.02);
  }

  /** candle's and ggml's dot product check; the second pair of vectors is candle's. */
  function checkDot(type: QuantType): void {
    const fraction = counting(4096, (i) => i / 4096);
    for (const [error, times] of [
      [cosineDotError(type, open()), 1],
      [dotError(type, fraction, fraction, open()), 2],
    ]) {
      expect(error).toBeLessThanOrEqual(Math.max(0.02, DOT_ERROR[type]! * times));
      expect(error - 0.00001).toBeLessThanOrEqual(DOT_ERROR[type]! * times);
    }
  }

  describe(`products on ${name}`, () => {
    test('quantized_tests::quantized_matmul', () => {
      const size = { m: 3, n: 4, k: 64 };
      const got = product(counting(3 * 64), counting(4 * 64), size, 'q4_0', open());
      expectOneOf(got, isExact() ? COUNTED.exact : COUNTED.rounded);
      checkMatmul('q4_0');
    });

    test('quantized_tests::quantized_matmul_neg', () => {
      const device = open();
      const x = counting(3 * 64, (i) => i - 96);
      const weight = counting(4 * 64, (i) => Math.fround(i - Math.fround(256 / 3)));
      const got = product(x, weight, { m: 3, n: 4, k: 64 }, 'q4_0', device);
      expectOneOf(got, isExact() ? CENTRED.exact : CENTRED.rounded);
      // The same rows twice, as a batch.
      using blocks = weightOf(weight, [4, 64], 'q4_0', device);
      using map = QMatMul.fromQTensor(blocks);
      using twice = Tensor.from(Float32Array.of(...x, ...x), { shape: [2, 3, 64], device });
      using batch = map.forward(twice);
      expect(batch.shape).toEqual([2, 3, 4]);
      const second = numbersOf(batch).subarray(12);
      const mean = second.reduce((sum, value, i) => sum + Math.abs(value - got[i]), 0) / 12;
      expect(mean / 12).toBeLessThan(0.1);
    });

    test('quantized_tests::qmm_batch', () => {
      const device = open();
      const [lhs, rhs] = randomTensors(2, 256, 6);
      using blocks = weightOf(rhs, [6, 256], 'q2_K', device);
      using map = QMatMul.fromQTensor(blocks);
      const rows = (copies: number) => {
        const x = new Float32Array(copies * lhs.length);
        for (let i = 0; i < copies; i++) x.set(lhs, i * lhs.length);
        using input = Tensor.from(x, { shape: [2 * copies, 256], device });
        using y = map.forward(input);
        expect(y.shape).toEqual([2 * copies, 6]);
        return numbersOf(y);
      };
      const one = rows(1);
      for (const copies of [2, 3]) {
        const many = rows(copies);
        for (let i = 0; i < copies; i++) expect(many.subarray(i * 12, i * 12 + 12)).toEqual(one);
      }
      const three = rows(3);
      const six = rows(6);
      expect(six.subarray(36)).toEqual(six.subarray(0, 36));
      // Twelve rows take the tiled kernel, which adds in another order.
      const difference = three.reduce((sum, value, i) => sum + Math.abs(value - six[i]), 0);
      expect(difference).toBeLessThan(isExact() ? 1e-9 : 0.5);
    });

    for (const type of CANDLE_TYPES) {
      const candle = type.replace('_K', 'k');
      test(`quantized_tests::quantized_matmul_${candle}_bis`, () => checkMatmul(type));
    }

    test.each(OTHER_TYPES)('%s: products within the same bounds', (type) => {
      // candle's bound of 0.02 is for its types; these have fewer levels or uneven ones and are held to the dot product's.
      if (type === 'iq4_nl' || type === 'iq4_xs') checkMatmul(type);
      checkDot(type);
    });

    for (const [candle, type, values] of RANDOM) {
      test(`quantized_tests::quantized_matmul_${candle}`, () => {
        const size = { m: 11, n: 21, k: 512 };
        const [lhs, rhs] = randomTensors(11, 512, 21);
        const places = [0, 77, 154, 230];
        const exact = exactProduct(lhs, rhs, size);
        expect(rounded(places.map((i) => exact[i]))).toEqual([1.262, 1.513, -0.208, 1.702]);
        const got = product(lhs, rhs, size, type, open());
        for (const [i, value] of values.entries()) {
          expect(Math.abs(got[places[i]] - value)).toBeLessThanOrEqual(ROUNDED_ACTIVATIONS);
        }
        checkDot(type);
      });
    }

    test('quantized_tests::quantized_mm', () => {
      for (const type of ['f32', 'f16', 'bf16', 'q4_0', 'q4_1', 'q5_0', 'q5_1', 'q8_0', 'q8_1'] as const)
        checkDot(type);
    });

    test('quantized_tests::test_matmul_mm: a batch of matrices', () => {
      const device = open();
      const lhs = counting(32 * 32, (i) => i / 1024);
      const transposed = counting(32 * 32, (i) => ((i % 32) * 32 + Math.floor(i / 32)) / 1024);
      using blocks = weightOf(transposed, [32, 32], 'q8_0', device);
      using map = QMatMul.fromQTensor(blocks);
      const x = new Float32Array(5 * 20 * 1024);
      for (let i = 0; i < 100; i++) x.set(lhs, i * 1024);
      using input = Tensor.from(x, { shape: [5, 20, 32, 32], device });
      using y = map.forward(input);
      expect(y.shape).toEqual([5, 20, 32, 32]);
      const exact = exactProduct(lhs, transposed, { m: 32, n: 32, k: 32 });
      const got = numbersOf(y);
      const error = got.reduce((sum, value, i) => sum + Math.abs((value - exact[i % 1024]) / exact[i % 1024]), 0);
      // candle's bound is for activations in f32; rounded to 127 steps each entry may be off by some thousandths more.
      expect(error / got.length).toBeLessThanOrEqual(isExact() ? 0.001 : 0.005);
    });

    test('CUDA unit values: cuda_mmv_q8_1 and cuda_mm_q8_1', () => {
      const [single] = product(counting(256), counting(256), { m: 1, n: 1, k: 256 }, 'q4_0', open());
      // The value of the kernel that keeps activations exact, and of the one that rounds them, there with exact sums.
      if (isExact()) expect(single).toBe(5561851);
      expect(Math.abs(single - 5561664.5) / 5561664.5).toBeLessThanOrEqual(0.001);
      const quarter = counting(1024, (i) => i / 4);
      const got = product(quarter, quarter, { m: 4, n: 4, k: 256 }, 'q4_0', open());
      // Rounding activations to 127 steps makes half a thousandth of sums like these.
      for (const [place, value] of [
        [0, 347604],
        [1, 888153.06],
        [4, 869780.7],
        [5, 2483145],
        [11, 9407368],
        [14, 9470856],
        [15, 13138824],
      ]) {
        expect(Math.abs(got[place] - value) / value).toBeLessThanOrEqual(0.001);
      }
    });

    test.each(['quantized_embedding_cpu', 'quantized_embedding_metal'])('quantized_tests::%s', () => {
      const device = open();
      const values = counting(8 * 256, (x) => Math.sin(x * 0.003) * 0.5 + Math.cos(x * 0.007) * 0.25);
      using ids = Tensor.from(
        [
          [3, 1],
          [3, 7],
        ],
        { dtype: 'u32', device },
      );
      for (const type of ['f32', 'f16', 'bf16', ...CANDLE_TYPES, ...OTHER_TYPES] as const) {
        using blocks = weightOf(values, [8, 256], type, device);
        using got = blocks.embedding(ids);
        using all = blocks.dequantize();
        const dense = numbersOf(all);
        expect(got.shape).toEqual([2, 2, 256]);
        const rows = numbersOf(got);
        for (const [i, id] of [3, 1, 3, 7].entries()) {
          for (let j = 0; j < 256; j++)
            expect(Math.abs(rows[i * 256 + j] - dense[id * 256 + j])).toBeLessThanOrEqual(1e-6);
        }
      }
    });

    test.each(['f32', 'f16', 'bf16'] as const)('forwardViaF16 of %s', (dtype) => {
      const device = open();
      const next = random(5);
      const weight = new Float32Array(32 * 256).map(() => next() - 0.5);
      const x = new Float32Array(12 * 256).map(() => next() - 0.5);
      for (const type of ['q4_K', 'q8_0', 'iq4_xs', 'f32'] as const) {
        using blocks = weightOf(weight, [32, 256], type, device);
        using map = QMatMul.fromQTensor(blocks);
        using f32 = Tensor.from(x, { shape: [12, 256], device });
        using input = f32.toDtype(dtype);
        using y = map.forwardViaF16(input);
        expect([y.dtype, y.shape]).toEqual([dtype, [12, 32]]);
        using dense = blocks.dequantize();
        const exact = exactProduct(x, numbersOf(dense), { m: 12, n: 32, k: 256 });
        const got = numbersOf(y);
        // 256 products of 0.08 at most: f16 sums are off by some thousandths, bf16 results by 2^-8 of themselves.
        const bound = dtype === 'bf16' ? 0.03 : 0.02;
        for (let i = 0; i < got.length; i++) expect(Math.abs(got[i] - exact[i])).toBeLessThanOrEqual(bound);
      }
    });

    test('indexedMoeForward for every type', async () => {
      const device = open();
      const next = random(9);
      const [experts, n, k] = [4, 6, 256];
      const weight = new Float32Array(experts * n * k).map(() => next() - 0.5);
      const chosen = [2, 0, 1, 1, 3, 2];
      using ids = Tensor.from(Uint32Array.from(chosen), { shape: [3, 2], device });
      const own = new Float32Array(3 * 2 * k).map(() => next() - 0.5);
      for (const type of ['f32', 'f16', 'bf16', ...CANDLE_TYPES, ...OTHER_TYPES] as const) {
        using blocks = weightOf(weight, [experts, n, k], type, device);
        using dense = blocks.dequantize();
        const numbers = numbersOf(dense);
        for (const shared of [false, true]) {
          const width = shared ? 1 : 2;
          using x = Tensor.from(own.subarray(0, 3 * width * k), { shape: [3, width, k], device });
          using y = await blocks.indexedMoeForward(x, ids);
          expect([y.dtype, y.shape]).toEqual(['f32', [3, 2, n]]);
          const got = numbersOf(y);
          for (const [pair, expert] of chosen.entries()) {
            const row = own.subarray((shared ? pair >> 1 : pair) * k, ((shared ? pair >> 1 : pair) + 1) * k);
            const exact = exactProduct(row, numbers.subarray(expert * n * k, (expert + 1) * n * k), { m: 1, n, k });
            for (let j = 0; j < n; j++) expect(Math.abs(got[pair * n + j] - exact[j])).toBeLessThanOrEqual(0.03);
          }
        }
      }
    });

    test('the weight of one expert, and where blocks lie', () => {
      const device = open();
      const values = counting(3 * 2 * 256, (i) => Math.sin(i));
      for (const type of ['q8_0', 'q4_K', 'iq4_xs', 'f16'] as const) {
        using blocks = weightOf(values, [3, 2, 256], type, device);
        using all = blocks.dequantize();
        using second = blocks.expert(1);
        using part = second.dequantize();
        expect([second.type, second.shape, second.kind]).toEqual([type, [2, 256], blocks.kind]);
        expect(numbersOf(part)).toEqual(numbersOf(all).slice(512, 1024));
        if (isExact()) expect(() => blocks.devicePtr).toThrow(expect.objectContaining({ code: 'UNSUPPORTED' }));
        else expect(blocks.devicePtr).toBeGreaterThan(0);
      }
    });

    test('indexedMoeForward: dtypes, and what is refused', () => {
      const device = open();
      using blocks = weightOf(
        counting(2 * 3 * 32, (i) => i / 192),
        [2, 3, 32],
        'q8_0',
        device,
      );
      using ids = Tensor.from(Uint32Array.of(1, 0), { shape: [2, 1], device });
      using x = Tensor.ones([2, 1, 32], 'f32', device);
      for (const dtype of ['f16', 'bf16'] as const) {
        using narrow = x.toDtype(dtype);
        using y = blocks.indexedMoeForwardSync(narrow, ids);
        expect([y.dtype, y.shape]).toEqual([dtype, [2, 1, 3]]);
      }
      using wrong = Tensor.ones([2, 1, 31], 'f32', device);
      using beyond = Tensor.from(Uint32Array.of(1, 2), { shape: [2, 1], device });
      using flat = Tensor.ones([2, 32], 'f32', device);
      expect(() => blocks.indexedMoeForwardSync(wrong, ids)).toThrow(
        expect.objectContaining({ code: 'SHAPE_MISMATCH' }),
      );
      expect(() => blocks.indexedMoeForwardSync(flat, ids)).toThrow(
        expect.objectContaining({ code: 'SHAPE_MISMATCH' }),
      );
      expect(() => blocks.indexedMoeForwardSync(x, beyond)).toThrow(
        expect.objectContaining({ code: 'INDEX_OUT_OF_RANGE' }),
      );
      expect(() => blocks.expert(2)).toThrow(expect.objectContaining({ code: 'INDEX_OUT_OF_RANGE' }));
    });

    test.each([
      ['X_DEQUANTIZE_ALL', 'f32'],
      ['X_DEQUANTIZE_ALL_F16', 'f16'],
    ])('%s makes every weight dense in %s', (variable, dtype) => {
      const device = open();
      using blocks = weightOf(
        counting(64, (i) => i),
        [2, 32],
        'q8_0',
        device,
      );
      process.env[variable] = '1';
      try {
        using map = QMatMul.fromQTensor(blocks);
        expect(map.kind).toBe('dense');
        using x = Tensor.ones([1, 32], 'f32', device);
        using y = map.forward(x);
        expect(y.dtype).toBe('f32');
        const sums = [496, 1520];
        for (const [i, value] of numbersOf(y).entries()) expect(Math.abs(value / sums[i] - 1)).toBeLessThan(0.01);
        using half = map.dequantizeF16();
        expect([half.dtype, half.shape]).toEqual(['f16', [2, 32]]);
        expect(dtype === 'f32' || dtype === 'f16').toBe(true);
      } finally {
        delete process.env[variable];
      }
      using map = QMatMul.fromQTensor(blocks);
      expect(map.kind).toBe('quantized');
    });

    test.each(['q4_K', 'q8_0'] as const)('a captured product with %s gives what the product gives', (type) => {
      const device = open();
      using weight = weightOf(
        counting(64 * 256, (i) => Math.sin(i)),
        [64, 256],
        type,
        device,
      );
      using map = QMatMul.fromQTensor(weight);
      using ids = Tensor.from(Uint32Array.of(3, 60), { device });
      for (const rows of [1, 5, 33]) {
        using x = Tensor.zeros([rows, 256], 'f32', device);
        using graph = device.capture(() => ({ product: map.forward(x), rows: weight.embedding(ids) }));
        for (const phase of [1, 2]) {
          x.write(counting(rows * 256, (i) => Math.cos(i * phase)));
          ids.write([phase, 63 - phase]);
          using product = map.forward(x);
          using selected = weight.embedding(ids);
          const outputs = graph.replay();
          expect(numbersOf(outputs.product)).toEqual(numbersOf(product));
          expect(numbersOf(outputs.rows)).toEqual(numbersOf(selected));
        }
      }
    });
  });
}
