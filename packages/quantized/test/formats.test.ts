/** Every block format against the reference reader's values, bit for bit, and the quantisers against its bytes. */
import { random } from '@x/testing/random';
import { describe, expect, test } from 'vitest';
import { blockFormat, QUANT_TYPES, type QuantType } from '../src/blocks';
import { GgufFile } from '../src/gguf';
import { ALL_TYPES, EXPECTED } from './fixture';

const file = GgufFile.open(ALL_TYPES);

function values(name: string): Float32Array {
  const format = file.format(name);
  const bytes = file.readTensorBytes(name);
  const out = new Float32Array(file.tensor(name).elemCount);
  format.dequantize(bytes, 0, out, 0, out.length / format.blockSize);
  return out;
}

test('the fixture covers every block format but those of activations', () => {
  const covered = [...EXPECTED.map(([name]) => name), 'f32', 'f16'].map((name) => file.tensor(name).type);
  const missing = QUANT_TYPES.filter((type) => !covered.includes(type));
  expect(missing).toEqual(['q8_1', 'q8_K', 'f64', 'i8', 'i16', 'i32', 'i64']);
});

describe('dequantise', () => {
  test.each(EXPECTED)('%s', (name, expected) => {
    const out = values(name);
    expect(expected.values.length).toBe(512);
    // Compared as bits, so that -0 and 0 differ; the expectations are f32 values printed in full.
    const got = new Uint32Array(out.buffer, 0, expected.values.length);
    expect(got).toEqual(new Uint32Array(Float32Array.from(expected.values).buffer));
    let sum = 0;
    let squares = 0;
    for (const value of out) {
      sum += value;
      squares += value * value;
    }
    expect(Math.abs(sum - expected.sum)).toBeLessThanOrEqual(1e-9 * (1 + Math.abs(expected.sumsq)));
    expect(Math.abs(squares - expected.sumsq)).toBeLessThanOrEqual(1e-9 * expected.sumsq);
  });

  test('into the middle of an array, from the middle of another', () => {
    for (const [name] of EXPECTED) {
      const format = file.format(name);
      const whole = values(name);
      const bytes = file.readTensorBytes(name);
      const out = new Float32Array(format.blockSize + 3).fill(7);
      const padded = new Uint8Array(format.blockBytes + 5);
      padded.set(bytes.subarray(format.blockBytes, 2 * format.blockBytes), 5);
      format.dequantize(padded, 5, out, 2, 1);
      expect(out.subarray(2, 2 + format.blockSize)).toEqual(whole.subarray(format.blockSize, 2 * format.blockSize));
      expect([out[0], out[1], out[out.length - 1]]).toEqual([7, 7, 7]);
    }
  });
});

test('plain numbers are read as they are', () => {
  const view = new DataView(new ArrayBuffer(16));
  view.setFloat64(0, -1.5, true);
  view.setBigInt64(8, -7n, true);
  const read = (type: QuantType, at: number) => {
    const out = new Float32Array(1);
    blockFormat(type).dequantize(new Uint8Array(view.buffer), at, out, 0, 1);
    return out[0];
  };
  expect([read('f64', 0), read('i64', 8), read('i32', 8), read('i16', 8), read('i8', 8)]).toEqual([
    -1.5, -7, -7, -7, -7,
  ]);
});

describe('quantise', () => {
  const x = values('f32');
  const written = EXPECTED.filter(([name, { how }]) => how === 'quantised from x' && file.format(name).quantize);

  test('at least the types with one obvious rounding are bit-exact', () => {
    const names = written.map(([name]) => file.tensor(name).type);
    for (const type of ['q4_0', 'q4_1', 'q5_0', 'q5_1', 'q8_0', 'bf16']) expect(names).toContain(type);
  });

  test.each([...written.map(([name]) => name), 'f16'])('%s gives the reference bytes', (name) => {
    const format = file.format(name);
    const out = new Uint8Array(file.tensor(name).byteLength!);
    format.quantize!(x, 0, out, 0, x.length / format.blockSize);
    expect(out).toEqual(file.readTensorBytes(name));
  });
});

test('ties round away from zero in q8_0 and to even in q8_K', () => {
  const ties = [127, 0.5, -0.5, 1.5, -1.5, 2.5, -2.5];
  const x = new Float32Array(256);
  x.set(ties);
  expect([...roundTrip('q8_0', x).subarray(0, 7)]).toEqual([127, 1, -1, 2, -2, 3, -3]);
  expect([...roundTrip('q8_K', x).subarray(0, 7)].map(Math.abs)).toEqual([127, 0, 0, 2, 2, 2, 2]);
});

/** candle's thresholds, from llama.cpp's test-quantize-fns: sqrt of the summed squares, over the count. */
const RMSE: Partial<Record<QuantType, number>> = {
  f32: 0,
  f16: 0.002,
  bf16: 0.002,
  q4_0: 0.002,
  q4_1: 0.002,
  q5_0: 0.002,
  q5_1: 0.002,
  q8_0: 0.002,
  q8_1: 0.002,
  q2_K: 0.0075,
  q3_K: 0.004,
  q4_K: 0.002,
  q5_K: 0.002,
  q6_K: 0.002,
  q8_K: 0.002,
  iq4_nl: 0.002,
  iq4_xs: 0.002,
  tq1_0: 0.01,
  tq2_0: 0.01,
  mxfp4: 0.003,
  nvfp4: 0.003,
};

/** Bits of a value, where the second character of the name does not say. Three levels are none for values that spread. */
const BITS: Partial<Record<QuantType, number>> = {
  f32: 60,
  f16: 11,
  bf16: 8,
  iq4_nl: 4,
  iq4_xs: 4,
  tq1_0: 1,
  tq2_0: 1,
  mxfp4: 3,
  nvfp4: 3,
};

function roundTrip(type: QuantType, x: Float32Array): Float32Array {
  const format = blockFormat(type);
  const blocks = x.length / format.blockSize;
  const bytes = new Uint8Array(blocks * format.blockBytes).fill(0xa5);
  format.quantize!(x, 0, bytes, 0, blocks);
  const out = new Float32Array(x.length);
  format.dequantize(bytes, 0, out, 0, blocks);
  return out;
}

function errorOf(a: Float32Array, b: Float32Array): number {
  let sum = 0;
  for (let i = 0; i < a.length; i++) sum += (a[i] - b[i]) ** 2;
  return Math.sqrt(sum) / a.length;
}

describe('round trip', () => {
  const cosine = Float32Array.from({ length: 4096 }, (_, i) => 0.1 + 2 * Math.cos(i));
  const types = Object.entries(RMSE) as [QuantType, number][];

  test('every type that can be written has a bound', () => {
    expect(QUANT_TYPES.filter((type) => blockFormat(type).quantize)).toEqual(types.map(([type]) => type));
  });

  test.each(types)('%s stays within %f', (type, bound) => {
    expect(errorOf(cosine, roundTrip(type, cosine))).toBeLessThanOrEqual(bound);
  });

  test.each(types)('%s: the root of the mean square falls with the bits', (type) => {
    const next = random(3);
    const normal = Float32Array.from({ length: 4096 }, () => next() + next() + next() + next() - 2);
    const rms = errorOf(normal, roundTrip(type, normal)) * Math.sqrt(4096);
    // A step's error is about 2^-bits of the range of a group; measured values lie well below.
    const bits = BITS[type] ?? Number(type[1]);
    expect(rms).toBeLessThanOrEqual(1.3 * 2 ** -bits);
  });

  test.each(types)('%s: zeros stay zeros and odd inputs do not throw', (type) => {
    expect(roundTrip(type, new Float32Array(256)).every((value) => value === 0)).toBe(true);
    for (const bad of [Number.NaN, Number.POSITIVE_INFINITY, 1e-40, 3e38]) {
      const x = new Float32Array(256).fill(0.5);
      x[17] = bad;
      expect(roundTrip(type, x).length).toBe(256);
    }
  });
});
