/** Time of work on a device, as all benchmarks of this folder that compare our own choices take it. */
import type { RocmDevice } from '@x/rocm-backend';

/** Seconds that one call of `run` takes: the best of several batches, each batch enqueued at once and waited for. */
export function seconds(device: RocmDevice, run: () => void): number {
  run();
  device.synchronizeSync();
  let best = Number.POSITIVE_INFINITY;
  let rounds = 1;
  for (let batch = 0; batch < 6; batch++) {
    const start = process.hrtime.bigint();
    for (let i = 0; i < rounds; i++) run();
    device.synchronizeSync();
    const taken = Number(process.hrtime.bigint() - start) * 1e-9;
    best = Math.min(best, taken / rounds);
    // Batches of some 50 ms hide what waiting costs.
    rounds = Math.max(1, Math.min(2000, Math.round(0.05 / best)));
  }
  return best;
}
