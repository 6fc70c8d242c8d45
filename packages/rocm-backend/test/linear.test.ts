/** Products with weights in f16 and bf16 (kernels/gemm/linear.h) against sums in f64, on every device with kernels. */
import {
  bf16ToF32,
  encodeBf16,
  encodeF16,
  f16ToF32,
  Layout,
  memoryStats,
  type StoragePart,
  scope,
  Tensor,
  Var,
} from '@x/core';
import { QMatMul, QTensor } from '@x/quantized';
import { kernelDevices } from '@x/testing/devices';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { RocmDevice, type RocmStorage } from '../src/index';
import { launchLinear, launchLinearRound } from '../src/launchers/gemm';

const kinds = kernelDevices().map((device) => device.location.kind as 'cpu' | 'cuda' | 'rocm');
const TYPES = ['f16', 'bf16'] as const;
type Type = (typeof TYPES)[number];
/** What sums in f32 are off by, of the sum of the terms' sizes: many rows are summed one term after the other. */
const SUMS = { few: 2e-6, many: 8e-6 };
/** Half of the distance of neighbours, of numbers in [1, 2). */
const ROUNDING = { f32: 0, f16: 2 ** -11, bf16: 2 ** -8 };

const noise = (count: number, seed: number) =>
  new Float32Array(count).map((_, i) => Math.sin(i * 12.9898 + seed * 78.233) * 1.5);
const encode = (type: Type, values: Float32Array) => (type === 'f16' ? encodeF16(values) : encodeBf16(values));
const decode = (type: Type, bits: ArrayLike<number>) => Float32Array.from(bits, type === 'f16' ? f16ToF32 : bf16ToF32);

/** Sums of products of rows with weights [n, k] from `first` on, and of their absolute values. */
function product(row: ArrayLike<number>, weights: Float32Array, first: number, n: number, k: number) {
  const sums = new Float64Array(n);
  const sizes = new Float64Array(n);
  for (let j = 0; j < n; j++)
    for (let i = 0; i < k; i++) {
      const term = row[i] * weights[first + j * k + i];
      sums[j] += term;
      sizes[j] += Math.abs(term);
    }
  return { sums, sizes };
}

describe.each(kinds)('products with halves on %s', (kind) => {
  let device: RocmDevice;
  beforeAll(() => {
    device = RocmDevice.open(kind, 0, { gemm: 'kernels' });
  });
  afterAll(() => device.dispose());

  /** `offset` elements behind the beginning of an allocation. */
  const weightsAt = (type: Type, values: Float32Array, offset: number) => {
    const bits = new Uint16Array(values.length + offset);
    bits.set(encode(type, values), offset);
    return [device.fromHost(bits, type), offset] as const;
  };
  const operandAt = (values: Float32Array, offset: number) => {
    const padded = new Float32Array(values.length + offset);
    padded.set(values, offset);
    return { storage: device.fromHost(padded, 'f32'), layout: Layout.contiguous([values.length], offset) };
  };
  const read = (storage: { toHostSync(): ArrayBuffer }) => new Float32Array(storage.toHostSync());

  /** Every result within what f32 sums, and the rounding of activations, are off by. */
  function expectProducts(
    made: Float32Array,
    rows: number,
    rowOf: (row: number) => { sums: Float64Array; sizes: Float64Array },
    rounding: number,
    label: string,
    sum = SUMS.few,
  ): void {
    const n = made.length / rows;
    for (let row = 0; row < rows; row++) {
      const { sums, sizes } = rowOf(row);
      for (let j = 0; j < n; j++) {
        const off = Math.abs(made[row * n + j] - sums[j]);
        if (!(off <= sizes[j] * (rounding + sum) + 1e-30))
          expect.fail(`${label}, row ${row}, column ${j}: ${made[row * n + j]} for ${sums[j]}`);
      }
    }
  }

  function multiply(type: Type, m: number, n: number, k: number, { x: xAt = 0, weights: weightsFrom = 0 } = {}): void {
    const [xs, numbers] = [noise(m * k, m), noise(n * k, n + k)];
    const weights = weightsAt(type, numbers, weightsFrom);
    const x = operandAt(xs, xAt);
    const result = device.linear.matmul(weights, x, { m, n, k });
    expect(result.dtype).toBe('f32');
    const rounded = decode(type, encode(type, numbers));
    const rounding = ROUNDING[device.linear.formOf(type, m)];
    const label = `${type} ${m} x ${n} x ${k} at ${xAt}, ${weightsFrom}`;
    const rowOf = (row: number) => product(xs.subarray(row * k, (row + 1) * k), rounded, 0, n, k);
    expectProducts(read(result), m, rowOf, rounding, label, m > 8 ? SUMS.many : SUMS.few);
    for (const storage of [result, x.storage, weights[0]]) storage.dispose();
  }

  // Lines of 16 bytes and others; a warp and a block for two weight rows, whole shares of threads and others.
  const SIZES = [
    [1, 1],
    [5, 3],
    [8, 64],
    [37, 65],
    [130, 72],
    [11, 520],
    [9, 2056],
    [7, 4096],
    [3, 10_248],
  ];
  it.each(TYPES)('%s: up to 9 rows, exactly', (type) => {
    for (const [n, k] of SIZES)
      for (let m = 1; m <= 9; m++) {
        if (k > 4000 && m > 2 && m < 8) continue;
        expect(device.linear.formOf(type, m)).toBe('f32');
        multiply(type, m, n, k);
      }
  });

  it.each(TYPES)('%s: operands that begin anywhere', (type) => {
    for (const m of [1, 3, 8, 12, 70])
      for (const at of [{ x: 1 }, { weights: 1 }, { x: 3, weights: 5 }, { x: 4, weights: 8 }])
        multiply(type, m, 33, 264, at);
  });

  it.each(TYPES)('%s: activations in it give what the same numbers in f32 give', (type) => {
    for (const [m, n, k, at] of [
      [1, 37, 65, 0],
      [8, 33, 64, 3],
      [63, 20, 72, 0],
      [64, 65, 72, 0],
      [70, 33, 264, 4],
      [70, 33, 264, 8],
      [65, 16, 33, 0],
    ]) {
      const size = { m, n, k };
      const bits = new Uint16Array(m * k + at);
      bits.set(encode(type, noise(m * k, m)), at);
      const narrow = { storage: device.fromHost(bits, type), layout: Layout.contiguous([m * k], at) };
      const wide = operandAt(decode(type, bits.subarray(at)), 0);
      const weights = weightsAt(type, noise(n * k, n + k), 0);
      const [made, expected] = [narrow, wide].map((x) => device.linear.matmul(weights, x, size));
      expect(made.dtype).toBe('f32');
      // The same products, whichever kernel adds them.
      const off = read(made).map((value, i) => Math.abs(value - read(expected)[i]));
      expect(Math.max(...off)).toBeLessThan(1e-5 * k);
      for (const storage of [made, expected, narrow.storage, wide.storage, weights[0]]) storage.dispose();
    }
  });

  it.each(TYPES)('%s: many rows', (type) => {
    for (const [m, n, k] of [
      [17, 70, 33],
      [63, 65, 64],
      [64, 64, 64],
      [65, 129, 72],
      [150, 31, 40],
      [130, 257, 100],
    ])
      multiply(type, m, n, k);
  });

  it('nothing times nothing', () => {
    for (const type of TYPES)
      for (const [m, n, k] of [
        [0, 3, 4],
        [2, 0, 4],
        [2, 3, 0],
        [70, 3, 0],
      ])
        multiply(type, m, n, k);
  });

  it('through the library, where there is one for it', () => {
    const own = RocmDevice.open(kind, 0);
    try {
      // As much as is worth the host's library.
      const [m, n, k] = own.libraries.gemm.handle() ? [130, 1040, 1024] : [130, 70, 64];
      const [xs, numbers] = [noise(m * k, 1), noise(n * k, 2)];
      for (const type of TYPES) {
        const weight: StoragePart = [own.fromHost(encode(type, numbers), type), 0];
        const x = own.fromHost(xs, 'f32');
        const result = own.linear.matmul(weight, { storage: x, layout: Layout.contiguous([m, k]) }, { m, n, k });
        const rounded = decode(type, encode(type, numbers));
        const values = read(result);
        for (const row of [0, 77, m - 1]) {
          const rowOf = () => product(xs.subarray(row * k, (row + 1) * k), rounded, 0, n, k);
          const rounding = ROUNDING[own.linear.formOf(type, m)];
          expectProducts(values.slice(row * n, (row + 1) * n), 1, rowOf, rounding, type, SUMS.many);
        }
        for (const storage of [result, x, weight[0]]) storage.dispose();
      }
    } finally {
      own.dispose();
    }
  });

  it.each(TYPES)('%s: on matrix units, and rounding keeps finite values finite', (type) => {
    const values = Float32Array.of(
      1e5,
      -1e5,
      65504,
      65520,
      -65519,
      Infinity,
      -Infinity,
      Number.NaN,
      1 + 2 ** -12,
      3e38,
    );
    const x = device.fromHost(values, 'f32');
    const [rounded, rest] = [device.allocUninit(values.length, type), device.allocUninit(values.length, type)];
    const round = (y: RocmStorage, less: number) =>
      launchLinearRound(
        device,
        `linear_round_${type}`,
        { grid: 2, block: 64 },
        { count: values.length, x: x.ptr, less, y: y.ptr },
      );
    round(rounded, 0);
    round(rest, rounded.ptr);
    const expected =
      type === 'f16' ? values.map((v) => (Number.isFinite(v) ? Math.max(-65504, Math.min(65504, v)) : v)) : values;
    const got = decode(type, new Uint16Array(rounded.toHostSync()));
    expect(got).toEqual(decode(type, encode(type, expected)));
    // What is left of a value: nothing of infinity, nor of what is no number.
    const remainders = values.map((v, i) => (Number.isNaN(v - got[i]) ? 0 : v - got[i]));
    const limited = type === 'f16' ? remainders.map((v) => Math.max(-65504, Math.min(65504, v))) : remainders;
    expect(decode(type, new Uint16Array(rest.toHostSync()))).toEqual(decode(type, encode(type, limited)));
    for (const storage of [x, rounded, rest]) storage.dispose();

    // The same kernel on devices without units, and below the rows from which it is taken.
    const [m, n, k] = [20, 50, 40];
    const [xs, numbers] = [noise(m * k, 5), noise(n * k, 6)];
    const [left, right] = [device.fromHost(encode(type, xs), type), device.fromHost(encode(type, numbers), type)];
    const out = device.allocUninit(m * n, 'f32');
    const args = { m, n, k, x: left.ptr, weights: right.ptr, out: out.ptr };
    const sharedBytes = device.matrixUnits === 'nvidia' ? 4 * (128 + 256) * 64 * 2 : 0;
    launchLinear(device, `linear_mma_${type}`, { grid: 3, block: 256, sharedBytes }, args);
    const [rows, weights] = [decode(type, encode(type, xs)), decode(type, encode(type, numbers))];
    expectProducts(read(out), m, (row) => product(rows.subarray(row * k, (row + 1) * k), weights, 0, n, k), 0, type);
    for (const storage of [left, right, out]) storage.dispose();
  });

  it.each(TYPES)('%s: rows with the weights of experts', (type) => {
    for (const [tokens, topk, experts, n, k] of [
      [1, 2, 4, 5, 3],
      [3, 2, 4, 33, 64],
      [2, 3, 5, 70, 2056],
    ]) {
      const numbers = noise(experts * n * k, 3);
      const weights = weightsAt(type, numbers, 0);
      const rounded = decode(type, encode(type, numbers));
      const ids = new Uint32Array(tokens * topk).map((_, pair) => (pair * 7 + 1) % experts);
      const list = { storage: device.fromHost(ids, 'u32'), layout: Layout.contiguous([ids.length]) };
      for (const shared of [true, false]) {
        const xs = noise((shared ? tokens : tokens * topk) * k, 4);
        const x = operandAt(xs, 0);
        const result = device.linear.indexedMoe(weights, x, list, { n, k, topk, shared });
        const rowOf = (pair: number) => {
          const row = shared ? Math.floor(pair / topk) : pair;
          return product(xs.subarray(row * k, (row + 1) * k), rounded, ids[pair] * n * k, n, k);
        };
        expectProducts(read(result), ids.length, rowOf, 0, `${type} experts`);
        for (const storage of [result, x.storage]) storage.dispose();
      }
      for (const storage of [weights[0], list.storage]) storage.dispose();
    }
  });

  it('refuses other dtypes', () => {
    const f32 = device.fromHost(noise(4, 1), 'f32');
    const f16 = device.fromHost(encodeF16(noise(4, 1)), 'f16');
    const at = (storage: typeof f32) => ({ storage, layout: Layout.contiguous([1, 4]) });
    const size = { m: 1, n: 1, k: 4 };
    const error = expect.objectContaining({ name: 'UnsupportedError' });
    expect(() => device.linear.matmul([f32, 0], at(f32), size)).toThrow(error);
    const bf16 = device.fromHost(encodeBf16(noise(4, 1)), 'bf16');
    expect(() => device.linear.matmul([f16, 0], at(bf16), size)).toThrow(error);
    expect(() => device.linear.matmul([bf16, 0], at(f16), size)).toThrow(error);
    for (const storage of [f32, f16, bf16]) storage.dispose();
  });
});

describe.each(kernelDevices())('QMatMul with halves on %s', (device) => {
  it.each(TYPES)('%s: gives what f32 weights of the same values give, in the dtype of the input', (type) => {
    const before = memoryStats();
    scope(() => {
      const numbers = Tensor.from(noise(48 * 40, 1), { shape: [48, 40], device }).toDtype(type);
      using weight = QTensor.fromTensor(numbers.narrow(0, 4, 37));
      using map = QMatMul.fromQTensor(weight, { dense: type });
      using wide = QMatMul.fromQTensor(weight);
      const x = Tensor.from(noise(2 * 3 * 40, 2), { shape: [2, 3, 40], device });
      // Contiguous, a view, and of the other 16-bit dtype, whose values are not rounded to the weights'.
      const other = x.toDtype(type === 'f16' ? 'bf16' : 'f16');
      for (const input of [x, x.transpose(0, 1), other]) {
        const made = map.forward(input);
        expect([made.dtype, made.shape]).toEqual([input.dtype, [...input.shape.slice(0, -1), 37]]);
        const expected = wide.forward(input.toDtype('f32')).toDtype(input.dtype).toDtype('f32');
        const difference = made.toDtype('f32').sub(expected).abs().flattenAll().max(0).toScalarSync() as number;
        expect(difference).toBeLessThan(input.dtype === 'f32' ? 2e-5 : 0.26);
      }
    });
    expect(memoryStats()).toEqual(before);
  });

  it('takes weights that are views', () => {
    scope(() => {
      const numbers = Tensor.from(noise(7 * 5, 1), { shape: [5, 7], device }).toDtype('bf16');
      using map = QMatMul.fromTensor(numbers.t());
      const x = Tensor.from(noise(2 * 5, 2), { shape: [2, 5], device });
      const expected = x.matmul(numbers.toDtype('f32'));
      const difference = map.forward(x).sub(expected).abs().flattenAll().max(0).toScalarSync() as number;
      expect(difference).toBeLessThan(5e-2);
    });
  });

  it('keeps gradients of its input', () => {
    scope(() => {
      const weight = Tensor.from(noise(3 * 4, 1), { shape: [3, 4], device }).toDtype('f16');
      using map = QMatMul.fromTensor(weight);
      const x = Var.fromTensor(Tensor.from(noise(8, 2), { shape: [2, 4], device }));
      const grads = map.forward(x).sumAll().backward();
      const expected = weight.toDtype('f32').sum(0).toVecSync<number[]>();
      for (const row of grads.get(x)!.toVecSync<number[][]>())
        row.forEach((value, i) => {
          expect(Math.abs(value - expected[i])).toBeLessThan(4e-3);
        });
    });
  });
});
