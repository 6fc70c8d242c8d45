/** A loaded model with its tokenizer: what {@link loadModel} gives. */
import { type Device, DisposedError, type Tensor } from '@x/core';
import { TransformersError } from './errors';
import { type GenerateOptions, Generation, type GenerationHost } from './generation';
import type { LlamaConfig } from './models/llama-config';
import type { CausalModel } from './models/weights';
import type { Tokenizer } from './tokenizer';

export interface LanguageModelParts {
  model: CausalModel;
  tokenizer: Tokenizer;
  config: LlamaConfig;
  device: Device;
  loadMs: number;
}

/**
 * One sequence at a time: the model has one key-value cache. A second `generate` while one runs raises `BUSY`; load the
 * model twice for two at once.
 */
export class LanguageModel {
  readonly tokenizer: Tokenizer;
  readonly config: LlamaConfig;
  readonly device: Device;
  /** Milliseconds that loading took. */
  readonly loadMs: number;
  private readonly model: CausalModel;
  private running: Generation | undefined;
  private disposed = false;

  constructor(parts: LanguageModelParts) {
    this.model = parts.model;
    this.tokenizer = parts.tokenizer;
    this.config = parts.config;
    this.device = parts.device;
    this.loadMs = parts.loadMs;
  }

  /** Positions that the cache has room for: prompt and generated text together. */
  get maxContext(): number {
    return this.model.maxContext;
  }

  /** Positions in the cache now. */
  get length(): number {
    return this.model.length;
  }

  /**
   * Continues a text or token ids. Nothing runs before the first `next()`; the sequence starts afresh.
   * @throws TransformersError INVALID_OPTION, EMPTY_INPUT, CONTEXT_EXCEEDED; BUSY from the iteration
   */
  generate(prompt: string | ArrayLike<number>, options: GenerateOptions = {}): Generation {
    this.checkAlive('generate');
    return new Generation(this.host(), prompt, options);
  }

  /**
   * Logits [vocabSize] (f32, the caller's to dispose) of the token after `ids`, which are put at `position` of the cached
   * sequence. Shapes and errors: `Llama.forward`.
   */
  forward(ids: ArrayLike<number>, position: number): Tensor {
    this.checkAlive('forward');
    if (this.running) throw busy('forward');
    return this.model.forward(ids, position);
  }

  /** Forgets the sequence. A generation still running is interrupted: its next token raises `INTERRUPTED`. */
  reset(): void {
    this.checkAlive('reset');
    this.running = undefined;
    this.model.reset();
  }

  /** Gives all memory back. Harmless when repeated; anything else afterwards raises a `DisposedError`. */
  dispose(): void {
    this.disposed = true;
    this.running = undefined;
    this.model.dispose();
  }

  [Symbol.dispose](): void {
    this.dispose();
  }

  private host(): GenerationHost {
    const { model, tokenizer, loadMs } = this;
    return {
      model,
      tokenizer,
      loadMs,
      claim: (owner) => {
        this.checkAlive('generate');
        if (this.running) throw busy('generate');
        this.running = owner;
        model.reset();
        return () => {
          this.checkAlive('generate');
          if (this.running !== owner) {
            throw new TransformersError(
              'INTERRUPTED',
              'generate: reset() was called while this generation ran; start another one.',
            );
          }
        };
      },
      release: (owner) => {
        if (this.running !== owner) return;
        this.running = undefined;
        if (!this.disposed) model.reset();
      },
    };
  }

  private checkAlive(what: string): void {
    if (this.disposed) throw new DisposedError('DISPOSED', `${what}: the model was disposed; load it again.`);
  }
}

function busy(what: string): TransformersError {
  return new TransformersError(
    'BUSY',
    `${what}: another generation of this model is running; let it end, leave its loop, or call reset() to interrupt it.`,
  );
}
