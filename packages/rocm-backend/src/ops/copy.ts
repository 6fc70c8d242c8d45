/** Copies between buffers of one device, fills, and contiguous operands for kernels that need them: the module FILL. */
import { type Copy2d, type CopyOps, type DType, Layout, type Operand, roundScalar, sizeInBytes } from '@x/core';
import type { KernelDevice } from '../device';
import { kernelName } from '../kernel-name';
import type { Work } from '../launch-shape';
import { launchConstSet, launchCopy2d, launchCopyBack, launchTranspose } from '../launchers/fill';
import { launchUnary } from '../launchers/unary';
import { KernelStorage, type View } from '../storage';
import { filled } from './result';

/** The largest size that candle's copy2d kernel takes. */
const MAX_U32 = 2 ** 32 - 1;

export function copyOps(device: KernelDevice): CopyOps {
  return {
    /** A contiguous view is one driver copy; anything else is the strided copy kernel. */
    copy(x: Operand, out?: Operand): KernelStorage {
      const { dtype } = x.storage;
      const fill = (to: number) => {
        const from = device.view(x);
        if (x.layout.isContiguous()) device.hip.memcpyDtoD(to, from.ptr, x.layout.elemCount * from.itemBytes);
        else copyStrided(device, dtype, from, to);
      };
      return filled(device, dtype, x.layout.elemCount, fill, out);
    },

    copy2d(src: KernelStorage, dst: KernelStorage, copy: Copy2d): void {
      const { d1, d2, srcStride, dstStride, srcOffset, dstOffset } = copy;
      if (d1 === 0 || d2 === 0) return;
      const size = sizeInBytes(src.dtype);
      const from = KernelStorage.on(device, src).ptr + srcOffset * size;
      const to = KernelStorage.on(device, dst).ptr + dstOffset * size;
      if (d1 === 1 || (srcStride === d2 && dstStride === d2)) device.hip.memcpyDtoD(to, from, d1 * d2 * size);
      else if (Math.max(d2, srcStride, dstStride) <= MAX_U32) {
        for (let row = 0; row < d1; row += MAX_U32) {
          const rows = Math.min(MAX_U32, d1 - row);
          const [at, into] = [from + row * srcStride * size, to + row * dstStride * size];
          copyRows(device, src.dtype, at, into, { rows, cols: d2, srcStride, dstStride });
        }
      } else {
        // Few rows, since they lie so far apart.
        for (let row = 0; row < d1; row++) {
          device.hip.memcpyDtoD(to + row * dstStride * size, from + row * srcStride * size, d2 * size);
        }
      }
    },

    fill(dst: Operand, value: number | bigint): void {
      const numel = dst.layout.elemCount;
      if (numel === 0) return;
      const { dtype } = dst.storage;
      const { ptr: out, itemBytes } = device.view(dst);
      const { numDims, ptr: info } = device.info([dst.layout]);
      const shape = device.shapes.elementwise(numel, itemBytes);
      const held = roundScalar(dtype, value);
      launchConstSet(device, kernelName('const_set', dtype), shape, { numel, numDims, info, value: held, out });
    },
  };
}

/** `rows` of `cols` elements, whose distances are given in elements. */
export function copyRows(
  device: KernelDevice,
  dtype: DType,
  src: number,
  dst: number,
  { rows, cols, srcStride, dstStride }: { rows: number; cols: number; srcStride: number; dstStride: number },
): void {
  const shape = device.shapes.elementwise(rows * cols);
  const sizes = { d1: rows, d2: cols, srcS: srcStride, dstS: dstStride };
  launchCopy2d(device, kernelName('copy2d', dtype), shape, { src, dst, ...sizes });
}

/** Kernels by the size of an element, and elements along a side of a GPU's tile: kernels/fill/transpose.h. */
const TRANSPOSES: Record<number, { kernel: string; tile: number }> = {
  1: { kernel: 'transpose_b8', tile: 128 },
  2: { kernel: 'transpose_b16', tile: 64 },
  4: { kernel: 'transpose_b32', tile: 64 },
  8: { kernel: 'transpose_b64', tile: 32 },
};
const WIDE_TRANSPOSE = { kernel: 'transpose_b16_wide', tile: 128 };
/** The host's tiles have 32 or 64 elements a side; a block takes any number of them. */
const HOST_TILE = 32;

/** NVIDIA's GPUs take larger tiles of 2-byte elements where these keep all of the device busy. */
function transposeOf({ hip }: KernelDevice, bytes: number, elements: number): { kernel: string; tile: number } {
  const many = elements >= WIDE_TRANSPOSE.tile ** 2 * 16 * hip.properties.multiprocessorCount;
  return bytes === 2 && hip.platform === 'cuda' && many ? WIDE_TRANSPOSE : TRANSPOSES[bytes];
}

/** The kernel that copies views with strides below 0, by the size of an element: kernels/fill/back.h. */
const BACK: Record<number, string> = { 1: 'copy_back_b8', 2: 'copy_back_b16', 4: 'copy_back_b32', 8: 'copy_back_b64' };

/** A contiguous copy of a view; where the view's unit stride is not its last dim, in tiles that are transposed. */
function copyStrided(device: KernelDevice, dtype: DType, src: View, out: number): void {
  if (goesBack(src.layout)) {
    const { numDims, ptr: info } = device.info([src.layout]);
    const numel = src.layout.elemCount;
    const shape = device.shapes.elementwise(numel, src.itemBytes, 'strided');
    launchCopyBack(device, BACK[src.itemBytes], shape, { numel, numDims, info, src: src.ptr, dst: out });
    return;
  }
  const cut = device.transpositionOf(src.layout);
  if (!cut) {
    applyUnary(device, kernelName('ucopy', dtype), src, out, 'short');
    return;
  }
  const { rows, cols, rowStep, colStep, batches } = cut;
  const { numDims, ptr: info } = device.infoFor(batches.dims, batches.inStrides, batches.outStrides);
  const count = batches.dims.reduce((a, b) => a * b, 1);
  const { kernel, tile } = transposeOf(device, src.itemBytes, src.layout.elemCount);
  const shape = device.shapes.tiles(count, rows, cols, device.shapes.isHost ? HOST_TILE : tile);
  const operands = { batches: count, rows, cols, numDims, info, rowStep, colStep, src: src.ptr, dst: out };
  launchTranspose(device, kernel, shape, operands);
}

function goesBack({ strides }: Layout): boolean {
  for (let i = 0; i < strides.length; i++) if (strides[i] < 0) return true;
  return false;
}

/** A contiguous copy, by a kernel also where the view is contiguous. */
export function denseCopy(device: KernelDevice, x: Operand): KernelStorage {
  const { dtype } = x.storage;
  return filled(device, dtype, x.layout.elemCount, (out) => copyStrided(device, dtype, device.view(x), out));
}

/** Runs `use` with a contiguous form of a view, copying only when the view is not contiguous. */
export function withContiguous<T>(device: KernelDevice, x: Operand, use: (x: Operand) => T): T {
  if (x.layout.isContiguous()) return use(x);
  return withTemporary(denseCopy(device, x), x.layout.shape, use);
}

/** Runs `use` with a temporary storage as a contiguous operand. */
export function withTemporary<T>(storage: KernelStorage, shape: readonly number[], use: (x: Operand) => T): T {
  try {
    return use({ storage, layout: Layout.contiguous(shape) });
  } finally {
    // The allocator may hand the block out at once: later work on it is ordered behind what `use` enqueued.
    storage.dispose();
  }
}

/** The work of a kernel that is `contiguous` where its info is null. */
export function workOf(info: number, contiguous: 'short' | 'long'): Work {
  return info === 0 ? contiguous : 'strided';
}

/** Unary operations and strided copies. */
export function applyUnary(
  device: KernelDevice,
  kernel: string,
  { ptr: inp, layout, itemBytes }: View,
  out: number,
  cost: 'short' | 'long',
): void {
  const { numDims, ptr: info } = device.info([layout]);
  const numel = layout.elemCount;
  const shape = device.shapes.elementwise(numel, itemBytes, workOf(info, cost));
  launchUnary(device, kernel, shape, { numel, numDims, info, inp, out });
}
