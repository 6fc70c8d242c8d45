/** Dtype conversion. */
import type { DType, Layout } from '@x/core';
import { Cast, Copy } from '../ops';
import type { RocmStorage } from './index';

export function toDtype(storage: RocmStorage, layout: Layout, dtype: DType): RocmStorage {
  return dtype === storage.dtype ? new Copy().map(storage, layout) : new Cast(dtype).map(storage, layout);
}
