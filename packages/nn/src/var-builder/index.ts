/**
 * Weights by name: candle-nn's `VarBuilder` (var_builder.rs), `vb.pp('mlp').pp('up_proj')` then `get([n, k], 'weight')`.
 *
 * Different from candle: a tensor is read when it is asked for and streamed to its device, so nothing is mapped and a model
 * may use part of a file; `get` is asynchronous, `getSync` blocks. The functions that make layers (`linear(4, 2, vb)`) block:
 * for large files, `await vb.get(...)` and call the layer's constructor.
 */
import {
  CandleError,
  Device,
  type DeviceLike,
  type DType,
  FileFormatError,
  type FileInput,
  formatShape,
  kinds,
  resolveDim,
  type Shape,
  ShapeError,
  sameShape,
  scope,
  type Tensor,
  Var,
} from '@x/core';
import {
  NpzFile,
  PthFile,
  type PthOptions,
  SafetensorsFile,
  ShardedSafetensors,
  type TensorReader,
} from '@x/core/files';
import { type Init, ZERO } from '../init';
import type { VarMap } from '../var-map';
import { METHODS, STATICS } from './signatures';
import { FileSource, RenamedSource, TensorSource, type VarSource, ZerosSource } from './source';

export type { VarSource } from './source';

export interface VarBuilderOptions {
  /** What tensors are converted to. Default: what they are stored as. */
  dtype?: DType;
  /** A device or its name. Default: `Device.current()`. */
  device?: DeviceLike;
}

export interface GetOptions {
  /** Overrides the builder's dtype for one tensor. */
  dtype?: DType;
  /** Stops reading a file, where the call does not block; the promise rejects with the signal's reason. */
  signal?: AbortSignal;
}

/** One of `worldSize` equal parts of a tensor along a dimension: candle's `Shard`. */
export interface Shard {
  dim: number;
  /** Which part, from 0. */
  rank: number;
  worldSize: number;
}

/** @typeParam Weight what `get` gives: tensors, or weights in a form of their own (`QTensor` of `@x/quantized`) */
export class VarBuilder<Weight extends Disposable = Tensor> implements Disposable {
  private constructor(
    private readonly source: VarSource<Weight>,
    readonly device: Device,
    /** What tensors are converted to; undefined: what they are stored as. */
    readonly dtype: DType | undefined,
    /** What is put before names, with dots between its parts. */
    readonly prefix: string,
  ) {}

  /** Tensors in memory, which stay the caller's: `get` gives views of them, or converted copies. */
  static fromTensors(
    tensors: Readonly<Record<string, Tensor>> | ReadonlyMap<string, Tensor>,
    options: VarBuilderOptions = {},
  ): VarBuilder {
    const map = new Map(tensors instanceof Map ? tensors : Object.entries(tensors));
    return VarBuilder.fromBackend(new TensorSource(map), options);
  }

  /**
   * One file, several shards, or a `*.safetensors.index.json` that names the shards beside it. Headers are read at once;
   * the files stay open until {@link dispose}.
   * @throws FileFormatError as `SafetensorsFile.open`, `FILE_INVALID` for a bad index or a name in two files
   */
  static fromSafetensors(files: string | readonly string[], options: VarBuilderOptions = {}): VarBuilder {
    const given = typeof files !== 'string' && files.length === 1 ? files[0] : files;
    const single = typeof given === 'string' && !given.endsWith('.index.json');
    const file = single ? SafetensorsFile.open(given) : ShardedSafetensors.open(given);
    return VarBuilder.fromBackend(new FileSource(file), options);
  }

  /** The bytes of a safetensors file, which must not change while tensors are asked for. */
  static fromBufferedSafetensors(data: Uint8Array, options: VarBuilderOptions = {}): VarBuilder {
    return VarBuilder.fromBackend(new FileSource(SafetensorsFile.open(data)), options);
  }

  /** The arrays of a numpy npz file. */
  static fromNpz(file: FileInput, options: VarBuilderOptions = {}): VarBuilder {
    return VarBuilder.fromBackend(new FileSource(NpzFile.open(file)), options);
  }

  /** The tensors of a PyTorch file. @param options with `key`, which entry of the saved dictionary has them */
  static fromPth(file: FileInput, options: VarBuilderOptions & PthOptions = {}): VarBuilder {
    return VarBuilder.fromBackend(new FileSource(PthFile.open(file, options)), options);
  }

  /** Any other place that tensors come from. */
  static fromBackend<Weight extends Disposable = Tensor>(
    source: VarSource<Weight>,
    options: VarBuilderOptions = {},
  ): VarBuilder<Weight> {
    return new VarBuilder(source, Device.of(options.device), options.dtype, '');
  }

  /** Zeros of every shape that is asked for, f32 unless a dtype is given. */
  static zeros(options: VarBuilderOptions = {}): VarBuilder {
    return VarBuilder.fromBackend(new ZerosSource(), options);
  }

  /** The variables of a map, which are made and initialised when they are first asked for: for training. */
  static fromVarMap(map: VarMap, options: VarBuilderOptions = {}): VarBuilder {
    return VarBuilder.fromBackend(map.source, options);
  }

  /** The tensors of an open `GgufFile`, dequantised when they are asked for. The file stays the caller's to close. */
  static fromGguf(file: TensorReader, options: VarBuilderOptions = {}): VarBuilder {
    return VarBuilder.fromBackend(new FileSource(file, { close: false }), options);
  }

  /** A builder for names below `part`; numbers may be given as they are. */
  pp(part: string | number): VarBuilder<Weight> {
    return new VarBuilder(this.source, this.device, this.dtype, this.path(String(part)));
  }

  /** candle's name for {@link pp}. */
  pushPrefix(part: string | number): VarBuilder<Weight> {
    return this.pp(part);
  }

  /** The same tensors under another prefix, in place of this one's. */
  setPrefix(prefix: string): VarBuilder<Weight> {
    return new VarBuilder(this.source, this.device, this.dtype, prefix);
  }

  /** The same tensors without a prefix. */
  root(): VarBuilder<Weight> {
    return this.setPrefix('');
  }

  /** The same tensors converted to another dtype. */
  toDtype(dtype: DType): VarBuilder<Weight> {
    return new VarBuilder(this.source, this.device, dtype, this.prefix);
  }

  /** candle's name for {@link toDtype}. */
  setDtype(dtype: DType): VarBuilder<Weight> {
    return this.toDtype(dtype);
  }

  /** The same tensors on another device. */
  setDevice(device: DeviceLike): VarBuilder<Weight> {
    return new VarBuilder(this.source, Device.of(device), this.dtype, this.prefix);
  }

  /** Asks the source for `rename(path)` wherever this builder is asked for a path. */
  renameF(rename: (path: string) => string): VarBuilder<Weight> {
    return new VarBuilder(new RenamedSource(this.source, rename), this.device, this.dtype, this.prefix);
  }

  /** The full name of a tensor. */
  path(name: string): string {
    return this.prefix === '' ? name : `${this.prefix}.${name}`;
  }

  /** Always so for {@link zeros}, which makes what is asked for. */
  containsTensor(name: string): boolean {
    return this.source instanceof ZerosSource || this.source.shapeOf(this.path(name)) !== undefined;
  }

  /** Full names of all tensors below the prefix. */
  names(): string[] {
    return this.source.names().filter((name) => this.prefix === '' || name.startsWith(`${this.prefix}.`));
  }

  /** Bytes that a tensor takes where it is stored. @throws FileFormatError FILE_NO_SUCH_TENSOR */
  byteLength(name: string): number {
    return this.source.bytesOf(this.existing(name));
  }

  /**
   * A weight, which the caller owns.
   * @param shape what the model needs; another one in the file is an error
   * @throws FileFormatError FILE_NO_SUCH_TENSOR with the nearest names, ShapeError SHAPE_MISMATCH
   */
  async get(shape: Shape, name: string, options: GetOptions = {}): Promise<Weight> {
    return this.getWithHints(shape, name, ZERO, options);
  }

  /** As {@link get}, blocking the event loop. */
  getSync(shape: Shape, name: string, options: GetOptions = {}): Weight {
    return this.getWithHintsSync(shape, name, ZERO, options);
  }

  /** As {@link get}, saying how the tensor starts where the source makes it (a VarMap). */
  async getWithHints(shape: Shape, name: string, init: Init, options: GetOptions = {}): Promise<Weight> {
    const made = this.created(shape, name, init, options);
    return (
      made ?? this.source.load(this.checked(shape, name), this.device, options.dtype ?? this.dtype, options.signal)
    );
  }

  /** As {@link getWithHints}, blocking the event loop: what `linear`, `conv2d` and so on use, as in candle. */
  getWithHintsSync(shape: Shape, name: string, init: Init, options: GetOptions = {}): Weight {
    const made = this.created(shape, name, init, options);
    return made ?? this.source.loadSync(this.checked(shape, name), this.device, options.dtype ?? this.dtype);
  }

  /** As {@link get}, of whatever shape the tensor has. */
  async getUnchecked(name: string, options: GetOptions = {}): Promise<Weight> {
    const path = this.existing(name);
    return this.source.load(path, this.device, options.dtype ?? this.dtype, options.signal);
  }

  /** As {@link getUnchecked}, blocking the event loop. */
  getUncheckedSync(name: string, options: GetOptions = {}): Weight {
    const path = this.existing(name);
    return this.source.loadSync(path, this.device, options.dtype ?? this.dtype);
  }

  /**
   * One part of a tensor that several devices share: candle's `ShardedVarBuilder`. The whole tensor is on the device while
   * it is cut.
   * @throws ShapeError when the dimension is no multiple of `worldSize`, CandleError INVALID_ARGUMENT for another rank
   */
  async getShard(this: VarBuilder, name: string, shard: Shard, options: GetOptions = {}): Promise<Tensor> {
    this.checkShard(name, shard);
    return cut(await this.getUnchecked(name, options), shard);
  }

  /** As {@link getShard}, blocking the event loop. */
  getShardSync(this: VarBuilder, name: string, shard: Shard, options: GetOptions = {}): Tensor {
    this.checkShard(name, shard);
    return cut(this.getUncheckedSync(name, options), shard);
  }

  /** Closes files; for this builder and all made from it. Tensors given out stay. */
  dispose(): void {
    this.source.close();
  }

  [Symbol.dispose](): void {
    this.dispose();
  }

  private created(shape: Shape, name: string, init: Init, options: GetOptions): Weight | undefined {
    const path = this.path(name);
    if (!this.source.create || this.source.shapeOf(path) !== undefined) return undefined;
    return this.source.create(path, shape, init, options.dtype ?? this.dtype ?? 'f32', this.device);
  }

  private checkShard(name: string, { dim, rank, worldSize }: Shard): void {
    const path = this.existing(name);
    const shape = this.source.shapeOf(path)!;
    const size = shape[resolveDim('getShard', dim, shape)];
    if (!Number.isInteger(worldSize) || !Number.isInteger(rank) || rank < 0 || rank >= worldSize) {
      throw new CandleError(
        'INVALID_ARGUMENT',
        `getShard: part ${rank} of ${worldSize} of tensor "${path}"; give a whole number from 0 below the number of parts.`,
      );
    }
    if (size % worldSize !== 0) {
      throw new ShapeError(
        'SHAPE_MISMATCH',
        `getShard: dimension ${dim} of tensor "${path}", ${formatShape(shape)}, has no ${worldSize} equal parts; use another number of parts.`,
      );
    }
  }

  private existing(name: string): string {
    const path = this.path(name);
    if (this.source.shapeOf(path) === undefined) throw this.missing(path);
    return path;
  }

  private checked(shape: Shape, name: string): string {
    const path = this.existing(name);
    const found = this.source.shapeOf(path)!;
    if (!sameShape(found, shape)) {
      throw new ShapeError(
        'SHAPE_MISMATCH',
        `${this.source.label}: tensor "${this.stored(path)}" is ${formatShape(found)} and the model asks for ${formatShape(shape)}; check that configuration and weights belong together.`,
      );
    }
    return path;
  }

  /** What a tensor is called where it is stored. */
  private stored(path: string): string {
    return this.source.storedName?.(path) ?? path;
  }

  private missing(asked: string): FileFormatError {
    const path = this.stored(asked);
    const names = this.source.names();
    const last = path.slice(path.lastIndexOf('.') + 1);
    const parent = path.slice(0, path.lastIndexOf('.') + 1);
    // Names with the same parent say what the layer has, names with the same end where such layers are.
    const near = names
      .filter((name) => (parent !== '' && name.startsWith(parent)) || name.endsWith(`.${last}`))
      .slice(0, 4);
    const hint = near.length > 0 ? ` Names like it: ${near.join(', ')}.` : '';
    return new FileFormatError(
      'FILE_NO_SUCH_TENSOR',
      `${this.source.label}: there is no tensor "${path}" among ${names.length}.${hint} Check that the weights are of the architecture that is being loaded.`,
      { path: this.source.label },
    );
  }
}

/** A part of `whole` in memory of its own; `whole` is disposed. */
function cut(whole: Tensor, { dim, rank, worldSize }: Shard): Tensor {
  try {
    const size = whole.dim(dim) / worldSize;
    return scope(() => whole.narrow(dim, rank * size, size).copy());
  } finally {
    if (!(whole instanceof Var)) whole.dispose();
  }
}

kinds.checkCalls(VarBuilder, STATICS, 'VarBuilder.');
kinds.checkCalls(VarBuilder.prototype, METHODS, 'VarBuilder.');
