/** Launches of single kernels by tests. */
import type { DType } from '@x/core';
import type { RocmDevice, RocmStorage } from '../src/index';

/** Launches a kernel that fills `count` elements and gives their bytes. */
export function launchedOn(backend: RocmDevice) {
  return (dtype: DType, count: number, launch: (out: RocmStorage) => void): ArrayBuffer => {
    const out = backend.zeros(count, dtype);
    launch(out);
    const bytes = out.toHostSync();
    out.dispose();
    return bytes;
  };
}
