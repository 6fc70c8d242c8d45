/** Which files make a model: a GGUF file, or the weights of a Hugging Face directory. */
import { existsSync, type Stats, statSync } from 'node:fs';
import { readdir } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { FileFormatError } from '@x/core';
import { type HubOptions, isHubName, type PullProgress, pull } from '@x/hub';
import { callback, type OptionRule } from './options';

/** Where a model comes from when its name is one of the hub's. */
export interface HubSource {
  /** The hub, its token, the cache, and whether to go without the network; default: as in the environment (`@x/hub`). */
  hub?: Omit<HubOptions, 'signal'>;
  /** Called while a model is downloaded. */
  onDownload?: (progress: PullProgress) => void;
}

export const HUB_SOURCE = {
  hub: [(value) => typeof value === 'object' && value !== null, 'an object such as { offline: true }'],
  onDownload: callback,
} satisfies Record<keyof HubSource, OptionRule>;

/**
 * A path as it is; a model of the hub (`hf:org/repo:Q4_K_M`) by its place in the cache, where it is downloaded to when it is
 * not there. @throws HubError
 */
export async function modelPath(
  model: string,
  { hub, onDownload, signal }: HubSource & { signal?: AbortSignal },
): Promise<string> {
  if (!isHubName(model)) return model;
  return (await pull(model, { ...hub, update: false, signal, onProgress: onDownload })).path;
}

export type ModelFiles = { kind: 'gguf'; path: string } | { kind: 'checkpoint'; directory: string; weights: string[] };

/** @param path a .gguf file, a directory, or a file of weights in one @throws FileFormatError */
export async function findModel(path: string): Promise<ModelFiles> {
  let stats: Stats;
  try {
    stats = statSync(path);
  } catch (cause) {
    const missing = (cause as NodeJS.ErrnoException).code === 'ENOENT';
    throw new FileFormatError(
      missing ? 'FILE_NOT_FOUND' : 'FILE_UNREADABLE',
      `${path}: ${missing ? 'there is no such file or directory' : (cause as Error).message}. Give a .gguf file, or a directory with config.json, tokenizer.json and *.safetensors.`,
      { path, cause },
    );
  }
  if (stats.isDirectory()) return { kind: 'checkpoint', directory: path, weights: await weightFiles(path) };
  if (path.endsWith('.safetensors') || path.endsWith('.safetensors.index.json')) {
    return { kind: 'checkpoint', directory: dirname(path), weights: [path] };
  }
  if (stats.isFile() && path.endsWith('.json')) {
    throw new FileFormatError(
      'FILE_INVALID',
      `${path}: it holds no weights. Give the directory that it lies in, ${dirname(path)}.`,
      { path },
    );
  }
  // Whatever it is called: GgufFile says what is wrong when it is none.
  return { kind: 'gguf', path };
}

/** Tokenizers of other kinds, by their files. */
const OTHER_TOKENIZERS = [['tokenizer.model'], ['vocab.json', 'merges.txt'], ['vocab.txt']];

/** The path of a directory's tokenizer.json. @throws FileFormatError for a directory with a tokenizer of another kind */
export function tokenizerFile(directory: string): string {
  const path = join(directory, 'tokenizer.json');
  const other = OTHER_TOKENIZERS.find((names) => names.every((name) => existsSync(join(directory, name))));
  if (existsSync(path) || !other) return path;
  throw new FileFormatError(
    'FILE_NOT_FOUND',
    `${path}: there is no such file, but ${other.join(' and ')}, of which transformers makes it: AutoTokenizer.from_pretrained(directory).save_pretrained(directory).`,
    { path },
  );
}

async function weightFiles(directory: string): Promise<string[]> {
  const names = await readdir(directory);
  if (names.includes('adapter_config.json') && !names.includes('config.json'))
    throw new FileFormatError(
      'FILE_NOT_FOUND',
      `${directory}: it holds an adapter, which changes a model and is none. Load the model, and give this directory to loadModel's adapters or to loadAdapter.`,
      { path: directory },
    );
  // In the order of transformers: an index beside it is of other weights, or of the same.
  for (const name of ['model.safetensors', 'model.safetensors.index.json'])
    if (names.includes(name)) return [join(directory, name)];
  const found = names.filter((name) => name.endsWith('.safetensors')).sort();
  if (found.length > 0) return found.map((name) => join(directory, name));
  const gguf = names.filter((name) => name.endsWith('.gguf'));
  const hint =
    gguf.length > 0 ? ` It holds GGUF files: give the path of one, such as ${join(directory, gguf[0])}.` : '';
  throw new FileFormatError(
    'FILE_NOT_FOUND',
    `${directory}: there are no *.safetensors files.${hint} Download the model's weights into it.`,
    { path: directory },
  );
}
