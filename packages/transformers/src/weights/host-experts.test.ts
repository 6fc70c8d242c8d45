// Which experts are on the device, and in which slots.
import { describe, expect, it } from 'vitest';
import { HostExperts, HotExperts } from './host-experts';

/** Notes what is copied; fails where it is told to. */
function part() {
  const copies: [number, number][] = [];
  let isBroken = false;
  return {
    copies,
    expertBytes: 10,
    pinnedBytes: 30,
    put(slot: number, expert: number) {
      if (isBroken) throw new Error('broken');
      copies.push([slot, expert]);
    },
    breaks(value: boolean) {
      isBroken = value;
    },
  };
}

describe('hot experts', () => {
  it('stay until others are wanted, those used longest ago going first', () => {
    const one = part();
    const hot = new HotExperts(8, 3, [one]);
    hot.bring([4, 5]);
    hot.bring([6]);
    hot.bring([4]);
    expect(one.copies).toEqual([
      [0, 4],
      [1, 5],
      [2, 6],
    ]);
    // 5 was used longest ago, then 6.
    expect([...hot.bring([4, 1])]).toEqual([0, 1]);
    expect([...hot.bring([2])]).toEqual([2]);
    expect([hot.hits, hot.uploads]).toEqual([2, 5]);
    // Several tokens want the same ones: each counts once.
    expect([...hot.bring([2, 7, 2, 7, 2])]).toEqual([2, 0, 2, 0, 2]);
    expect([hot.hits, hot.uploads]).toEqual([3, 6]);
  });

  it('come in rounds, those that are there first', () => {
    const one = part();
    const hot = new HotExperts(8, 3, [one]);
    hot.bring([6, 7]);
    expect(hot.rounds([1, 2, 1, 7, 3, 6, 6])).toEqual([
      [7, 6, 1],
      [2, 3],
    ]);
    expect(hot.rounds([1, 1])).toEqual([[1]]);
    expect(hot.rounds([])).toEqual([]);
    // None of a round goes for another one of it.
    for (const round of hot.rounds([1, 2, 7, 3, 6])) {
      const slots = hot.bring(round);
      expect(new Set(slots).size).toBe(round.length);
    }
    expect(one.copies.length).toBe(5);
  });

  it('are not there when a copy failed', () => {
    const [one, other] = [part(), part()];
    const hot = new HotExperts(4, 2, [one, other]);
    expect(hot.expertBytes).toBe(20);
    hot.bring([0, 1]);
    other.breaks(true);
    expect(() => hot.bring([2])).toThrow('broken');
    other.breaks(false);
    hot.bring([1]);
    expect([...hot.bring([0])]).toEqual([0]);
    expect(other.copies).toEqual([
      [0, 0],
      [1, 1],
      [0, 0],
    ]);
  });
});

it('stats are of all layers, and fewer slots than a token needs are refused', () => {
  const all = new HostExperts(5);
  expect(all.areThere).toBe(false);
  expect(all.tokensAtOnce).toBe(Number.POSITIVE_INFINITY);
  expect(all.slotsOf(4, 2)).toBe(4);
  expect(all.tokensAtOnce).toBe(Number.POSITIVE_INFINITY);
  expect(all.slotsOf(8, 2)).toBe(5);
  expect(all.tokensAtOnce).toBe(2);
  expect(() => all.slotsOf(8, 6)).toThrow(/hotExperts is 5 and each token takes 6 of 8 experts; give 6 or more/);
  const layers = [0, 1].map(() => all.add(8, 5, [part() as never]));
  layers[0].bring([1, 2]);
  layers[1].bring([1]);
  layers[1].bring([1]);
  const sizes = { layers: 2, experts: 8, hotExperts: 5, hostBytes: 160, pinnedBytes: 60, deviceBytes: 100 };
  expect(all.stats).toEqual({ ...sizes, hits: 1, uploads: 3, uploadedBytes: 30 });
});
