/** Tests that count what is alive: each in a scope, so that none leaves tensors to a collector that disturbs the next. */
import { test as plainTest } from 'vitest';
import { type MemoryStats, memoryStats, scope } from '../src';

let before: MemoryStats;

/** Tensors and buffers that have come since the test began, or since {@link countFromHere}. */
export function grown(): { tensors: number; storages: number } {
  const now = memoryStats();
  return { tensors: now.liveTensors - before.liveTensors, storages: now.liveStorages - before.liveStorages };
}

export function countFromHere(): MemoryStats {
  before = memoryStats();
  return before;
}

export function countedTest(name: string, body: () => void | Promise<void>): void {
  plainTest(name, () =>
    scope(() => {
      countFromHere();
      return body();
    }),
  );
}
