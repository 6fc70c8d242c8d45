/**
 * A rank that follows: it loads its part of the model and does what the leading rank tells it, in that order. It has the memory
 * of a cache but no sequences, computes logits and chooses nothing.
 */
import { CandleError, Communicator, Device, memoryStats } from '@x/core';
import { type Command, Executor, Obedience } from '../execute/executor';
import { KvMemory } from '../kv/memory';
import { buildModel } from '../load/build-model';
import { type Link, type RankPlan, sent, type ToFollower } from './messages';
import { PromptParts, type PromptWork } from './prompt-parts';

/** Least time between two reports of progress. */
const REPORT_MS = 100;

/** What a process has of its own. */
export interface OwnPlace {
  path: string;
  device: Device;
}

export class Follower {
  /** Called when this rank has loaded its part. */
  onLoaded: () => void = () => {};
  /** Hears what this rank failed with. */
  onFailed: (error: unknown) => void = () => {};
  private readonly ended = new AbortController();
  private readonly parts: { dispose(): void }[] = [];
  private communicator: Communicator | undefined;
  private obedience: Obedience | undefined;
  private prompts: PromptParts | undefined;
  private loading: Promise<void> | undefined;
  private failed = false;

  /** @param own of a process; threads are told */
  constructor(
    private readonly link: Link,
    private readonly own?: OwnPlace,
  ) {}

  /** Deals with a message, all but loading at once. Errors are sent. */
  receive(message: ToFollower): void {
    if (message.type === 'load') {
      this.loading = this.load(message.plan).catch((error) => this.fail(error));
    } else if (message.type === 'end') {
      void this.end(message.failed);
      return;
    } else if (message.type !== 'ping' && !this.failed) {
      try {
        if (message.type === 'disturb') disturb(message.how);
        else if (message.type === 'prompt') this.answer(message.request, message.work);
        else this.obey(message.command);
      } catch (error) {
        this.fail(error);
      }
    }
    this.link.acknowledge();
  }

  /** Gives everything back without a word, as where the leading rank is gone. */
  async abandon(): Promise<void> {
    this.ended.abort();
    this.communicator?.abort();
    await this.loading;
    await this.prompts?.end();
    this.release();
  }

  private async end(failed: boolean): Promise<void> {
    this.ended.abort();
    if (failed) this.communicator?.abort();
    await this.loading;
    await this.prompts?.end();
    this.release();
    this.link.send({ type: 'ended', storages: memoryStats().liveStorages });
    this.link.acknowledge();
    this.link.close();
  }

  private async load(plan: RankPlan): Promise<void> {
    const { rank, size, id, timeoutMs, dtype, activations, cacheDtype, maxContext, fused, split } = plan;
    const device = this.own?.device ?? Device.parse(plan.device!);
    const { signal } = this.ended;
    let reported = 0;
    const onProgress = (loaded: number, total: number) => {
      const now = performance.now();
      if (loaded < total && now - reported < REPORT_MS) return;
      reported = now;
      this.link.send({ type: 'progress', loaded, total });
    };
    const communicator = await Communicator.join(device, { id, rank, size, timeoutMs, guardReads: false });
    this.communicator = communicator;
    const shard = { rank, size, split, communicator };
    const options = { device, dtype, activations, cacheDtype, maxContext, fused, shard, signal, onProgress };
    const built = await buildModel(this.own?.path ?? plan.path!, options, false);
    const { model } = built;
    this.parts.push(model);
    signal.throwIfAborted();
    const memory = new KvMemory(model.kvLayouts, device, built.cacheDtype, model.stateLayouts);
    const executor = new Executor(model, memory, undefined, communicator);
    this.obedience = new Obedience(executor);
    this.prompts = new PromptParts(rank, memory);
    this.parts.push({ dispose: () => memory.dispose() }, executor, this.obedience);
    this.link.send({ type: 'loaded', identity: built.identity(), positions: built.room?.positions });
    this.onLoaded();
  }

  private obey(command: Command): void {
    if (!this.obedience) throw new Error('internal: a command before the model was loaded');
    this.obedience.obey(command);
  }

  /** A file that cannot be written or read is no failure of the rank. */
  private answer(request: number, work: PromptWork): void {
    if (!this.prompts) throw new Error('internal: a prompt before the model was loaded');
    const done = (error?: unknown) =>
      this.link.send({ type: 'done', request, error: error === undefined ? undefined : sent(error) });
    this.prompts.do(work).then(() => done(), done);
  }

  private fail(error: unknown): void {
    if (this.failed || this.ended.signal.aborted) return;
    this.failed = true;
    this.onFailed(error);
    this.link.send({ type: 'failed', error: sent(error) });
  }

  /** Graphs before memory and weights, and the group of devices last. */
  private release(): void {
    if (this.failed) this.communicator?.abort();
    for (const part of this.parts.splice(0).reverse()) part.dispose();
    this.communicator?.dispose();
    this.communicator = undefined;
  }
}

function disturb(how: 'fail' | 'hang' | 'exit'): void {
  if (how === 'exit') process.exit(7);
  if (how === 'fail') throw new CandleError('DISTURBED', 'the rank was told to fail');
  // Until the thread or process is ended from outside.
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0);
}
