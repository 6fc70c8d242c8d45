/** candle's layout_tests on one device: copies of views into order, and the runs of elements that a copy can move. */

import { type Device, DTYPES, type Tensor } from '@x/core';
import { describe, expect, test } from 'vitest';
import { expectFlat } from './close';
import { makers } from './makers';

export function layoutSuite(name: string, device: () => Device): void {
  const { counted } = makers(device);

  describe(`layouts on ${name}`, () => {
    // f8e4m3 tells no more than 17 whole numbers in order apart.
    test.each(DTYPES.filter((dtype) => dtype !== 'f8e4m3'))('layout_tests::contiguous in %s', (dtype) => {
      const t = counted([2, 3, 4], dtype);
      const order = Array.from({ length: 24 }, (_, i) => i);
      expectFlat(t, [2, 3, 4], order);
      const turned = [0, 4, 8, 1, 5, 9, 2, 6, 10, 3, 7, 11, 12, 16, 20, 13, 17, 21, 14, 18, 22, 15, 19, 23];
      expectFlat(t.t().contiguous(), [2, 4, 3], turned);
      const swapped = [0, 1, 2, 3, 12, 13, 14, 15, 4, 5, 6, 7, 16, 17, 18, 19, 8, 9, 10, 11, 20, 21, 22, 23];
      expectFlat(t.transpose(0, 1).contiguous(), [3, 2, 4], swapped);
      expectFlat(t.transpose(0, 1).flattenAll(), [24], swapped);
      expectFlat(t.i([1]).transpose(0, 1).contiguous(), [3, 1, 4], order.slice(12));
      const reversed = [0, 12, 4, 16, 8, 20, 1, 13, 5, 17, 9, 21, 2, 14, 6, 18, 10, 22, 3, 15, 7, 19, 11, 23];
      expectFlat(t.transpose(0, 2).contiguous(), [4, 3, 2], reversed);
      expect(t.transpose(0, 2).contiguous().isContiguous()).toBe(true);
    });

    test('layout_tests::strided_blocks', () => {
      const t = counted([2, 3, 4], 'u32');
      const blocks = ({ layout }: Tensor) => {
        const { blockLen, blockCount, starts } = layout.stridedBlocks();
        return { blockLen, blockCount, starts: [...starts()] };
      };
      const single = (start: number, blockLen: number) => ({ blockLen, blockCount: 1, starts: [start] });
      expect(blocks(t)).toEqual(single(0, 24));
      expect(blocks(counted([26], 'u32').i([2]).reshape([2, 3, 4]))).toEqual(single(2, 24));
      expect(blocks(t.i(1))).toEqual(single(12, 12));
      const rows = t.i(':', 1);
      expect(blocks(rows.contiguous())).toEqual(single(0, 8));
      expectFlat(rows.contiguous(), [2, 4], [4, 5, 6, 7, 16, 17, 18, 19]);
      expect(blocks(rows)).toEqual({ blockLen: 4, blockCount: 2, starts: [4, 16] });
      const each = [0, 4, 8, 1, 5, 9, 2, 6, 10, 3, 7, 11, 12, 16, 20, 13, 17, 21, 14, 18, 22, 15, 19, 23];
      expect(blocks(t.t())).toEqual({ blockLen: 1, blockCount: 24, starts: each });
      expect(blocks(t.transpose(0, 1))).toEqual({ blockLen: 4, blockCount: 6, starts: [0, 12, 4, 16, 8, 20] });
    });
  });
}
