/** Sorting on the host: the rows are read and their order is written back, so it waits for the device. */
import type { BackendStorage } from '../backend';
import { JsDevice } from '../js/device';
import { argSortLastDim as sortOnHost } from '../js/sort';
import { Layout } from '../layout';
import type { Tensor } from '../tensor';
import { adopt } from '../tensor/base';
import { compose } from './compose';

export function argSortLastDim(x: Tensor, descending: boolean): BackendStorage {
  return compose(() => order(x, descending));
}

export function sortLastDim(x: Tensor, descending: boolean): { values: BackendStorage; positions: BackendStorage } {
  const positions = argSortLastDim(x, descending);
  const ids = { storage: positions, layout: Layout.contiguous(x.shape) };
  return { values: x.device.backend.ops.gather(x.storageAndLayout(), ids, x.rank - 1), positions };
}

export function topkLastDim(x: Tensor, k: number, descending: boolean): BackendStorage {
  return compose(() => order(x, descending).narrow(-1, 0, k));
}

function order(x: Tensor, descending: boolean): Tensor {
  const host = new JsDevice();
  const { storage: rows, layout } = x.contiguous().storageAndLayout();
  // The backend itself says whether it can be read: one without graphs can be while a function is captured.
  const bytes = new Uint8Array(rows.toHostSync(layout.startOffset, layout.elemCount));
  const storage = host.fromHost(bytes, x.dtype);
  const sorted = sortOnHost({ storage, layout: Layout.contiguous(x.shape) }, descending);
  return adopt(x, x.device.backend.fromHost(new Uint8Array(sorted.toHostSync()), 'u32'), x.shape);
}
