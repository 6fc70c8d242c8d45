// When steps go out in groups, between which they can be left.
import { expect, it } from 'vitest';
import { type StepKind, StepTimes } from './step-times';

it('watches long steps, the longer the less of the time is the host’s', () => {
  const kinds: StepKind[] = ['launched', 'waited', 'replayed'];
  const times = new StepTimes();
  const watched = () => kinds.filter((kind) => times.isWatched(kind));
  // The first one may be anything; a graph is at hand only after a step that was measured.
  expect(watched()).toEqual(['launched']);
  for (const [took, expected] of [
    [40, []],
    [60, ['launched']],
    [300, ['launched', 'waited']],
    [1100, kinds],
    [40, []],
  ] as const) {
    times.measure(took, [], 512, false);
    expect(watched()).toEqual(expected);
  }
  // Beside prompts a step may take longer.
  times.measure(300, [], 512, true);
  expect(watched()).toEqual([]);
});
