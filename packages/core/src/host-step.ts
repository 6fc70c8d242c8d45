/** Work of the host between two parts of what a device computes, which a captured graph repeats as well. */
import { captureUnderWay, outsideCapture, refusePromise } from './capture-state';
import { check, FUNCTION } from './check';
import type { Tensor } from './tensor';
import { TENSORS } from './tensor/signatures';

/**
 * Work of the host in the middle of a captured function: it may read what was computed in front of it and write to tensors that are
 * read behind it. It divides the graph, so that each replay enqueues the part in front, calls `run`, and goes on; a graph without
 * such steps waits for nothing. Outside of a capture `run` is called at once.
 * @param tensors what `run` reads and writes. It is given these, as they are at each replay, and must not keep them
 * @param run synchronous. What it throws ends the replay
 * @example
 * ```ts
 * const x = Tensor.from([1, 2]);
 * const graph = x.device.capture(() => {
 *   const [sum, limit] = [x.sumAll(), Tensor.empty([1])];
 *   hostStep([sum, limit], (sum, limit) => limit.write([Math.min(2, sum.toScalarSync())]));
 *   return x.broadcastDiv(limit);
 * });
 * graph.outputs.toVecSync(); // => [0.5, 1]
 * graph.dispose();
 * ```
 */
export function hostStep(tensors: readonly Tensor[], run: (...tensors: readonly Tensor[]) => void): void {
  check('hostStep', 'tensors', tensors, TENSORS);
  check('hostStep', 'run', run, FUNCTION);
  const step = (...own: readonly Tensor[]) => refusePromise('hostStep: run', run(...own));
  const { isUnderWay, divide } = captureUnderWay();
  if (!isUnderWay) step(...tensors);
  else if (divide) divide(tensors, step);
  else outsideCapture(() => step(...tensors));
}
