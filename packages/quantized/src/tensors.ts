/** Checks of the tensors that this package is given, and small helpers around them. */
import { DTypeError, elemCount, formatShape, ShapeError, scope, type Tensor } from '@x/core';

/** A second handle on a tensor's storage: both must be disposed before the memory goes. */
export function shareOf(tensor: Tensor): Tensor {
  return tensor.reshape(tensor.shape);
}

/**
 * Integer ids of `op` as contiguous u32 for kernels that know no number of rows. One that is not below `rows` is an error as
 * in `Tensor.embedding`, and here the last row where a device does not see it at once.
 */
export function idsInside(op: string, ids: Tensor, rows: number): Tensor {
  if (rows === 0) {
    throw new ShapeError(
      'INDEX_OUT_OF_RANGE',
      `${op}: the weight is empty and ${ids.elemCount} ids are given; give none.`,
    );
  }
  ids.device.backend.ops.checkIds(op, ids.storageAndLayout(), { size: rows, dim: 0 });
  return scope(() =>
    ids
      .toDtype('u32')
      .minimum(rows - 1)
      .contiguous(),
  );
}

/** f32, f16 or bf16, the dtypes of activations. */
export function checkActivation(op: string, x: Tensor): void {
  if (x.dtype === 'f32' || x.dtype === 'f16' || x.dtype === 'bf16') return;
  throw new DTypeError(
    'DTYPE_MISMATCH',
    `${op}: the input ${formatShape(x.shape)} is ${x.dtype}; quantized weights take f32, f16 or bf16. Convert it with ` +
      "toDtype('f32').",
  );
}

/** Rows of a row-major view [m, k] of an input whose last dimension must be `k`. */
export function rowsOf(op: string, x: Tensor, k: number): number {
  if (x.rank > 0 && x.dim(-1) === k) return elemCount(x.shape.slice(0, -1));
  throw new ShapeError(
    'SHAPE_MISMATCH',
    `${op}: the input is ${formatShape(x.shape)} and the weight has rows of ${k} values; the last dimension must be ${k}. ` +
      'Check which layer the input belongs to.',
  );
}

/** Runs `body`; every tensor given to its argument is disposed afterwards, also after an error. */
export function withTemporaries<T>(body: (temporary: <R extends Disposable>(value: R) => R) => T): T {
  const made: Disposable[] = [];
  try {
    return body((value) => {
      made.push(value);
      return value;
    });
  } finally {
    for (const value of made.reverse()) value[Symbol.dispose]();
  }
}
