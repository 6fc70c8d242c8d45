/** Row ops of candle-nn: softmax, norms, rotary embedding. */
import { type DType, isFloat, type Layout, type RopeKind } from '@x/core';
import type { RocmDevice } from '../device';
import { unsupported } from '../errors';
import { kernelName } from '../kernel-name';
import { launchNorm, launchRope, launchRopeThd, launchSoftmax } from '../kernels';
import { run } from '../ops';
import type { RocmStorage } from './index';

export function softmaxLastDim(src: RocmStorage, layout: Layout): RocmStorage {
  const { cols, rows } = rowsOf('softmaxLastDim', src.device, src.dtype, layout);
  return run(src.device, src.dtype, layout.elemCount, (out) =>
    launchSoftmax(src.device, src.dtype, rows, cols, src.operand(layout).ptr, out),
  );
}

export function rmsNorm(
  src: RocmStorage,
  layout: Layout,
  alpha: RocmStorage,
  alphaLayout: Layout,
  eps: number,
): RocmStorage {
  const { cols, rows } = rowsOf('rmsNorm', src.device, src.dtype, layout);
  return run(src.device, src.dtype, layout.elemCount, (out) =>
    launchNorm(
      src.device,
      'rmsnorm',
      src.dtype,
      rows,
      cols,
      [src.operand(layout).ptr, out, alpha.operand(alphaLayout).ptr],
      eps,
    ),
  );
}

export function layerNorm(
  src: RocmStorage,
  layout: Layout,
  alpha: RocmStorage,
  alphaLayout: Layout,
  beta: RocmStorage,
  betaLayout: Layout,
  eps: number,
): RocmStorage {
  const { cols, rows } = rowsOf('layerNorm', src.device, src.dtype, layout);
  return run(src.device, src.dtype, layout.elemCount, (out) => {
    const weights = [alpha.operand(alphaLayout).ptr, beta.operand(betaLayout).ptr];
    launchNorm(src.device, 'layernorm', src.dtype, rows, cols, [src.operand(layout).ptr, out, ...weights], eps);
  });
}

export function rope(
  src: RocmStorage,
  kind: RopeKind,
  layout: Layout,
  cos: RocmStorage,
  cosLayout: Layout,
  sin: RocmStorage,
  sinLayout: Layout,
): RocmStorage {
  if (!isFloat(src.dtype)) throw unsupported('rope', src.dtype, src.device);
  // The sizes in the order of their kernel: b, h, t, d, or b, t, h, d.
  const [b, h, t, d] = layout.shape;
  // Tables of shape [b, t, d/2] differ per batch entry, [t, d/2] are shared.
  const strideB = cosLayout.shape.length === 3 ? h * t * d : 0;
  return run(src.device, src.dtype, layout.elemCount, (out) => {
    const operands = [src.operand(layout).ptr, cos.operand(cosLayout).ptr, sin.operand(sinLayout).ptr, out];
    if (kind === 'half') launchRope(src.device, kernelName('rope', src.dtype), operands, [b * h, t * d, d, strideB]);
    else if (kind === 'thd')
      launchRopeThd(src.device, kernelName('rope_thd', src.dtype), operands, [b, h, t, d, strideB]);
    else launchRope(src.device, kernelName('rope_i', src.dtype), operands, [b * h, t * d, strideB]);
  });
}

function rowsOf(op: string, device: RocmDevice, dtype: DType, layout: Layout): { cols: number; rows: number } {
  if (!isFloat(dtype)) throw unsupported(op, dtype, device);
  const cols = layout.shape[layout.shape.length - 1];
  return { cols, rows: layout.elemCount / cols };
}
