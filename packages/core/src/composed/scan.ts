/** Running sums by several operations. */
import type { BackendStorage } from '../backend';
import { isFloat } from '../dtype';
import type { Tensor } from '../tensor';
import { withTemporaries } from '../tensor/base';
import { cat } from '../tensor/joining';
import { compose } from './compose';

export function cumsum(x: Tensor, d: number): BackendStorage {
  return compose(() => {
    if (x.shape[d] <= 1) return x.copy();
    const rounds = isFloat(x.dtype) && x.dtype !== 'f64';
    return rounds ? prefixSums(x.toDtype('f64'), d).toDtype(x.dtype) : prefixSums(x, d);
  });
}

/** Elements of a run whose prefix sums are made by doubling steps. */
const PREFIX_RUN = 32;

/**
 * Prefix sums along dimension `d`. A long one is cut into runs, and the sum of all runs before is added to each: every
 * element is then read a few times, however many there are.
 */
function prefixSums(tensor: Tensor, d: number): Tensor {
  const size = tensor.shape[d];
  if (size <= PREFIX_RUN) return prefixSumsByDoubling(tensor, d);
  return withTemporaries((temporary) => {
    const runs = Math.ceil(size / PREFIX_RUN);
    const padded = temporary(tensor.padWithZeros(d, 0, runs * PREFIX_RUN - size));
    const cut = padded.shape.toSpliced(d, 1, runs, PREFIX_RUN);
    const within = temporary(prefixSumsByDoubling(temporary(padded.reshape(cut)), d + 1));
    const whole = temporary(temporary(within.narrow(d + 1, PREFIX_RUN - 1, 1)).narrow(d, 0, runs - 1));
    const totals = temporary(temporary(whole.squeeze(d + 1)).contiguous());
    const before = temporary(temporary(prefixSums(totals, d)).padWithZeros(d, 1, 0));
    const sums = temporary(within.broadcastAdd(temporary(before.unsqueeze(d + 1))));
    return temporary(temporary(sums.reshape(padded.shape)).narrow(d, 0, size)).contiguous();
  });
}

function prefixSumsByDoubling(tensor: Tensor, d: number): Tensor {
  const size = tensor.shape[d];
  return withTemporaries((temporary) => {
    let current = tensor;
    for (let step = 1; step < size; step *= 2) {
      const head = temporary(current.narrow(d, 0, step));
      const late = temporary(current.narrow(d, step, size - step));
      const early = temporary(current.narrow(d, 0, size - step));
      current = temporary(cat([head, temporary(late.add(early))], d));
    }
    return current.contiguous();
  });
}
