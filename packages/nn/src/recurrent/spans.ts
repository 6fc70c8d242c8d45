/** Where the sequences of a batch are, and where their states lie: what all layers of this folder are given. */
import {
  CandleError,
  isGradEnabled,
  type RecurrentOps,
  type RowsPart,
  ShapeError,
  type StatePoolPart,
  type StateSpans,
  scope,
  Tensor,
} from '@x/core';
import { checkObjects, checkTensors } from '../check';

/** Sequences one behind the other in the rows of a batch, and the places of their states in a pool. */
export interface SequenceSpans {
  /** [sequences + 1], u32: the first row of each sequence, and behind the last one the number of rows (`cu_seqlens`). */
  starts: Tensor;
  /** Rows of each sequence, at least 1, as `starts` has them: for devices without kernels. */
  counts: readonly number[];
  /** [sequences], u32: the state that each begins with; one beyond the pool is zeros. */
  from: Tensor;
  /** [sequences], u32: where the state at its end goes; one beyond the pool is left out. None that is also read. */
  to: Tensor;
}

/**
 * @param pool [slots, ...shape], f32, contiguous
 * @param rows matrices with a row for each of the batch
 * @throws ShapeError SHAPE_MISMATCH, CandleError INVALID_ARGUMENT
 */
export function checkSpans(
  op: string,
  spans: SequenceSpans,
  pool: Tensor,
  shape: readonly number[],
  rows: Readonly<Record<string, Tensor>>,
): void {
  checkObjects(op, { spans });
  const { starts, counts, from, to } = spans;
  checkTensors(op, { starts, from, to, pool, ...rows });
  const sequences = counts.length;
  const total = counts.reduce((sum, count) => sum + count, 0);
  const places = { starts, from, to };
  for (const [name, ids] of Object.entries(places)) {
    if (ids.dtype === 'u32' && ids.isContiguous()) continue;
    throw new CandleError('INVALID_ARGUMENT', `${op}: ${name} are ${ids.dtype}; give contiguous u32.`);
  }
  const isPool = pool.rank === shape.length + 1 && shape.every((size, i) => pool.dim(i + 1) === size);
  if (pool.dtype !== 'f32' || !pool.isContiguous() || !isPool || pool.dim(0) === 0) {
    throw new ShapeError(
      'SHAPE_MISMATCH',
      `${op}: states of [${pool.shape}] (${pool.dtype}); give contiguous f32 of [slots, ${shape.join(', ')}].`,
    );
  }
  const placed = starts.rank === 1 && starts.dim(0) === sequences + 1;
  const each = [from, to].every((ids) => ids.rank === 1 && ids.dim(0) === sequences);
  const alike = Object.values(rows).every((x) => x.rank === 2 && x.dim(0) === total);
  if (placed && each && alike && counts.every((count) => Number.isInteger(count) && count >= 1)) return;
  const given = Object.entries(rows).map(([name, x]) => `${name} [${x.shape}]`);
  throw new ShapeError(
    'SHAPE_MISMATCH',
    `${op}: ${given.join(', ')} for sequences of ${counts.join(', ') || 'no'} rows with starts [${starts.shape}], from [${from.shape}] and ` +
      `to [${to.shape}]; give matrices of as many rows as the sequences have, [sequences + 1] starts and [sequences] places.`,
  );
}

/** What kernels are given, where the operands are as they want them: f32 on one device, nothing recorded. */
export function forKernels(
  spans: SequenceSpans,
  pool: Tensor,
  rows: readonly Tensor[],
  weights: readonly (Tensor | undefined)[],
): { ops: RecurrentOps; at: StateSpans; states: StatePoolPart } | undefined {
  const { device } = pool;
  const { starts, from, to, counts } = spans;
  const given = weights.filter((weight) => weight !== undefined);
  const operands = [...rows, ...given];
  const ops = device.backend.recurrent;
  const here = [...operands, starts, from, to].every((x) => x.device === device);
  const recorded = isGradEnabled() && operands.some((x) => x.trackOp);
  const whole = given.every((x) => x.isContiguous()) && rows.every(hasRows);
  if (!ops || !here || recorded || !whole || counts.length === 0 || operands.some(({ dtype }) => dtype !== 'f32'))
    return undefined;
  return {
    ops,
    at: {
      sequences: counts.length,
      rows: rows[0].dim(0),
      starts: starts.storagePart(),
      from: from.storagePart(),
      to: to.storagePart(),
    },
    states: { states: pool.storagePart(), slots: pool.dim(0) },
  };
}

/** Whether x is a matrix whose rows are contiguous and lie anywhere. */
export function hasRows(x: Tensor): boolean {
  return x.rank === 2 && (x.dim(1) <= 1 || x.storageAndLayout().layout.strides[1] === 1);
}

export function rowsPart(x: Tensor): RowsPart {
  return { part: x.storagePart(), row: x.storageAndLayout().layout.strides[0] };
}

/**
 * The composed form of a layer: calls `run` for each sequence with its state, and writes the state that it gives. Reads the
 * places, so it waits, and cannot be captured.
 * @param run with the first row, the number of rows and the state [...shape] of a sequence: its rows and its state
 * @returns the rows of all sequences
 */
export function composed(
  { counts, from, to }: SequenceSpans,
  pool: Tensor,
  width: number,
  run: (start: number, count: number, state: Tensor) => { rows: Tensor; state: Tensor },
): Tensor {
  if (counts.length === 0) return Tensor.zeros([0, width], { device: pool.device });
  return scope(() => {
    const [slots, ...shape] = pool.shape;
    const [sources, targets] = [from, to].map((places) => places.toArraySync<Uint32Array>());
    let start = 0;
    const all = counts.map((count, i) => {
      const kept = sources[i] < slots && pool.narrow(0, sources[i], 1).squeeze(0);
      const { rows, state } = run(start, count, kept || Tensor.zeros(shape, { device: pool.device }));
      if (targets[i] < slots) pool.narrow(0, targets[i], 1).copyFrom(state.detach().unsqueeze(0));
      start += count;
      return rows;
    });
    return all.length === 1 ? all[0] : Tensor.cat(all, 0);
  });
}
