/** Which states the sequences of a batch read and write, as a part of its inputs. */
import type { Tensor } from '@x/core';
import type { SequenceSpans } from '@x/nn';
import type { StepNumbers } from '../execute/step-inputs';
import type { SequenceCache } from './sequence-cache';
import { NO_SLOT } from './states';

/** Elements of each piece of {@link StepNumbers}. */
export interface SpanSizes {
  starts: number;
  from: number;
  to: number;
}

/** Tokens that follow what a sequence's cache holds. */
interface Step {
  cache: SequenceCache;
  ids: ArrayLike<number>;
}

/** None for a pool without states. */
export function spanSizes(
  { states }: { readonly states: unknown },
  sequences: number,
): { [Name in keyof SpanSizes]: number } {
  return states ? { starts: sequences + 1, from: sequences, to: sequences } : { starts: 0, from: 0, to: 0 };
}

/** @param rows sequences of the batch; those behind `steps` have a token each, and neither read nor write a state */
export function fillSpans<Sizes extends SpanSizes & Record<string, number>>(
  numbers: StepNumbers<Sizes>,
  steps: readonly Step[],
  rows: number,
): void {
  const [starts, from, to] = (['starts', 'from', 'to'] as const).map((name) => numbers.piece(name));
  for (let row = 0; row < rows; row++) {
    const step = steps[row];
    const states = step?.cache.states;
    starts[row + 1] = starts[row] + (step?.ids.length ?? 1);
    from[row] = states?.from ?? NO_SLOT;
    to[row] = states?.to ?? NO_SLOT;
  }
}

/** @param counts tokens of each sequence */
export function spansOf(
  { starts, from, to }: { readonly [Name in keyof SpanSizes]: Tensor },
  counts: readonly number[],
): SequenceSpans {
  return { starts, counts, from, to };
}
