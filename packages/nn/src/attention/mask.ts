/** What a query may look at: candle-nn's `AttnMask` (attention/mod.rs), and the biases that it comes to. */
import { CandleError, type DeviceLike, type DType, isInt, ShapeError, scope, Tensor } from '@x/core';
import { checkNumbers, checkTensors } from '../check';

/** candle-nn's `AttnMask`: which keys a query sees. */
export type AttnMask =
  | { kind: 'none' }
  /** Query i sees keys up to `kvOffset` + i. */
  | { kind: 'causal'; kvOffset: number }
  /** Of an integer dtype: visible where it is not 0, as PyTorch's; of a float one: added to the scores. Fits [b, heads, seq, kv]. */
  | { kind: 'mask'; mask: Tensor };

export const AttnMask = {
  none: { kind: 'none' } as AttnMask,
  /** As many queries as keys. */
  causal: (): AttnMask => ({ kind: 'causal', kvOffset: 0 }),
  /** Queries behind `kvOffset` keys that are in a cache. */
  causalWithOffset: (kvOffset: number): AttnMask => ({ kind: 'causal', kvOffset }),
  mask: (mask: Tensor): AttnMask => ({ kind: 'mask', mask }),
} as const;

/** What is added to the scores of keys `start` to `start + count`: fits [b, heads, seq, count]. Undefined: nothing. */
export type Bias = (start: number, count: number) => Tensor | undefined;

/** A mask as something to add: of the integer ones 0 where visible, -Infinity elsewhere. */
export function additive(mask: Tensor, dtype: DType): Tensor {
  return scope(() => {
    if (!isInt(mask.dtype)) return mask.toDtype(dtype);
    const constant = (value: number) => Tensor.full(value, [], dtype, mask.device).broadcastAs(mask.shape);
    return mask.whereCond(constant(0), constant(Number.NEGATIVE_INFINITY));
  });
}

/** Elements of a bias that are soonest written on the host: one upload in place of eight launches. */
const ON_HOST = 2 ** 14;

export interface PositionOptions {
  /** Queries. */
  seq: number;
  /** Position of the first query among the keys; may be negative. */
  offset: number;
  /** Keys at most so far ahead of a query; 0 is causal, Infinity everything. */
  ahead: number;
  /** Keys at most so far behind. */
  behind: number;
  /** A slope a head: minus slope times distance is added (ALiBi). */
  slopes?: ArrayLike<number>;
  device: DeviceLike;
  dtype: DType;
}

/** The bias that comes from distances, made on the device from the positions of a block; undefined when there is none. */
export function positionBias(options: PositionOptions): Bias | undefined {
  const { seq, offset, ahead, behind, slopes, device, dtype } = options;
  if (ahead === Number.POSITIVE_INFINITY && behind === Number.POSITIVE_INFINITY && !slopes) return undefined;
  return (start, count) =>
    scope(() => {
      // Blocks that all queries see whole need no mask.
      const seen = start + count - 1 - offset <= ahead && offset + seq - 1 - start <= behind;
      if (seen && !slopes) return undefined;
      if (!slopes && seq * count <= ON_HOST) return writtenBias(options, start, count);
      const queries = Tensor.arange(offset, offset + seq, 'f32', device).unsqueeze(1);
      const keys = Tensor.arange(start, start + count, 'f32', device);
      const distance = keys.broadcastSub(queries);
      const visible = withinRange(distance, ahead, behind);
      const hidden = visible
        .whereCond(distance.zerosLike(), Tensor.full(Number.NEGATIVE_INFINITY, distance.shape, 'f32', device))
        .toDtype(dtype);
      if (!slopes) return hidden;
      const bySlope = Tensor.from(Float32Array.from(slopes), { shape: [slopes.length, 1, 1], device, dtype });
      return distance.abs().neg().toDtype(dtype).broadcastMul(bySlope).broadcastAdd(hidden);
    });
}

/** The same written here and uploaded. */
function writtenBias(
  { seq, offset, ahead, behind, device, dtype }: PositionOptions,
  start: number,
  count: number,
): Tensor {
  const values = new Float32Array(seq * count);
  for (let query = 0; query < seq; query++) {
    const position = offset + query;
    const [from, to] = [position - behind - start, position + ahead - start + 1];
    const row = values.subarray(query * count, (query + 1) * count);
    row.fill(Number.NEGATIVE_INFINITY, 0, Math.min(count, Math.max(0, from)));
    row.fill(Number.NEGATIVE_INFINITY, Math.min(count, Math.max(0, to)));
  }
  return Tensor.from(values, { shape: [seq, count], device, dtype });
}

function withinRange(distance: Tensor, ahead: number, behind: number): Tensor {
  if (behind === Number.POSITIVE_INFINITY) return distance.le(ahead);
  if (ahead === Number.POSITIVE_INFINITY) return distance.ge(-behind);
  return distance.le(ahead).mul(distance.ge(-behind));
}

/** The slopes of ALiBi for `maxBias` (usually 8), a head each; undefined when it is 0. */
export function alibiSlopes(maxBias: number, heads: number): Float32Array | undefined {
  if (!(maxBias >= 0)) {
    throw new CandleError('INVALID_ARGUMENT', `attention: maxBias is ${maxBias}; give a number from 0.`);
  }
  if (maxBias === 0) return undefined;
  const power = 2 ** Math.ceil(Math.log2(heads));
  return Float32Array.from({ length: heads }, (_, h) => 2 ** ((-maxBias * (h + 1)) / power));
}

/** @throws ShapeError unless `heads` is a multiple of the heads of keys or values */
export function checkHeads(op: string, heads: number, ...others: number[]): void {
  for (const other of others) {
    if (other > 0 && heads % other === 0) continue;
    throw new ShapeError(
      'SHAPE_MISMATCH',
      `${op}: ${heads} query heads share ${other} heads of keys or values; the first must be a multiple of the second.`,
    );
  }
}

/** @throws ShapeError unless there is a score for each head, or none at all */
export function checkSinks(op: string, sinks: Tensor | undefined, heads: number): void {
  if (sinks === undefined) return;
  checkTensors(op, { sinks });
  if (sinks.rank === 1 && sinks.dim(0) === heads) return;
  throw new ShapeError('SHAPE_MISMATCH', `${op}: sinks [${sinks.shape}] for ${heads} query heads; give one a head.`);
}

/** A cap of scores is positive, or there is none. */
export function checkSoftcap(op: string, softcap: number | undefined): void {
  if (softcap === undefined) return;
  checkNumbers(op, { softcap });
  if (softcap > 0) return;
  throw new CandleError('INVALID_ARGUMENT', `${op}: softcap is ${softcap}; give a positive number, or none.`);
}
