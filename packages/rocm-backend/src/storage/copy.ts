/** Copies between buffers of one device, fills, and contiguous operands for kernels that need them. */
import { type Copy2d, Layout, roundScalar, sizeInBytes } from '@x/core';
import { launchConstSet, launchCopy2d, launchStridedCopy } from '../kernels';
import { Copy, run } from '../ops';
import type { RocmStorage } from './index';

/** A contiguous view is one driver copy; anything else is the strided copy kernel. */
export function copy(src: RocmStorage, layout: Layout, out?: { storage: RocmStorage; layout: Layout }): RocmStorage {
  const { device, dtype } = src;
  const size = sizeInBytes(dtype);
  const fill = (to: number) => {
    const from = src.operand(layout);
    if (layout.isContiguous()) device.hip.memcpyDtoD(to, from.ptr, layout.elemCount * size);
    else launchStridedCopy(device, dtype, from, to);
  };
  return run(device, dtype, layout.elemCount, fill, out);
}

export function copy2d(src: RocmStorage, dst: RocmStorage, copy: Copy2d): void {
  const { d1, d2, srcStride, dstStride, srcOffset, dstOffset } = copy;
  if (d1 === 0 || d2 === 0) return;
  const size = sizeInBytes(src.dtype);
  const from = src.ptr + srcOffset * size;
  const to = dst.ptr + dstOffset * size;
  if (d1 === 1 || (srcStride === d2 && dstStride === d2)) src.device.hip.memcpyDtoD(to, from, d1 * d2 * size);
  else if (Math.max(d2, srcStride, dstStride) <= MAX_U32) {
    for (let row = 0; row < d1; row += MAX_U32) {
      const rows = Math.min(MAX_U32, d1 - row);
      const [at, into] = [from + row * srcStride * size, to + row * dstStride * size];
      launchCopy2d(src.device, src.dtype, at, into, rows, d2, srcStride, dstStride);
    }
  } else {
    // Few rows, since they lie so far apart.
    for (let row = 0; row < d1; row++) {
      src.device.hip.memcpyDtoD(to + row * dstStride * size, from + row * srcStride * size, d2 * size);
    }
  }
}

/** The largest size that candle's copy2d kernel takes. */
const MAX_U32 = 2 ** 32 - 1;

export function constSet(storage: RocmStorage, value: number | bigint, layout: Layout): void {
  if (layout.elemCount > 0)
    launchConstSet(storage.device, storage.dtype, roundScalar(storage.dtype, value), storage.operand(layout));
}

/** Runs `use` with a contiguous form of a view, copying only when the view is not contiguous. */
export function withContiguous<T>(
  storage: RocmStorage,
  layout: Layout,
  use: (storage: RocmStorage, layout: Layout) => T,
): T {
  if (layout.isContiguous()) return use(storage, layout);
  const copy = new Copy().map(storage, layout);
  try {
    return use(copy, Layout.contiguous(layout.shape));
  } finally {
    // The allocator may hand the block out at once: later work on it is ordered behind what `use` enqueued.
    copy.dispose();
  }
}
