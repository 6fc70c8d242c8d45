/**
 * Where a `VarBuilder` gets its tensors: candle-nn's `SimpleBackend` (var_builder.rs). Implement it to load from somewhere
 * else, and give it to `VarBuilder.fromBackend`.
 */
import { CandleError, type Device, type DType, type Shape, Tensor } from '@x/core';
import type { TensorReader } from '@x/core/files';
import type { Init } from '../init';

/** @typeParam Weight as of `VarBuilder` */
export interface VarSource<Weight extends Disposable = Tensor> {
  /** For messages. */
  readonly label: string;
  /** All tensors, by their stored names. */
  names(): string[];
  /** What a tensor is called where it is stored, for messages; default: what it is asked for by. */
  storedName?(name: string): string;
  /** Undefined when there is no such tensor. */
  shapeOf(name: string): Shape | undefined;
  /** Bytes that the tensor takes where it is stored. Called for names that exist. */
  bytesOf(name: string): number;
  /** A tensor that the caller owns, in `dtype` unless that is undefined. Called for names that exist. */
  load(name: string, device: Device, dtype: DType | undefined, signal?: AbortSignal): Promise<Weight>;
  /** As `load`, blocking. */
  loadSync(name: string, device: Device, dtype: DType | undefined): Weight;
  /** For sources that make what they are asked for: called instead of the other methods when a name is not there. */
  create?(name: string, shape: Shape, init: Init, dtype: DType, device: Device): Weight;
  /** Closes files; called once or more. */
  close(): void;
}

/** Tensors in memory, which stay their owner's. */
export class TensorSource implements VarSource {
  constructor(
    private readonly tensors: ReadonlyMap<string, Tensor>,
    readonly label = 'VarBuilder.fromTensors',
  ) {}

  names(): string[] {
    return [...this.tensors.keys()];
  }

  shapeOf(name: string): Shape | undefined {
    return this.tensors.get(name)?.shape;
  }

  bytesOf(name: string): number {
    const { ref } = this.tensors.get(name)!.handle;
    return ref?.bytes ?? 0;
  }

  async load(name: string, device: Device, dtype: DType | undefined): Promise<Tensor> {
    const tensor = this.tensors.get(name)!;
    const moved = await tensor.toDevice(device);
    return converted(moved, dtype);
  }

  loadSync(name: string, device: Device, dtype: DType | undefined): Tensor {
    return converted(this.tensors.get(name)!.toDeviceSync(device), dtype);
  }

  close(): void {}
}

/** Disposes `tensor` unless it is returned. */
function converted(tensor: Tensor, dtype: DType | undefined): Tensor {
  if (!dtype || dtype === tensor.dtype) return tensor;
  try {
    return tensor.toDtype(dtype);
  } finally {
    tensor.dispose();
  }
}

/** The tensors of an open file, which is closed with the source unless `close` is false. */
export class FileSource implements VarSource {
  constructor(
    private readonly file: TensorReader,
    private readonly owned: { close: boolean } = { close: true },
  ) {}

  get label(): string {
    return this.file.path;
  }

  names(): string[] {
    return this.file.names;
  }

  shapeOf(name: string): Shape | undefined {
    return this.file.has(name) ? this.file.info(name).shape : undefined;
  }

  bytesOf(name: string): number {
    return this.file.info(name).byteLength;
  }

  load(name: string, device: Device, dtype: DType | undefined, signal?: AbortSignal): Promise<Tensor> {
    return this.file.load(name, device, { dtype, signal });
  }

  loadSync(name: string, device: Device, dtype: DType | undefined): Tensor {
    return this.file.loadSync(name, device, { dtype });
  }

  close(): void {
    if (this.owned.close) this.file.close();
  }
}

/** Zeros of whatever shape is asked for. */
export class ZerosSource implements VarSource {
  readonly label = 'VarBuilder.zeros';

  names(): string[] {
    return [];
  }

  shapeOf(): undefined {
    return undefined;
  }

  bytesOf(): number {
    return 0;
  }

  load(name: string): Promise<Tensor> {
    return Promise.reject(new Error(`internal: ${name} was not made by create`));
  }

  loadSync(name: string): Tensor {
    throw new Error(`internal: ${name} was not made by create`);
  }

  create(_name: string, shape: Shape, _init: Init, dtype: DType, device: Device): Tensor {
    return Tensor.zeros(shape, dtype, device);
  }

  close(): void {}
}

/** Another source whose tensors are asked for by other names: candle's `Rename`. */
export class RenamedSource<Weight extends Disposable> implements VarSource<Weight> {
  readonly label: string;
  readonly create: VarSource<Weight>['create'];
  private readonly rename: (name: string) => string;

  constructor(
    private readonly inner: VarSource<Weight>,
    rename: (name: string) => string,
  ) {
    this.rename = (name) => {
      const renamed = rename(name);
      if (typeof renamed === 'string') return renamed;
      throw new CandleError(
        'INVALID_ARGUMENT',
        `VarBuilder.renameF: rename gave ${typeof renamed} for "${name}"; have it return a name.`,
      );
    };
    this.label = inner.label;
    if (inner.create) {
      this.create = (name, shape, init, dtype, device) => inner.create!(this.rename(name), shape, init, dtype, device);
    }
  }

  /** The names of the inner source: a function of names cannot be turned round. */
  names(): string[] {
    return this.inner.names();
  }

  storedName(name: string): string {
    const renamed = this.rename(name);
    return this.inner.storedName?.(renamed) ?? renamed;
  }

  shapeOf(name: string): Shape | undefined {
    return this.inner.shapeOf(this.rename(name));
  }

  bytesOf(name: string): number {
    return this.inner.bytesOf(this.rename(name));
  }

  load(name: string, device: Device, dtype: DType | undefined, signal?: AbortSignal): Promise<Weight> {
    return this.inner.load(this.rename(name), device, dtype, signal);
  }

  loadSync(name: string, device: Device, dtype: DType | undefined): Weight {
    return this.inner.loadSync(this.rename(name), device, dtype);
  }

  close(): void {
    this.inner.close();
  }
}
