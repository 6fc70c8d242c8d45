/**
 * Loading a model of embeddings or a reranker by path: an encoder, or a decoder whose hidden states are wanted, from a GGUF
 * file or a Hugging Face directory, as sentence-transformers lays it out or not.
 */
import { basename, join, resolve, sep } from 'node:path';
import { performance } from 'node:perf_hooks';
import { Device, type DeviceLike, kinds } from '@x/core';
import { readJsonFile, type TensorReader } from '@x/core/files';
import { type DenseDType, GgufFile } from '@x/quantized';
import {
  type DecoderConfig,
  describeConfig,
  describeEncoderConfig,
  describeEncoderGguf,
  describeGguf,
  type EncoderDescription,
  type ModelDescription,
  openSafetensors,
  type PoolingMode,
  type ProgressListener,
  Tokenizer,
  TransformersError,
  Weights,
} from '@x/transformers';
import { findModel, HUB_SOURCE, type HubSource, modelPath } from '../load/model-files';
import { checkOptions } from '../options';
import { Dense } from './dense';
import { EmbeddingModel } from './model';
import { checkpointSettings, type EmbeddingSettings, ggufSettings } from './settings';
import { decoderTexts, encoderTexts, type TextModel } from './text-model';
import { isYesNo, yesNoHead } from './yes-no';

export interface LoadEmbeddingModelOptions extends HubSource {
  /** Default: `Device.auto()`, the best one that opens. */
  device?: DeviceLike;
  /** How matrices that are not quantized lie in memory. Default: as `loadModel`'s. */
  dtype?: DenseDType;
  /** What linear layers are given; what they give, norms and sums are f32. Default `f32`. */
  activations?: DenseDType;
  /**
   * Makes q8_0 blocks of the matrices of linear layers while loading, unless they are in blocks already: some two to three times as
   * fast on CPUs with 8-bit dot products, and about 1 % off. Default: they stay as they are.
   */
  quantize?: 'q8_0';
  /** Tokens of a text at most. Default: what the model's files say, at most what it was made for. */
  maxTokens?: number;
  /** How hidden states become a vector. Default: what the model's files say, else `mean` for encoders and `last` for decoders. */
  pooling?: PoolingMode;
  /** Prompts by name, for files that hold none (GGUF); they replace those of the files. */
  prompts?: Readonly<Record<string, string>>;
  /**
   * What scores pairs in `rerank`: `yes-no` asks a language model and compares its logits of "yes" and "no" (Qwen3-Reranker), `head`
   * is a classification head of the files. Default: `yes-no` for models whose name says Qwen3-Reranker, else `head`.
   */
  reranker?: 'yes-no' | 'head';
  /** Stops loading after a piece of some MiB; the promise rejects with the signal's reason and what was loaded is given back. */
  signal?: AbortSignal;
  /** Called after each tensor with the bytes read so far and in all. */
  onProgress?: ProgressListener;
}

const POOLING: readonly PoolingMode[] = ['cls', 'last', 'mean', 'max', 'mean_sqrt_len', 'weighted_mean'];
const dense = kinds.oneOf(['f32', 'f16', 'bf16']);
const OPTIONS = {
  device: kinds.DEVICE,
  dtype: dense,
  activations: dense,
  quantize: kinds.oneOf(['q8_0']),
  maxTokens: kinds.NUMBER,
  pooling: kinds.oneOf(POOLING),
  prompts: kinds.kind(
    (value) =>
      typeof value === 'object' && value !== null && Object.values(value).every((text) => typeof text === 'string'),
    'give an object of texts',
  ),
  reranker: kinds.oneOf(['yes-no', 'head']),
  signal: kinds.SIGNAL,
  onProgress: kinds.FUNCTION,
  ...HUB_SOURCE,
} satisfies Record<keyof LoadEmbeddingModelOptions, kinds.Kind>;

/** A decoder's head for one score a text, in checkpoints of sequence classification. */
const SCORE = ['score', 'cls.output'] as const;

interface Source {
  path: string;
  file: TensorReader;
  description: EncoderDescription | ModelDescription;
  isEncoder: boolean;
  /** Whether a decoder's tokens see those in front of them only. */
  causal: boolean;
  settings: EmbeddingSettings;
  tokenizer: Tokenizer;
  /** What the model is called. */
  name: string;
}

/**
 * @param path a .gguf file (any part of a split one), a directory with config.json, tokenizer.json and safetensors files, or with
 *   one model in GGUF, a .safetensors file in one, or a model of the Hugging Face hub, as `hf:org/repo:Q4_K_M`, which is downloaded when it is not here
 * @throws as `loadModel`
 */
export async function loadEmbeddingModel(
  path: string,
  options: LoadEmbeddingModelOptions = {},
): Promise<EmbeddingModel> {
  const start = performance.now();
  checkOptions('loadEmbeddingModel', options, OPTIONS);
  options.signal?.throwIfAborted();
  const files = findModel(await modelPath(path, options));
  const device = options.device === undefined ? await Device.auto() : Device.of(options.device);
  const source = files.kind === 'gguf' ? openGguf(files.path) : await openCheckpoint(files.directory, files.weights);
  try {
    return await assemble(source, device, options, start);
  } finally {
    source.file.close();
  }
}

function openGguf(path: string): Source {
  const file = GgufFile.open(path);
  try {
    const { metadata } = file;
    const encoder = describeEncoderGguf(metadata);
    const description = encoder ?? describeGguf(metadata);
    const settings = ggufSettings(metadata);
    const causal =
      description.config.bidirectional !== true &&
      metadata.bool(`${metadata.string('general.architecture')}.attention.causal`, true);
    const tokenizer = Tokenizer.fromGguf(metadata);
    const name = metadata.has('general.name') ? metadata.string('general.name') : basename(path);
    return { path, file, description, isEncoder: encoder !== undefined, causal, settings, tokenizer, name };
  } catch (error) {
    file.close();
    throw error;
  }
}

async function openCheckpoint(directory: string, weights: string[]): Promise<Source> {
  const json = readJsonFile(join(directory, 'config.json'));
  const encoder = describeEncoderConfig(json);
  const description = encoder ?? describeConfig(json);
  const settings = checkpointSettings(directory);
  const tokenizer = await Tokenizer.fromFile(join(directory, 'tokenizer.json'));
  const file = openSafetensors(weights);
  const causal = description.config.bidirectional !== true;
  // In the cache of the hub the folder's name is a commit.
  const parts = resolve(directory).split(sep);
  const name = parts.findLast((part) => part.startsWith('models--')) ?? parts.at(-1)!;
  return { path: directory, file, description, isEncoder: encoder !== undefined, causal, settings, tokenizer, name };
}

async function assemble(
  source: Source,
  device: Device,
  options: LoadEmbeddingModelOptions,
  start: number,
): Promise<EmbeddingModel> {
  const { description, isEncoder, tokenizer } = source;
  const settings = {
    ...source.settings,
    ...(options.prompts && { prompts: options.prompts }),
    ...(asksYesNo(source, options) && { yesNo: true, labels: ['yes'], scores: 'sigmoid' as const }),
  };
  const maxTokens = tokensOf(description.config, settings, options);
  const pooling = options.pooling ? [options.pooling] : (settings.pooling ?? [isEncoder ? 'mean' : 'last']);
  const { model, behind } = await build(source, device, maxTokens, options, settings.yesNo === true);
  const made: { dispose(): void }[] = [model, ...behind];
  try {
    const layers: Dense[] = [...behind];
    let width = behind.at(-1)?.outFeatures ?? description.config.hiddenSize * pooling.length;
    for (const one of settings.dense) {
      if (one.inFeatures !== width) {
        throw new TransformersError(
          'BAD_CONFIG',
          `${one.directory}: the module takes ${one.inFeatures} numbers, and what is in front of it gives ${width}; download it again.`,
        );
      }
      layers.push(await Dense.load(one, device));
      made.push(layers[layers.length - 1]);
      width = one.outFeatures;
    }
    await device.synchronize();
    options.signal?.throwIfAborted();
    const loadMs = performance.now() - start;
    return new EmbeddingModel({ model, tokenizer, settings, pooling, dense: layers, maxTokens, loadMs });
  } catch (error) {
    for (const thing of made) thing.dispose();
    throw error;
  }
}

async function build(
  { description, isEncoder, file, causal, tokenizer }: Source,
  device: Device,
  length: number,
  { dtype, activations, quantize, signal, onProgress }: LoadEmbeddingModelOptions,
  yesNo: boolean,
): Promise<{ model: TextModel; behind: Dense[] }> {
  const options = { device, dtype, activations, quantize, signal, onProgress };
  if (isEncoder) {
    const { architecture, config } = description as EncoderDescription;
    const encoder = await architecture.build(new Weights(file, { ...options, layout: architecture }), config, length);
    return { model: encoderTexts(encoder), behind: [] };
  }
  const { architecture, config } = description as ModelDescription;
  const layout = { ...architecture, names: [...architecture.names, SCORE] };
  const weights = new Weights(file, { ...options, layout });
  const model = await architecture.build(weights, config, length);
  try {
    if (yesNo) {
      const layer = await yesNoHead(weights, config, tokenizer);
      return { model: decoderTexts(model, causal, { layer, labels: 1 }), behind: [] };
    }
    const labels = weights.shapeOf('cls.output.weight')?.[0];
    const layer = labels === undefined ? undefined : await weights.linear('cls.output', labels, config.hiddenSize);
    const texts = decoderTexts(model, causal, layer && { layer, labels: labels! });
    return { model: texts, behind: await denseOf(weights, config.hiddenSize) };
  } catch (error) {
    model.dispose();
    throw error;
  }
}

/** Whether pairs are put as a question. @throws TransformersError INVALID_OPTION for an encoder */
function asksYesNo({ isEncoder, name }: Source, { reranker }: LoadEmbeddingModelOptions): boolean {
  if (isEncoder && reranker === 'yes-no')
    throw new TransformersError(
      'INVALID_OPTION',
      'reranker is "yes-no", which asks a language model, and the model is an encoder; leave it out.',
    );
  return !isEncoder && (reranker === undefined ? isYesNo(name) : reranker === 'yes-no');
}

/** EmbeddingGemma's products behind pooling, which its GGUF files hold. */
async function denseOf(weights: Weights, hiddenSize: number): Promise<Dense[]> {
  const made: Dense[] = [];
  let width = hiddenSize;
  try {
    for (const name of ['dense_2', 'dense_3']) {
      const shape = weights.shapeOf(`${name}.weight`);
      if (!shape) continue;
      made.push(new Dense(await weights.linear(name, shape[0], width), undefined, width, shape[0]));
      width = shape[0];
    }
    return made;
  } catch (error) {
    for (const dense of made) dense.dispose();
    throw error;
  }
}

function tokensOf(
  { contextLength }: DecoderConfig,
  settings: EmbeddingSettings,
  { maxTokens }: LoadEmbeddingModelOptions,
): number {
  if (maxTokens === undefined) return Math.min(contextLength, settings.maxTokens ?? contextLength);
  if (Number.isInteger(maxTokens) && maxTokens >= 1 && maxTokens <= contextLength) return maxTokens;
  throw new TransformersError(
    'INVALID_OPTION',
    `maxTokens is ${maxTokens}; give a whole number from 1 to ${contextLength}, the tokens that the model was made for.`,
  );
}
