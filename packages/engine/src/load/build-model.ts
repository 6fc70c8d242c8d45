/** From files to a model on a device: what every rank of a model does, the one that leads among them. */
import { join } from 'node:path';
import { CandleError, type Device, OutOfMemoryError } from '@x/core';
import { readJsonFile, ShardedSafetensors, type TensorReader } from '@x/core/files';
import { type DenseDType, GgufFile, holdsBlocks, holdsNarrow } from '@x/quantized';
import {
  type CausalModel,
  ChatTemplate,
  checkWeights,
  describeConfig,
  describeGguf,
  type LoraBase,
  type ModelDescription,
  missingHead,
  openSafetensors,
  type ProgressListener,
  Tokenizer,
  TransformersError,
  type WeightOptions,
  type WeightRead,
  Weights,
} from '@x/transformers';
import { defaultCacheDtype, multipliesNarrow } from '../kv/pool';
import { type CacheRoom, roomFor } from '../kv/room';
import { type CacheDType, checkCacheDtype } from '../kv/rows';
import { unfused } from '../unfused';
import { type ExpertOptions, hotExpertsOf } from './expert-place';
import { kvLayoutsOf, loadedTooMuch } from './load-memory';
import { findModel, tokenizerFile } from './model-files';
import { identityOf } from './model-identity';

/** Which part of each weight a rank has. */
export type Shard = NonNullable<WeightOptions['shard']>;

export interface BuildOptions {
  device: Device;
  dtype?: DenseDType | undefined;
  activations?: DenseDType | undefined;
  maxContext?: number | undefined;
  cacheDtype?: CacheDType | undefined;
  /** Whether kernels of several operations are used. Default true. */
  fused?: boolean | undefined;
  signal?: AbortSignal | undefined;
  onProgress?: ProgressListener | undefined;
  /** Of a model on several devices. */
  shard?: Shard | undefined;
  /** What the devices of a model on several have of it. Default: parts of every layer. */
  split?: Shard['split'];
  experts?: ExpertOptions['experts'] | undefined;
  hotExperts?: number | undefined;
  /** Of all sequences together, where that is bounded. */
  cachePositions?: number | undefined;
}

export interface BuiltModel {
  model: CausalModel;
  architecture: LoraBase['architecture'];
  weightReads: readonly WeightRead[];
  /** Of weights on this device. */
  weightBytes: number;
  /** What this device has left for a cache. */
  room: CacheRoom | undefined;
  /** Positions that a sequence may have. */
  maxContext: number;
  cacheDtype: CacheDType;
  /** A hash of the model's files. */
  identity: () => string;
}

/** What texts need beside the model. */
export interface ModelTexts {
  tokenizer: Tokenizer;
  /** Of the model's files; why it cannot be read, which only chats have to know. */
  template: ChatTemplate | CandleError | undefined;
}

/** A model's files, open. */
interface OpenModel {
  file: TensorReader & { close(): void };
  description: ModelDescription;
  identity: () => string;
  texts: () => Promise<ModelTexts>;
}

const DEFAULT_CONTEXT = 4096;

/**
 * @param path of a file or directory
 * @param withTexts whether the tokenizer and the template are read too, before any weight
 * @throws as `loadModel`
 */
export async function buildModel(
  path: string,
  options: BuildOptions,
  withTexts: true,
): Promise<BuiltModel & ModelTexts>;
export async function buildModel(path: string, options: BuildOptions, withTexts: false): Promise<BuiltModel>;
export async function buildModel(
  path: string,
  options: BuildOptions,
  withTexts: boolean,
): Promise<BuiltModel & Partial<ModelTexts>> {
  const opened = await openModel(path);
  const { file, description, identity } = opened;
  const { architecture, config } = description;
  const { device } = options;
  try {
    const maxContext = contextOf(description, options.maxContext);
    const texts = withTexts ? await opened.texts() : {};
    if (config.bidirectional) {
      throw new TransformersError(
        'UNSUPPORTED_MODEL',
        'The tokens of this model see those that follow: it makes vectors of texts and writes none; load it with loadEmbeddingModel.',
      );
    }
    // Before the weights, which take long; others fit all heads.
    if (options.cacheDtype === 'q8_0') checkCacheDtype(await kvLayoutsOf(file, description), 'q8_0');
    if (file instanceof GgufFile) await checkUse(file, description);
    const hotExperts = await hotExpertsOf(file, description, { ...options, maxContext });
    const weights = new Weights(file, { ...weightOptions(description, options), hotExperts });
    const head = missingHead(weights, description);
    if (head !== undefined)
      throw new TransformersError('BAD_CONFIG', `${file.path}: ${head} Download what is missing.`);
    const model = await builtOf(weights, opened, maxContext, options);
    try {
      await device.synchronize();
      options.signal?.throwIfAborted();
      const cacheDtype = cacheDtypeOf(file, model.kvLayouts, options);
      const room = roomFor(model, cacheDtype, options.shard?.size ?? 1);
      const { reads: weightReads } = weights;
      const bytes = new Map(weightReads.map((read) => [read.name, read.bytes]));
      const weightBytes = [...bytes.values()].reduce((sum, own) => sum + own, 0);
      return { model, architecture, weightReads, weightBytes, room, maxContext, cacheDtype, identity, ...texts };
    } catch (error) {
      model.dispose();
      throw error;
    }
  } finally {
    file.close();
  }
}

/** @throws TransformersError UNSUPPORTED_MODEL for a file with tensors that the model would leave out */
async function checkUse(file: GgufFile, description: ModelDescription): Promise<void> {
  const { problems, unread, model } = await checkWeights(file, description);
  model.dispose();
  // What is missing is said by the weights that ask for it.
  if (unread !== undefined && problems.length === 0)
    throw new TransformersError('UNSUPPORTED_MODEL', `${file.path}: ${unread} Convert it again, or use another model.`);
}

/** @throws OutOfMemoryError that says what would fit */
async function builtOf(
  weights: Weights,
  { file, description }: OpenModel,
  maxContext: number,
  options: BuildOptions,
): Promise<CausalModel> {
  const { device, dtype, shard, fused = true } = options;
  const freeBytes = device.availableBytes();
  try {
    const model = await description.architecture.build(weights, description.config, maxContext);
    return fused ? model : unfused(model);
  } catch (error) {
    if (!(error instanceof OutOfMemoryError)) throw error;
    const ranks = shard?.size ?? 1;
    const narrow = (layouts: CausalModel['kvLayouts']) => cacheDtypeOf(file, layouts, options);
    const attempt = { file, description, device, dtype, maxContext, ranks, freeBytes, cacheDtypeOf: narrow };
    throw await loadedTooMuch(error, attempt);
  }
}

async function openModel(path: string): Promise<OpenModel> {
  const files = findModel(path);
  if (files.kind === 'gguf') {
    const file = GgufFile.open(files.path);
    try {
      const { metadata, paths } = file;
      const description = describeGguf(metadata);
      const texts = async () => ({
        tokenizer: Tokenizer.fromGguf(metadata),
        template: readable(() => ChatTemplate.fromGguf(metadata)),
      });
      return { file, description, identity: identityOf(paths, description.config), texts };
    } catch (error) {
      file.close();
      throw error;
    }
  }
  const { directory, weights } = files;
  const description = describeConfig(readJsonFile(join(directory, 'config.json')));
  const file = openSafetensors(weights);
  const paths = file instanceof ShardedSafetensors ? file.paths : [file.path];
  const texts = async () => ({
    tokenizer: await Tokenizer.fromFile(tokenizerFile(directory)),
    template: readable(() => ChatTemplate.fromDirectory(directory)),
  });
  return { file, description, identity: identityOf(paths, description.config), texts };
}

function weightOptions({ architecture }: ModelDescription, options: BuildOptions): WeightOptions {
  const { device, dtype, activations, signal, onProgress, shard } = options;
  return { device, dtype, activations, signal, onProgress, layout: architecture, ...(shard && { shard }) };
}

function cacheDtypeOf(
  file: TensorReader,
  kvLayouts: CausalModel['kvLayouts'],
  { device, dtype, activations, cacheDtype }: BuildOptions,
): CacheDType {
  const isAsked = [dtype, activations].some((asked) => (asked ?? 'f32') !== 'f32');
  const isStored = dtype !== 'f32' && holdsNarrow(file) && multipliesNarrow(kvLayouts);
  return cacheDtype ?? defaultCacheDtype(device.kind, isAsked || isStored || holdsBlocks(file));
}

function contextOf({ config }: ModelDescription, maxContext: number | undefined): number {
  if (maxContext === undefined) return Math.min(config.contextLength, DEFAULT_CONTEXT);
  if (Number.isInteger(maxContext) && maxContext >= 1 && maxContext <= config.contextLength) return maxContext;
  throw new TransformersError(
    'INVALID_OPTION',
    `maxContext is ${maxContext}; give a whole number from 1 to ${config.contextLength}, the positions that the model was made for.`,
  );
}

/** What is read, or the error that says why it cannot be. */
function readable<T>(read: () => T): T | CandleError {
  try {
    return read();
  } catch (error) {
    if (error instanceof CandleError) return error;
    throw error;
  }
}
