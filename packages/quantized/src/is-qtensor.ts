/** Quantized tensors by a mark, which those of another copy of this package have too. */
import type { QTensor } from './qtensor';

/** On the prototype of every quantized tensor. */
export const QTENSOR = Symbol.for('x.quantized.qtensor');

export function isQTensor(value: unknown): value is QTensor {
  return typeof value === 'object' && (value as Record<symbol, unknown> | null)?.[QTENSOR] === true;
}
