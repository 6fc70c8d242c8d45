/** Files whose tensors are read as blocks, by what they can do: those of another copy of this package have it too. */
import { isBlockType } from '@x/core';
import type { TensorReader } from '@x/core/files';
import type { TensorFile } from './tensor-file';

export type { TensorFile };

export function hasBlocks(file: TensorReader): file is TensorFile {
  return typeof (file as Partial<TensorFile>).tensorChunks === 'function';
}

/** Whether a file has weights in blocks: of fewer bits than numbers. */
export function holdsBlocks(file: TensorReader): boolean {
  return hasBlocks(file) && [...file.tensors.values()].some(({ type }) => isBlockType(type));
}
