/**
 * Where a model's weights come from. The model asks for layers by their Hugging Face names and does not know whether it
 * gets a dense {@link Linear} from a checkpoint or a quantized product from a GGUF file; candle instead has each model
 * twice (llama.rs and quantized_llama.rs).
 */
import type { Device, RopeKind, Tensor } from '@x/core';
import type { Module, RmsNorm } from '@x/nn';
import type { DenseDType } from '@x/quantized';
import type { LinearGroup } from './linear-group';

export interface LinearPart {
  /** As in {@link WeightSource.linear}. */
  name: string;
  out: number;
}

export interface WeightSource {
  readonly device: Device;
  /** How rotated pairs lie in the query and key rows: GGUF files pair neighbours, checkpoints pair halves. */
  readonly ropeKind: RopeKind;
  /** Whether there is a tensor of this name. */
  has(name: string): boolean;
  /**
   * The layer y = x · Wᵀ (+ bias, when the source has one) from f32 to f32.
   * @param name without `.weight`, such as `model.layers.0.self_attn.q_proj`
   */
  linear(name: string, out: number, width: number): Promise<Module>;
  /** Layers on one input, as one where that is possible; `out` and `width` as in {@link linear}. */
  group(parts: readonly LinearPart[], width: number): Promise<LinearGroup>;
  /** A table from u32 ids [n] to f32 rows [n, width], and, for models with tied embeddings, the product with the table. */
  embedding(name: string, rows: number, width: number): Promise<{ lookup: Module; asLinear(): Module }>;
  norm(name: string, size: number, eps: number): Promise<RmsNorm>;
  /** A small dense f32 tensor, read to the host, or undefined when there is none. */
  vector(name: string, size: number): Promise<Float32Array | undefined>;
  /** Closes files; layers stay valid. */
  close(): void;
}

/** Called after each tensor: bytes of weights read so far and in all. */
export type ProgressListener = (loadedBytes: number, totalBytes: number) => void;

export interface SourceOptions {
  device: Device;
  /** Of matrices that are numbers; default f32. */
  dtype?: DenseDType;
  signal?: AbortSignal;
  onProgress?: ProgressListener;
}

/** Between two tensors: reports progress, lets the event loop run, and stops when asked to. */
export class LoadSteps {
  private loaded = 0;

  constructor(
    private readonly total: number,
    private readonly options: Pick<SourceOptions, 'signal' | 'onProgress'>,
  ) {}

  async after(bytes: number): Promise<void> {
    this.loaded += bytes;
    this.options.onProgress?.(this.loaded, this.total);
    await nextTurn();
    this.options.signal?.throwIfAborted();
  }
}

/** Lets timers, I/O and abort signals run. */
export function nextTurn(): Promise<void> {
  return new Promise((resolve) => setImmediate(resolve));
}

/** Where a forward pass stands after a step. */
export interface PassStep {
  /** What the step gives. It is the pass's: use it before the next step and do not dispose it. */
  output: Tensor;
  /** Steps enqueued so far as a share of all, above 0 and at most 1. */
  share: number;
}

/**
 * A forward pass, a step at every `next()`. Steps enqueue their work and do not wait; the caller may wait, or stop, in
 * between. Returns what `Llama.forward` returns, or undefined when no logits were asked for: its last step then has the
 * share 1. Run it to its end or call `return()`, which gives its memory back and takes its positions out of the cache.
 */
export type ForwardPass = Generator<PassStep, Tensor | undefined, void>;

/** A model that continues a sequence of tokens. */
export interface CausalModel {
  /** Positions in the cache. */
  readonly length: number;
  /** Most positions that fit. */
  readonly maxContext: number;
  /** See `Llama.forward`. */
  forward(ids: ArrayLike<number>, position: number): Tensor;
  /** The same in steps, with logits or without. */
  pass(ids: ArrayLike<number>, position: number, logits: boolean): ForwardPass;
  /** Tokens of a prompt to read in one pass from `position` on. Depends on model, device and position alone. */
  promptChunk(position: number): number;
  reset(): void;
  dispose(): void;
}
