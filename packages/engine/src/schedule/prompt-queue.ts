/**
 * Prompts that are being read, a part each in a pass together: weights are read once for all of them. Parts are taken in the
 * order in which they came, as many as have no more tokens than the largest part of one prompt, so that a short prompt goes
 * beside or after a part of a long one. How a prompt is cut does not depend on the others, but where decode steps take parts along,
 * as much of one as they have room for.
 */
import { setImmediate as nextTurn } from 'node:timers/promises';
import type { Tensor } from '@x/core';
import { MAX_PARTS } from '../execute/batch';
import type { SequenceCache } from '../kv/sequence-cache';
import type { Runner } from '../runner';
import { badLogits, type Choice, type Sampler } from '../sampling';
import { type Others, Pacer } from './pacer';

/** Tokens along which a part may be cut for a step. */
const CUT = 256;

export interface PromptPart {
  cache: SequenceCache;
  /** Room for them is reserved. */
  ids: readonly number[];
  /** Chooses the token behind the part; without it none is chosen. */
  sampler: Sampler | undefined;
  signal: AbortSignal | undefined;
  /** Called with the share of the part that the device is done with, perhaps when later parts are read already. */
  onDone(share: number): void;
}

/** A part until it is read. */
export interface QueuedPart extends PromptPart {
  resolve(choice: Choice | undefined): void;
  reject(error: unknown): void;
  /** Whether it is to be read in a pass of prompts only. */
  isApart?: boolean;
  /** Of what was cut off at the beginning of a part: all of it. */
  whole?: QueuedPart;
}

/** What decode steps do with parts. */
export interface TakingAlong extends Others {
  /** Tokens that the next step takes along; 0 where it takes none. */
  room: number;
}

export class PromptQueue {
  private waiting: QueuedPart[] = [];
  /** Those of the pass under way. */
  private batch: readonly QueuedPart[] = [];
  private running = false;
  private readonly pacer: Pacer;
  /** @internal {@link CUT} */
  cutAt = CUT;
  /** Ends a wait for decode steps to take parts along. */
  private look = () => {};
  /** Listens to each signal once, however many prompts have it: Node warns of the eleventh listener. */
  private readonly leave = () => {
    const left = this.waiting.filter(({ signal }) => signal?.aborted);
    this.waiting = this.waiting.filter((part) => !left.includes(part));
    for (const { signal, reject } of left) void this.pacer.enqueued().then(() => reject(signal?.reason));
  };

  /** @param others who wants the device between two groups of a pass's steps */
  constructor(
    private readonly runner: Runner,
    private readonly others: () => TakingAlong,
  ) {
    const check = () => {
      if (this.batch.every(({ signal }) => signal?.aborted)) this.batch[0]?.signal?.throwIfAborted();
    };
    this.pacer = new Pacer(check, { settled: (work) => runner.settled(work), others });
  }

  /** Whether parts are being read, or wait to be. */
  get isReading(): boolean {
    return this.running;
  }

  /**
   * Computes a part. Once its signal is aborted, it is left unless others share the pass.
   * @throws what {@link Runner.pass} throws, TransformersError BAD_LOGITS; the signal's reason
   */
  async read(part: PromptPart): Promise<Choice | undefined> {
    const { signal } = part;
    const done = new Promise<Choice | undefined>((resolve, reject) => {
      this.waiting.push({ ...part, resolve, reject });
    });
    signal?.addEventListener('abort', this.leave, { once: true });
    if (!this.running) void this.run();
    try {
      return await done;
    } finally {
      if (!this.waiting.some((other) => other.signal === signal)) signal?.removeEventListener('abort', this.leave);
    }
  }

  private async run(): Promise<void> {
    this.running = true;
    while (this.waiting.length > 0) {
      // Others that ask within this turn of the event loop come along.
      await nextTurn();
      while (this.isLeftToOthers())
        await new Promise<void>((resolve) => {
          this.look = resolve;
        });
      const batch = this.take();
      if (batch.length > 0) await this.compute(batch);
      // Those who go on with their next part are there before the device has nothing to do.
      await nextTurn();
      if (this.waiting.length === 0) await this.pacer.idle();
    }
    this.running = false;
  }

  /** Takes parts for a pass with decode steps, as many as there is room for, in front those that a token is chosen behind. */
  takeAlong(): readonly QueuedPart[] {
    if (!this.isLeftToOthers()) return [];
    const { room } = this.others();
    const [first] = this.waiting;
    return first.ids.length <= room ? this.take(room, MAX_PARTS) : [this.cut(first, room)];
  }

  /** Gives parts back that could not be read with decode steps. */
  giveBack(parts: readonly QueuedPart[]): void {
    for (const { whole } of parts) if (whole) this.remove(whole);
    this.waiting.unshift(...parts.map((part) => ({ ...(part.whole ?? part), isApart: true })));
    this.lookAgain();
  }

  /** Takes what there is room for of the first part, whose rest stays the first. */
  private cut(part: QueuedPart, room: number): QueuedPart {
    const count = Math.floor(room / this.cutAt) * this.cutAt;
    const begun = count / part.ids.length;
    this.waiting[0] = {
      ...part,
      ids: part.ids.slice(count),
      onDone: (share) => part.onDone(begun + share * (1 - begun)),
    };
    return {
      ...part,
      ids: part.ids.slice(0, count),
      sampler: undefined,
      onDone: (share) => part.onDone(share * begun),
      resolve: () => {},
      reject: (error) => {
        this.remove(part);
        part.reject(error);
      },
      whole: part,
    };
  }

  /** Takes what is left of a part out of those that wait. */
  private remove({ resolve }: QueuedPart): void {
    this.waiting = this.waiting.filter((other) => other.resolve !== resolve);
  }

  /** To be called when decode steps may take other parts along than before, or none. */
  lookAgain(): void {
    this.look();
  }

  private isLeftToOthers(): boolean {
    const part = this.waiting.at(0);
    if (this.batch.length > 0 || part === undefined || part.isApart) return false;
    return Math.min(part.ids.length, this.cutAt) <= this.others().room;
  }

  /** The next parts, in front those that a token is chosen behind. */
  private take(mostTokens = this.runner.chunkAt(0), mostParts = Number.POSITIVE_INFINITY): QueuedPart[] {
    let tokens = 0;
    const taken: QueuedPart[] = [];
    const later: QueuedPart[] = [];
    for (const part of this.waiting) {
      const isRoom = tokens + part.ids.length <= mostTokens && taken.length < mostParts;
      const fits = later.length === 0 && (taken.length === 0 || isRoom);
      (fits ? taken : later).push(part);
      if (fits) tokens += part.ids.length;
    }
    this.waiting = later;
    const keyOf = ({ cache }: QueuedPart) => cache.adapter?.key ?? '';
    const rank = ({ sampler }: QueuedPart) => (sampler ? 0 : 1);
    return taken.sort((a, b) => rank(a) - rank(b) || keyOf(a).localeCompare(keyOf(b)));
  }

  private async compute(parts: readonly QueuedPart[]): Promise<void> {
    const { runner, pacer } = this;
    const chosen = parts.filter(({ sampler }) => sampler);
    this.batch = parts;
    try {
      const tokens = parts.reduce((sum, { ids }) => sum + ids.length, 0);
      const onDone = (share: number) => {
        for (const part of parts) part.onDone(share);
      };
      const logits = await pacer.run(runner.pass(parts, chosen.length > 0, !this.others().areWaiting), onDone, tokens);
      for (const part of parts.slice(chosen.length)) part.resolve(undefined);
      // The device has the next pass meanwhile.
      if (logits) void this.choose(chosen, logits);
    } catch (error) {
      await pacer.idle();
      const reason = await runner.reason(error);
      for (const part of parts) {
        // A pass that fails has changed nothing: who is not to blame goes on alone.
        if (part.signal?.aborted) part.reject(part.signal.reason);
        else if (parts.length === 1) part.reject(reason);
        else await this.compute([part]);
      }
    } finally {
      this.batch = [];
    }
  }

  /** @param logits [parts, or more, vocabSize], given back */
  private async choose(parts: readonly QueuedPart[], logits: Tensor): Promise<void> {
    const { runner } = this;
    // Who gets the token may give back the model: no group of the pass is to hold anything then.
    const enqueued = this.pacer.enqueued();
    try {
      const own = logits.narrow(0, 0, parts.length);
      const choices = await runner.chosen(
        own,
        parts.map(({ sampler }) => sampler!),
      );
      await enqueued;
      parts.forEach((part, row) => {
        const choice = choices[row];
        if (choice) part.resolve(choice);
        else part.reject(badLogits(runner.model.config.vocabSize));
      });
    } catch (error) {
      const reason = await runner.reason(error);
      await enqueued;
      for (const part of parts) part.reject(reason);
    } finally {
      logits.dispose();
    }
  }
}
