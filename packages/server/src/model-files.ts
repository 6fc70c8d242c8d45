/** What is known of a model's files before it is loaded. */
import { readdirSync, statSync } from 'node:fs';
import { basename, dirname, join, resolve } from 'node:path';
import { FileFormatError } from '@x/core';

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
  const isIndex = path.endsWith('.safetensors.index.json');
  const [, model, parts] = /^(.*-)\d{5}(-of-\d{5}\.gguf)$/.exec(basename(path)) ?? [];
  try {
    const stats = statSync(path);
    if (!stats.isDirectory() && !isIndex && model === undefined) return stats.size;
    const directory = stats.isDirectory() ? path : dirname(path);
    const isPart = (name: string) =>
      model === undefined ? /\.(safetensors|gguf)$/.test(name) : name.startsWith(model) && name.endsWith(parts);
    const files = readdirSync(directory).filter(isPart);
    return files.reduce((sum, name) => sum + statSync(join(directory, name)).size, 0);
  } catch (cause) {
    const missing = (cause as NodeJS.ErrnoException).code === 'ENOENT';
    throw new FileFormatError(
      missing ? 'FILE_NOT_FOUND' : 'FILE_UNREADABLE',
      `${path}: ${missing ? 'there is no such file or directory' : (cause as Error).message}. Give a .gguf file, or a directory with config.json, tokenizer.json and *.safetensors.`,
      { path, cause },
    );
  }
}
