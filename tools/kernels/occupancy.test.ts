import { describe, expect, it } from 'vitest';
import { sortConflict, transposeConflict, worstConflict } from './families';
import { LIMITS, occupancy } from './occupancy';

describe('occupancy', () => {
  const { gfx1100, gfx942 } = LIMITS as Record<string, (typeof LIMITS)[string]>;

  it('is what registers leave, in the steps in which they are given out', () => {
    // LLVM's own table: 1536 registers in steps of 24 and at most 16 waves; 512 in steps of 8 and at most 8.
    expect(occupancy(gfx1100!, 96, 0, 256)).toEqual({ waves: 16, limit: 'hardware' });
    expect(occupancy(gfx1100!, 97, 0, 256)).toEqual({ waves: 12, limit: 'registers' });
    expect(occupancy(gfx1100!, 192, 0, 256).waves).toBe(8);
    expect(occupancy(gfx1100!, 193, 0, 256).waves).toBe(7);
    expect(occupancy(gfx942!, 64, 0, 256)).toEqual({ waves: 8, limit: 'hardware' });
    expect(occupancy(gfx942!, 65, 0, 256)).toEqual({ waves: 7, limit: 'registers' });
    expect(occupancy(gfx942!, 512, 0, 256).waves).toBe(1);
  });

  it('is what shared memory leaves, spread over the SIMDs that share it', () => {
    // Three blocks of four waves for four SIMDs; on gfx1100 seven blocks of eight.
    expect(occupancy(gfx942!, 20, 16640, 256)).toEqual({ waves: 3, limit: 'LDS' });
    expect(occupancy(gfx1100!, 20, 16640, 256)).toEqual({ waves: 14, limit: 'LDS' });
    expect(occupancy(gfx942!, 20, 4096, 1024)).toEqual({ waves: 8, limit: 'hardware' });
  });
});

describe('bank conflicts', () => {
  it('counts different words of one bank', () => {
    expect(worstConflict((lane) => lane)).toBe(1);
    expect(worstConflict(() => 5)).toBe(1);
    expect(worstConflict((lane) => lane * 2)).toBe(2);
    expect(worstConflict((lane) => lane * 32)).toBe(32);
  });

  it('has none in the tiles of a transpose, and two lanes a bank at most in a sort', () => {
    for (const size of [1, 2, 4, 8] as const) expect(transposeConflict(size), `${size} bytes`).toBe(1);
    for (const low of [0, 1, 2, 3, 4, 5, 6]) expect(sortConflict(low)).toBeLessThanOrEqual(2);
  });
});
