/**
 * Selecting, gathering, scattering and adding by index. candle's kernels want contiguous operands that agree outside the dim,
 * and take the largest value of an id's type for none; where that does not fit, ids are widened or kernels of ours used.
 */
import { type DType, type IdRange, Layout } from '@x/core';
import { launchGatherView, launchScatterView } from '../indexing-kernels';
import { splitAt } from '../kernels';
import { Cast, Copy, IndexAdd, indexDtype, run, Scatter, Select } from '../ops';
import { withContiguous } from './copy';
import type { RocmStorage } from './index';

/** The largest value of each type of ids, and a type in which it is an ordinary one. */
const LARGEST: Partial<Record<DType, { id: number; wider: DType }>> = {
  u8: { id: 255, wider: 'u32' },
  i16: { id: 32767, wider: 'i32' },
  i32: { id: 2 ** 31 - 1, wider: 'i64' },
  u32: { id: 2 ** 32 - 1, wider: 'i64' },
};

/** Whether the ids' largest value is a position in a dim of this size. */
function hasLargest(ids: RocmStorage, size: number): boolean {
  const largest = LARGEST[ids.dtype];
  return largest !== undefined && size > largest.id;
}

/** Runs `use` with ids whose largest value is no position. */
function withWidened(
  ids: RocmStorage,
  layout: Layout,
  size: number,
  use: (ids: RocmStorage, layout: Layout) => RocmStorage,
): RocmStorage {
  if (!hasLargest(ids, size)) return use(ids, layout);
  const wide = new Cast(LARGEST[ids.dtype]!.wider).map(ids, layout);
  try {
    return use(wide, Layout.contiguous(layout.shape));
  } finally {
    wide.dispose();
  }
}

export function checkIds(op: string, ids: RocmStorage, layout: Layout, range: IdRange): void {
  if (layout.elemCount > 0) ids.device.idReport?.check(op, indexDtype(ids), ids.operand(layout), range);
}

export function indexSelect(
  src: RocmStorage,
  layout: Layout,
  ids: RocmStorage,
  idsLayout: Layout,
  dim: number,
): RocmStorage {
  return withContiguous(src, layout, (from, fromLayout) =>
    withWidened(ids, idsLayout, layout.shape[dim], (indices, indicesLayout) =>
      new Select('is', dim).map(from, fromLayout, indices, indicesLayout),
    ),
  );
}

export function gather(
  src: RocmStorage,
  layout: Layout,
  ids: RocmStorage,
  idsLayout: Layout,
  dim: number,
): RocmStorage {
  const size = layout.shape[dim];
  const part = layout.narrowTo(withSize(idsLayout.shape, dim, size));
  if (part.isContiguous() && idsLayout.isContiguous() && !hasLargest(ids, size))
    return new Select('gather', dim).map(src, part, ids, idsLayout);
  return run(src.device, src.dtype, idsLayout.elemCount, (out) => {
    const base = new Layout(idsLayout.shape, withSize(layout.strides, dim, 0), layout.startOffset);
    const [list, from] = [ids.operand(idsLayout), src.operand(base)];
    launchGatherView(src.device, indexDtype(ids), list, from, out, size, layout.strides[dim]);
  });
}

export function indexAdd(
  self: RocmStorage,
  layout: Layout,
  ids: RocmStorage,
  idsLayout: Layout,
  src: RocmStorage,
  srcLayout: Layout,
  dim: number,
): RocmStorage {
  // The accumulator is a fresh contiguous copy: it has its own layout, never self's.
  const out = new Copy().map(self, layout);
  const outLayout = Layout.contiguous(layout.shape);
  const op = new IndexAdd(splitAt(srcLayout.shape, dim), layout.shape[dim]);
  return withWidened(ids, idsLayout, layout.shape[dim], (wide, wideLayout) =>
    withContiguous(wide, wideLayout, (indices, indicesLayout) =>
      withContiguous(src, srcLayout, (from, fromLayout) => {
        op.map(out, outLayout, indices, indicesLayout, from, fromLayout);
        return out;
      }),
    ),
  );
}

export function scatter(
  kind: 's' | 'sa',
  dst: RocmStorage,
  layout: Layout,
  ids: RocmStorage,
  idsLayout: Layout,
  src: RocmStorage,
  srcLayout: Layout,
  dim: number,
): void {
  const size = layout.shape[dim];
  const part = layout.narrowTo(withSize(idsLayout.shape, dim, size));
  if ([part, idsLayout, srcLayout].every((each) => each.isContiguous()) && !hasLargest(ids, size)) {
    const op = new Scatter(kind, splitAt(srcLayout.shape, dim), size);
    op.map(dst, part, ids, idsLayout, src, srcLayout);
    return;
  }
  if (idsLayout.elemCount === 0) return;
  const steps = {
    ids: idsLayout.shape[dim],
    dst: size,
    idsStep: idsLayout.strides[dim],
    srcStep: srcLayout.strides[dim],
    dstStep: layout.strides[dim],
  };
  launchScatterView(
    dst.device,
    kind,
    indexDtype(ids),
    dst.dtype,
    ids.operand(without(idsLayout, dim)),
    src.operand(without(srcLayout, dim)),
    dst.operand(without(part, dim)),
    steps,
  );
}

function withSize(sizes: readonly number[], dim: number, size: number): number[] {
  return sizes.map((other, d) => (d === dim ? size : other));
}

/** The layout of the elements at place 0 of a dim. */
function without(layout: Layout, dim: number): Layout {
  const others = (values: readonly number[]) => values.filter((_, d) => d !== dim);
  return new Layout(others(layout.shape), others(layout.strides), layout.startOffset);
}
