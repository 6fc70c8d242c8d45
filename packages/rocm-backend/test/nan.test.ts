/** What NaN and zeros of either sign do, on every device and in every float dtype: the rules of docs/kernels.md. */
import { type DType, Tensor } from '@x/core';
import { testDevices } from '@x/testing/devices';
import { FLOAT_DTYPES } from '@x/testing/operands';
import { describe, expect, it } from 'vitest';

const NAN = Number.NaN;
const cases = testDevices().flatMap((device) => FLOAT_DTYPES.map((dtype) => [String(device), dtype, device] as const));

describe.each(cases)('NaN on %s in %s', (_name, dtype, device) => {
  const from = (data: Parameters<typeof Tensor.from>[0], type: DType = dtype) =>
    Tensor.from(data, { dtype: type, device });
  const read = async (tensor: Tensor) => Array.from(await tensor.toArray(), Number);
  const left = () => from([NAN, 1, NAN, 2, -1]);
  const right = () => from([1, NAN, NAN, -2, 0]);

  it('maximum, minimum, clamp and relu give NaN where an operand is NaN', async () => {
    expect(await read(left().maximum(right()))).toEqual([NAN, NAN, NAN, 2, 0]);
    expect(await read(left().minimum(right()))).toEqual([NAN, NAN, NAN, -2, -1]);
    expect(await read(left().clamp(0, 1))).toEqual([NAN, 1, NAN, 1, 0]);
    expect(await read(left().relu())).toEqual([NAN, 1, NAN, 2, 0]);
  });

  it('sign of NaN is 0, elu of NaN is NaN', async () => {
    expect(await read(left().sign())).toEqual([0, 1, 0, 1, -1]);
    expect((await read(left().elu(1))).slice(0, 4)).toEqual([NAN, 1, NAN, 2]);
  });

  it('every comparison with NaN is false but "not equal"', async () => {
    expect(await read(left().eq(right()))).toEqual([0, 0, 0, 0, 0]);
    expect(await read(left().ne(right()))).toEqual([1, 1, 1, 1, 1]);
    expect(await read(left().lt(right()))).toEqual([0, 0, 0, 0, 1]);
    expect(await read(left().le(right()))).toEqual([0, 0, 0, 0, 1]);
    expect(await read(left().gt(right()))).toEqual([0, 0, 0, 1, 0]);
    expect(await read(left().ge(right()))).toEqual([0, 0, 0, 1, 0]);
  });

  it('a reduction with a NaN is NaN, and its position that of the first NaN', async () => {
    const rows = () =>
      from([
        [1, NAN, 5, NAN],
        [3, 4, -2, 4],
        [NAN, -8, 0, 1],
      ]);
    expect(await read(rows().max(1))).toEqual([NAN, 4, NAN]);
    expect(await read(rows().min(1))).toEqual([NAN, -2, NAN]);
    expect(await read(rows().sum(1))).toEqual([NAN, 9, NAN]);
    expect(await read(rows().argmax(1))).toEqual([1, 1, 0]);
    expect(await read(rows().argmin(1))).toEqual([1, 2, 0]);
    expect(await read(rows().max(0))).toEqual([NAN, NAN, 5, NAN]);
    expect(await read(rows().min(0))).toEqual([NAN, NAN, -2, NAN]);
    expect(await read(rows().argmax(0))).toEqual([2, 0, 0, 0]);
    expect(await read(rows().argmin(0))).toEqual([2, 0, 1, 0]);
  });

  it('a long row keeps its NaN wherever it is', async () => {
    for (const at of [0, 777, 29_999]) {
      const values = Array.from({ length: 30_000 }, (_, i) => (i === at ? NAN : (i % 7) - 3));
      expect(await read(from(values).max(0))).toEqual([NAN]);
      expect(await read(from(values).min(0))).toEqual([NAN]);
      expect(await read(from(values).argmax(0))).toEqual([at]);
      expect(await read(from(values).argmin(0))).toEqual([at]);
    }
  });

  it('of zeros in a long row +0 is the largest and -0 the smallest', async () => {
    for (const at of [0, 777, 2999]) {
      const zeros = (one: number, others: number) =>
        from(Array.from({ length: 3000 }, (_, i) => (i === at ? one : others)));
      expect(await read(zeros(0, -0).max(0))).toEqual([0]);
      expect(await read(zeros(-0, 0).min(0))).toEqual([-0]);
    }
  });

  it('NaN sorts as the greatest, among NaNs the order stays', async () => {
    const values = () => from([2, NAN, -1, NAN, 0]);
    expect(await read(values().argSortLastDim(true))).toEqual([2, 4, 0, 1, 3]);
    expect(await read(values().argSortLastDim(false))).toEqual([1, 3, 0, 4, 2]);
  });

  it('a window of the maximum pool and a row of softmax with a NaN are NaN', async () => {
    const image = from([[[[1, NAN, 2, 3]]]]);
    expect(await read(image.maxPool2d([1, 2]))).toEqual([NAN, 3]);
    const rows = from([
      [1, NAN],
      [2, 2],
    ]);
    const sums = rows.softmaxLastDim();
    expect(await read(sums)).toEqual([NAN, NAN, 0.5, 0.5]);
  });

  it('NaN becomes the integer 0', async () => {
    for (const type of ['u8', 'u32', 'i16', 'i32', 'i64'] as const) {
      const converted = await read(left().toDtype(type));
      expect(converted.slice(0, 4)).toEqual([0, 1, 0, 2]);
    }
  });
});
