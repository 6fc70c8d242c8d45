/** Row operations of candle-nn, in the module REDUCE: softmax, norms, rotary embedding. Operands are contiguous. */
import { type DType, type FusedOps, isFloat, type Operand, type RopeKind, sizeInBytes } from '@x/core';
import type { KernelDevice } from '../device';
import { unsupported } from '../errors';
import { kernelName } from '../kernel-name';
import type { LaunchShape } from '../launch-shape';
import {
  launchLayernorm,
  launchNormBackward,
  launchRmsnorm,
  launchRope,
  launchRopeI,
  launchRopeThd,
  launchSoftmax,
} from '../launchers/reduce';
import type { KernelStorage } from '../storage';
import { filled } from './result';

export function fusedOps(device: KernelDevice): FusedOps {
  return {
    softmaxLastDim(x: Operand): KernelStorage {
      return byRows(device, 'softmaxLastDim', x, (shape, { src, dst, nCols }, dtype) =>
        launchSoftmax(device, kernelName('softmax', dtype), shape, { src, dst, nCols }),
      );
    },

    rmsNorm(x: Operand, alpha: Operand, eps: number): KernelStorage {
      return byRows(device, 'rmsNorm', x, (shape, { src, dst, nCols, blockSize }, dtype) => {
        const weights = device.view(alpha).ptr;
        launchRmsnorm(device, kernelName('rmsnorm', dtype), shape, { src, dst, alpha: weights, nCols, blockSize, eps });
      });
    },

    layerNorm(x: Operand, alpha: Operand, beta: Operand, eps: number): KernelStorage {
      return byRows(device, 'layerNorm', x, (shape, { src, dst, nCols, blockSize }, dtype) => {
        const [weights, biases] = [device.view(alpha).ptr, device.view(beta).ptr];
        const kernel = kernelName('layernorm', dtype);
        launchLayernorm(device, kernel, shape, { src, dst, alpha: weights, beta: biases, nCols, blockSize, eps });
      });
    },

    normBackward(x, alpha, grad, { eps, centred }) {
      const { dtype } = x.storage;
      const scaled = device.allocUninit(x.layout.elemCount, dtype);
      try {
        const dx = byRows(device, 'normBackward', x, (shape, { src, dst, nCols }) => {
          const weights = device.view(alpha).ptr;
          // A slice of rows begins as far from the first one everywhere.
          const offset = src - device.view(x).ptr;
          const [given, product] = [device.view(grad).ptr + offset, scaled.ptr + offset];
          const parts = { src, alpha: weights, grad: given, dx: dst, scaled: product, nCols, eps, centred };
          launchNormBackward(device, 'norm_backward_f32', shape, parts);
        });
        return { dx, scaled };
      } catch (error) {
        scaled.dispose();
        throw error;
      }
    },

    /** One thread a pair. */
    rope(kind: RopeKind, x: Operand, cos: Operand, sin: Operand): KernelStorage {
      const { dtype } = x.storage;
      if (!isFloat(dtype)) throw unsupported('rope', dtype, device);
      // The sizes in the order of their kernel: b, h, t, d, or b, t, h, d.
      const [b, h, t, d] = x.layout.shape;
      // Tables of shape [b, t, d/2] differ per batch entry, [t, d/2] are shared.
      const strideB = cos.layout.shape.length === 3 ? h * t * d : 0;
      const count = x.layout.elemCount;
      return filled(device, dtype, count, (dst) => {
        const shape = device.shapes.elementwise(count / 2);
        // For all three kernels; of `b, t, h, d` the second is t, which is h here.
        const operands = {
          src: device.view(x).ptr,
          cos: device.view(cos).ptr,
          sin: device.view(sin).ptr,
          dst,
          b,
          t: h,
          h: t,
          d,
          bh: b * h,
          td: t * d,
          strideB,
        };
        if (kind === 'half') launchRope(device, kernelName('rope', dtype), shape, operands);
        else if (kind === 'interleaved') launchRopeI(device, kernelName('rope_i', dtype), shape, operands);
        else launchRopeThd(device, kernelName('rope_thd', dtype), shape, operands);
      });
    },
  };
}

/** What all kernels of rows are given; the host's know no block size. */
interface Rows {
  src: number;
  dst: number;
  nCols: number;
  blockSize: number;
}

/** A block a row, in slices of as many rows as a grid has blocks. */
function byRows(
  device: KernelDevice,
  op: string,
  x: Operand,
  launch: (shape: LaunchShape, rows: Rows, dtype: DType) => void,
): KernelStorage {
  const { dtype } = x.storage;
  if (!isFloat(dtype)) throw unsupported(op, dtype, device);
  const { shape: sizes, elemCount } = x.layout;
  const nCols = sizes[sizes.length - 1];
  const itemBytes = sizeInBytes(dtype);
  return filled(device, dtype, elemCount, (out) => {
    const { ptr } = device.view(x);
    device.shapes.rowSlices(elemCount / nCols, nCols, itemBytes, (first, shape) => {
      const offset = first * nCols * itemBytes;
      launch(shape, { src: ptr + offset, dst: out + offset, nCols, blockSize: shape.block as number }, dtype);
    });
  });
}
