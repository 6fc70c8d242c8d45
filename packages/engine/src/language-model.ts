/** A loaded model with its tokenizer: what {@link loadModel} gives. */
import { type Device, DisposedError, type Tensor } from '@x/core';
import { type CausalModel, type DecoderConfig, type Tokenizer, TransformersError } from '@x/transformers';
import { type GenerateOptions, Generation } from './generation';
import type { CacheDType, KvPoolOptions, KvPoolStats } from './kv/pool';
import type { SequenceCache } from './kv/sequence-cache';
import { Runner } from './runner';
import { BatchScheduler } from './scheduler';

export interface LanguageModelParts {
  model: CausalModel;
  tokenizer: Tokenizer;
  /** Positions that a sequence may have. */
  maxContext: number;
  /** Of the key-value cache. */
  cache?: KvPoolOptions;
  loadMs: number;
}

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
  private disposed = false;

  constructor({ model, tokenizer, maxContext, cache, loadMs }: LanguageModelParts) {
    this.tokenizer = tokenizer;
    this.config = model.config;
    this.device = model.device;
    this.maxContext = maxContext;
    this.loadMs = loadMs;
    this.runner = new Runner(model, maxContext, cache);
    this.scheduler = new BatchScheduler(this.runner);
    this.sequence = this.scheduler.open(true);
  }

  /** Positions in the cache of the model's own sequence. */
  get length(): number {
    return this.sequence.length;
  }

  /**
   * Continues a text or token ids, a sequence of its own: several may run at once. Nothing runs before the first `next()`.
   * @throws TransformersError INVALID_OPTION, EMPTY_INPUT, CONTEXT_EXCEEDED
   */
  generate(prompt: string | ArrayLike<number>, options: GenerateOptions = {}): Generation {
    this.checkAlive('generate');
    const { scheduler, tokenizer, loadMs } = this;
    return new Generation({ scheduler, tokenizer, loadMs }, prompt, options);
  }

  /**
   * Appends tokens to the model's own sequence and predicts the one after the last.
   * @param ids tokens at `position`, `position + 1`, ...
   * @param position at most {@link length}; cached positions from here on are replaced
   * @returns logits [vocabSize], f32; the caller's to dispose
   * @throws TransformersError EMPTY_INPUT, BAD_TOKEN, CONTEXT_EXCEEDED, INVALID_OPTION
   */
  forward(ids: ArrayLike<number>, position: number): Tensor {
    this.checkAlive('forward');
    const { sequence, runner, scheduler } = this;
    if (!Number.isInteger(position) || position < 0 || position > sequence.length) {
      throw new TransformersError(
        'INVALID_OPTION',
        `forward: position ${position} with ${sequence.length} positions in the cache; give 0 to ${sequence.length}.`,
      );
    }
    runner.check(ids, position);
    sequence.truncate(position);
    scheduler.reserve(sequence, position + ids.length);
    using logits = runner.step([{ cache: sequence, ids }]);
    return logits.reshape([this.config.vocabSize]);
  }

  /** Of keys and values in the cache. */
  get cacheDtype(): CacheDType {
    return this.runner.pool.dtype;
  }

  /** What the key-value cache of all sequences holds. */
  get cacheStats(): KvPoolStats {
    return this.runner.pool.stats;
  }

  /**
   * Gives memory back that is kept for what may come: captured steps and, while no sequence is under way and the model's own
   * is reset, the key-value cache with the prompts that it remembers.
   */
  emptyCache(): void {
    this.checkAlive('emptyCache');
    this.runner.emptyCache();
  }

  /** Forgets the model's own sequence; its memory stays for others. */
  reset(): void {
    this.checkAlive('reset');
    this.sequence.truncate(0);
  }

  /** Gives all memory back. Harmless when repeated; anything else afterwards raises a `DisposedError`. */
  dispose(): void {
    this.disposed = true;
    this.runner.dispose();
    this.runner.model.dispose();
  }

  [Symbol.dispose](): void {
    this.dispose();
  }

  private checkAlive(what: string): void {
    if (this.disposed) throw new DisposedError('DISPOSED', `${what}: the model was disposed; load it again.`);
  }
}
