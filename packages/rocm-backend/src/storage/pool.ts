/** Pooling and resizing; the kernels take any strides. */
import type { BilinearParams, Layout, Pool2dParams } from '@x/core';
import {
  launchPool2d,
  launchUpsampleBilinear2d,
  launchUpsampleNearest1d,
  launchUpsampleNearest2d,
} from '../conv-kernels';
import { run } from '../ops';
import type { RocmStorage } from './index';

export function pool2d(kind: 'avg' | 'max', src: RocmStorage, layout: Layout, params: Pool2dParams): RocmStorage {
  const count = planes(layout) * params.hOut * params.wOut;
  return run(src.device, src.dtype, count, (out) =>
    launchPool2d(src.device, `${kind}_pool2d_${src.dtype}`, count, src.operand(layout), params, out),
  );
}

export function upsampleNearest1d(src: RocmStorage, layout: Layout, lOut: number): RocmStorage {
  return run(src.device, src.dtype, planes(layout) * lOut, (out) =>
    launchUpsampleNearest1d(src.device, src.dtype, src.operand(layout), lOut, out),
  );
}

export function upsampleNearest2d(src: RocmStorage, layout: Layout, hOut: number, wOut: number): RocmStorage {
  return run(src.device, src.dtype, planes(layout) * hOut * wOut, (out) =>
    launchUpsampleNearest2d(src.device, src.dtype, src.operand(layout), hOut, wOut, out),
  );
}

export function upsampleBilinear2d(src: RocmStorage, layout: Layout, params: BilinearParams): RocmStorage {
  const count = planes(layout) * params.hOut * params.wOut;
  return run(src.device, src.dtype, count, (out) =>
    launchUpsampleBilinear2d(src.device, src.dtype, src.operand(layout), params, out),
  );
}

function planes({ shape }: Layout): number {
  return shape[0] * shape[1];
}
