/** What `Tensor.from` takes: values nested in arrays, flattened into a list and a shape. */
import type { DType } from '../dtype';
import { CandleError, DTypeError, ShapeError } from '../errors';
import { formatShape, resolveReshape, type Shape, validateShape } from '../shape';
import { show } from '../show';

/** Numbers, bigints or booleans nested in arrays of equal lengths, or a typed array. */
export type TensorData = number | bigint | boolean | ArrayBufferView | readonly TensorData[];

/** Arrays inside of arrays, at most: an array that contains itself has no end. */
const MAX_DEPTH = 64;

type Scalar = number | bigint | boolean;

/** What a value stands for without a dtype: numbers are f32. */
export function dtypeOfValue(value: Scalar | undefined): DType {
  if (typeof value === 'bigint') return 'i64';
  return typeof value === 'boolean' ? 'u8' : 'f32';
}

/** The values of nested arrays in row-major order, and the shape of the nesting. */
export function flatten(data: TensorData, op = 'Tensor.from'): { values: ArrayLike<Scalar>; shape: number[] } {
  if (ArrayBuffer.isView(data)) {
    if (data instanceof DataView) {
      throw new DTypeError(
        'DTYPE_MISMATCH',
        `${op}: a DataView has no element type; give a typed array, or use Tensor.fromBytes.`,
      );
    }
    const values = data as unknown as ArrayLike<Scalar>;
    return { values, shape: [values.length] };
  }
  const shape: number[] = [];
  for (let level: unknown = data; Array.isArray(level); level = level[0]) {
    shape.push(level.length);
    if (shape.length > MAX_DEPTH) {
      throw new ShapeError(
        'INVALID_SHAPE',
        `${op}: the nesting is deeper than ${MAX_DEPTH} arrays; give fewer dimensions.`,
      );
    }
  }
  const values: Scalar[] = [];
  const visit = (item: TensorData, depth: number): void => {
    if (Array.isArray(item) !== depth < shape.length || (Array.isArray(item) && item.length !== shape[depth])) {
      throw new ShapeError(
        'INVALID_SHAPE',
        `${op}: the nesting is ragged: ${formatShape(shape)} does not hold at depth ${depth}; give rows of equal lengths.`,
      );
    }
    if (Array.isArray(item)) for (const inner of item) visit(inner, depth + 1);
    else if (typeof item === 'number' || typeof item === 'bigint' || typeof item === 'boolean') values.push(item);
    else throw notScalar(op, item, data);
  };
  visit(data, 0);
  return { values, shape };
}

function notScalar(op: string, item: unknown, data: unknown): CandleError {
  const given = item === data ? show(item) : `the element ${show(item)}`;
  const iterable = typeof item === 'object' && item !== null && Symbol.iterator in item;
  const remedy = iterable
    ? 'spread it into an array, as [...values]'
    : 'give numbers, bigints, booleans, arrays of them or a typed array';
  return new CandleError('INVALID_ARGUMENT', `${op}: ${given} is no number; ${remedy}.`);
}

/** A shape given for `count` elements, its -1 filled in. */
export function shapeOfData(shape: Shape, count: number): number[] {
  const open = Array.isArray(shape) && shape.includes(-1);
  return open ? resolveReshape('Tensor.from', [count], shape) : validateShape('from', shape);
}
