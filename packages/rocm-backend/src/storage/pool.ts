/** Pooling and resizing; the kernels take any strides. */
import type { BilinearParams, Layout, Pool2dParams } from '@x/core';
import {
  launchPool2d,
  launchUpsampleBilinear2d,
  launchUpsampleNearest1d,
  launchUpsampleNearest2d,
} from '../conv-kernels';
import { unsupported } from '../errors';
import { run } from '../ops';
import { CONV_DTYPES } from './conv';
import type { RocmStorage } from './index';

export function pool2d(kind: 'avg' | 'max', src: RocmStorage, layout: Layout, params: Pool2dParams): RocmStorage {
  const count = planes(`${kind}Pool2d`, src, layout) * params.hOut * params.wOut;
  return run(src.device, src.dtype, count, (out) =>
    launchPool2d(src.device, `${kind}_pool2d_${src.dtype}`, count, src.operand(layout), params, out),
  );
}

export function upsampleNearest1d(src: RocmStorage, layout: Layout, lOut: number): RocmStorage {
  return run(src.device, src.dtype, planes('upsampleNearest1d', src, layout) * lOut, (out) =>
    launchUpsampleNearest1d(src.device, src.dtype, src.operand(layout), lOut, out),
  );
}

export function upsampleNearest2d(src: RocmStorage, layout: Layout, hOut: number, wOut: number): RocmStorage {
  return run(src.device, src.dtype, planes('upsampleNearest2d', src, layout) * hOut * wOut, (out) =>
    launchUpsampleNearest2d(src.device, src.dtype, src.operand(layout), hOut, wOut, out),
  );
}

export function upsampleBilinear2d(src: RocmStorage, layout: Layout, params: BilinearParams): RocmStorage {
  const count = planes('upsampleBilinear2d', src, layout) * params.hOut * params.wOut;
  return run(src.device, src.dtype, count, (out) =>
    launchUpsampleBilinear2d(src.device, src.dtype, src.operand(layout), params, out),
  );
}

function planes(op: string, src: RocmStorage, layout: Layout): number {
  if (!CONV_DTYPES.includes(src.dtype)) throw unsupported(op, src.dtype, src.device);
  return layout.shape[0] * layout.shape[1];
}
