// Threads for the devices of --devices: each runs main.ts as one rank.
import { once } from 'node:events';
import { isMainThread, Worker, workerData } from 'node:worker_threads';

interface Rank {
  rank: number;
  /** The name of the group. */
  id: Uint8Array;
}

/** Which rank this thread is; undefined in the main thread. */
export const ownRank: Rank | undefined = isMainThread ? undefined : workerData;

export interface StartedRank {
  id: Uint8Array;
  ended: Promise<void>;
}

/** Starts all ranks but the first one. @param main the program's URL */
export function startRanks(main: URL, id: Uint8Array, size: number): StartedRank[] {
  return Array.from({ length: size - 1 }, (_, i) => {
    const worker = new Worker(new URL('./rank.mjs', main), {
      workerData: { rank: i + 1, id },
      argv: process.argv.slice(2),
    });
    const ended = once(worker, 'exit').then(([status]) => {
      if (status !== 0) throw new Error(`rank ${i + 1} ended with status ${status}`);
    });
    // Said by endRanks, or by the first rank, which the others are missing to.
    ended.catch(() => {});
    return { id, ended };
  });
}

export async function endRanks(ranks: readonly StartedRank[]): Promise<void> {
  await Promise.all(ranks.map(({ ended }) => ended));
}
