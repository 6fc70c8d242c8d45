/**
 * Weights of a GGUF file by path (candle's `quantized_var_builder::VarBuilder`): `vb.pp('blk.0').pp('attn_q')` then
 * `get([n, k], 'weight')`.
 *
 * candle reads every tensor when the builder is made; here a tensor is read when it is asked for, so a builder is cheap
 * and a model may use part of a file. Asking twice gives two owners of one memory, which is what tied weights need.
 */
import { Device, type DeviceLike, formatShape, sameShape } from '@x/core';
import { GgufFile, type TensorFile } from './gguf';
import { ggufError } from './gguf/error';
import { QTensor, type QTensorLoadOptions, type QTensorOptions } from './qtensor';

export interface QuantizedVarBuilderOptions extends QTensorOptions {}

export interface PreloadOptions {
  /** Called after every tensor. */
  onProgress?: (done: number, total: number) => void;
  /** Stops between two pieces of a tensor; the promise rejects with the signal's reason. */
  signal?: AbortSignal;
}

/** What a builder and those made from it by `pp` have in common. */
interface Shared {
  readonly file: TensorFile;
  readonly device: Device;
  readonly options: QTensorOptions;
  /** Tensors given out that someone may still own. */
  readonly given: Map<string, WeakRef<QTensor>>;
  /** Tensors read ahead that nobody has asked for yet. */
  readonly waiting: Map<string, QTensor>;
}

export class QuantizedVarBuilder implements Disposable {
  readonly #shared: Shared;
  readonly #prefix: string;

  private constructor(shared: Shared, prefix: string) {
    this.#shared = shared;
    this.#prefix = prefix;
  }

  /** The file must stay open while tensors are asked for. */
  static fromGguf(file: TensorFile, device: DeviceLike, options: QuantizedVarBuilderOptions = {}): QuantizedVarBuilder {
    return new QuantizedVarBuilder(
      { file, device: Device.of(device), options, given: new Map(), waiting: new Map() },
      '',
    );
  }

  /** The same for a file in memory, which is kept as long as the builder. */
  static fromGgufBuffer(
    bytes: Uint8Array,
    device: DeviceLike,
    options: QuantizedVarBuilderOptions = {},
  ): QuantizedVarBuilder {
    return QuantizedVarBuilder.fromGguf(GgufFile.fromBytes(bytes), device, options);
  }

  get device(): Device {
    return this.#shared.device;
  }

  get file(): TensorFile {
    return this.#shared.file;
  }

  /** What is put before names, with dots between its parts. */
  get prefix(): string {
    return this.#prefix;
  }

  /** A builder for names below `part`; numbers may be given as they are. */
  pp(part: string | number): QuantizedVarBuilder {
    return new QuantizedVarBuilder(this.#shared, this.path(String(part)));
  }

  /** The full name of a tensor. */
  path(name: string): string {
    return this.#prefix === '' ? name : `${this.#prefix}.${name}`;
  }

  containsKey(name: string): boolean {
    return this.file.tensors.has(this.path(name));
  }

  /**
   * The tensor, which the caller owns. Raises `FileFormatError`: `GGUF_MISSING_TENSOR` with near matches,
   * `GGUF_SHAPE_MISMATCH`, or `GGUF_UNKNOWN_TYPE`.
   */
  get(shape: readonly number[], name: string): QTensor {
    const path = this.path(name);
    const info = this.file.tensor(path);
    if (!sameShape(info.shape, shape)) {
      throw ggufError(
        'GGUF_SHAPE_MISMATCH',
        this.file.path,
        `tensor '${path}' is ${formatShape(info.shape)} and the model asks for ${formatShape(shape)}. Check that the ` +
          'metadata (layers, widths, vocabulary) belongs to these weights.',
      );
    }
    return this.#own(path);
  }

  /** The tensor whatever its shape, which the caller owns. */
  getNoShape(name: string): QTensor {
    return this.#own(this.path(name));
  }

  /**
   * Reads tensors ahead without blocking the event loop: those named, or all under this prefix. They are kept until
   * they are asked for, or until `dispose()`.
   */
  async preload(names?: Iterable<string>, options: PreloadOptions = {}): Promise<void> {
    const { file, device, waiting } = this.#shared;
    const below = this.#prefix === '' ? '' : `${this.#prefix}.`;
    const all = [...file.tensors.keys()].filter((name) => name.startsWith(below));
    const paths = names === undefined ? all : [...names].map((name) => this.path(name));
    const load: QTensorLoadOptions = { ...this.#shared.options, signal: options.signal };
    for (const [i, path] of paths.entries()) {
      if (this.#alive(path) === undefined) waiting.set(path, await QTensor.load(file, path, device, load));
      options.onProgress?.(i + 1, paths.length);
    }
  }

  /** Gives back what was read ahead and never asked for. The tensors given out belong to those who asked. */
  dispose(): void {
    for (const tensor of this.#shared.waiting.values()) tensor.dispose();
    this.#shared.waiting.clear();
  }

  [Symbol.dispose](): void {
    this.dispose();
  }

  #alive(path: string): QTensor | undefined {
    const { given, waiting } = this.#shared;
    const tensor = waiting.get(path) ?? given.get(path)?.deref();
    return tensor === undefined || tensor.isDisposed ? undefined : tensor;
  }

  #own(path: string): QTensor {
    const { file, device, options, given, waiting } = this.#shared;
    const known = this.#alive(path);
    const ahead = waiting.get(path) === known && waiting.delete(path);
    const tensor = known === undefined ? QTensor.fromGguf(file, path, device, options) : ahead ? known : known.share();
    given.set(path, new WeakRef(tensor));
    return tensor;
  }
}
