/**
 * Continuous batching: the decode steps of all sequences that want their next token are one forward pass. A sequence joins
 * at the next step and leaves when it likes; weights are read once for all of them. Policy is simple on purpose: who asked
 * first, at most {@link MAX_BATCH} at once.
 */
import { AsyncResource } from 'node:async_hooks';
import { performance } from 'node:perf_hooks';
import { setImmediate as nextTurn } from 'node:timers/promises';
import type { SequenceCache } from './kv/sequence-cache';
import { Pacer } from './pacer';
import type { Runner } from './runner';

/** Sequences in one pass. */
const MAX_BATCH = 64;
/** Shorter steps go out in one go: an abort can wait for their end, and watching them takes time. */
const UNWATCHED_MS = 50;

interface Request {
  cache: SequenceCache;
  id: number;
  signal: AbortSignal | undefined;
  resolve(logits: Float32Array): void;
  reject(error: unknown): void;
}

export class BatchScheduler {
  private readonly waiting: Request[] = [];
  /** Those of the pass under way. */
  private batch: readonly Request[] = [];
  private running = false;
  /** How long the last step took. */
  private stepMs = Number.POSITIVE_INFINITY;
  private readonly context = new AsyncResource('BatchScheduler');
  private readonly pacer = new Pacer(() => {
    if (this.batch.every(({ signal }) => signal?.aborted)) this.batch[0]?.signal?.throwIfAborted();
  });

  constructor(readonly runner: Runner) {}

  /** Runs `fn` outside the scopes of its caller: the tensors of a pass may not go when a `scope` around it ends. */
  outside<T>(fn: () => T): T {
    return this.context.runInAsyncScope(fn);
  }

  /**
   * Appends a token to a sequence and predicts the next one: logits [vocabSize]. The sequence is the caller's again when the
   * promise settles, not before.
   * @param signal once aborted, the step is left unless others share it; the promise then rejects with the signal's reason
   */
  decode(cache: SequenceCache, id: number, signal?: AbortSignal): Promise<Float32Array> {
    return new Promise((resolve, reject) => {
      this.waiting.push({ cache, id, signal, resolve, reject });
      if (!this.running) void this.outside(() => this.run());
    });
  }

  private async run(): Promise<void> {
    this.running = true;
    // Others that ask within this turn of the event loop come along.
    await nextTurn();
    while (this.waiting.length > 0) {
      this.batch = this.waiting.splice(0, MAX_BATCH);
      await this.step(this.batch);
      await nextTurn();
    }
    this.batch = [];
    this.running = false;
  }

  private async step(requests: readonly Request[]): Promise<void> {
    const begun = performance.now();
    try {
      const steps = requests.map(({ cache, id }) => ({ cache, ids: [id] }));
      const isPaced = this.stepMs > UNWATCHED_MS;
      const logits = isPaced ? (await this.pacer.run(this.runner.pass(steps, true)))! : this.runner.step(steps);
      try {
        const values = await logits.toArray<Float32Array>();
        this.stepMs = performance.now() - begun;
        const width = values.length / requests.length;
        requests.forEach(({ resolve }, row) => {
          resolve(values.subarray(row * width, (row + 1) * width));
        });
      } finally {
        logits.dispose();
      }
    } catch (error) {
      await this.pacer.idle();
      for (const { signal, reject } of requests) reject(signal?.aborted ? signal.reason : error);
    }
  }
}
