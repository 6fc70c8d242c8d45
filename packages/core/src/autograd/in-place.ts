/**
 * Gradients of operations that write in place: afterwards the target's history is that of its old values, where they are
 * left, and of what was written. PyTorch does the same.
 *
 * A history belongs to a tensor, not to memory. Where others see the memory that is written, theirs would be wrong; that
 * is refused, as is writing to a variable, whose values no operation made.
 */
import { refuseOtherDevice } from '../capture-state';
import { isFloat } from '../dtype';
import { CandleError } from '../errors';
import { formatShape } from '../shape';
import type { Tensor } from '../tensor';
import { isGradEnabled } from './mode';
import { GradRecord, type Rule } from './record';

/** Whether a write to `target` from `sources` changes a history. Costs one look at each where nothing is tracked. */
function isTracked(target: Tensor, sources: readonly Tensor[]): boolean {
  let tracked = target.handle.record !== null;
  for (const source of sources) tracked ||= source.handle.record !== null;
  return tracked && isFloat(target.dtype) && isGradEnabled();
}

/**
 * To be called before a write in place.
 * @returns whether it must be recorded, by {@link recordWrite}
 * @throws CandleError `GRADIENT_IN_PLACE` when the target is a variable, or not the only tensor that sees its memory
 */
export function checkWrite(op: string, target: Tensor, sources: readonly Tensor[] = []): boolean {
  refuseOtherDevice(target.device);
  if (!isTracked(target, sources)) return false;
  const { record, ref } = target.handle;
  const shape = formatShape(target.shape);
  if (record?.isVariable) {
    throw new CandleError(
      'GRADIENT_IN_PLACE',
      `${op}: the target of shape ${shape} is a variable, whose gradient a write in place would make wrong; replace its values with set, write inside of noGrad, or to a copy().`,
    );
  }
  const others = (ref?.tensors ?? 1) - 1;
  if (others > 0) {
    throw new CandleError(
      'GRADIENT_IN_PLACE',
      `${op}: ${others} other live tensor${others === 1 ? '' : 's'} (views, or what this is a view of) see the memory of the target of shape ${shape}, and their gradients would be wrong; dispose them first, write to a copy(), use an operation that returns a new tensor, or write inside of noGrad.`,
    );
  }
  return true;
}

/**
 * For writes that have no place in a history.
 * @throws CandleError `GRADIENT_IN_PLACE` when the target or a source is tracked
 */
export function refuseTracked(op: string, target: Tensor, sources: readonly Tensor[] = []): void {
  refuseOtherDevice(target.device);
  if (!isTracked(target, sources)) return;
  const tracked = target.handle.record !== null ? 'its target' : 'what is written';
  throw new CandleError(
    'GRADIENT_IN_PLACE',
    `${op}: ${tracked} of shape ${formatShape(target.shape)} depends on a variable, and this write is in no history; write inside of noGrad, detach() it, or use sliceSet.`,
  );
}

/**
 * Makes a write the latest part of the target's history: `inputs` are the target first, as it was, then the rest of the
 * operands. Without a rule `backward` raises an error.
 */
export function recordWrite<A>(op: string, inputs: readonly Tensor[], rule?: Rule<A>, args?: A): void {
  inputs[0].handle.attach(new GradRecord(op, inputs, inputs[0], rule as Rule<unknown> | undefined, args));
}
