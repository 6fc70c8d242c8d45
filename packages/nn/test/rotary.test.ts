import { memoryStats, scope } from '@x/core';
import { deviceNames, expectClose, openDevice, tensor, values } from '@x/testing/nn/helpers';
import { describe, expect, it } from 'vitest';
import { RotaryTable, rope, ropeI, rotate } from '../src';

describe.each(deviceNames)('rotary embedding on %s', (name) => {
  const device = openDevice(name);
  const frequencies = [1, 0.25, 0.01];
  const [heads, seq, d] = [2, 3, 6];

  /** Each pair turned by (start + t) · frequency. */
  function rotated(x: Float32Array, start: number, pair: (i: number) => [number, number], scale = 1): number[] {
    const out = Array.from(x);
    for (let row = 0; row < heads * seq; row++) {
      for (let i = 0; i < d / 2; i++) {
        const angle = (start + (row % seq)) * frequencies[i];
        const [a, b] = pair(i).map((at) => row * d + at);
        out[a] = scale * (x[a] * Math.cos(angle) - x[b] * Math.sin(angle));
        out[b] = scale * (x[a] * Math.sin(angle) + x[b] * Math.cos(angle));
      }
    }
    return out;
  }

  it('turns halves and neighbours', () => {
    const before = memoryStats();
    scope(() => {
      using table = new RotaryTable({ frequencies, length: 40, device });
      using scaled = new RotaryTable({ frequencies, length: 40, device, scale: 0.5 });
      const x = values(heads * seq * d, 17);
      const xs = tensor(x, [1, heads, seq, d], device);
      for (const start of [0, 37]) {
        const { cos, sin } = table.at(start, seq);
        expectClose(
          rope(xs, cos, sin),
          [1, heads, seq, d],
          rotated(x, start, (i) => [i, i + d / 2]),
        );
        expectClose(
          ropeI(xs, cos, sin),
          [1, heads, seq, d],
          rotated(x, start, (i) => [2 * i, 2 * i + 1]),
        );
        const half = scaled.at(start, seq);
        expectClose(
          ropeI(xs, half.cos, half.sin),
          [1, heads, seq, d],
          rotated(x, start, (i) => [2 * i, 2 * i + 1], 0.5),
        );
      }
      expect(table.length).toBe(40);
      expect(() => table.at(38, 3)).toThrow(/38 to 40 of a table of 40/);
      expect(() => table.at(-1, 1)).toThrow(/-1/);
    });
    expect(memoryStats()).toEqual(before);
  });

  it('turns the beginning of each head by a narrower table', () => {
    scope(() => {
      const part = frequencies.slice(0, 2);
      using table = new RotaryTable({ frequencies: part, length: seq, device });
      const x = values(heads * seq * d, 5);
      const xs = tensor(x, [1, heads, seq, d], device);
      for (const [kind, pair] of [
        ['half', (i: number) => [i, i + 2]],
        ['interleaved', (i: number) => [2 * i, 2 * i + 1]],
      ] as const) {
        const expected = Array.from(x);
        for (let row = 0; row < heads * seq; row++) {
          for (const [i, frequency] of part.entries()) {
            const [a, b] = pair(i).map((at) => row * d + at);
            const angle = (row % seq) * frequency;
            expected[a] = x[a] * Math.cos(angle) - x[b] * Math.sin(angle);
            expected[b] = x[a] * Math.sin(angle) + x[b] * Math.cos(angle);
          }
        }
        expectClose(rotate(xs, table.cos, table.sin, kind), [1, heads, seq, d], expected);
      }
    });
  });
});
