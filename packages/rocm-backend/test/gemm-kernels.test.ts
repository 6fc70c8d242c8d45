/**
 * Products of f16 and bf16 by our own kernels, on matrix units where the device has them (kernels/gemm/mma.h), against
 * the TypeScript reference: operands lying either way, sizes around the tiles, rows further apart than they are long.
 */
import { type DType, Layout } from '@x/core';
import { expectClose } from '@x/testing/compare';
import { kernelDevices } from '@x/testing/devices';
import { at } from '@x/testing/operands';
import { tolerance, withPair } from '@x/testing/products';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { RocmDevice } from '../src/index';

const kinds = kernelDevices().map((device) => device.location.kind as 'cpu' | 'cuda' | 'rocm');
const DTYPES: DType[] = ['f16', 'bf16'];

/** [b, rows, cols], its rows or columns `gap` elements further apart than they are long, padded to 8. */
function operand(b: number, rows: number, cols: number, alongRows: boolean, gap: number): Layout {
  const stride = Math.ceil((alongRows ? cols : rows) / 8) * 8 + gap;
  const strides = alongRows ? [rows * stride, stride, 1] : [cols * stride, 1, stride];
  return new Layout([b, rows, cols], strides, 0);
}

describe.each(kinds)('gemm kernels on %s', (kind) => {
  let device: RocmDevice;
  beforeAll(() => {
    device = RocmDevice.open(kind, 0, { gemm: 'kernels' });
  });
  afterAll(() => device.dispose());

  it.each([
    [1, 16, 16, 16],
    [1, 9, 8, 24],
    [1, 64, 300, 65],
    [1, 129, 257, 100],
    [2, 150, 70, 200],
    [3, 33, 131, 72],
    [1, 257, 513, 8],
    [1, 40, 24, 1],
    [1, 100, 40, 1000],
    [16, 193, 100, 3],
  ])('b %i, m %i, n %i, k %i', (b, m, n, k) => {
    for (const dtype of DTYPES) {
      for (const [leftAlong, rightAlong, gap] of [
        [true, false, 0],
        [true, true, 8],
        [false, true, 0],
        [false, false, 16],
        [true, true, 3],
      ] as [boolean, boolean, number][]) {
        const left = operand(b, m, k, leftAlong, gap);
        const right = operand(b, k, n, rightAlong, gap);
        withPair(device, (pair) => {
          const x = pair.operand([left.endOffset()], dtype, { kind: 'contiguous', seed: 1 }, true);
          const y = pair.operand([right.endOffset()], dtype, { kind: 'contiguous', seed: 2 }, true);
          const before = device.hip.counters();
          const result = pair.run((side) =>
            x[side].device.ops.matmul(at(x[side], left), at(y[side], right), { b, m, n, k }),
          );
          expect(device.hip.counters().library).toBe(before.library);
          expectClose(result, `${dtype} ${left} times ${right}`, tolerance(dtype, k));
        });
      }
    }
  });
});
