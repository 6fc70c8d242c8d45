/**
 * Selecting, gathering, scattering and adding by index. candle's kernels want contiguous operands that agree outside the dim,
 * and take the largest value of an id's type for none; where that does not fit, ids are widened or kernels of ours used.
 */
import { type DType, type IdRange, type IndexingOps, Layout, type Operand } from '@x/core';
import type { KernelDevice } from '../device';
import { kernelName } from '../kernel-name';
import {
  launchGather,
  launchGatherView,
  launchIndexAdd,
  launchIndexSelect,
  launchScatter,
  launchScatterView,
} from '../launchers/indexing';
import type { KernelStorage } from '../storage';
import { denseCopy, withContiguous, withTemporary } from './copy';
import { cast } from './elementwise';
import { filled, indexDtype, keptIfFilled } from './result';

/** The largest value of each type of ids, and a type in which it is an ordinary one. */
const LARGEST: Partial<Record<DType, { id: number; wider: DType }>> = {
  u8: { id: 255, wider: 'u32' },
  i16: { id: 32767, wider: 'i32' },
  i32: { id: 2 ** 31 - 1, wider: 'i64' },
  u32: { id: 2 ** 32 - 1, wider: 'i64' },
};

/** How kernels that only move values name them: by size. */
const BITS: Record<number, string> = { 1: 'b8', 2: 'b16', 4: 'b32', 8: 'b64' };

export function indexingOps(device: KernelDevice): IndexingOps {
  return {
    checkIds(op: string, ids: Operand, range: IdRange): void {
      if (ids.layout.elemCount === 0) return;
      device.idReport?.check(op, indexDtype(device, ids), device.view(ids), range);
    },

    indexSelect(x: Operand, ids: Operand, dim: number): KernelStorage {
      return withContiguous(device, x, (from) =>
        withWidened(device, ids, x.layout.shape[dim], (list) => {
          const { left, dim: srcDimSize, right } = splitAt(x.layout.shape, dim);
          const idsDimSize = list.layout.elemCount;
          const numel = left * idsDimSize * right;
          const kernel = byIds(device, 'is', list, x.storage.dtype);
          return filled(device, x.storage.dtype, numel, (out) => {
            const { ptr: inp, itemBytes } = device.view(from);
            const { numDims, ptr: info } = device.info([list.layout]);
            const shape = device.shapes.elementwise(numel, itemBytes, 'strided');
            launchIndexSelect(device, kernel, shape, {
              numel,
              numDims,
              info,
              ids: device.view(list).ptr,
              inp,
              out,
              leftSize: left,
              srcDimSize,
              idsDimSize,
              rightSize: right,
            });
          });
        }),
      );
    },

    gather(x: Operand, ids: Operand, dim: number): KernelStorage {
      const { dtype } = x.storage;
      const srcDimSize = x.layout.shape[dim];
      const part = x.layout.narrowTo(withSize(ids.layout.shape, dim, srcDimSize));
      const numel = ids.layout.elemCount;
      return filled(device, dtype, numel, (out) => {
        const list = device.view(ids);
        const shape = device.shapes.elementwise(numel);
        if (part.isContiguous() && ids.layout.isContiguous() && !hasLargest(ids, srcDimSize)) {
          const inp = device.view({ storage: x.storage, layout: part }).ptr;
          const { left: leftSize, right: rightSize } = splitAt(part.shape, dim);
          launchGather(device, byIds(device, 'gather', ids, dtype), shape, {
            numel,
            ids: list.ptr,
            inp,
            out,
            leftSize,
            srcDimSize,
            idsDimSize: ids.layout.shape[dim],
            rightSize,
          });
          return;
        }
        const base = new Layout(ids.layout.shape, withSize(x.layout.strides, dim, 0), x.layout.startOffset);
        const from = device.view({ storage: x.storage, layout: base });
        const { numDims, ptr: info } = device.info([list.layout, base]);
        const kernel = byIds(device, 'gather_view', ids, BITS[from.itemBytes]);
        const [inp, srcStep] = [from.ptr, x.layout.strides[dim]];
        launchGatherView(device, kernel, shape, { numel, numDims, info, ids: list.ptr, inp, out, srcDimSize, srcStep });
      });
    },

    /** A thread a column, which loops over the ids. */
    indexAdd(x: Operand, ids: Operand, src: Operand, dim: number): KernelStorage {
      // The accumulator is a fresh contiguous copy: it has its own layout, never x's.
      const result = denseCopy(device, x);
      const dstDimSize = x.layout.shape[dim];
      const { left: leftSize, dim: srcDimSize, right: rightSize } = splitAt(src.layout.shape, dim);
      if (src.layout.elemCount === 0) return result;
      return keptIfFilled(result, (out) =>
        withWidened(device, ids, dstDimSize, (wide) =>
          withContiguous(device, wide, (list) =>
            withContiguous(device, src, (from) => {
              const kernel = byIds(device, 'ia', list, x.storage.dtype);
              launchIndexAdd(device, kernel, device.shapes.perItem(leftSize * rightSize), {
                ids: device.view(list).ptr,
                idsDimSize: srcDimSize,
                inp: device.view(from).ptr,
                out,
                leftSize,
                srcDimSize,
                dstDimSize,
                rightSize,
              });
            }),
          ),
        ),
      );
    },

    scatterSet: (dst, ids, src, dim) => scatter(device, 's', dst, ids, src, dim),
    scatterAddSet: (dst, ids, src, dim) => scatter(device, 'sa', dst, ids, src, dim),
  };
}

function scatter(device: KernelDevice, op: 's' | 'sa', dst: Operand, ids: Operand, src: Operand, dim: number): void {
  if (src.layout.elemCount === 0 || ids.layout.elemCount === 0) return;
  const { dtype } = dst.storage;
  const dstDimSize = dst.layout.shape[dim];
  const part = dst.layout.narrowTo(withSize(ids.layout.shape, dim, dstDimSize));
  const target = { storage: dst.storage, layout: part };
  if ([target, ids, src].every(({ layout }) => layout.isContiguous()) && !hasLargest(ids, dstDimSize)) {
    const { left: leftSize, dim: srcDimSize, right: rightSize } = splitAt(src.layout.shape, dim);
    launchScatter(device, byIds(device, op, ids, dtype), device.shapes.perItem(leftSize * rightSize), {
      ids: device.view(ids).ptr,
      inp: device.view(src).ptr,
      out: device.view(target).ptr,
      leftSize,
      srcDimSize,
      dstDimSize,
      rightSize,
    });
    return;
  }
  const [list, from, to] = [ids, src, target].map((x) => device.view(without(x, dim)));
  const kernel = byIds(device, kernelName(op, 'view'), ids, op === 's' ? BITS[from.itemBytes] : dtype);
  const { numDims, ptr: info } = device.info([list.layout, from.layout, to.layout]);
  const places = list.layout.elemCount;
  launchScatterView(device, kernel, device.shapes.perItem(places), {
    places,
    numDims,
    info,
    ids: list.ptr,
    inp: from.ptr,
    out: to.ptr,
    idsDimSize: ids.layout.shape[dim],
    dstDimSize,
    idsStep: ids.layout.strides[dim],
    srcStep: src.layout.strides[dim],
    dstStep: dst.layout.strides[dim],
  });
}

/** `{family}_{ids}_{values}` */
function byIds(device: KernelDevice, family: string, ids: Operand, values: string): string {
  return kernelName(kernelName(family, indexDtype(device, ids)), values);
}

/** Whether the ids' largest value is a position in a dim of this size. */
function hasLargest({ storage }: Operand, size: number): boolean {
  const largest = LARGEST[storage.dtype];
  return largest !== undefined && size > largest.id;
}

/** Runs `use` with ids whose largest value is no position. */
function withWidened<T>(device: KernelDevice, ids: Operand, size: number, use: (ids: Operand) => T): T {
  if (!hasLargest(ids, size)) return use(ids);
  const { dtype } = ids.storage;
  const { wider } = LARGEST[dtype]!;
  const fill = (out: number) => cast(device, dtype, wider, device.view(ids), out);
  return withTemporary(filled(device, wider, ids.layout.elemCount, fill), ids.layout.shape, use);
}

/** A shape cut at one dim: elements left of it, its size, elements right of it. */
function splitAt(shape: readonly number[], dim: number): { left: number; dim: number; right: number } {
  const product = (dims: readonly number[]) => dims.reduce((a, b) => a * b, 1);
  return { left: product(shape.slice(0, dim)), dim: shape[dim], right: product(shape.slice(dim + 1)) };
}

function withSize(sizes: readonly number[], dim: number, size: number): number[] {
  return sizes.map((other, d) => (d === dim ? size : other));
}

/** The elements at place 0 of a dim. */
function without({ storage, layout }: Operand, dim: number): Operand {
  const others = (values: readonly number[]) => values.filter((_, d) => d !== dim);
  return { storage, layout: new Layout(others(layout.shape), others(layout.strides), layout.startOffset) };
}
