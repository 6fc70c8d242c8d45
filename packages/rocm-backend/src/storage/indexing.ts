/** Selecting, gathering, scattering and adding by index. The kernels want contiguous operands. */
import { Layout } from '@x/core';
import { splitAt } from '../kernels';
import { Copy, IndexAdd, Scatter, Select } from '../ops';
import { withContiguous } from './copy';
import type { RocmStorage } from './index';

export function indexSelect(
  src: RocmStorage,
  layout: Layout,
  ids: RocmStorage,
  idsLayout: Layout,
  dim: number,
): RocmStorage {
  return withContiguous(src, layout, (from, fromLayout) => new Select('is', dim).map(from, fromLayout, ids, idsLayout));
}

export function gather(
  src: RocmStorage,
  layout: Layout,
  ids: RocmStorage,
  idsLayout: Layout,
  dim: number,
): RocmStorage {
  return withContiguous(src, layout, (from, fromLayout) =>
    withContiguous(ids, idsLayout, (indices, indicesLayout) =>
      new Select('gather', dim).map(from, fromLayout, indices, indicesLayout),
    ),
  );
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
  withContiguous(ids, idsLayout, (indices, indicesLayout) =>
    withContiguous(src, srcLayout, (from, fromLayout) =>
      op.map(out, outLayout, indices, indicesLayout, from, fromLayout),
    ),
  );
  return out;
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
  const op = new Scatter(kind, splitAt(srcLayout.shape, dim), layout.shape[dim]);
  withContiguous(ids, idsLayout, (indices, indicesLayout) =>
    withContiguous(src, srcLayout, (from, fromLayout) => op.map(dst, layout, indices, indicesLayout, from, fromLayout)),
  );
}
