/**
 * `Tensor`: the class that people use, here with the ways to create one. Operations are inherited, a file a family, from
 * tensor/*.ts. Mirrors candle's `Tensor` (candle-core/src/tensor.rs) with camelCase names.
 *
 * Every operation returns a new tensor that the caller owns, also where it shares memory with its input; operations never
 * consume their inputs. Give memory back with `dispose()`, `using` or `scope()`.
 */
import type { BackendStorage } from './backend';
import { Device } from './device';
import { type DType, isDType, isFloat, isInt, sizeInBytes } from './dtype';
import { CandleError, DTypeError, ShapeError } from './errors';
import { allocRaw, bytesOf, dtypeOfArray, encodeInput, encodeScalar } from './host-array';
import { Layout } from './layout';
import { elemCount, formatShape, type Shape, validateShape } from './shape';
import { StorageRef } from './storage-ref';
import { inspectTensor } from './tensor/format';
import { cat, meshgrid, stack } from './tensor/joining';
import { TensorSorting } from './tensor/sorting';

export interface TensorOptions {
  /** Default: `f32`, or what the data stands for. */
  dtype?: DType;
  /** Default: `Device.cpu()`. */
  device?: Device;
}

export interface FromOptions extends TensorOptions {
  /** Default: the nesting of the data; a typed array is one-dimensional. */
  shape?: Shape;
}

/** candle's order, `(…, dtype, device)`, or one options object. */
type Options = TensorOptions | DType | undefined;

/** Numbers, bigints or booleans nested in arrays of equal lengths, or a typed array. */
export type TensorData = number | bigint | boolean | ArrayBufferView | readonly TensorData[];

export class Tensor extends TensorSorting {
  static zeros(shape: Shape, options?: Options, device?: Device): Tensor {
    const { dtype, on } = resolve('zeros', options, device);
    const checked = validateShape('zeros', shape);
    return own(on.backend.zeros(elemCount(checked), dtype), checked, on);
  }

  static ones(shape: Shape, options?: Options, device?: Device): Tensor {
    return Tensor.full(1, shape, options, device);
  }

  /** Every element `value`; candle's argument order. */
  static full(value: number | bigint, shape: Shape, options?: Options, device?: Device): Tensor {
    const { dtype, on } = resolve('full', options, device);
    const checked = validateShape('full', shape);
    const count = elemCount(checked);
    if (isInt(dtype)) encodeInput('full', dtype, [value]);
    const storage = on.backend.allocUninit(count, dtype);
    if (count > 0) storage.constSet(value, Layout.contiguous(checked));
    return own(storage, checked, on);
  }

  /** Memory with arbitrary contents, to be written by `sliceSet` and the like. */
  static empty(shape: Shape, options?: Options, device?: Device): Tensor {
    const { dtype, on } = resolve('empty', options, device);
    const checked = validateShape('empty', shape);
    return own(on.backend.allocUninit(elemCount(checked), dtype), checked, on);
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
    const shape = options.shape ? validateShape('from', options.shape) : flat.shape;
    if (elemCount(shape) !== flat.values.length) {
      throw new ShapeError(
        'SHAPE_MISMATCH',
        `Tensor.from: shape ${formatShape(shape)} needs ${elemCount(shape)} elements and the data have ${flat.values.length}; give as many.`,
      );
    }
    const same = natural === dtype && ArrayBuffer.isView(flat.values);
    const raw = same ? (flat.values as unknown as ArrayBufferView) : encodeInput('Tensor.from', dtype, flat.values);
    return own(on.backend.fromHost(raw, dtype), shape, on);
  }

  /** {@link from} with candle's positions: data, shape, dtype, device. */
  static fromArray(data: TensorData, shape?: Shape | null, options?: Options, device?: Device): Tensor {
    const given =
      typeof options === 'string' ? { dtype: options, device } : { ...options, device: options?.device ?? device };
    return Tensor.from(data, { ...given, shape: shape ?? undefined });
  }

  /** From raw little-endian bytes, f16, bf16 and f8e4m3 included. */
  static fromBytes(bytes: ArrayBufferView, shape: Shape, options?: Options, device?: Device): Tensor {
    const { dtype, on } = resolve('fromBytes', options, device);
    const checked = validateShape('fromBytes', shape);
    const needed = elemCount(checked) * sizeInBytes(dtype);
    if (bytes.byteLength !== needed) {
      throw new ShapeError(
        'SHAPE_MISMATCH',
        `fromBytes: ${formatShape(checked)} of ${dtype} needs ${needed} bytes and ${bytes.byteLength} are given; give as many.`,
      );
    }
    return own(on.backend.fromHost(bytes, dtype), checked, on);
  }

  /** Takes over a backend storage that holds exactly `shape`, contiguous. The tensor disposes it. */
  static fromStorage(storage: BackendStorage, shape: Shape, device: Device): Tensor {
    const checked = validateShape('fromStorage', shape);
    if (storage.elemCount < elemCount(checked)) {
      throw new ShapeError(
        'SHAPE_MISMATCH',
        `fromStorage: ${formatShape(checked)} needs ${elemCount(checked)} elements and the storage has ${storage.elemCount}; give a smaller shape.`,
      );
    }
    return own(storage, checked, device);
  }

  /** start, start + 1, ... below `end`. */
  static arange(start: number, end: number, options?: Options, device?: Device): Tensor {
    return Tensor.arangeStep(start, end, 1, options, device);
  }

  static arangeStep(start: number, end: number, step: number, options?: Options, device?: Device): Tensor {
    const { dtype, on } = resolve('arange', options, device);
    const count = Math.max(0, Math.ceil((end - start) / step));
    if (step === 0 || !Number.isSafeInteger(count)) {
      throw new CandleError(
        'INVALID_ARGUMENT',
        `arange: no finite range goes from ${start} to ${end} by ${step}; correct the step.`,
      );
    }
    const values = allocRaw('f64', count) as Float64Array;
    for (let i = 0; i < count; i++) values[i] = start + i * step;
    return Tensor.from(values, { dtype, device: on });
  }

  /** The identity matrix [n, n]. */
  static eye(n: number, options?: Options, device?: Device): Tensor {
    return triangle(n, (row, column) => row === column, resolve('eye', options, device));
  }

  /** Ones on and below the diagonal of [n, n], zeros above. */
  static tril2(n: number, options?: Options, device?: Device): Tensor {
    return triangle(n, (row, column) => column <= row, resolve('tril2', options, device));
  }

  /** Ones on and above the diagonal. */
  static triu2(n: number, options?: Options, device?: Device): Tensor {
    return triangle(n, (row, column) => column >= row, resolve('triu2', options, device));
  }

  /** Uniform in [lo, up), a float dtype; rounding may reach `up`. The stream is the device's: see `Device.setSeed`. */
  static rand(lo: number, up: number, shape: Shape, options?: Options, device?: Device): Tensor {
    const { dtype, on } = resolve('rand', options, device);
    const checked = randomShape('rand', shape, dtype);
    const count = elemCount(checked);
    return own(count === 0 ? on.backend.zeros(0, dtype) : on.backend.randUniform(count, dtype, lo, up), checked, on);
  }

  /** Normal with mean and standard deviation, a float dtype. */
  static randn(mean: number, std: number, shape: Shape, options?: Options, device?: Device): Tensor {
    const { dtype, on } = resolve('randn', options, device);
    const checked = randomShape('randn', shape, dtype);
    const count = elemCount(checked);
    return own(count === 0 ? on.backend.zeros(0, dtype) : on.backend.randNormal(count, dtype, mean, std), checked, on);
  }

  /** Tensors one after the other along an existing dimension. */
  static cat(tensors: readonly Tensor[], dim: number): Tensor {
    return cat(tensors, dim);
  }

  /** Tensors of one shape along a new dimension. */
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

  zerosLike(): Tensor {
    return Tensor.zeros(this.shape, this.dtype, this.device);
  }

  onesLike(): Tensor {
    return Tensor.ones(this.shape, this.dtype, this.device);
  }

  randLike(lo: number, up: number): Tensor {
    return Tensor.rand(lo, up, this.shape, this.dtype, this.device);
  }

  randnLike(mean: number, std: number): Tensor {
    return Tensor.randn(mean, std, this.shape, this.dtype, this.device);
  }

  [Symbol.for('nodejs.util.inspect.custom')](): string {
    return inspectTensor(this);
  }
}

function own(storage: BackendStorage, shape: Shape, device: Device): Tensor {
  return new Tensor(new StorageRef(storage, device), Layout.contiguous(shape));
}

function resolve(op: string, options: Options, device?: Device): { dtype: DType; on: Device } {
  const given = typeof options === 'string' ? { dtype: options, device } : options;
  const dtype = given?.dtype ?? 'f32';
  if (!isDType(dtype)) throw new DTypeError('DTYPE_MISMATCH', `${op}: "${dtype}" is no dtype; use one of DTYPES.`);
  return { dtype, on: given?.device ?? device ?? Device.cpu() };
}

function randomShape(op: string, shape: Shape, dtype: DType): number[] {
  if (!isFloat(dtype)) {
    throw new DTypeError(
      'DTYPE_MISMATCH',
      `${op}: random numbers are floats, not ${dtype}; make f32 ones and convert with toDtype.`,
    );
  }
  return validateShape(op, shape);
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
  return own(on.backend.fromHost(bytesOf(raw), dtype), shape, on);
}

type Scalar = number | bigint | boolean;

function dtypeOfValue(value: Scalar | undefined): DType {
  if (typeof value === 'bigint') return 'i64';
  return typeof value === 'boolean' ? 'u8' : 'f32';
}

/** The values of nested arrays in row-major order, and the shape of the nesting. */
function flatten(data: TensorData): { values: ArrayLike<Scalar>; shape: number[] } {
  if (ArrayBuffer.isView(data)) {
    if (data instanceof DataView) {
      throw new DTypeError('DTYPE_MISMATCH', 'Tensor.from: a DataView has no element type; use Tensor.fromBytes.');
    }
    const values = data as unknown as ArrayLike<Scalar>;
    return { values, shape: [values.length] };
  }
  const shape: number[] = [];
  for (let level: unknown = data; Array.isArray(level); level = level[0]) shape.push(level.length);
  const values: Scalar[] = [];
  const visit = (item: TensorData, depth: number): void => {
    if (Array.isArray(item) !== depth < shape.length || (Array.isArray(item) && item.length !== shape[depth])) {
      throw new ShapeError(
        'INVALID_SHAPE',
        `Tensor.from: the nesting is ragged: ${formatShape(shape)} does not hold at depth ${depth}; give rows of equal lengths.`,
      );
    }
    if (Array.isArray(item)) for (const inner of item) visit(inner, depth + 1);
    else values.push(item as Scalar);
  };
  visit(data, 0);
  return { values, shape };
}
