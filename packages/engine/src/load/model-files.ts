/** Which files make a model: a GGUF file, or the weights of a Hugging Face directory. */
import { existsSync, readdirSync, type Stats, statSync } from 'node:fs';
import { basename, dirname, join } from 'node:path';
import { FileFormatError, kinds } from '@x/core';
import { readJsonFile } from '@x/core/files';
import { formatName, type HubOptions, isHubName, type PullProgress, parseName, pull } from '@x/hub';

/** Where a model comes from when its name is one of the hub's. */
export interface HubSource {
  /** The hub, its token, the cache, and whether to go without the network; default: as in the environment (`@x/hub`). */
  hub?: Omit<HubOptions, 'signal'>;
  /** Called while a model is downloaded. */
  onDownload?: (progress: PullProgress) => void;
}

export const HUB_SOURCE: Record<keyof HubSource, kinds.Kind> = {
  hub: kinds.kind(kinds.isObject, 'give an object such as { offline: true }'),
  onDownload: kinds.FUNCTION,
};

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

/** A model of the hub without `hf:` or `hf.co/`: `org/repo:Q4_K_M`; undefined for a path. @throws HubError INVALID_NAME */
export function hubName(model: string): string | undefined {
  return isHubName(model) ? formatName(parseName(model)).slice('hf:'.length) : undefined;
}

/** What {@link findModel} finds. */
export type ModelFiles = { kind: 'gguf'; path: string } | { kind: 'checkpoint'; directory: string; weights: string[] };

/**
 * Which files a model is read from.
 * @param path a .gguf file, a directory of safetensors files or of one model in GGUF, or a file of weights in one
 * @throws FileFormatError FILE_NOT_FOUND where there is none, or several models in GGUF
 */
export function findModel(path: string): ModelFiles {
  kinds.check('findModel', 'path', path, kinds.STRING);
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
  if (stats.isDirectory()) return modelIn(path);
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

/** All files that the weights are in: every part of a split GGUF model, the shards that an index names. */
export function weightPaths(files: ModelFiles): string[] {
  return files.kind === 'gguf' ? partsOf(files.path) : files.weights.flatMap(shardsOf);
}

function partsOf(path: string): string[] {
  const [, model, parts] = /^(.*-)\d{5}(-of-\d{5}\.gguf)$/.exec(basename(path)) ?? [];
  if (model === undefined) return [path];
  const names = readdirSync(dirname(path)).filter((name) => name.startsWith(model) && name.endsWith(parts));
  return names.sort().map((name) => join(dirname(path), name));
}

function shardsOf(path: string): string[] {
  if (!path.endsWith('.index.json')) return [path];
  const index = readJsonFile(path) as { weight_map?: Record<string, string> } | null;
  return [...new Set(Object.values(index?.weight_map ?? {}))].map((name) => join(dirname(path), name));
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

function modelIn(directory: string): ModelFiles {
  const names = readdirSync(directory).sort();
  if (names.includes('adapter_config.json') && !names.includes('config.json'))
    throw new FileFormatError(
      'FILE_NOT_FOUND',
      `${directory}: it holds an adapter, which changes a model and is none. Load the model, and give this directory to loadModel's adapters or to loadAdapter.`,
      { path: directory },
    );
  const weights = weightFiles(names);
  if (weights.length > 0)
    return { kind: 'checkpoint', directory, weights: weights.map((name) => join(directory, name)) };
  const [first, ...others] = ggufModels(names).map((name) => join(directory, name));
  if (first !== undefined && others.length === 0) return { kind: 'gguf', path: first };
  const why =
    first === undefined ? 'there are no *.safetensors files' : `there are ${others.length + 1} models in GGUF`;
  const remedy =
    first === undefined ? "Download the model's weights into it" : `Give one of them: ${[first, ...others].join(', ')}`;
  throw new FileFormatError('FILE_NOT_FOUND', `${directory}: ${why}. ${remedy}.`, { path: directory });
}

function weightFiles(names: readonly string[]): string[] {
  // In the order of transformers: an index beside it is of other weights, or of the same.
  for (const name of ['model.safetensors', 'model.safetensors.index.json']) if (names.includes(name)) return [name];
  return names.filter((name) => name.endsWith('.safetensors'));
}

/** The first part of each; what an image goes through is no model by itself. */
function ggufModels(names: readonly string[]): string[] {
  const models = new Map<string, string>();
  for (const name of names) {
    const model = name.replace(/(-\d{5}-of-\d{5})?\.gguf$/, '');
    if (model !== name && !model.startsWith('mmproj') && !models.has(model)) models.set(model, name);
  }
  return [...models.values()];
}
