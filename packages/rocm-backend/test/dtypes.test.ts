/** Every op in every dtype: a device takes what the TypeScript reference takes, with its results, and refuses what it refuses. */
import { type BackendStorage, DTYPES, type DType, Layout, UnsupportedError } from '@x/core';
import { expectClose } from '@x/testing/compare';
import { kernelDevices } from '@x/testing/devices';
import { type Operand, type Pair, pairsOf } from '@x/testing/operands';
import { describe, expect, it } from 'vitest';

type Side = 'reference' | 'tested';
/** An op on one side; x is [2, 3, 4, 4] of the dtype. */
type Op = (x: Operand, side: Side, pair: Pair, type: DType) => BackendStorage;

const square = Layout.contiguous([1, 1, 4, 4]);
const matrix = Layout.contiguous([6, 4]);
const rows = (x: Operand, side: Side) => [x[side], Layout.contiguous([4])] as const;
const steps = { padding: 1, stride: 2, dilation: 1 };
const plane = { b: 1, cIn: 1, cOut: 1, hIn: 4, wIn: 4, kH: 4, kW: 4 };
const line = { b: 1, cIn: 4, cOut: 1, lIn: 4, k: 4 };
const planeKernel = Layout.contiguous([1, 1, 4, 4], 16);
const ids = (pair: Pair, count: number) =>
  pair.from(
    Uint32Array.from({ length: count }, (_, i) => i % 2),
    'u32',
    Layout.contiguous([count]),
  );

const OPS: Record<string, Op> = {
  affine: (x, side) => x[side].affine(x.layout, 2.7, -1.2),
  powf: (x, side) => x[side].powf(x.layout, 2),
  elu: (x, side) => x[side].elu(x.layout, 0.5),
  unary: (x, side) => x[side].unary('neg', x.layout),
  floor: (x, side) => x[side].unary('floor', x.layout),
  exp: (x, side) => x[side].unary('exp', x.layout),
  binary: (x, side) => x[side].binary('div', x[side], x.layout, x.layout.transpose(2, 3)),
  cmp: (x, side) => x[side].cmp('lt', x[side], x.layout, x.layout.transpose(2, 3)),
  toDtype: (x, side) => x[side].toDtype(x.layout, 'f64'),
  sum: (x, side) => x[side].reduce('sum', x.layout, [1, 3]),
  min: (x, side) => x[side].reduce('min', x.layout, [2]),
  max: (x, side) => x[side].reduce('max', x.layout, [3]),
  argmin: (x, side) => x[side].reduce('argmin', x.layout, [0]),
  argmax: (x, side) => x[side].reduce('argmax', x.layout, [3]),
  whereCond: (x, side) =>
    x[side].cmp('ge', x[side], x.layout, x.layout).whereCond(x.layout, x[side], x.layout, x[side], x.layout),
  matmul: (x, side) => x[side].matmul(x[side], { b: 6, m: 4, n: 4, k: 4 }, x.layout, x.layout.transpose(2, 3)),
  conv1d: (x, side) =>
    x[side].conv1d(Layout.contiguous([1, 4, 4]), x[side], Layout.contiguous([1, 4, 4], 16), {
      ...line,
      ...steps,
      lOut: 2,
    }),
  convTranspose1d: (x, side) =>
    x[side].convTranspose1d(Layout.contiguous([1, 4, 4]), x[side], Layout.contiguous([4, 1, 4], 16), {
      ...{ ...line, ...steps, lOut: 10, padding: 0 },
      outputPadding: 0,
    }),
  conv2d: (x, side) => x[side].conv2d(square, x[side], planeKernel, { ...plane, ...steps, hOut: 2, wOut: 2 }),
  convTranspose2d: (x, side) =>
    x[side].convTranspose2d(square, x[side], planeKernel, { ...plane, ...steps, hOut: 8, wOut: 8, outputPadding: 0 }),
  avgPool2d: (x, side) => x[side].avgPool2d(x.layout, { kH: 2, kW: 3, strideH: 2, strideW: 1, hOut: 2, wOut: 2 }),
  maxPool2d: (x, side) => x[side].maxPool2d(x.layout, { kH: 2, kW: 3, strideH: 2, strideW: 1, hOut: 2, wOut: 2 }),
  upsampleNearest1d: (x, side) => x[side].upsampleNearest1d(Layout.contiguous([2, 3, 16]), 21),
  upsampleNearest2d: (x, side) => x[side].upsampleNearest2d(x.layout, 7, 3),
  upsampleBilinear2d: (x, side) => x[side].upsampleBilinear2d(x.layout, { hOut: 8, wOut: 8, alignCorners: false }),
  argSortLastDim: (x, side) => x[side].argSortLastDim(x.layout, true),
  indexSelect: (x, side, pair) => x[side].indexSelect(matrix, ids(pair, 3)[side], Layout.contiguous([3]), 0),
  gather: (x, side, pair) => x[side].gather(matrix, ids(pair, 12)[side], Layout.contiguous([6, 2]), 1),
  indexAdd: (x, side, pair) =>
    x[side].indexAdd(matrix, ids(pair, 3)[side], Layout.contiguous([3]), x[side], Layout.contiguous([3, 4], 5), 0),
  scatterSet: (x, side, pair) => {
    const target = x[side].toDtype(matrix, x[side].dtype);
    target.scatterSet(matrix, ids(pair, 2)[side], Layout.contiguous([2, 1]), x[side], Layout.contiguous([2, 1], 40), 1);
    return target;
  },
  scatterAddSet: (x, side, pair) => {
    const target = x[side].toDtype(matrix, x[side].dtype);
    target.scatterAddSet(
      matrix,
      ids(pair, 2)[side],
      Layout.contiguous([2, 1]),
      x[side],
      Layout.contiguous([2, 1], 40),
      1,
    );
    return target;
  },
  constSet: (x, side) => {
    const target = x[side].toDtype(x.layout, x[side].dtype);
    target.constSet(2.6, x.layout.narrow(1, 1, 2));
    return target;
  },
  softmaxLastDim: (x, side) => x[side].softmaxLastDim(matrix),
  rmsNorm: (x, side) => x[side].rmsNorm(matrix, ...rows(x, side), 1e-5),
  layerNorm: (x, side) => x[side].layerNorm(matrix, ...rows(x, side), ...rows(x, side), 1e-5),
  rope: (x, side) =>
    x[side].rope('half', x.layout, x[side], Layout.contiguous([4, 2]), x[side], Layout.contiguous([4, 2], 8)),
  randUniform: (x, side, _, type) => seeded(x[side]).randUniform(7, type, 0, 1),
  randNormal: (x, side, _, type) => seeded(x[side]).randNormal(7, type, 0, 1),
};

function seeded({ device }: BackendStorage) {
  device.setSeed(11);
  return device;
}

/** What an op gives or why it does not. */
function attempt(run: () => BackendStorage): BackendStorage | Error {
  try {
    return run();
  } catch (error) {
    return error as Error;
  }
}

describe.each(kernelDevices())('dtypes on %s', (device) => {
  const withPair = pairsOf(device);

  it.each(Object.keys(OPS))('%s', (name) => {
    for (const type of DTYPES) {
      withPair((pair) => {
        // 1 to 7, with no sum that a narrow float rounds far from another order's.
        const values = Float32Array.from({ length: 96 }, (_, i) => ((i * 5) % 7) + 1);
        const wide = pair.from(values, 'f32', Layout.contiguous([96]));
        const make = (side: Side) => wide[side].toDtype(wide.layout, type);
        const x = { layout: Layout.contiguous([2, 3, 4, 4]), reference: make('reference'), tested: make('tested') };
        const expected = attempt(() => OPS[name](x, 'reference', pair, type));
        const actual = attempt(() => OPS[name](x, 'tested', pair, type));
        if (expected instanceof Error) {
          expect(expected, `${name} of ${type} on js`).toBeInstanceOf(UnsupportedError);
          expect(actual, `${name} of ${type}`).toBeInstanceOf(UnsupportedError);
        } else {
          if (actual instanceof Error) throw actual;
          expect(actual.dtype).toBe(expected.dtype);
          const result = { expected: expected.toHostSync(), actual: actual.toHostSync(), dtype: expected.dtype };
          expectClose(result, `${name} of ${type}`, { relative: expected.dtype === 'f64' ? 1e-6 : 0 });
          for (const storage of [expected, actual]) storage.dispose();
        }
        for (const side of ['reference', 'tested'] as const) x[side].dispose();
      });
    }
  });
});
