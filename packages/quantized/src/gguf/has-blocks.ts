/** Files whose tensors are read as blocks, by what they can do: those of another copy of this package have it too. */
import type { TensorReader } from '@x/core/files';
import type { TensorFile } from './tensor-file';

export type { TensorFile };

export function hasBlocks(file: TensorReader): file is TensorFile {
  return typeof (file as Partial<TensorFile>).tensorChunks === 'function';
}
