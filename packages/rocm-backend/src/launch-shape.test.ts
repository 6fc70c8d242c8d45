import type { DeviceProperties } from '@x/hip';
import { describe, expect, it } from 'vitest';
import { LaunchShapes } from './launch-shape';

const gpu = new LaunchShapes({ warpSize: 64, multiprocessorCount: 304 } as DeviceProperties, 'rocm');
const host = new LaunchShapes({ warpSize: 1, multiprocessorCount: 2 } as DeviceProperties, 'host');
const threads = ({ grid, block }: { grid: unknown; block: unknown }) => (grid as number) * (block as number);

describe('launch shapes', () => {
  it('keep the threads of a grid within 32 bits however large the tensor', () => {
    for (const items of [1, 2 ** 31, 2 ** 32 + 7, 2 ** 50]) {
      for (const shapes of [gpu, host]) {
        for (const shape of [shapes.elementwise(items), shapes.perItem(items), shapes.rows(items, 4)]) {
          expect(threads(shape)).toBeLessThan(2 ** 32);
          expect(threads(shape)).toBeGreaterThan(0);
        }
      }
    }
    expect(gpu.perItem(1000)).toEqual({ grid: 4, block: 256 });
    expect(gpu.rows(77, 4000)).toEqual({ grid: 77, block: 256 });
    expect(gpu.rows(77, 2048, 2)).toEqual({ grid: 77, block: 64 });
    expect(gpu.warpRows(77)).toEqual({ grid: 20, block: 256 });
  });

  it('cut rows into slices that cover each once', () => {
    const rows = 2 ** 33 + 5;
    let next = 0;
    gpu.rowSlices(rows, 4000, 4, (first, shape) => {
      expect(first).toBe(next);
      expect(shape.block).toBe(256);
      next += shape.grid as number;
    });
    expect(next).toBe(rows);
    let calls = 0;
    host.rowSlices(10, 3, 4, (first, shape) => {
      expect([first, shape.grid]).toEqual([0, 10]);
      calls++;
    });
    expect(calls).toBe(1);
  });
});
