/** Products of several weights with the same activations. */
import { type QuantizedActivations, Tensor } from '@x/core';
import type { QTensor } from './qtensor';

/**
 * The products of activations with several weights, one beside the other in one launch: [rows, the sum of n], f32. Undefined where
 * the device has none for these.
 * @param weights [n, k] each, in blocks @param x of rows of k values
 */
export function productsBeside(weights: readonly QTensor[], x: QuantizedActivations): Tensor | undefined {
  const { blocks, rows, width } = x;
  const { device } = blocks;
  const { quantized } = device.backend;
  const fits = weights.length > 0 && weights.every(({ shape, kind }) => kind === 'blocks' && shape[1] === width);
  if (!quantized?.matmulBeside || !fits) return undefined;
  const parts = weights.map(({ data, blockType, shape }) => ({
    weight: data.storageAndLayout().storage,
    type: blockType,
    n: shape[0],
  }));
  const made = quantized.matmulBeside(parts, { m: rows, k: width }, blocks.storageAndLayout().storage);
  if (!made) return undefined;
  const total = parts.reduce((sum, { n }) => sum + n, 0);
  return Tensor.fromStorage(made, [rows, total], device);
}
