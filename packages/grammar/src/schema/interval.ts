/** Sets of numbers as intervals in order, with gaps between them. */

export interface Interval {
  readonly low: number;
  readonly high: number;
  readonly isLowOpen: boolean;
  readonly isHighOpen: boolean;
}

export function meetIntervals(a: readonly Interval[], b: readonly Interval[]): Interval[] {
  const result: Interval[] = [];
  for (const one of a) {
    for (const other of b) {
      const low = Math.max(one.low, other.low);
      const high = Math.min(one.high, other.high);
      const isLowOpen = (one.low === low && one.isLowOpen) || (other.low === low && other.isLowOpen);
      const isHighOpen = (one.high === high && one.isHighOpen) || (other.high === high && other.isHighOpen);
      if (low < high || (low === high && !isLowOpen && !isHighOpen)) result.push({ low, high, isLowOpen, isHighOpen });
    }
  }
  return result.sort((x, y) => x.low - y.low);
}

/** The numbers in none of them. */
export function otherIntervals(intervals: readonly Interval[]): Interval[] {
  const result: Interval[] = [];
  let low = Number.NEGATIVE_INFINITY;
  let isLowOpen = false;
  const add = (high: number, isHighOpen: boolean) => {
    if (low < high || (low === high && !isLowOpen && !isHighOpen)) result.push({ low, high, isLowOpen, isHighOpen });
  };
  for (const interval of [...intervals].sort((a, b) => a.low - b.low)) {
    if (interval.low > Number.NEGATIVE_INFINITY) add(interval.low, !interval.isLowOpen);
    low = interval.high;
    isLowOpen = !interval.isHighOpen;
  }
  if (low < Number.POSITIVE_INFINITY) add(Number.POSITIVE_INFINITY, false);
  return result;
}
