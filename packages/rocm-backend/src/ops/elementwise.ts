/**
 * Elementwise operations: the modules UNARY, AFFINE, BINARY, TERNARY and CAST. Their `info` describes the layouts and is null
 * when all are contiguous, for which the kernels have a faster loop.
 */
import {
  type BinaryOp,
  binaryRow,
  type CmpOp,
  type DType,
  type ElementwiseOps,
  isFloat,
  type Operand,
  roundScalar,
  sizeInBytes,
  type UnaryOp,
  unaryRow,
} from '@x/core';
import type { KernelDevice } from '../device';
import { unsupported } from '../errors';
import { kernelName } from '../kernel-name';
import { launchAffine } from '../launchers/affine';
import { launchBinary } from '../launchers/binary';
import { launchCast } from '../launchers/cast';
import { launchWhere } from '../launchers/ternary';
import { launchUnaryParam } from '../launchers/unary';
import type { KernelStorage, View } from '../storage';
import { applyUnary, denseCopy, workOf } from './copy';
import { filled, indexDtype } from './result';

export function elementwiseOps(device: KernelDevice): ElementwiseOps {
  return {
    unary(op: UnaryOp, x: Operand, out?: Operand): KernelStorage {
      const { dtype } = x.storage;
      const { kernel, integers, cost } = unaryRow(op);
      if (!integers && !isFloat(dtype)) throw unsupported(op, dtype, device);
      const copies = integers === 'same' && !isFloat(dtype);
      const name = kernelName(copies ? 'ucopy' : kernel, dtype);
      const fill = (to: number) => applyUnary(device, name, device.view(x), to, copies ? 'short' : cost);
      return filled(device, dtype, x.layout.elemCount, fill, out);
    },

    affine(x: Operand, mul: number, add: number, out?: Operand): KernelStorage {
      const { dtype } = x.storage;
      const fill = (to: number) => {
        const { ptr: inp, layout, itemBytes } = device.view(x);
        const { numDims, ptr: info } = device.info([layout]);
        const numel = layout.elemCount;
        const shape = device.shapes.elementwise(numel, itemBytes, workOf(info, 'short'));
        launchAffine(device, kernelName('affine', dtype), shape, {
          numel,
          numDims,
          info,
          inp,
          out: to,
          mul: roundScalar(dtype, mul),
          add: roundScalar(dtype, add),
        });
      };
      return filled(device, dtype, x.layout.elemCount, fill, out);
    },

    powf: (x, exponent) => withParam(device, 'powf', 'upowf', x, exponent),
    elu: (x, alpha) => withParam(device, 'elu', 'uelu', x, alpha),

    binary(op: BinaryOp, lhs: Operand, rhs: Operand, out?: Operand): KernelStorage {
      const { dtype } = lhs.storage;
      const { kernel, integers } = binaryRow(op);
      if (!integers && !isFloat(dtype)) throw unsupported(op, dtype, device);
      return applyBinary(device, kernelName(kernel, dtype), dtype, lhs, rhs, out);
    },

    cmp: (op: CmpOp, lhs, rhs) => applyBinary(device, kernelName(op, lhs.storage.dtype), 'u8', lhs, rhs),

    whereCond(cond: Operand, onTrue: Operand, onFalse: Operand): KernelStorage {
      const { dtype } = onTrue.storage;
      const kernel = kernelName('where', kernelName(indexDtype(device, cond), dtype));
      return filled(device, dtype, cond.layout.elemCount, (out) => {
        const [c, t, f] = [device.view(cond), device.view(onTrue), device.view(onFalse)];
        const { numDims, ptr: info } = device.info([c.layout, t.layout, f.layout]);
        const numel = c.layout.elemCount;
        const shape = device.shapes.elementwise(numel, t.itemBytes, workOf(info, 'short'));
        launchWhere(device, kernel, shape, { numel, numDims, info, ids: c.ptr, t: t.ptr, f: f.ptr, out });
      });
    },

    toDtype(x: Operand, dtype: DType): KernelStorage {
      if (dtype === x.storage.dtype) return denseCopy(device, x);
      const fill = (out: number) => cast(device, x.storage.dtype, dtype, device.view(x), out);
      return filled(device, dtype, x.layout.elemCount, fill);
    },
  };
}

/** Floats to floats, with a number beside them. */
function withParam(device: KernelDevice, op: string, kernel: string, x: Operand, param: number): KernelStorage {
  const { dtype } = x.storage;
  if (!isFloat(dtype)) throw unsupported(op, dtype, device);
  return filled(device, dtype, x.layout.elemCount, (out) => {
    const { ptr: inp, layout, itemBytes } = device.view(x);
    const { numDims, ptr: info } = device.info([layout]);
    const numel = layout.elemCount;
    const shape = device.shapes.elementwise(numel, itemBytes, workOf(info, 'long'));
    launchUnaryParam(device, kernelName(kernel, dtype), shape, { numel, numDims, info, param, inp, out });
  });
}

/** Arithmetic and comparisons. */
function applyBinary(
  device: KernelDevice,
  kernel: string,
  dtype: DType,
  lhs: Operand,
  rhs: Operand,
  into?: Operand,
): KernelStorage {
  const numel = lhs.layout.elemCount;
  const fill = (out: number) => {
    const a = device.view(lhs);
    const b = device.view(rhs);
    const { numDims, ptr: info } = device.info([lhs.layout, rhs.layout]);
    const shape = device.shapes.elementwise(numel, a.itemBytes, workOf(info, 'short'));
    launchBinary(device, kernel, shape, { numel, numDims, info, lhs: a.ptr, rhs: b.ptr, out });
  };
  return filled(device, dtype, numel, fill, into);
}

export function cast(device: KernelDevice, from: DType, to: DType, x: View, out: number): void {
  const { numDims, ptr: info } = device.info([x.layout]);
  const numel = x.layout.elemCount;
  const shape = device.shapes.elementwise(numel, Math.max(x.itemBytes, sizeInBytes(to)), workOf(info, 'long'));
  launchCast(device, kernelName(kernelName('cast', from), to), shape, { numel, numDims, info, inp: x.ptr, out });
}
