import { describe, expect, it } from 'vitest';
import { type AxisSizes, type PlaneAxis, tapsPlan, windowsPlan } from './conv-planes';

const FLAT: AxisSizes = { out: 1, k: 1, padding: 0, stride: 1, dilation: 1 };
const OPTIONS = [1, 2, 3].flatMap((stride) =>
  [1, 2, 3].flatMap((dilation) =>
    [1, 2, 5].flatMap((k) => [0, 2].map((padding) => ({ out: 7, k, padding, stride, dilation }))),
  ),
);

/** The input position that lies at an element of an axis' planes. */
const positionAt = ({ size, step, before }: PlaneAxis, element: number) =>
  (element % size) * step + Math.floor(element / size) - before;

describe('convolutions on planes', () => {
  it.each(OPTIONS)('direct: %o', (axis) => {
    const read = (output: number, tap: number) => output * axis.stride + tap * axis.dilation - axis.padding;
    const taps = tapsPlan(FLAT, axis, false);
    expect(taps.phases).toHaveLength(1);
    const windows = windowsPlan(FLAT, axis);
    for (let output = 0; output < axis.out; output++) {
      for (const { across, offset } of taps.phases[0].taps)
        expect(positionAt(taps.across, offset + output)).toBe(read(output, across));
      for (let tap = 0; tap < axis.k; tap++)
        expect(positionAt(windows.across, windows.places[output] + tap)).toBe(read(output, tap));
    }
    // The last one that is read is the last of its part.
    expect(taps.planeSize).toBe(taps.across.parts * taps.across.size);
    expect(windows.planeSize).toBe(windows.across.parts * windows.across.size);
  });

  it.each(OPTIONS)('transposed: %o', (axis) => {
    const { phases, across, steps, planeSize } = tapsPlan(FLAT, axis, true);
    const found = phases.flatMap(({ start, columns, taps }) =>
      Array.from({ length: columns }, (_, i) => start + i * steps.across).flatMap((output, i) =>
        taps.map((tap) => {
          expect(tap.offset + i).toBeLessThan(planeSize);
          return [output, tap.across, positionAt(across, tap.offset + i)];
        }),
      ),
    );
    const wanted = Array.from({ length: axis.out }, (_, output) =>
      Array.from({ length: axis.k }, (_, tap) => [
        output,
        tap,
        (output + axis.padding - tap * axis.dilation) / axis.stride,
      ]),
    ).flat();
    const inOrder = (list: number[][]) => list.map((entry) => entry.join()).sort();
    expect(inOrder(found)).toEqual(inOrder(wanted.filter(([, , position]) => Number.isInteger(position))));
  });

  it('both axes: a tap is a row and a column of the plane', () => {
    const axis = { out: 4, k: 2, padding: 1, stride: 1, dilation: 1 };
    const { phases, planeSize, across } = tapsPlan(axis, { ...axis, out: 6 }, false);
    expect([planeSize, across.size]).toEqual([5 * 7, 7]);
    expect(phases[0]).toMatchObject({ rows: 4, columns: 6, start: 0 });
    expect(phases[0].taps.map(({ down, across: x, offset }) => [down, x, offset])).toEqual([
      [0, 0, 0],
      [0, 1, 1],
      [1, 0, 7],
      [1, 1, 8],
    ]);
  });
});
