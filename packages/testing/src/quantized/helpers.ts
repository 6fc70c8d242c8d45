/** What the suites of quantized weights share: candle's and llama.cpp's test vectors and error bounds. */
import { Device, Tensor } from '@x/core';
import { QMatMul, QTensor, type QuantType } from '@x/quantized';

/** Types that candle has, those of activations last. */
export const CANDLE_TYPES = [
  'q4_0',
  'q4_1',
  'q5_0',
  'q5_1',
  'q8_0',
  'q2_K',
  'q3_K',
  'q4_K',
  'q5_K',
  'q6_K',
  'q8_1',
  'q8_K',
] as const;

/** Further types with a reference quantiser. */
export const OTHER_TYPES = ['iq4_nl', 'iq4_xs', 'tq1_0', 'tq2_0', 'mxfp4', 'nvfp4'] as const;

/**
 * Error of a dot product in ggml, by type (llama.cpp's test-quantize-fns and candle's quantized_tests); q8_K is candle's.
 * q2_K and q5_K are the errors of ggml's bytes of today, which ours are: candle lists 0.004086 and 0.00074 from an earlier
 * search of scales, which did better on this one vector.
 */
export const DOT_ERROR: Partial<Record<QuantType, number>> = {
  f32: 0,
  f16: 0.00001,
  bf16: 0.0002,
  q2_K: 0.01067,
  q3_K: 0.017,
  q4_K: 0.002425,
  q5_K: 0.00104,
  q6_K: 0.000952,
  q4_0: 0.001143,
  q4_1: 0.008,
  q5_0: 0.001353,
  q5_1: 0.00149,
  q8_0: 0.000092,
  q8_1: 0.000092,
  q8_K: 0.00065,
  // llama.cpp's own bounds; there is no measured error to hold these against.
  iq4_nl: 0.02,
  iq4_xs: 0.02,
  tq1_0: 0.15,
  tq2_0: 0.15,
  mxfp4: 0.03,
  nvfp4: 0.03,
};

/** 0, 1, 2, ... or what `map` makes of them. */
export function counting(count: number, map = (value: number) => value): Float32Array {
  return new Float32Array(count).map((_, i) => map(i));
}

/** llama.cpp's test vector: 0.1 + 2 cos(i + offset), 4,096 values. */
export function cosines(offset: number): Float32Array {
  return new Float32Array(4096).map((_, i) => 0.1 + 2 * Math.cos(i + offset));
}

/** Activations rounded as ggml's dot product with a weight of `type` rounds them. */
function activations(x: Float32Array, type: QuantType): Float32Array {
  if (type === 'f32' || type === 'f16' || type === 'bf16') return x;
  const large = type.endsWith('_K') || ['iq4_xs', 'tq1_0', 'tq2_0'].includes(type);
  using rounded = weightOf(x, [x.length], large ? 'q8_K' : 'q8_0', Device.js());
  using numbers = rounded.dequantize();
  return numbersOf(numbers);
}

/** candle's ramp from -bound to bound. */
export function ramp(bound: number, size: number): Float32Array {
  return new Float32Array(size).map((_, i) => ((i - size / 2) * bound) / (size / 2));
}

/** Root of the summed squares over the count, which llama.cpp's tests call the total error. */
export function totalError(a: ArrayLike<number>, b: ArrayLike<number>): number {
  let sum = 0;
  for (let i = 0; i < a.length; i++) sum += (a[i] - b[i]) ** 2;
  return Math.sqrt(sum) / a.length;
}

export function numbersOf(tensor: Tensor): Float32Array {
  return Float32Array.from(tensor.toArraySync() as ArrayLike<number>, Number);
}

/** Three decimals, as candle's `round_vector`. */
export function rounded(values: ArrayLike<number>): number[] {
  return Array.from(values, (value) => Math.round(1000 * value) / 1000);
}

/** A weight [n, k] of `values` in blocks on `device`. */
export function weightOf(values: Float32Array, shape: readonly number[], type: QuantType, device: Device): QTensor {
  using dense = Tensor.from(values, { shape, device });
  return QTensor.quantizeSync(dense, type);
}

/** x [m, k] times the transpose of a weight [n, k] in blocks of `type`, as numbers. */
export function product(
  x: Float32Array,
  weight: Float32Array,
  size: { m: number; n: number; k: number },
  type: QuantType,
  device: Device,
): Float32Array {
  using blocks = weightOf(weight, [size.n, size.k], type, device);
  using map = QMatMul.fromQTensor(blocks);
  using input = Tensor.from(x, { shape: [size.m, size.k], device });
  using y = map.forward(input);
  return numbersOf(y);
}

/** x [m, k] times the transpose of a weight [n, k], in doubles. */
export function exactProduct(x: Float32Array, weight: Float32Array, size: { m: number; n: number; k: number }) {
  const out = new Float64Array(size.m * size.n);
  for (let i = 0; i < size.m; i++) {
    for (let j = 0; j < size.n; j++) {
      let sum = 0;
      for (let l = 0; l < size.k; l++) sum += x[i * size.k + l] * weight[j * size.k + l];
      out[i * size.n + j] = sum;
    }
  }
  return out;
}

/** candle's `test_matmul`: the mean relative error of a product of [3, 256] with [4, 256]. */
export function checkedMatmulError(type: QuantType, device: Device): number {
  const size = { m: 3, n: 4, k: 256 };
  const x = counting(3 * 256, (i) => i / (3 * 256));
  // candle's weight is [k, n] counted row by row; a weight of ours is its transpose.
  const weight = counting(4 * 256, (i) => ((i % 256) * 4 + Math.floor(i / 256)) / (4 * 256));
  const exact = exactProduct(x, weight, size);
  const got = product(x, weight, size, type, device);
  return exact.reduce((sum, value, i) => sum + Math.abs((value - got[i]) / value), 0) / exact.length;
}

/**
 * candle's and ggml's dot product check, as a product of one row with one: the error by the length. The bounds of
 * {@link DOT_ERROR} are errors measured with rounded activations; where the device keeps them exact, they are rounded first.
 */
export function dotError(type: QuantType, a: Float32Array, b: Float32Array, device: Device): number {
  const size = { m: 1, n: 1, k: a.length };
  const [exact] = exactProduct(b, a, size);
  const rounds = device.backend.quantized?.supports(type) === true;
  const [got] = product(rounds ? b : activations(b, type), a, size, type, device);
  return Math.abs(got - exact) / a.length;
}

/** The same of llama.cpp's two vectors. */
export function cosineDotError(type: QuantType, device: Device): number {
  return dotError(type, cosines(0), cosines(1), device);
}
