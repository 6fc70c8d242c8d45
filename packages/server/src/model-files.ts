/** What is known of a model's files before it is loaded. */
import { statSync } from 'node:fs';
import { basename, resolve } from 'node:path';
import { findModel, hubName, weightPaths } from '@x/engine';

/** The last part of a path, without `.gguf` and the like; of the hub, all after `hf:`. */
export function nameOf(path: string): string {
  return hubName(path) ?? basename(resolve(path)).replace(/\.(gguf|safetensors)$/i, '');
}

/** Bytes of the weights, of all files that they are in. @throws FileFormatError FILE_NOT_FOUND */
export function bytesOf(path: string): number {
  return weightPaths(findModel(path)).reduce((sum, file) => sum + statSync(file).size, 0);
}
