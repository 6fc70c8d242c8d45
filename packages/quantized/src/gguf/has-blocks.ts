/** Files whose tensors are read as blocks, by what they can do: those of another copy of this package have it too. */
import { elemCount, isBlockType } from '@x/core';
import type { TensorReader } from '@x/core/files';
import type { TensorFile } from './tensor-file';

export type { TensorFile };

/** Whether a file is a GGUF or GGML file, whose tensors are read as they are stored; one without any tensor in blocks too. */
export function hasBlocks(file: TensorReader): file is TensorFile {
  return typeof (file as Partial<TensorFile>).tensorChunks === 'function';
}

/** Whether a file has weights in blocks: of fewer bits than numbers. */
export function holdsBlocks(file: TensorReader): boolean {
  return hasBlocks(file) && [...file.tensors.values()].some(({ type }) => isBlockType(type));
}

/** Whether the matrices of a file are in blocks or in numbers of 16 bits and fewer: most of their elements. */
export function holdsNarrow(file: TensorReader): boolean {
  const matrices = file.names.map((name) => file.info(name)).filter(({ shape }) => shape.length > 1);
  const elements = matrices.reduce((sum, { shape }) => sum + elemCount(shape), 0);
  return matrices.reduce((sum, { byteLength }) => sum + byteLength, 0) < 3 * elements;
}
