/**
 * What a GPU needs once, before anyone waits for it: kernels that the driver compiles or loads at their first use, what libraries
 * plan for a shape, and graphs of the steps that are to come.
 */
import type { Device } from '@x/core';
import { MAX_ROWS } from '../execute/batch';
import type { SequenceCache } from '../kv/sequence-cache';
import type { Runner } from '../runner';
import { LogitsProcessor } from '../sampling';
import type { BatchScheduler } from '../schedule/scheduler';

export interface WarmUpOptions {
  /** Sequences that will be computed at once, at most. Default 1. */
  sequences?: number;
  /**
   * Positions of all sequences together that the cache is to have memory for, as far as the device has it: graphs are lost when the
   * cache grows. Default 512 for each sequence of a step, which has 128 at most.
   */
  positions?: number;
  /** Stops between two steps; the promise then rejects with the signal's reason. */
  signal?: AbortSignal;
}

/** Tokens of prompts: of few rows and of many, whose products are different kernels. */
const PROMPTS = [512, 32];
/** The first use of a shape, its capture, and the graph. */
const TIMES = 3;
/** Devices that compile kernels at their first use. */
const KINDS: readonly Device['kind'][] = ['cuda', 'rocm'];

/** Reads prompts and decodes with 1, 2, 4, ... sequences; what they wrote is forgotten. */
export async function warmUp(
  { model, maxContext, pool }: Runner,
  scheduler: BatchScheduler,
  { sequences: wanted = 1, positions, signal }: WarmUpOptions,
): Promise<void> {
  // Further ones are in another step.
  const sequences = Math.min(wanted, MAX_ROWS);
  if (!KINDS.includes(model.device.kind)) return;
  const sampler = new LogitsProcessor({ temperature: 0 }).sampler([]);
  const open: { cache: SequenceCache; id: number }[] = [];
  const add = () => {
    const own = { cache: scheduler.open(), id: 0 };
    open.push(own);
    return own;
  };
  const read = async (own: { cache: SequenceCache; id: number }, length: number) => {
    const count = Math.max(1, Math.min(length, Math.min(maxContext, pool.maxBlocks * pool.blockSize) - TIMES));
    const ids = Array.from({ length: count }, (_, i) => (i + 31 * open.length) % model.config.vocabSize);
    own.id = (await scheduler.prefill(own.cache, ids, sampler, { reuse: false, signal })).id;
  };
  const closeAll = () => {
    for (const { cache } of open.splice(0)) scheduler.close(cache);
  };
  try {
    const each = Math.min(maxContext, positions === undefined ? 512 : Math.ceil(positions / sequences));
    while (open.length < sequences && scheduler.tryReserve(add().cache, each));
    closeAll();
    for (const length of PROMPTS) {
      for (let time = 0; time < TIMES; time++) {
        await read(add(), length);
        closeAll();
      }
    }
    // As many as have room: each has a block for its prompt and one for what it decodes.
    const most = Math.min(sequences, Math.floor(pool.maxBlocks / 2));
    for (let count = 1; count <= most; count = count === most ? most + 1 : Math.min(2 * count, most)) {
      while (open.length < count) await read(add(), pool.blockSize / 2);
      for (let time = 0; time < TIMES; time++) {
        const steps = open.map(async (own) => {
          own.id = (await scheduler.decode(own.cache, own.id, sampler, signal)).id;
        });
        // Nothing is under way when the sequences are closed.
        const failed = (await Promise.allSettled(steps)).find(({ status }) => status === 'rejected');
        if (failed) throw (failed as PromiseRejectedResult).reason;
      }
    }
  } finally {
    closeAll();
  }
}
