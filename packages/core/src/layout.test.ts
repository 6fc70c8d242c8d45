import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { Layout } from './layout';
import { elemCount } from './shape';

const indices = (layout: Layout) => [...layout.stridedIndices()];

/** A layout made of random view operations on a contiguous one. */
const layouts = fc
  .tuple(
    fc.array(fc.integer({ min: 1, max: 4 }), { maxLength: 4 }),
    fc.array(fc.tuple(fc.integer({ min: 0, max: 4 }), fc.nat(), fc.nat()), { maxLength: 4 }),
  )
  .map(([shape, steps]) => {
    let layout = Layout.contiguous(shape, 3);
    for (const [kind, a, b] of steps) {
      if (layout.rank === 0) layout = layout.broadcastAs([(a % 2) + 1]);
      const dim = a % layout.rank;
      if (kind === 0) layout = layout.transpose(dim, b % layout.rank);
      else if (kind === 1) {
        const start = b % layout.shape[dim];
        layout = layout.narrow(dim, start, layout.shape[dim] - start);
      } else if (kind === 2) layout = layout.unsqueeze(b % (layout.rank + 1));
      else if (kind === 3) layout = layout.broadcastAs([(b % 2) + 1, ...layout.shape]);
      else layout = layout.permute(layout.shape.map((_, i) => (i + b) % layout.rank));
    }
    return layout;
  });

describe('Layout', () => {
  test('contiguous strides, offsets and sizes', () => {
    const layout = Layout.contiguous([2, 3, 4], 5);
    expect(layout.strides).toEqual([12, 4, 1]);
    expect(layout.contiguousOffsets()).toEqual([5, 29]);
    expect([layout.rank, layout.elemCount, layout.dim(-1), layout.endOffset()]).toEqual([3, 24, 4, 29]);
  });

  test('contiguity ignores the strides of sizes of 1, and empty layouts are contiguous', () => {
    expect(new Layout([2, 1, 3], [3, 77, 1]).isContiguous()).toBe(true);
    expect(new Layout([2, 3], [1, 2]).isContiguous()).toBe(false);
    expect(new Layout([2, 3], [1, 2]).isFortranContiguous()).toBe(true);
    expect(Layout.contiguous([2, 3]).isFortranContiguous()).toBe(false);
    expect(new Layout([2, 0, 3], [9, 9, 9]).isContiguous()).toBe(true);
    expect(new Layout([2, 3], [0, 1]).isContiguous()).toBe(false);
  });

  test('views', () => {
    const layout = Layout.contiguous([2, 3, 4]);
    expect(layout.narrow(1, 1, 2)).toMatchObject({ shape: [2, 2, 4], strides: [12, 4, 1], startOffset: 4 });
    expect(layout.transpose(0, 2)).toMatchObject({ shape: [4, 3, 2], strides: [1, 4, 12] });
    expect(layout.permute([1, 2, 0])).toMatchObject({ shape: [3, 4, 2], strides: [4, 1, 12] });
    expect(layout.unsqueeze(1)).toMatchObject({ shape: [2, 1, 3, 4], strides: [12, 12, 4, 1] });
    expect(layout.unsqueeze(-1).squeeze(-1)).toMatchObject({ shape: [2, 3, 4], strides: [12, 4, 1] });
    expect(Layout.contiguous([3, 1]).broadcastAs([2, 3, 4])).toMatchObject({ strides: [0, 1, 0] });
  });

  test('bad views are errors with codes', () => {
    const layout = Layout.contiguous([2, 3]);
    const code = (run: () => unknown) => {
      try {
        run();
      } catch (error) {
        return (error as { code: string }).code;
      }
      return 'none';
    };
    expect(code(() => layout.narrow(0, 1, 2))).toBe('INDEX_OUT_OF_RANGE');
    expect(code(() => layout.narrow(2, 0, 1))).toBe('DIM_OUT_OF_RANGE');
    expect(code(() => layout.permute([0, 0]))).toBe('INVALID_SHAPE');
    expect(code(() => layout.broadcastAs([2, 4]))).toBe('SHAPE_MISMATCH');
    expect(code(() => layout.broadcastAs([3]))).toBe('SHAPE_MISMATCH');
    expect(code(() => new Layout([1], []))).toBe('INVALID_SHAPE');
  });

  test('strided blocks of the cases that candle’s layout test names', () => {
    const blocks = (layout: Layout) => {
      const { blockLen, blockCount, starts } = layout.stridedBlocks();
      return { blockLen, blockCount, starts: [...starts()] };
    };
    const base = Layout.contiguous([2, 3, 4]);
    expect(blocks(base)).toEqual({ blockLen: 24, blockCount: 1, starts: [0] });
    expect(blocks(base.narrow(0, 1, 1))).toEqual({ blockLen: 12, blockCount: 1, starts: [12] });
    expect(blocks(base.narrow(1, 1, 2))).toEqual({ blockLen: 8, blockCount: 2, starts: [4, 16] });
    expect(blocks(Layout.contiguous([2, 3]).transpose(0, 1))).toEqual({
      blockLen: 1,
      blockCount: 6,
      starts: [0, 3, 1, 4, 2, 5],
    });
    expect(blocks(Layout.contiguous([0, 3]))).toEqual({ blockLen: 0, blockCount: 0, starts: [] });
  });

  test('blocks and indices agree on any layout', () => {
    fc.assert(
      fc.property(layouts, (layout) => {
        const { blockLen, blockCount, starts } = layout.stridedBlocks();
        const fromBlocks = [...starts()].flatMap((start) => Array.from({ length: blockLen }, (_, i) => start + i));
        expect(fromBlocks).toEqual(indices(layout));
        expect(blockLen * blockCount).toBe(layout.elemCount);
        expect(Math.max(...indices(layout)) + 1).toBe(layout.endOffset());
      }),
    );
  });

  test('a reshape that stays a view keeps the order of the elements', () => {
    let views = 0;
    fc.assert(
      fc.property(layouts, fc.nat(), fc.nat(), (layout, a, b) => {
        const count = elemCount(layout.shape);
        const divisors = Array.from({ length: count }, (_, i) => i + 1).filter((d) => count % d === 0);
        const first = divisors[a % divisors.length];
        const rest = divisors.filter((d) => (count / first) % d === 0);
        const second = rest[b % rest.length];
        const shape = [first, second, count / first / second];
        const reshaped = layout.reshape(shape);
        if (layout.isContiguous()) expect(reshaped).not.toBeNull();
        if (!reshaped) return;
        views++;
        expect(reshaped.shape).toEqual(shape);
        expect(indices(reshaped)).toEqual(indices(layout));
      }),
    );
    expect(views).toBeGreaterThan(10);
  });

  test('reshape keeps views where strides allow', () => {
    const rows = Layout.contiguous([4, 8]).narrow(1, 2, 4);
    expect(rows.reshape([4, 2, 2])).toMatchObject({ strides: [8, 2, 1], startOffset: 2 });
    expect(rows.reshape([16])).toBeNull();
    expect(Layout.contiguous([2, 1, 3]).transpose(0, 1).reshape([6])).toMatchObject({ strides: [1] });
    expect(Layout.contiguous([3]).broadcastAs([2, 3]).reshape([2, 3, 1])).toMatchObject({ strides: [0, 1, 1] });
  });
});
