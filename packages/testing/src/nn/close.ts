/** Comparing tensors with nested literals, and with each other. */
import { scope, type Tensor } from '@x/core';
import { expect } from 'vitest';

export { expectClose } from '../core/close';

/** The largest distance between two tensors of one shape. */
export function maxDifference(a: Tensor, b: Tensor): number {
  expect(a.shape).toEqual(b.shape);
  return scope(() => a.toDtype('f32').sub(b.toDtype('f32')).abs().maxAll().toScalarSync());
}

/** The distances of all elements, added up. */
export function sumOfDifferences(a: Tensor, b: Tensor): number {
  expect(a.shape).toEqual(b.shape);
  return scope(() => a.sub(b).abs().sumAll().toScalarSync());
}
