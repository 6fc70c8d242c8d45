/** Every op in every dtype: a device takes what the TypeScript reference takes, with its results, and refuses what it refuses. */
import { type BackendStorage, DTYPES, type DType, Layout, UnsupportedError } from '@x/core';
import { expectClose } from '@x/testing/compare';
import { kernelDevices } from '@x/testing/devices';
import { at, type Operand, type Pair, pairsOf } from '@x/testing/operands';
import { describe, expect, it } from 'vitest';

type Side = 'reference' | 'tested';
/** An op on one side; x is [2, 3, 4, 4] of the dtype. */
type Op = (x: Operand, side: Side, pair: Pair, type: DType) => BackendStorage;

const square = Layout.contiguous([1, 1, 4, 4]);
const matrix = Layout.contiguous([6, 4]);
const row = (x: Operand, side: Side) => at(x[side], Layout.contiguous([4]));
const steps = { padding: 1, stride: 2, dilation: 1 };
const plane = { b: 1, cIn: 1, cOut: 1, groups: 1, hIn: 4, wIn: 4, kH: 4, kW: 4 };
const line = { b: 1, cIn: 4, cOut: 1, groups: 1, lIn: 4, k: 4 };
const planeKernel = Layout.contiguous([1, 1, 4, 4], 16);
const ids = (pair: Pair, count: number) =>
  pair.from(
    new Uint32Array(count).map((_, i) => i % 2),
    'u32',
    Layout.contiguous([count]),
  );

const OPS: Record<string, Op> = {
  affine: (x, side) => x[side].device.ops.affine(at(x[side], x.layout), 2.7, -1.2),
  powf: (x, side) => x[side].device.ops.powf(at(x[side], x.layout), 2),
  elu: (x, side) => x[side].device.ops.elu(at(x[side], x.layout), 0.5),
  unary: (x, side) => x[side].device.ops.unary('neg', at(x[side], x.layout)),
  floor: (x, side) => x[side].device.ops.unary('floor', at(x[side], x.layout)),
  exp: (x, side) => x[side].device.ops.unary('exp', at(x[side], x.layout)),
  binary: (x, side) => x[side].device.ops.binary('div', at(x[side], x.layout), at(x[side], x.layout.transpose(2, 3))),
  cmp: (x, side) => x[side].device.ops.cmp('lt', at(x[side], x.layout), at(x[side], x.layout.transpose(2, 3))),
  toDtype: (x, side) => x[side].device.ops.toDtype(at(x[side], x.layout), 'f64'),
  sum: (x, side) => x[side].device.ops.reduce('sum', at(x[side], x.layout), [1, 3]),
  min: (x, side) => x[side].device.ops.reduce('min', at(x[side], x.layout), [2]),
  max: (x, side) => x[side].device.ops.reduce('max', at(x[side], x.layout), [3]),
  argmin: (x, side) => x[side].device.ops.reduce('argmin', at(x[side], x.layout), [0]),
  argmax: (x, side) => x[side].device.ops.reduce('argmax', at(x[side], x.layout), [3]),
  whereCond: (x, side) => {
    const { ops } = x[side].device;
    const own = at(x[side], x.layout);
    return ops.whereCond(at(ops.cmp('ge', own, own), x.layout), own, own);
  },
  matmul: (x, side) =>
    x[side].device.ops.matmul(at(x[side], x.layout), at(x[side], x.layout.transpose(2, 3)), { b: 6, m: 4, n: 4, k: 4 }),
  conv1d: (x, side) =>
    x[side].device.conv!.conv1d!(
      at(x[side], Layout.contiguous([1, 4, 4])),
      at(x[side], Layout.contiguous([1, 4, 4], 16)),
      {
        ...line,
        ...steps,
        lOut: 2,
      },
    ),
  convTranspose1d: (x, side) =>
    x[side].device.conv!.convTranspose1d!(
      at(x[side], Layout.contiguous([1, 4, 4])),
      at(x[side], Layout.contiguous([4, 1, 4], 16)),
      {
        ...{ ...line, ...steps, lOut: 10, padding: 0 },
        outputPadding: 0,
      },
    ),
  conv2d: (x, side) =>
    x[side].device.conv!.conv2d!(at(x[side], square), at(x[side], planeKernel), {
      ...plane,
      ...steps,
      hOut: 2,
      wOut: 2,
    }),
  convTranspose2d: (x, side) =>
    x[side].device.conv!.convTranspose2d!(at(x[side], square), at(x[side], planeKernel), {
      ...plane,
      ...steps,
      hOut: 8,
      wOut: 8,
      outputPadding: 0,
    }),
  avgPool2d: (x, side) =>
    x[side].device.resampling!.avgPool2d!(at(x[side], x.layout), {
      kH: 2,
      kW: 3,
      strideH: 2,
      strideW: 1,
      hOut: 2,
      wOut: 2,
    }),
  maxPool2d: (x, side) =>
    x[side].device.resampling!.maxPool2d!(at(x[side], x.layout), {
      kH: 2,
      kW: 3,
      strideH: 2,
      strideW: 1,
      hOut: 2,
      wOut: 2,
    }),
  upsampleNearest1d: (x, side) =>
    x[side].device.resampling!.upsampleNearest1d!(at(x[side], Layout.contiguous([2, 3, 16])), 21),
  upsampleNearest2d: (x, side) => x[side].device.resampling!.upsampleNearest2d!(at(x[side], x.layout), 7, 3),
  upsampleBilinear2d: (x, side) =>
    x[side].device.resampling!.upsampleBilinear2d!(at(x[side], x.layout), { hOut: 8, wOut: 8, alignCorners: false }),
  argSortLastDim: (x, side) => x[side].device.sorting!.argSortLastDim!(at(x[side], x.layout), true),
  indexSelect: (x, side, pair) =>
    x[side].device.ops.indexSelect(at(x[side], matrix), at(ids(pair, 3)[side], Layout.contiguous([3])), 0),
  gather: (x, side, pair) =>
    x[side].device.ops.gather(at(x[side], matrix), at(ids(pair, 12)[side], Layout.contiguous([6, 2])), 1),
  indexAdd: (x, side, pair) =>
    x[side].device.ops.indexAdd(
      at(x[side], matrix),
      at(ids(pair, 3)[side], Layout.contiguous([3])),
      at(x[side], Layout.contiguous([3, 4], 5)),
      0,
    ),
  scatterSet: (x, side, pair) => {
    const target = x[side].device.ops.toDtype(at(x[side], matrix), x[side].dtype);
    target.device.ops.scatterSet(
      at(target, matrix),
      at(ids(pair, 2)[side], Layout.contiguous([2, 1])),
      at(x[side], Layout.contiguous([2, 1], 40)),
      1,
    );
    return target;
  },
  scatterAddSet: (x, side, pair) => {
    const target = x[side].device.ops.toDtype(at(x[side], matrix), x[side].dtype);
    target.device.ops.scatterAddSet(
      at(target, matrix),
      at(ids(pair, 2)[side], Layout.contiguous([2, 1])),
      at(x[side], Layout.contiguous([2, 1], 40)),
      1,
    );
    return target;
  },
  constSet: (x, side) => {
    const target = x[side].device.ops.toDtype(at(x[side], x.layout), x[side].dtype);
    target.device.ops.fill(at(target, x.layout.narrow(1, 1, 2)), 2.6);
    return target;
  },
  softmaxLastDim: (x, side) => x[side].device.fused!.softmaxLastDim!(at(x[side], matrix)),
  rmsNorm: (x, side) => x[side].device.fused!.rmsNorm!(at(x[side], matrix), row(x, side), 1e-5),
  layerNorm: (x, side) => x[side].device.fused!.layerNorm!(at(x[side], matrix), row(x, side), row(x, side), 1e-5),
  rope: (x, side) =>
    x[side].device.fused!.rope!(
      'half',
      at(x[side], x.layout),
      at(x[side], Layout.contiguous([4, 2])),
      at(x[side], Layout.contiguous([4, 2], 8)),
    ),
  randUniform: (x, side, _, type) => seeded(x[side]).uniform(7, type, 0, 1),
  randNormal: (x, side, _, type) => seeded(x[side]).normal(7, type, 0, 1),
};

function seeded({ device }: BackendStorage) {
  device.random!.setSeed(11);
  return device.random!;
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
        const values = new Float32Array(96).map((_, i) => ((i * 5) % 7) + 1);
        const wide = pair.from(values, 'f32', Layout.contiguous([96]));
        const make = (side: Side) => wide[side].device.ops.toDtype(at(wide[side], wide.layout), type);
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
