/** Narrow floats by way of f32. */
import type { DType, Tensor } from '@x/core';

/** The dtype that sums of squares are made in: f32 for the narrow floats. */
export function wideDType(dtype: DType): DType {
  return dtype === 'f16' || dtype === 'bf16' || dtype === 'f8e4m3' ? 'f32' : dtype;
}

/** What `body` makes of `xs` in {@link wideDType}, rounded once to the dtype of `xs`. Runs in a scope. */
export function inWideDType(xs: Tensor, body: (wide: Tensor) => Tensor): Tensor {
  const dtype = wideDType(xs.dtype);
  return dtype === xs.dtype ? body(xs) : body(xs.toDtype(dtype)).toDtype(xs.dtype);
}
