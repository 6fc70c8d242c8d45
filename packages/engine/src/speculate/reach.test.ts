import { expect, it } from 'vitest';
import { Reach } from './reach';

/** What a step is given after each of these: drafts that were checked, and those that were right. */
function after(reach: Reach, steps: [checked: number, accepted: number][]): number[] {
  return steps.map(([checked, accepted]) => {
    reach.report(checked, accepted);
    return reach.drafts;
  });
}

it('grows while all drafts are right, up to the most', () => {
  const reach = new Reach(12);
  expect(reach.drafts).toBe(3);
  expect(
    after(reach, [
      [3, 3],
      [7, 7],
      [12, 12],
      [12, 6],
    ]),
  ).toEqual([7, 12, 12, 12]);
  expect(
    after(reach, [
      [12, 5],
      [7, 3],
      [3, 1],
    ]),
  ).toEqual([7, 3, 1]);
});

it('shrinks while most are wrong, and stays where it is told little', () => {
  const reach = new Reach(7);
  expect(
    after(reach, [
      [3, 0],
      [1, 0],
      [1, 0],
    ]),
  ).toEqual([1, 1, 1]);
  expect(
    after(reach, [
      [1, 1],
      [3, 2],
      [2, 2],
      [0, 0],
      [1, 1],
    ]),
  ).toEqual([3, 3, 3, 3, 3]);
  expect(new Reach(2).drafts).toBe(2);
  expect(
    after(new Reach(2), [
      [2, 2],
      [2, 0],
      [1, 1],
    ]),
  ).toEqual([2, 1, 2]);
});
