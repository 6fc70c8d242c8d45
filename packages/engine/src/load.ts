/**
 * Loading a model by path: a GGUF file with its tokenizer inside, or a Hugging Face directory. candle leaves this to each
 * example; the rules here are those of its `quantized` and `llama` examples.
 */
import { type Stats, statSync } from 'node:fs';
import { readdir } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { performance } from 'node:perf_hooks';
import { Device, type DeviceLike, FileFormatError } from '@x/core';
import { readJsonFile, type TensorReader } from '@x/core/files';
import { type DenseDType, GgufFile, holdsBlocks } from '@x/quantized';
import {
  describeConfig,
  describeGguf,
  type ModelDescription,
  openSafetensors,
  type ProgressListener,
  Tokenizer,
  TransformersError,
  type WeightOptions,
  Weights,
} from '@x/transformers';
import { type CacheDType, defaultCacheDtype } from './kv/pool';
import { LanguageModel } from './language-model';
import { callback, checkOptions, number, type OptionRule, signal } from './options';

export interface LoadModelOptions {
  /** Default: `Device.auto()`, the best one that opens. */
  device?: DeviceLike;
  /**
   * How matrices that are not quantized lie in memory: `f16` and `bf16` take half of `f32`.
   * In a GGUF file it concerns weights whose type the device has no kernels for. Default `f32`.
   */
  dtype?: DenseDType;
  /**
   * What linear layers are given and give, `f32` by default on every device: `f16` and `bf16` halve what they read and write
   * and let matrices of the same `dtype` be multiplied on a GPU's matrix units. Products are summed in f32; norms, rotations,
   * attention, what is added up from layer to layer, and logits are f32 always. f16 ends at 65504: models whose values
   * are larger (Gemma) want bf16.
   */
  activations?: DenseDType;
  /** Stops loading after a piece of some MiB; the promise rejects with the signal's reason and what was loaded is given back. */
  signal?: AbortSignal;
  /** Called after each tensor with the bytes read so far and in all. */
  onProgress?: ProgressListener;
  /**
   * Positions that a sequence may have, prompt and generated text together. Default: what the model was made for, at most
   * 4096. More than it was made for is refused. The cache grows with what sequences hold.
   */
  maxContext?: number;
  /**
   * Of the key-value cache, whose positions take 2 · layers · kvHeads · headDim elements each. Default: `f16` on GPUs
   * for weights in blocks and for a narrow `dtype` or `activations`, otherwise `f32`.
   */
  cacheDtype?: CacheDType;
  /**
   * Positions of all sequences together at most, whole blocks of 32. When they are used up, sequences wait for one another.
   * Default: what the device's memory holds.
   */
  maxCachePositions?: number;
}

const DEFAULT_CONTEXT = 4096;

const OPTIONS = {
  device: [
    (value) => value instanceof Device || typeof value === 'string',
    'a Device or its name, such as Device.cpu() or "cpu"',
  ],
  dtype: [(value) => ['f32', 'f16', 'bf16'].includes(value as string), '"f32", "f16" or "bf16"'],
  activations: [(value) => ['f32', 'f16', 'bf16'].includes(value as string), '"f32", "f16" or "bf16"'],
  signal,
  onProgress: callback,
  maxContext: number,
  cacheDtype: [(value) => ['f32', 'f16', 'bf16'].includes(value as string), '"f32", "f16" or "bf16"'],
  maxCachePositions: [(value) => Number.isInteger(value) && (value as number) >= 1, 'a whole number of 1 or more'],
} satisfies Record<keyof LoadModelOptions, OptionRule>;

/**
 * @param path a .gguf file, a directory with config.json, tokenizer.json and safetensors files, or a .safetensors file in one
 * @throws FileFormatError for missing and damaged files (with the file's path) and types of weights that cannot be read;
 *   TransformersError UNSUPPORTED_MODEL, UNSUPPORTED_TOKENIZER, BAD_CONFIG, BAD_TOKENIZER, INVALID_OPTION
 */
export async function loadModel(path: string, options: LoadModelOptions = {}): Promise<LanguageModel> {
  const start = performance.now();
  checkOptions('loadModel', options, OPTIONS);
  options.signal?.throwIfAborted();
  const files = await find(path);
  const source = {
    device: options.device === undefined ? await Device.auto() : Device.of(options.device),
    ...pick(options),
  };
  return files.kind === 'gguf'
    ? loadGguf(files.path, source, options, start)
    : loadCheckpoint(files, source, options, start);
}

type ModelFiles = { kind: 'gguf'; path: string } | { kind: 'checkpoint'; directory: string; weights: string[] };

async function find(path: string): Promise<ModelFiles> {
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
  // Whatever it is called: GgufFile says what is wrong when it is none.
  return { kind: 'gguf', path };
}

async function weightFiles(directory: string): Promise<string[]> {
  const names = await readdir(directory);
  for (const name of ['model.safetensors.index.json', 'model.safetensors'])
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

async function loadGguf(
  path: string,
  source: Omit<WeightOptions, 'layout'>,
  options: LoadModelOptions,
  start: number,
): Promise<LanguageModel> {
  const file = GgufFile.open(path);
  try {
    const model = describeGguf(file.metadata);
    const maxContext = contextOf(model, options);
    const tokenizer = Tokenizer.fromGguf(file.metadata);
    return await assemble(file, source, model, maxContext, tokenizer, start, options);
  } finally {
    file.close();
  }
}

async function loadCheckpoint(
  { directory, weights }: { directory: string; weights: string[] },
  source: Omit<WeightOptions, 'layout'>,
  options: LoadModelOptions,
  start: number,
): Promise<LanguageModel> {
  const model = describeConfig(readJsonFile(join(directory, 'config.json')));
  const maxContext = contextOf(model, options);
  const tokenizer = await Tokenizer.fromFile(join(directory, 'tokenizer.json'));
  const file = openSafetensors(weights);
  try {
    return await assemble(file, source, model, maxContext, tokenizer, start, options);
  } finally {
    file.close();
  }
}

async function assemble(
  file: TensorReader,
  source: Omit<WeightOptions, 'layout'>,
  { architecture, config }: ModelDescription,
  maxContext: number,
  tokenizer: Tokenizer,
  start: number,
  { cacheDtype, maxCachePositions }: LoadModelOptions,
): Promise<LanguageModel> {
  const model = await architecture.build(new Weights(file, { ...source, layout: architecture }), config, maxContext);
  try {
    await source.device.synchronize();
    source.signal?.throwIfAborted();
  } catch (error) {
    model.dispose();
    throw error;
  }
  const isNarrow = [source.dtype, source.activations].some((dtype) => (dtype ?? 'f32') !== 'f32') || holdsBlocks(file);
  const dtype = cacheDtype ?? defaultCacheDtype(source.device.kind, isNarrow);
  const cache = { dtype, maxPositions: maxCachePositions };
  return new LanguageModel({ model, tokenizer, maxContext, cache, loadMs: performance.now() - start });
}

function contextOf({ config }: ModelDescription, { maxContext }: LoadModelOptions): number {
  if (maxContext === undefined) return Math.min(config.contextLength, DEFAULT_CONTEXT);
  if (Number.isInteger(maxContext) && maxContext >= 1 && maxContext <= config.contextLength) return maxContext;
  throw new TransformersError(
    'INVALID_OPTION',
    `maxContext is ${maxContext}; give a whole number from 1 to ${config.contextLength}, the positions that the model was made for.`,
  );
}

function pick({ dtype, activations, signal, onProgress }: LoadModelOptions) {
  return { dtype, activations, signal, onProgress };
}
