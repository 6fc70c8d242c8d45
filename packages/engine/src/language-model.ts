/** A loaded model with its tokenizer: what {@link loadModel} gives. */
import { type CandleError, type CollectiveError, type Device, DisposedError, kinds, type Tensor } from '@x/core';
import {
  type CausalModel,
  CHATML,
  type ChatMessage,
  ChatTemplate,
  type DecoderConfig,
  type ExpertStats,
  type LoraBase,
  type Tokenizer,
  type ToolDefinition,
  TransformersError,
  type WeightRead,
} from '@x/transformers';
import { ADAPTER_OPTION } from './adapters';
import { ChatAnswer } from './chat/generation';
import { ChatSession, type ChatSessionOptions, restoredChat, type SavedChat } from './chat/session';
import type { ChatGeneration, ChatOptions } from './chat/types';
import type { GenerateOptions } from './generate-options';
import { Generation } from './generation';
import type { KvPoolOptions, KvPoolStats } from './kv/pool';
import type { CacheDType } from './kv/rows';
import type { SequenceCache } from './kv/sequence-cache';
import { type WarmUpOptions, warmUp } from './load/warm-up';
import { checkOptions } from './options';
import type { Group } from './parallel/group';
import { loadPrompt, type PromptFileOptions, type PromptHost, savePrompt } from './prompt-files';
import { Runner } from './runner';
import { BatchScheduler } from './schedule/scheduler';
import type { DraftParts } from './speculate/draft-model';
import { cacheBytesOf, type StepBytes, weightBytesOf } from './step-bytes';

export interface LanguageModelParts {
  model: CausalModel;
  tokenizer: Tokenizer;
  /** Of the model's files. An error is thrown when a chat is asked for. */
  chatTemplate?: ChatTemplate | CandleError;
  /** Positions that a sequence may have. */
  maxContext: number;
  /** Of the key-value cache. */
  cache?: KvPoolOptions;
  /** Whether steps are captured as graphs. Default true. */
  graphs?: boolean;
  loadMs: number;
  /** A hash of the model, for prompts on disk. */
  identity?: () => string;
  /** What was loaded, for {@link LanguageModel.bytesPerStep}. */
  weightReads?: readonly WeightRead[];
  /** Of the model, for adapters. */
  architecture?: LoraBase['architecture'];
  /** The other ranks of the model. */
  group?: Group;
  /** Called when the model is disposed; more than once where that is. */
  onDisposed?: (() => void) | undefined;
}

export interface LoadAdapterOptions {
  /** Stops between two layers' matrices; the promise rejects with the signal's reason. */
  signal?: AbortSignal;
}

const LOAD_ADAPTER_OPTIONS = { signal: kinds.SIGNAL } satisfies Record<keyof LoadAdapterOptions, kinds.Kind>;
const WARM_UP_OPTIONS = { sequences: kinds.POSITIVE, positions: kinds.POSITIVE, signal: kinds.SIGNAL } satisfies Record<
  keyof WarmUpOptions,
  kinds.Kind
>;
const PROMPT_FILE_OPTIONS = { adapter: ADAPTER_OPTION, signal: kinds.SIGNAL } satisfies Record<
  keyof PromptFileOptions,
  kinds.Kind
>;

/**
 * One set of weights for any number of sequences: every {@link generate} is one, with its part of a cache that all share.
 * {@link forward} and {@link reset} work on one more sequence that the model keeps.
 */
export class LanguageModel {
  readonly tokenizer: Tokenizer;
  readonly config: DecoderConfig;
  readonly device: Device;
  /** Positions that a sequence has room for: prompt and generated text together. */
  readonly maxContext: number;
  /** Milliseconds that loading took. */
  readonly loadMs: number;
  private readonly runner: Runner;
  private readonly scheduler: BatchScheduler;
  private readonly sequence: SequenceCache;
  private readonly ownTemplate: ChatTemplate | CandleError | undefined;
  private readonly identity: (() => string) | undefined;
  private readonly weightReads: readonly WeightRead[];
  private readonly group: Group | undefined;
  private readonly failureListeners: ((error: CollectiveError) => void)[] = [];
  private readonly onDisposed: (() => void) | undefined;
  private disposed = false;

  /** For a model that is built already; `loadModel` reads one from files. It takes `model` over: {@link dispose} disposes it. */
  constructor(parts: LanguageModelParts) {
    const { model, tokenizer, chatTemplate, maxContext, cache, graphs, loadMs, identity, architecture, group } = parts;
    this.tokenizer = tokenizer;
    this.ownTemplate = chatTemplate;
    this.config = model.config;
    this.device = model.device;
    this.maxContext = maxContext;
    this.loadMs = loadMs;
    this.identity = identity;
    this.weightReads = parts.weightReads ?? [];
    this.onDisposed = parts.onDisposed;
    const { config } = model;
    const base = architecture && { architecture, config };
    this.runner = new Runner(model, { maxContext, cache, graphs, base, followers: group });
    this.group = group;
    if (group)
      group.onFailed = () => {
        this.release();
        for (const listener of this.failureListeners.splice(0)) listener(group.origin!);
      };
    this.scheduler = new BatchScheduler(this.runner);
    this.sequence = this.scheduler.open(true);
  }

  /** Devices that compute the model together. */
  get ranks(): number {
    return this.group?.size ?? 1;
  }

  /** Why a model of several ranks cannot be used any more: a rank ended, hung or failed. What it had is given back. */
  get failure(): CollectiveError | undefined {
    return this.group?.origin;
  }

  /** Calls `listener` once when {@link failure} is known, at once where it is. */
  onFailure(listener: (error: CollectiveError) => void): void {
    const { failure } = this;
    if (failure) listener(failure);
    else this.failureListeners.push(listener);
  }

  /** Positions in the cache of the model's own sequence. */
  get length(): number {
    return this.sequence.tokens.length;
  }

  /**
   * Continues a text or token ids, a sequence of its own: several may run at once. Nothing runs before the first `next()`.
   * With `schema`, `regex`, `grammar` or `choices` the text has that form, unless `maxTokens` or the context cut it.
   * @throws TransformersError INVALID_OPTION, EMPTY_INPUT, CONTEXT_EXCEEDED, UNSUPPORTED_MODEL, UNSUPPORTED_TOKENIZER; GrammarError.
   *   While it is iterated BAD_TOKEN for ids that the model has not, CACHE_FULL, BAD_LOGITS; the signal's reason
   */
  generate<T = unknown>(prompt: string | ArrayLike<number>, options: GenerateOptions<T> = {}): Generation<T> {
    this.checkAlive('generate');
    const { scheduler, tokenizer, loadMs } = this;
    return new Generation<T>({ scheduler, tokenizer, loadMs }, prompt, options);
  }

  /**
   * How the model wants chats: the template of its files, or of `loadModel`'s `chatTemplate`. A vocabulary with `<|im_start|>`
   * and `<|im_end|>` stands for ChatML.
   * @throws TransformersError NO_CHAT_TEMPLATE, BAD_CHAT_TEMPLATE; FileFormatError for a file of it that cannot be read
   */
  get chatTemplate(): ChatTemplate {
    if (this.ownTemplate instanceof Error) throw this.ownTemplate;
    if (this.ownTemplate) return this.ownTemplate;
    const isChatml = ['<|im_start|>', '<|im_end|>'].every((token) => this.tokenizer.tokenToId(token) !== undefined);
    if (isChatml) return ChatTemplate.fromText(CHATML);
    throw new TransformersError(
      'NO_CHAT_TEMPLATE',
      "The model's files have no chat template, so it may not be made for chats. Load it with chatTemplate: 'chatml' or the Jinja text of another one, or take its instruct version.",
    );
  }

  /**
   * Answers messages; nothing is kept but the cache, from which the next request that begins alike is read. Nothing runs before
   * the first `next()`.
   * @throws TransformersError NO_CHAT_TEMPLATE, BAD_MESSAGES, CHAT_REFUSED where the template raises, BAD_CHAT_TEMPLATE,
   *   and as {@link generate}
   */
  generateChat<const Tools extends readonly ToolDefinition[]>(
    messages: readonly ChatMessage[],
    options: ChatOptions<Tools> = {},
  ): ChatGeneration<Tools> {
    this.checkAlive('generateChat');
    const { scheduler, tokenizer, loadMs } = this;
    return new ChatAnswer({ scheduler, tokenizer, loadMs }, this.chatTemplate, messages, options);
  }

  /**
   * A chat with a history: options of all its answers, or what a chat's `toJSON` gave, and both with the former first.
   * @throws TransformersError NO_CHAT_TEMPLATE, BAD_CHAT_TEMPLATE, BAD_MESSAGES, INVALID_OPTION
   */
  chat<const Tools extends readonly ToolDefinition[]>(
    options: ChatSessionOptions<Tools> = {},
    saved?: SavedChat,
  ): ChatSession<Tools> {
    this.checkAlive('chat');
    const { scheduler, tokenizer, loadMs, chatTemplate } = this;
    const checkAlive = (what: string) => this.checkAlive(what);
    const restored = saved === undefined ? {} : restoredChat(saved);
    const all = { ...restored, ...options } as ChatSessionOptions<Tools>;
    return new ChatSession({ scheduler, tokenizer, loadMs, chatTemplate, checkAlive }, all);
  }

  /** @internal What drafts for another model need of this one. */
  draftParts(): DraftParts {
    this.checkAlive('speculative');
    const { scheduler, tokenizer } = this;
    return { scheduler, tokenizer };
  }

  /**
   * Appends tokens to the model's own sequence and predicts the one after the last.
   * @param ids tokens at `position`, `position + 1`, ...
   * @param position at most {@link length}; cached positions from here on are replaced
   * @returns logits [vocabSize], f32; the caller's to dispose
   * @throws TransformersError EMPTY_INPUT, BAD_TOKEN, CONTEXT_EXCEEDED, INVALID_OPTION, CACHE_FULL
   */
  forward(ids: ArrayLike<number>, position: number): Tensor {
    this.checkAlive('forward');
    const { sequence, runner, scheduler } = this;
    if (!Number.isInteger(position) || position < 0 || position > sequence.tokens.length) {
      throw new TransformersError(
        'INVALID_OPTION',
        `forward: position ${position} with ${sequence.tokens.length} positions in the cache; give 0 to ${sequence.tokens.length}.`,
      );
    }
    runner.check(ids, position);
    sequence.truncate(position);
    scheduler.reserve(sequence, position + ids.length);
    // States of an earlier position may have to be computed again.
    const again = sequence.tokens.slice(sequence.length);
    using logits = runner.step([{ cache: sequence, ids: again.length > 0 ? [...again, ...Array.from(ids)] : ids }]);
    return logits.reshape([this.config.vocabSize]);
  }

  /**
   * Reads a prompt and writes its keys and values to a file, in whole blocks of 32 tokens, so that {@link loadPrompt} of another
   * process saves computing them. What the cache has of it is not computed again. The file is replaced when the new one is complete.
   * Of a model on several devices each writes its part, into files behind this one: `PATH.1` and so on, on its own machine.
   * @throws TransformersError INVALID_OPTION for fewer than 32 tokens and an adapter that is not there, BAD_TOKEN,
   *   CONTEXT_EXCEEDED, CACHE_FULL, UNSUPPORTED_MODEL for one with states or not from files; FileFormatError FILE_UNWRITABLE,
   *   FILE_CHANGED when the model's files are not those that were loaded
   */
  async savePrompt(
    path: string,
    prompt: string | ArrayLike<number>,
    options: PromptFileOptions = {},
  ): Promise<{ tokens: number }> {
    this.checkAlive('savePrompt');
    checkOptions('savePrompt', options, PROMPT_FILE_OPTIONS);
    return savePrompt(this.promptHost('savePrompt'), path, prompt, options);
  }

  /**
   * Puts a prompt of {@link savePrompt} into the cache, where every later prompt that begins alike finds it until its memory
   * is needed or {@link emptyCache} is called. A file of which anything is wrong changes nothing.
   * @returns the tokens that it holds, at most {@link maxContext}
   * @throws FileFormatError FILE_NOT_FOUND, FILE_INVALID and FILE_TRUNCATED for damaged files, PROMPT_MISMATCH for one of another
   *   model, adapter, split over devices, cache dtype or version; TransformersError CACHE_FULL, INVALID_OPTION, UNSUPPORTED_MODEL
   */
  async loadPrompt(path: string, options: PromptFileOptions = {}): Promise<{ tokens: readonly number[] }> {
    this.checkAlive('loadPrompt');
    checkOptions('loadPrompt', options, PROMPT_FILE_OPTIONS);
    return loadPrompt(this.promptHost('loadPrompt'), path, options);
  }

  /**
   * Loads a LoRA adapter beside the model, for `generate`'s `adapter`; weights stay as they are. Texts may be under way.
   * @param path a folder that PEFT saved (adapter_config.json, adapter_model.safetensors), or a GGUF file of llama.cpp's converter
   * @throws TransformersError INVALID_OPTION for a name that is taken, BAD_ADAPTER for one that does not fit the model,
   *   UNSUPPORTED_ADAPTER for another kind (DoRA, modules_to_save, ...), UNSUPPORTED_MODEL for one on several devices or not from
   *   files; FileFormatError for missing and damaged files
   */
  async loadAdapter(name: string, path: string, options: LoadAdapterOptions = {}): Promise<void> {
    this.checkAlive('loadAdapter');
    this.checkAlone('loadAdapter', 'adapters lie');
    checkOptions('loadAdapter', options, LOAD_ADAPTER_OPTIONS);
    await this.runner.adapters.load(name, path, options.signal);
  }

  /**
   * Forgets an adapter. Texts that are under way with it go on; its memory is given back when the last of them ends.
   * @throws TransformersError INVALID_OPTION for a name that is not there
   */
  unloadAdapter(name: string): void {
    this.checkAlive('unloadAdapter');
    this.runner.adapters.unload(name);
  }

  /** Names of the adapters, in the order in which they were loaded. */
  get adapters(): readonly string[] {
    return this.runner.adapters.names;
  }

  /** Of keys and values in the cache. */
  get cacheDtype(): CacheDType {
    return this.runner.pool.dtype;
  }

  /**
   * Positions of all sequences together that the cache has room for: what the device's memory had left when the model was loaded, less
   * a sixteenth for passes, and at most `maxCachePositions`; of several devices that of the one with least. Undefined where nobody
   * says (`js`), and of models whose positions take no memory. A sequence has {@link maxContext} at most.
   */
  get cachePositions(): number | undefined {
    const { room, hasBlocks } = this.runner.pool;
    return hasBlocks ? room : undefined;
  }

  /** What the key-value cache of all sequences holds. */
  get cacheStats(): KvPoolStats {
    return this.runner.pool.stats;
  }

  /** Which experts are where and how often they were copied, where they are in host memory; else undefined. */
  get expertStats(): ExpertStats | undefined {
    return this.runner.model.hostExperts?.stats;
  }

  /**
   * Bytes that a decode step reads on this device, for who compares its rate with the memory's.
   * @param positions of each sequence, the step's token among them @param sequences that the step is of
   * @throws TransformersError INVALID_OPTION
   */
  bytesPerStep(positions: number, sequences = 1): StepBytes {
    this.checkAlive('bytesPerStep');
    checkOptions(
      'bytesPerStep',
      { positions: positions ?? null, sequences },
      { positions: kinds.POSITIVE, sequences: kinds.POSITIVE },
    );
    const { model, pool } = this.runner;
    const positionBytes = pool.blockBytes / pool.blockSize;
    return {
      weights: weightBytesOf(this.weightReads, this.config, sequences),
      cache: sequences * cacheBytesOf(model, positions, positionBytes),
    };
  }

  /**
   * Gives memory back that is kept for what may come: captured steps and, while no sequence is under way and the model's own
   * is reset, the key-value cache with the prompts that it remembers.
   */
  emptyCache(): void {
    this.checkAlive('emptyCache');
    this.runner.emptyCache();
  }

  /**
   * Makes a GPU ready, so that nobody waits for what is done once: kernels that the driver compiles, graphs of the steps of up to
   * `sequences` sequences, memory of the cache. Takes a second or two, some ten where the driver has never seen the kernels;
   * elsewhere there is nothing to do. Texts may be under way.
   * @throws TransformersError INVALID_OPTION; the signal's reason
   */
  async warmUp(options: WarmUpOptions = {}): Promise<void> {
    this.checkAlive('warmUp');
    checkOptions('warmUp', options, WARM_UP_OPTIONS);
    await warmUp(this.runner, this.scheduler, options);
  }

  /** Forgets the model's own sequence; its memory stays for others. */
  reset(): void {
    this.checkAlive('reset');
    this.sequence.truncate(0);
  }

  /**
   * Gives all memory back. Harmless when repeated; anything else afterwards raises a `DisposedError`. Other ranks end by
   * themselves; {@link ended} tells when they have.
   */
  dispose(): void {
    this.disposed = true;
    this.onDisposed?.();
    this.release();
    void this.group?.end();
  }

  /** Resolves when a disposed model's ranks have given all memory back and are gone. */
  async ended(): Promise<void> {
    await this.group?.end();
  }

  [Symbol.dispose](): void {
    this.dispose();
  }

  /** @throws TransformersError UNSUPPORTED_MODEL where prompts cannot be kept */
  private promptHost(what: string): PromptHost {
    const { identity, runner, scheduler, tokenizer, maxContext, group } = this;
    if (runner.pool.states) {
      throw new TransformersError(
        'UNSUPPORTED_MODEL',
        `${what}: prompts of models with states cannot be kept in files; use another model.`,
      );
    }
    if (identity === undefined) {
      throw new TransformersError(
        'UNSUPPORTED_MODEL',
        `${what}: this model was not loaded from files, so a saved prompt could not be told to be its own; use loadModel.`,
      );
    }
    const checkAlive = () => this.checkAlive(what);
    return { runner, scheduler, tokenizer, maxContext, group, identity: identity(), checkAlive };
  }

  /** Graphs, cache and weights of this rank. */
  private release(): void {
    this.runner.dispose();
    this.runner.model.dispose();
    this.scheduler.wake();
  }

  private checkAlive(what: string): void {
    if (this.disposed) throw new DisposedError('DISPOSED', `${what}: the model was disposed; load it again.`);
    if (this.failure) throw this.failure;
  }

  /** @throws TransformersError UNSUPPORTED_MODEL for a model on several devices */
  private checkAlone(what: string, why: string): void {
    if (this.ranks === 1) return;
    const message = `${what}: ${why} on one device, and the model is on ${this.ranks}; load it on one.`;
    throw new TransformersError('UNSUPPORTED_MODEL', message);
  }
}
