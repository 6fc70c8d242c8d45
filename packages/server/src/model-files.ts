/** What is known of a model's files before it is loaded. */
import { readdirSync, statSync } from 'node:fs';
import { basename, dirname, join, resolve } from 'node:path';
import { findModel } from '@x/engine';

/** Whether a model lies in the Hugging Face hub, such as `hf:org/repo:Q4_K_M`. */
export function isOfHub(path: string): boolean {
  return path.startsWith('hf:');
}

/** The last part of a path, without `.gguf` and the like; of the hub, all after `hf:`. */
export function nameOf(path: string): string {
  if (isOfHub(path)) return path.slice(3);
  return basename(resolve(path)).replace(/\.(gguf|safetensors)$/i, '');
}

/** Bytes of the weights, of all files that they are in. @throws FileFormatError FILE_NOT_FOUND */
export function bytesOf(path: string): number {
  const files = findModel(path);
  const weights = files.kind === 'gguf' ? partsOf(files.path) : files.weights.flatMap(shardsOf);
  return weights.reduce((sum, file) => sum + statSync(file).size, 0);
}

/** The files of a split GGUF model. */
function partsOf(path: string): string[] {
  const [, model, parts] = /^(.*-)\d{5}(-of-\d{5}\.gguf)$/.exec(basename(path)) ?? [];
  if (model === undefined) return [path];
  return beside(path, (name) => name.startsWith(model) && name.endsWith(parts));
}

/** The files that an index names are those beside it. */
function shardsOf(path: string): string[] {
  return path.endsWith('.index.json') ? beside(path, (name) => name.endsWith('.safetensors')) : [path];
}

function beside(path: string, isPart: (name: string) => boolean): string[] {
  const directory = dirname(path);
  return readdirSync(directory)
    .filter(isPart)
    .map((name) => join(directory, name));
}
