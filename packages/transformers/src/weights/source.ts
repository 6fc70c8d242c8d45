/**
 * Where a model's weights come from. The model asks for layers by their Hugging Face names and does not know whether it
 * gets a dense {@link Linear} from a checkpoint or a quantized product from a GGUF file; candle instead has each model
 * twice (llama.rs and quantized_llama.rs).
 */
import { setImmediate as nextTurn } from 'node:timers/promises';
import type { Device, RopeKind, Tensor } from '@x/core';
import type { Module, RmsNorm } from '@x/nn';
import type { DenseDType } from '@x/quantized';
import type { LinearGroup } from './linear-group';
import type { TensorNamePair } from './tensor-names';

export interface LinearPart {
  /** As in {@link WeightSource.linear}. */
  name: string;
  out: number;
}

export interface WeightSource {
  readonly device: Device;
  /** What linear layers are given, and give; sums, norms and what is added up from layer to layer are f32. */
  readonly activations: DenseDType;
  /** How rotated pairs lie in the query and key rows of this file. */
  readonly ropeKind: RopeKind;
  /** Whether there is a tensor of this name. */
  has(name: string): boolean;
  /**
   * The layer y = x · Wᵀ (+ bias, when the source has one); x and y are of {@link activations}.
   * @param name without `.weight`, such as `model.layers.0.self_attn.q_proj`
   */
  linear(name: string, out: number, width: number): Promise<Module>;
  /** Layers on one input, as one where that is possible; `out` and `width` as in {@link linear}. */
  group(parts: readonly LinearPart[], width: number): Promise<LinearGroup>;
  /** A table from u32 ids [n] to f32 rows [n, width], and, for models with tied embeddings, the product with the table. */
  embedding(name: string, rows: number, width: number): Promise<{ lookup: Module; asLinear(): Module }>;
  norm(name: string, size: number, eps: number): Promise<RmsNorm>;
  /** Divisors of the rotation frequencies, [size]; undefined where the file has none. */
  ropeFactors(size: number): Promise<Float32Array | undefined>;
  /** Closes files; layers stay valid. */
  close(): void;
}

/** How an architecture's tensors are stored. */
export interface TensorLayout {
  tensors: readonly TensorNamePair[];
  /** How rotated pairs lie in GGUF files: llama.cpp's converter reorders rows for some architectures. Checkpoints pair halves. */
  ggufRope: RopeKind;
  /** Added to norm weights of checkpoints, which some architectures store minus one; GGUF files hold the sum. Default 0. */
  normOffset?: number;
}

/** Called after each tensor: bytes of weights read so far and in all. */
export type ProgressListener = (loadedBytes: number, totalBytes: number) => void;

export interface SourceOptions {
  device: Device;
  layout: TensorLayout;
  /** Of matrices that are numbers; default f32. */
  dtype?: DenseDType;
  /** As {@link WeightSource.activations}; default f32. */
  activations?: DenseDType;
  signal?: AbortSignal;
  onProgress?: ProgressListener;
}

/** In `dtype`; the tensor itself where it is so already. */
export function inDtype(x: Tensor, dtype: DenseDType): Tensor {
  return x.dtype === dtype ? x : x.toDtype(dtype);
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
