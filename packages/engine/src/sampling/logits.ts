/** What can be read off a row of logits on the host. */
import { TransformersError } from '@x/transformers';
import type { Edit } from './sampler';

/** Index of the largest value, the first of equals; undefined when a value is NaN or +Infinity, or when none is finite. */
export function likeliest(logits: Float32Array): number | undefined {
  let best = 0;
  let max = Number.NEGATIVE_INFINITY;
  for (let i = 0; i < logits.length; i++) {
    const x = logits[i];
    if (x > max) {
      max = x;
      best = i;
    } else if (Number.isNaN(x)) return undefined;
  }
  return Number.isFinite(max) ? best : undefined;
}

export function badLogits(count: number): TransformersError {
  return new TransformersError(
    'BAD_LOGITS',
    `The ${count} logits hold NaN, +Infinity or no finite value, so no token can be chosen; ` +
      'the weights are damaged or an operation overflowed: check the file, or load it on another device to compare.',
  );
}

/** The position of the largest logit, the first of equal ones. @throws TransformersError BAD_LOGITS where that is undefined */
export function argmax(logits: Float32Array): number {
  const best = likeliest(logits);
  if (best === undefined) throw badLogits(logits.length);
  return best;
}

/** Natural log of the sum of exp over `logits`. */
export function logSum(logits: Float32Array): number {
  const max = logits[argmax(logits)];
  let sum = 0;
  for (let i = 0; i < logits.length; i++) sum += Math.exp(logits[i] - max);
  return max + Math.log(sum);
}

/** Natural log of the probability that softmax over `logits` gives to `id`. */
export function logProbability(logits: Float32Array, id: number): number {
  return logits[id] - logSum(logits);
}

/** Applies the penalty in place to every token that occurs among the last `window` of `history`. */
export function applyRepetitionPenalty(
  logits: Float32Array,
  penalty: number,
  history: readonly number[],
  window = Number.POSITIVE_INFINITY,
): void {
  const recent = new Set(history.slice(Math.max(0, history.length - window)));
  const factors = { positive: Math.fround(1 / penalty), negative: Math.fround(penalty) };
  applyEdits(
    logits,
    [...recent].map((id) => ({ id, ...factors, add: 0 })),
  );
}

/** Changes logits in place; ids beyond them are left out. */
export function applyEdits(logits: Float32Array, edits: readonly Edit[]): void {
  for (const { id, positive, negative, add } of edits) {
    if (id >= logits.length) continue;
    const x = logits[id];
    logits[id] = Math.fround(x * (x >= 0 ? positive : negative)) + add;
  }
}

/** Ids of the `k` largest logits, largest first, equals by ascending id. O(n) when few elements enter the heap. */
export function largest(logits: Float32Array, k: number): number[] {
  const worse = (a: number, b: number) => logits[a] < logits[b] || (logits[a] === logits[b] && a > b);
  const heap: number[] = []; // the worst kept id at the root
  const sink = () => {
    for (let at = 0; ; ) {
      const left = 2 * at + 1;
      let worst = at;
      if (left < heap.length && worse(heap[left], heap[worst])) worst = left;
      if (left + 1 < heap.length && worse(heap[left + 1], heap[worst])) worst = left + 1;
      if (worst === at) return;
      [heap[at], heap[worst]] = [heap[worst], heap[at]];
      at = worst;
    }
  };
  for (let id = 0; id < logits.length; id++) {
    if (heap.length < k) {
      let at = heap.push(id) - 1;
      while (at > 0 && worse(heap[at], heap[(at - 1) >> 1])) {
        const up = (at - 1) >> 1;
        [heap[at], heap[up]] = [heap[up], heap[at]];
        at = up;
      }
    } else if (worse(heap[0], id)) {
      heap[0] = id;
      sink();
    }
  }
  return heap.sort((a, b) => (worse(a, b) ? 1 : -1));
}
