/**
 * The same op on the same values gives the same bits, however often it runs and however its blocks are scheduled: sums are
 * split in a fixed way, and what adds through ids walks them in order, with no atomics. The values differ so much in size
 * that another order of additions would show.
 */
import { Device, type DType, Tensor } from '@x/core';
import { kernelDevices, testDevices } from '@x/testing/devices';
import { generator } from '@x/testing/operands';
import { describe, expect, test } from 'vitest';

const RUNS = 5;
const FLOATS = ['f32', 'f16', 'bf16', 'f64'] as const;

/** Values of both signs between 1e-3 and 1e3. */
function values(count: number, seed: number): Float32Array {
  const next = generator(seed);
  return new Float32Array(count).map(() => (next() - 0.5) * 10 ** (next() * 6 - 3));
}

function ids(count: number, below: number, seed: number): Uint32Array {
  const next = generator(seed);
  return new Uint32Array(count).map(() => Math.floor(next() * below));
}

/** The bytes of a result, which is disposed of. */
function bytesOf(result: Tensor): string {
  const bytes = Buffer.from(result.toBytesSync());
  result.dispose();
  return bytes.toString('base64');
}

function expectSameBits(op: () => Tensor): void {
  const first = bytesOf(op());
  for (let run = 1; run < RUNS; run++) expect(bytesOf(op()) === first).toBe(true);
}

describe.each(testDevices())('the same bits in every run on %s', (device) => {
  const make = (data: Float32Array, dtype: DType) => Tensor.from(data, { device }).toDtype(dtype);

  test.each(FLOATS)('sums and means in %s: of rows, of columns, of everything, of a view', (dtype) => {
    // Wide enough that a GPU splits the rows, tall enough that columns are walked by several threads.
    const x = make(values(4 * 40_000, 1), dtype).reshape([4, 40_000]);
    expectSameBits(() => x.sum(1));
    expectSameBits(() => x.sum(0));
    expectSameBits(() => x.sumAll());
    expectSameBits(() => x.mean(1));
    expectSameBits(() => x.t().sum(0));
    expectSameBits(() => x.reshape([400, 400]).narrow(1, 3, 391).sum([0, 1]));
  });

  test.each(FLOATS)('softmax, norms and extrema with ties in %s', (dtype) => {
    const x = make(values(16 * 3000, 2), dtype).reshape([16, 3000]);
    const alpha = make(values(3000, 3), dtype);
    expectSameBits(() => x.softmaxLastDim());
    expectSameBits(() => x.rmsNorm(alpha, 1e-5));
    expectSameBits(() => x.layerNorm(alpha, alpha, 1e-5));
    const tied = x.gt(0).toDtype(dtype);
    expectSameBits(() => tied.argmax(1));
    expectSameBits(() => tied.argmin(0));
    expectSameBits(() => tied.topk(50)[1]);
  });

  test.each(FLOATS)('index_add and scatter_add with many equal ids in %s', (dtype) => {
    const [rows, width, slots] = [2000, 33, 7];
    const src = make(values(rows * width, 4), dtype).reshape([rows, width]);
    const into = make(values(slots * width, 5), dtype).reshape([slots, width]);
    const flat = Tensor.from(ids(rows, slots, 6), { device });
    const each = Tensor.from(ids(rows * width, slots, 7), { device }).reshape([rows, width]);
    expectSameBits(() => into.indexAdd(flat, src, 0));
    expectSameBits(() => into.scatterAdd(each, src, 0));
    expectSameBits(() => into.t().indexAdd(flat, src.t(), 1));
  });
});

describe.each(kernelDevices())('additions through ids on %s', (device) => {
  // The small floats round after every addition, as candle's do; the reference adds them in f32.
  test.each(['f32', 'f64'] as const)('happen in the order of the ids, as in the reference, in %s', (dtype) => {
    const [rows, width, slots] = [500, 9, 5];
    const results = [Device.js(), device].map((on) => {
      const tensor = (data: Float32Array | Uint32Array) => Tensor.from(data, { device: on });
      const src = tensor(values(rows * width, 8))
        .toDtype(dtype)
        .reshape([rows, width]);
      const into = tensor(values(slots * width, 9))
        .toDtype(dtype)
        .reshape([slots, width]);
      const flat = tensor(ids(rows, slots, 10));
      const each = tensor(ids(rows * width, slots, 11)).reshape([rows, width]);
      return [into.indexAdd(flat, src, 0), into.scatterAdd(each, src, 0)].map(bytesOf);
    });
    expect(results[1]).toEqual(results[0]);
  });
});
