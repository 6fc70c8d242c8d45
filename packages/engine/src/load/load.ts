/**
 * Loading a model by path: a GGUF file with its tokenizer inside, or a Hugging Face directory. candle leaves this to each
 * example; the rules here are those of its `quantized` and `llama` examples.
 */
import { performance } from 'node:perf_hooks';
import { Device, type DeviceLike, kinds } from '@x/core';
import type { DenseDType } from '@x/quantized';
import { CHATML, ChatTemplate, type ProgressListener, type Tokenizer } from '@x/transformers';
import { ADAPTERS_OPTION } from '../adapters';
import { warnOfContext } from '../kv/room';
import { CACHE_DTYPES, type CacheDType } from '../kv/rows';
import { LanguageModel } from '../language-model';
import { checkOptions } from '../options';
import type { Group } from '../parallel/group';
import { loadOnThreads } from '../parallel/load';
import { devicesOf, PARALLEL_OPTIONS, type ParallelOptions } from '../parallel/options';
import { deviceOfProcess, loadOnProcesses } from '../parallel/processes';
import { type BuiltModel, buildModel, type ModelTexts } from './build-model';
import { checkExpertOptions, EXPERT_OPTIONS, type ExpertOptions, warnOfOrdinaryMemory } from './expert-place';
import { HUB_SOURCE, type HubSource, modelPath } from './model-files';

/** Kernels that a driver compiles at their first use. */
export interface KernelProgress {
  /** How many so far, in this process. */
  compiled: number;
  /** The device's description. */
  device: string;
}

export interface LoadModelOptions extends HubSource, ParallelOptions, ExpertOptions {
  /** Default: `Device.auto()`, the best one that opens. Several of them: {@link LoadModelOptions.devices}. */
  device?: DeviceLike;
  /**
   * How matrices that are not quantized lie in memory: `f16` and `bf16` take half of `f32`, and the time of reading it. Default:
   * as in the file on devices with kernels (`cpu` and GPUs), where f16 and bf16 are multiplied by activations of f32; steps of
   * up to 8 rows round neither. GPUs round the activations of more rows to the weights' dtype: for f16 what is over 65504 becomes
   * 65504, so f16 files of models with larger values (Gemma) want `bf16` or `f32`. Other numbers become `f32`, on `js` all do.
   */
  dtype?: DenseDType;
  /**
   * What linear layers are given, `f32` by default on every device: `f16` and `bf16` halve what they read and let matrices of
   * the same `dtype` be multiplied on a GPU's matrix units. What they give is f32 always, as are norms, rotations, attention,
   * what is added up from layer to layer, and logits. f16 ends at 65504: models whose values are larger (Gemma) want bf16.
   */
  activations?: DenseDType;
  /** Stops loading after a piece of some MiB; the promise rejects with the signal's reason and what was loaded is given back. */
  signal?: AbortSignal;
  /** Called after each tensor with the bytes read so far and in all. */
  onProgress?: ProgressListener;
  /**
   * Called after each kernel of the model that the driver of an NVIDIA GPU has compiled, which it does once a machine, while the first
   * texts are written, until the model is disposed. Not of a model on several devices. A device tells the model that was loaded last.
   */
  onKernels?: (progress: KernelProgress) => void;
  /**
   * Positions that a sequence may have, prompt and generated text together. Default: what the model was made for, at most
   * 4096. More than it was made for is refused. The cache grows with what sequences hold, so more than fits into the device's memory
   * is let: {@link LanguageModel.cachePositions} says what fits, and a warning (`CONTEXT_DOES_NOT_FIT`) what would make more fit.
   */
  maxContext?: number;
  /**
   * Of the key-value cache, whose positions take 2 · layers · kvHeads · headDim elements each. Default: `f16` on GPUs
   * for weights in blocks, for a narrow `dtype` or `activations`, and for files of 16 bits whose heads have 64 or 128 values,
   * which are then multiplied in f16; otherwise `f32`. `q8_0` keeps 8 bits of each and a scale of each 32, half of f16: twice the
   * positions in the same memory, which take a little longer; heads are then of a multiple of 32 values.
   */
  cacheDtype?: CacheDType;
  /**
   * Whether steps that come again are captured as graphs, on devices that have them. Without, each is enqueued kernel by kernel,
   * which takes longer and gives the same texts. Default true.
   */
  graphs?: boolean;
  /**
   * Whether layers are computed by kernels that do several operations at once. Without, a norm, a product, a rotation, writing to
   * the cache, attention and an activation are kernels of their own: slower, and the same texts, so that what is wrong can be
   * narrowed down. Default true.
   */
  fused?: boolean;
  /** How chats are written, in place of the model's own template: `chatml`, or the text of a Jinja template. */
  chatTemplate?: string;
  /**
   * Positions of all sequences together at most, whole blocks of 32. When they are used up, sequences wait for one another.
   * Default: what the device's memory holds.
   */
  maxCachePositions?: number;
  /**
   * LoRA adapters by the names that `generate`'s `adapter` gives: paths of folders that PEFT saved, or of GGUF files. Others may come
   * later (`loadAdapter`). Default: none.
   */
  adapters?: Readonly<Record<string, string>>;
}

const OPTIONS = {
  device: kinds.DEVICE,
  dtype: kinds.oneOf(['f32', 'f16', 'bf16']),
  activations: kinds.oneOf(['f32', 'f16', 'bf16']),
  signal: kinds.SIGNAL,
  onProgress: kinds.FUNCTION,
  onKernels: kinds.FUNCTION,
  maxContext: kinds.NUMBER,
  cacheDtype: kinds.oneOf(CACHE_DTYPES),
  graphs: kinds.BOOLEAN,
  fused: kinds.BOOLEAN,
  chatTemplate: kinds.kind(
    (value) => typeof value === 'string' && value !== '',
    "give 'chatml' or the text of a Jinja template",
  ),
  maxCachePositions: kinds.POSITIVE,
  adapters: ADAPTERS_OPTION,
  ...HUB_SOURCE,
  ...PARALLEL_OPTIONS,
  ...EXPERT_OPTIONS,
} satisfies Record<keyof LoadModelOptions, kinds.Kind>;

/**
 * @param path a .gguf file (any part of a split one), a directory with config.json, tokenizer.json and safetensors files, or with
 *   one model in GGUF, a .safetensors file in one, or a model of the Hugging Face hub, as `hf:org/repo:Q4_K_M`, which is downloaded when it is not here
 * @throws FileFormatError for missing and damaged files (with the file's path) and types of weights that cannot be read;
 *   TransformersError UNSUPPORTED_MODEL, UNSUPPORTED_TOKENIZER, BAD_CONFIG, BAD_GGUF_METADATA, BAD_TOKENIZER, INVALID_OPTION, and for
 *   `adapters` as {@link LanguageModel.loadAdapter}; OutOfMemoryError with what would fit; DeviceError for a device that does not open;
 *   CollectiveError for one of several that is lost; HubError for a model of the hub that cannot be had; the signal's reason
 */
export async function loadModel(path: string, options: LoadModelOptions = {}): Promise<LanguageModel> {
  const start = performance.now();
  checkOptions('loadModel', options, OPTIONS);
  options.signal?.throwIfAborted();
  const place = await modelPath(path, options);
  const { devices: wanted, processes, dtype, activations, signal, onProgress } = options;
  const named = options.device === undefined ? undefined : Device.of(options.device);
  // A list of devices needs no other; the processes of a group have a kind of device each.
  const single = wanted ? undefined : (named ?? (processes ? await deviceOfProcess(processes) : await Device.auto()));
  const devices = devicesOf(wanted ? named : single, options);
  const device = devices?.[0] ?? single ?? Device.of(wanted![0]);
  checkExpertOptions(options, !devices && !processes);
  const { maxContext, cacheDtype, fused, pipeline, experts, hotExperts, maxCachePositions: cachePositions } = options;
  const { onKernels } = options;
  const unlisten = onKernels && !devices && !processes ? listen(device, onKernels) : undefined;
  const split = pipeline ? ('layers' as const) : undefined;
  const build = { device, dtype, activations, signal, onProgress, maxContext, cacheDtype, fused, split };
  try {
    const built = processes
      ? await loadOnProcesses(place, processes, build, options)
      : devices
        ? await loadOnThreads(place, devices, build, options)
        : await buildModel(place, { ...build, experts, hotExperts, cachePositions }, true);
    return await assemble({ ...built, onDisposed: unlisten }, options, start);
  } catch (error) {
    unlisten?.();
    throw error;
  }
}

/** Tells of kernels that are compiled, until what this returns is called or another model of the device is loaded with a listener. */
function listen({ backend, description }: Device, onKernels: NonNullable<LoadModelOptions['onKernels']>): () => void {
  const own = (compiled: number) => onKernels({ compiled, device: description });
  backend.onCompiled = own;
  return () => {
    if (backend.onCompiled === own) backend.onCompiled = undefined;
  };
}

async function assemble(
  built: BuiltModel & ModelTexts & { group?: Group; onDisposed?: (() => void) | undefined },
  { maxCachePositions, graphs, chatTemplate: chosen, adapters = {}, signal }: LoadModelOptions,
  start: number,
): Promise<LanguageModel> {
  const { tokenizer, template, cacheDtype, room, weightBytes, ...parts } = built;
  let loaded: LanguageModel;
  try {
    warnOfContext(built);
    warnOfOrdinaryMemory(built.model);
    const cache = { dtype: cacheDtype, maxPositions: maxCachePositions, weightBytes, roomFor: room?.positions };
    const chatTemplate = chosen === undefined ? template : templateOf(chosen, template, tokenizer);
    loaded = new LanguageModel({ ...parts, tokenizer, chatTemplate, cache, graphs, loadMs: performance.now() - start });
  } catch (error) {
    built.model.dispose();
    void built.group?.end();
    throw error;
  }
  try {
    for (const [name, path] of Object.entries(adapters)) await loaded.loadAdapter(name, path, { signal });
    return loaded;
  } catch (error) {
    loaded.dispose();
    throw error;
  }
}

/** The template that was asked for, with the special tokens of the model. */
function templateOf(chosen: string, own: ModelTexts['template'], tokenizer: Tokenizer): ChatTemplate {
  const textOf = (id: number | undefined) => (id === undefined ? '' : (tokenizer.idToToken(id) ?? ''));
  const ofTokenizer = { bos_token: textOf(tokenizer.bosId), eos_token: textOf(tokenizer.eosIds[0]) };
  return ChatTemplate.fromText(
    chosen === 'chatml' ? CHATML : chosen,
    own instanceof ChatTemplate ? own.specialTokens : ofTokenizer,
  );
}
