/**
 * `Tensor`: the class that people use, here with the ways to create one. Operations are inherited, a file a family, from
 * tensor/*.ts. Mirrors candle's `Tensor` (candle-core/src/tensor.rs) with camelCase names.
 *
 * Every operation returns a new tensor that the caller owns, also where it shares memory with its input; operations never
 * consume their inputs. Give memory back with `dispose()`, `using` or `scope()`.
 *
 * Comments of methods say which shapes and dtypes they take and what they throw beyond what all do: a DisposedError for a
 * disposed tensor, a DeviceError for operands on different devices, an OutOfMemoryError, and an UnsupportedError for a dtype
 * that a device has no kernel for. Their examples are run as tests.
 */
import type { BackendStorage } from './backend';
import { brand } from './brand';
import { refuseInCapture } from './capture-state';
import { checkCalls } from './checked-calls';
import { randomOf } from './composed/random';
import { Device, type DeviceLike } from './device';
import { type DType, isDType, isFloat, sizeInBytes } from './dtype';
import { CandleError, DTypeError, ShapeError } from './errors';
import { NpzFile, readNpy, readNpySync, writeNpz } from './files/npy';
import type { FileInput } from './files/source';
import type { LoadOptions } from './files/types';
import { allocRaw, bytesOf, dtypeOfArray, encodeInput, encodeScalar, heldScalar } from './host-array';
import { Layout } from './layout';
import { LINE } from './one-core';
import { elemCount, formatShape, type Shape, validateShape } from './shape';
import { type SharedTensor, tensorFromShared } from './shared-tensor';
import type { StorageRef } from './storage-ref';
import { filledBy, nameTensorClass, tensorOf } from './tensor/base';
import { displayTensor } from './tensor/display';
import { TensorFiles } from './tensor/files';
import { cat, meshgrid, stack } from './tensor/joining';
import { dtypeOfValue, flatten, shapeOfData, type TensorData } from './tensor/nested-data';
import { METHODS, STATICS } from './tensor/signatures';

export interface TensorOptions {
  /** Default: `f32`, or what the data stands for. */
  dtype?: DType;
  /** A device or its name. Default: `Device.current()`, which is `Device.cpu()` outside of `Device.scoped`. */
  device?: DeviceLike;
}

export interface FromOptions extends TensorOptions {
  /** Default: the nesting of the data; a typed array is one-dimensional. One size may be -1: what the others leave. */
  shape?: Shape;
}

/** candle's order, `(…, dtype, device)`, or one options object. */
type Options = TensorOptions | DType | undefined;

/** candle's `Tensor`: elements of one dtype on one device, in memory that views may share. */
export class Tensor extends TensorFiles {
  /** @internal */
  override make(ref: StorageRef, layout: Layout): Tensor {
    return new Tensor(ref, layout);
  }

  /**
   * Zeros of any shape and dtype (default f32).
   * @throws ShapeError `INVALID_SHAPE`, DTypeError
   * @example
   * ```ts
   * Tensor.zeros([2, 2], 'u8').toVecSync(); // => [[0, 0], [0, 0]]
   * Tensor.zeros([3], { dtype: 'f64', device: Device.js() }).dtype; // => 'f64'
   * ```
   */
  static zeros(shape: Shape, options?: Options, device?: DeviceLike): Tensor {
    const { dtype, on } = resolve('zeros', options, device);
    const checked = validateShape('zeros', shape);
    return tensorOf(on.backend.zeros(elemCount(checked), dtype), checked, on);
  }

  /** Ones of any shape and dtype (default f32). @throws ShapeError `INVALID_SHAPE`, DTypeError */
  static ones(shape: Shape, options?: Options, device?: DeviceLike): Tensor {
    return Tensor.full(1, shape, options, device);
  }

  /**
   * Every element `value`; candle's argument order. Any shape and dtype (default f32).
   * @throws ShapeError `INVALID_SHAPE`; DTypeError, also for a value that an integer dtype cannot hold
   * @example
   * ```ts
   * Tensor.full(7, [2], 'i64').toVecSync(); // => [7n, 7n]
   * ```
   */
  static full(value: number | bigint, shape: Shape, options?: Options, device?: DeviceLike): Tensor {
    const { dtype, on } = resolve('full', options, device);
    const checked = validateShape('full', shape);
    const count = elemCount(checked);
    const held = heldScalar('full', dtype, value);
    const storage = filledBy(on.backend.allocUninit(count, dtype), (storage) => {
      if (count > 0) on.backend.ops.fill({ storage, layout: Layout.contiguous(checked) }, held);
    });
    return tensorOf(storage, checked, on);
  }

  /**
   * Memory with arbitrary contents, to be written by `sliceSet` and the like. Any shape and dtype (default f32).
   * @throws ShapeError `INVALID_SHAPE`, DTypeError
   */
  static empty(shape: Shape, options?: Options, device?: DeviceLike): Tensor {
    const { dtype, on } = resolve('empty', options, device);
    const checked = validateShape('empty', shape);
    return tensorOf(on.backend.allocUninit(elemCount(checked), dtype), checked, on);
  }

  /**
   * From a number, nested arrays or a typed array. Without `dtype`, a typed array gives its own (Float32Array: f32, ...),
   * bigints i64, booleans u8, numbers f32. Data are always values; raw f16 or bf16 bits come in through {@link fromBytes}.
   * @throws ShapeError for ragged nesting or a shape of another count, DTypeError for what an integer dtype cannot hold
   */
  static from(data: TensorData, options: FromOptions = {}): Tensor {
    const flat = flatten(data);
    const natural = ArrayBuffer.isView(flat.values) ? dtypeOfArray(flat.values) : dtypeOfValue(flat.values[0]);
    const dtype = options.dtype ?? natural;
    if (!dtype) {
      const name = flat.values.constructor.name;
      throw new DTypeError(
        'DTYPE_MISMATCH',
        `Tensor.from: ${name} stands for no dtype; name one with the dtype option.`,
      );
    }
    const { on } = resolve('from', { ...options, dtype });
    const shape = options.shape ? shapeOfData(options.shape, flat.values.length) : flat.shape;
    if (elemCount(shape) !== flat.values.length) {
      throw new ShapeError(
        'SHAPE_MISMATCH',
        `Tensor.from: shape ${formatShape(shape)} needs ${elemCount(shape)} elements and the data have ${flat.values.length}; give as many.`,
      );
    }
    const same = natural === dtype && ArrayBuffer.isView(flat.values);
    const raw = same ? (flat.values as unknown as ArrayBufferView) : encodeInput('Tensor.from', dtype, flat.values);
    return tensorOf(on.backend.fromHost(raw, dtype), shape, on);
  }

  /**
   * {@link from} with candle's positions: data, shape, dtype, device; the same errors.
   * @example
   * ```ts
   * Tensor.fromArray([1, 2, 3, 4], [2, 2], 'u32').toVecSync(); // => [[1, 2], [3, 4]]
   * ```
   */
  static fromArray(data: TensorData, shape?: Shape | null, options?: Options, device?: DeviceLike): Tensor {
    const given =
      typeof options === 'string' ? { dtype: options, device } : { ...options, device: options?.device ?? device };
    return Tensor.from(data, { ...given, shape: shape ?? undefined });
  }

  /**
   * From raw little-endian bytes in row-major order, of any dtype; f16, bf16 and f8e4m3 as their bits.
   * @throws ShapeError `SHAPE_MISMATCH` for another number of bytes
   * @example
   * ```ts
   * Tensor.fromBytes(Uint16Array.of(0x3c00), [1], 'f16').toVecSync(); // => [1]
   * ```
   */
  static fromBytes(bytes: ArrayBufferView, shape: Shape, options?: Options, device?: DeviceLike): Tensor {
    const { dtype, on } = resolve('fromBytes', options, device);
    const checked = validateShape('fromBytes', shape);
    const needed = elemCount(checked) * sizeInBytes(dtype);
    if (bytes.byteLength !== needed) {
      throw new ShapeError(
        'SHAPE_MISMATCH',
        `fromBytes: ${formatShape(checked)} of ${dtype} needs ${needed} bytes and ${bytes.byteLength} are given; give as many.`,
      );
    }
    return tensorOf(on.backend.fromHost(bytes, dtype), checked, on);
  }

  /** Takes over a backend storage that holds exactly `shape`, contiguous. The tensor disposes it. */
  static fromStorage(storage: BackendStorage, shape: Shape, device: DeviceLike): Tensor {
    const checked = validateShape('fromStorage', shape);
    if (storage.elemCount < elemCount(checked)) {
      throw new ShapeError(
        'SHAPE_MISMATCH',
        `fromStorage: ${formatShape(checked)} needs ${elemCount(checked)} elements and the storage has ${storage.elemCount}; give a smaller shape.`,
      );
    }
    return tensorOf(storage, checked, Device.of(device));
  }

  /**
   * start, start + 1, ... below `end`: rank 1, any dtype (default f32). See {@link arangeStep}.
   * @example
   * ```ts
   * Tensor.arange(2, 5, 'u32').toVecSync(); // => [2, 3, 4]
   * ```
   */
  static arange(start: number, end: number, options?: Options, device?: DeviceLike): Tensor {
    return Tensor.arangeStep(start, end, 1, options, device);
  }

  /**
   * start, start + step, ... up to but without `end`; the step may be negative. Rank 1, any dtype (default f32). Whole
   * numbers in i64 are exact beyond 2^53 too.
   * @throws CandleError `INVALID_ARGUMENT` for a step of 0 or an endless range; DTypeError for what a dtype cannot hold
   * @example
   * ```ts
   * Tensor.arangeStep(5, 0, -2).toVecSync(); // => [5, 3, 1]
   * ```
   */
  static arangeStep(start: number, end: number, step: number, options?: Options, device?: DeviceLike): Tensor {
    const { dtype, on } = resolve('arange', options, device);
    const count = Math.max(0, Math.ceil((end - start) / step));
    if (step === 0 || !Number.isSafeInteger(count)) {
      throw new CandleError(
        'INVALID_ARGUMENT',
        `arange: no finite range goes from ${start} to ${end} by ${step}; correct the step.`,
      );
    }
    const isExact = dtype !== 'i64' || Math.max(Math.abs(start), Math.abs(end)) <= 2 ** 52;
    if (!isExact && [start, end, step].every(Number.isInteger)) {
      return Tensor.from(wholeRange(BigInt(start), BigInt(end), BigInt(step)), { dtype, device: on });
    }
    const values = allocRaw('f64', count) as Float64Array;
    for (let i = 0; i < count; i++) values[i] = start + i * step;
    return Tensor.from(values, { dtype, device: on });
  }

  /**
   * The identity matrix [n, n] of any dtype (default f32).
   * @throws ShapeError `INVALID_SHAPE`
   * @example
   * ```ts
   * Tensor.eye(2).toVecSync(); // => [[1, 0], [0, 1]]
   * ```
   */
  static eye(n: number, options?: Options, device?: DeviceLike): Tensor {
    return triangle(n, (row, column) => row === column, resolve('eye', options, device));
  }

  /**
   * Ones on and below the diagonal of [n, n], zeros above; any dtype (default f32).
   * @example
   * ```ts
   * Tensor.tril2(2).toVecSync(); // => [[1, 0], [1, 1]]
   * ```
   */
  static tril2(n: number, options?: Options, device?: DeviceLike): Tensor {
    return triangle(n, (row, column) => column <= row, resolve('tril2', options, device));
  }

  /** Ones on and above the diagonal of [n, n], zeros below; any dtype (default f32). */
  static triu2(n: number, options?: Options, device?: DeviceLike): Tensor {
    return triangle(n, (row, column) => column >= row, resolve('triu2', options, device));
  }

  /**
   * Uniform in [lo, up), a float dtype (default f32); rounding may reach `up`. The stream is the device's: see
   * `Device.setSeed`.
   * @throws DTypeError for integers, ShapeError `INVALID_SHAPE`, CandleError `INVALID_ARGUMENT` for `lo` above `up`
   */
  static rand(lo: number, up: number, shape: Shape, options?: Options, device?: DeviceLike): Tensor {
    const { dtype, on } = resolve('rand', options, device);
    if (lo > up) {
      throw new CandleError('INVALID_ARGUMENT', `rand: lo is ${lo} and up is ${up}; give the smaller one first.`);
    }
    const checked = randomShape('rand', shape, dtype);
    const count = elemCount(checked);
    return tensorOf(
      count === 0 ? on.backend.zeros(0, dtype) : randomOf(on.backend).uniform(count, dtype, lo, up),
      checked,
      on,
    );
  }

  /**
   * Normal with mean and standard deviation, a float dtype (default f32); stream and errors as {@link rand}, and
   * `INVALID_ARGUMENT` for a deviation below 0.
   */
  static randn(mean: number, std: number, shape: Shape, options?: Options, device?: DeviceLike): Tensor {
    const { dtype, on } = resolve('randn', options, device);
    if (std < 0) throw new CandleError('INVALID_ARGUMENT', `randn: std is ${std}; give a number from 0.`);
    const checked = randomShape('randn', shape, dtype);
    const count = elemCount(checked);
    return tensorOf(
      count === 0 ? on.backend.zeros(0, dtype) : randomOf(on.backend).normal(count, dtype, mean, std),
      checked,
      on,
    );
  }

  /**
   * Tensors one after the other along an existing dimension; all other sizes, dtype and device must agree. Any dtype.
   * @throws ShapeError `SHAPE_MISMATCH`, `INVALID_SHAPE` for none; DTypeError
   * @example
   * ```ts
   * Tensor.cat([Tensor.from([1, 2]), Tensor.from([3])], 0).toVecSync(); // => [1, 2, 3]
   * ```
   */
  static cat(tensors: readonly Tensor[], dim: number): Tensor {
    return cat(tensors, dim);
  }

  /**
   * Tensors of one shape and dtype along a new dimension.
   * @throws ShapeError `SHAPE_MISMATCH`, DTypeError
   * @example
   * ```ts
   * Tensor.stack([Tensor.from([1, 2]), Tensor.from([3, 4])], 1).toVecSync(); // => [[1, 3], [2, 4]]
   * ```
   */
  static stack(tensors: readonly Tensor[], dim: number): Tensor {
    return stack(tensors, dim);
  }

  /**
   * Coordinates of a grid from two or more rank-1 tensors: one tensor each, of the shape of all sizes together, that
   * repeats it along the other dimensions.
   * @param xyIndexing as candle: the last tensor is the first dimension, which for two tensors is numpy's `xy`
   */
  static meshgrid(tensors: readonly Tensor[], xyIndexing: boolean): Tensor[] {
    return meshgrid(tensors, xyIndexing);
  }

  /**
   * The array of an npy file (or its bytes), as numpy's `save` writes it, row-major; any shape. Types without a counterpart
   * are widened: bool to u8, i8 to i16, u16 to u32, u64 to i64.
   * @throws FileFormatError `FILE_NOT_FOUND`, `FILE_TRUNCATED`, `FILE_INVALID`; UnsupportedError for complex numbers, text,
   * dates and Python objects
   */
  static async readNpy(file: FileInput, device?: DeviceLike, options?: LoadOptions): Promise<Tensor> {
    return readNpy(file, device, options);
  }

  /** As {@link readNpy}, blocking the event loop. */
  static readNpySync(file: FileInput, device?: DeviceLike, options?: LoadOptions): Tensor {
    return readNpySync(file, device, options);
  }

  /** All arrays of an npz file, in its order; errors as {@link readNpy}. One at a time: `NpzFile`. */
  static async readNpz(file: FileInput, device?: DeviceLike, options?: LoadOptions): Promise<Map<string, Tensor>> {
    using npz = NpzFile.open(file);
    return await npz.loadAll(device, options);
  }

  /** The arrays of these names, in the order of the names. @throws FileFormatError `FILE_NO_SUCH_TENSOR`, as {@link readNpy} */
  static async readNpzByName(
    file: FileInput,
    names: readonly string[],
    device?: DeviceLike,
    options?: LoadOptions,
  ): Promise<Tensor[]> {
    using npz = NpzFile.open(file);
    const loaded: Tensor[] = [];
    try {
      for (const name of names) loaded.push(await npz.load(name, device, options));
      return loaded;
    } catch (error) {
      for (const tensor of loaded) tensor.dispose();
      throw error;
    }
  }

  /**
   * Writes named tensors to an npz file; the file is complete or absent.
   * @param options.deflate compresses, as numpy's `savez_compressed`; default false
   * @throws FileFormatError `FILE_UNWRITABLE`
   */
  static async writeNpz(
    tensors: Readonly<Record<string, Tensor>> | ReadonlyMap<string, Tensor>,
    path: string,
    options?: { deflate?: boolean },
  ): Promise<void> {
    return writeNpz(path, tensors, options);
  }

  /**
   * A tensor of its own from what `toShared` gave in another thread.
   * @throws CandleError `INVALID_ARGUMENT`
   */
  static fromShared(shared: SharedTensor, device?: DeviceLike): Tensor {
    return tensorFromShared(shared, device);
  }

  /**
   * What `module` makes of this tensor: `x.apply(layer).apply(activation)` reads in the order of the work.
   * @param module a function, or an object with `forward`
   * @example
   * ```ts
   * Tensor.from([1, 2]).apply((x) => x.mul(2)).toVecSync(); // => [2, 4]
   * ```
   */
  apply(module: ((xs: Tensor) => Tensor) | { forward(xs: Tensor): Tensor }): Tensor {
    return typeof module === 'function' ? module(this) : module.forward(this);
  }

  /** {@link apply} for modules that differ in training, such as dropout: candle's `ModuleT`. */
  applyT(module: { forwardT(xs: Tensor, train: boolean): Tensor }, train: boolean): Tensor {
    return module.forwardT(this, train);
  }

  /** Memory with arbitrary contents, of this shape and dtype, on this device. */
  emptyLike(): Tensor {
    return Tensor.empty(this.shape, this.dtype, this.device);
  }

  /**
   * The values as a table like PyTorch's, and a line with shape, dtype and device; see `setPrintOptions`. Reads the values
   * that are shown and blocks until they are there; {@link describe} gives the line alone.
   * @example
   * ```ts
   * String(Tensor.from([[1, 2.5], [-3, 4]])).split('\n')[0]; // => '[[ 1.0000,  2.5000],'
   * ```
   */
  override toString(): string {
    return displayTensor(this);
  }

  /** What `console.log` shows: the table, inside of deep objects the line alone. */
  [Symbol.for('nodejs.util.inspect.custom')](depth?: number | null): string {
    return typeof depth === 'number' && depth < 0 ? this.describe() : displayTensor(this);
  }

  /** Zeros of this shape and dtype, on this device. */
  zerosLike(): Tensor {
    return Tensor.zeros(this.shape, this.dtype, this.device);
  }

  /** Ones of this shape and dtype, on this device. */
  onesLike(): Tensor {
    return Tensor.ones(this.shape, this.dtype, this.device);
  }

  /** {@link Tensor.rand} of this shape and dtype, on this device. */
  randLike(lo: number, up: number): Tensor {
    return Tensor.rand(lo, up, this.shape, this.dtype, this.device);
  }

  /** {@link Tensor.randn} of this shape and dtype, on this device. */
  randnLike(mean: number, std: number): Tensor {
    return Tensor.randn(mean, std, this.shape, this.dtype, this.device);
  }
}

brand(Tensor, 'x.core.tensor', LINE);
nameTensorClass(Tensor);
checkCalls(Tensor.prototype, METHODS);
checkCalls(Tensor, STATICS, 'Tensor.');

function resolve(op: string, options: Options, device?: DeviceLike): { dtype: DType; on: Device } {
  const given = typeof options === 'string' ? { dtype: options, device } : options;
  const dtype = given?.dtype ?? 'f32';
  if (!isDType(dtype)) throw new DTypeError('DTYPE_MISMATCH', `${op}: "${dtype}" is no dtype; use one of DTYPES.`);
  return { dtype, on: Device.of(given?.device ?? device) };
}

function randomShape(op: string, shape: Shape, dtype: DType): number[] {
  refuseInCapture(
    `${op}: every replay of a graph would give the same numbers, so none can be made`,
    'make the tensor before, and write new numbers into it with copyFrom before each replay()',
  );
  if (!isFloat(dtype)) {
    throw new DTypeError(
      'DTYPE_MISMATCH',
      `${op}: random numbers are floats, not ${dtype}; make f32 ones and convert with toDtype.`,
    );
  }
  return validateShape(op, shape);
}

/** start, start + step, ... without `end`. */
function wholeRange(start: bigint, end: bigint, step: bigint): bigint[] {
  const values: bigint[] = [];
  for (let value = start; step > 0n ? value < end : value > end; value += step) values.push(value);
  return values;
}

function triangle(
  n: number,
  inside: (row: number, column: number) => boolean,
  { dtype, on }: { dtype: DType; on: Device },
): Tensor {
  const shape = validateShape('eye', [n, n]);
  const one = encodeScalar(dtype, 1)[0];
  const raw = allocRaw(dtype, n * n);
  for (let i = 0; i < n * n; i++) if (inside(Math.floor(i / n), i % n)) raw[i] = one;
  return tensorOf(on.backend.fromHost(bytesOf(raw), dtype), shape, on);
}
