/**
 * Who computes when. Continuous batching: the decode steps of all sequences that want their next token are one forward
 * pass; a sequence joins at the next step and leaves when it likes, and weights are read once for all of them. Prompts are
 * read together as well, between the steps ({@link PromptQueue}), or in their passes where many sequences decode. Who gives up
 * room in the cache for whom, {@link Residents} says. Policy is simple on purpose: who came first goes first, at most
 * {@link MAX_BATCH} tokens at once; what of {@link MAX_DRAFTING} no sequence needs is shared out among their drafts.
 */
import { AsyncResource } from 'node:async_hooks';
import { performance } from 'node:perf_hooks';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { TransformersError } from '@x/transformers';
import type { AdapterUse } from '../adapters';
import { MAX_ROWS } from '../execute/batch';
import type { SequenceCache } from '../kv/sequence-cache';
import type { Runner } from '../runner';
import { badLogits, type Choice, type Sampler } from '../sampling';
import { Pacer } from './pacer';
import { PromptQueue, type QueuedPart } from './prompt-queue';
import { Residents } from './residents';
import { type Asked, type DecodeRequest, StepAhead } from './step-ahead';
import { StepTimes } from './step-times';

/** Tokens in one pass, drafts among them: as many as the largest graph has. */
const MAX_BATCH = MAX_ROWS;
/** The same where some are drafts, which may be in vain: more tokens cost products of many rows. */
const MAX_DRAFTING = 64;
/** Sequences that decode together from which on parts of prompts come along. */
const MANY_ROWS = 16;
interface Request extends DecodeRequest {
  resolve(verified: Verified): void;
  reject(error: unknown): void;
}

/** What {@link BatchScheduler.verify} gives. */
export interface Verified {
  /** At least one: the drafts that were chosen, and the token behind them. */
  choices: readonly Choice[];
  /** Drafts that were computed, chosen or not. */
  drafts: number;
}

export interface PrefillOptions {
  signal?: AbortSignal;
  /** Whether what the cache holds of the beginning is taken from there. Default true. */
  reuse?: boolean;
  /** Called with the tokens that were, before anything runs. */
  onReused?: (tokens: number) => void;
  /** Called with the tokens that the device is done with. */
  onProgress?: (done: number) => void;
}

/** Shares the passes of a {@link Runner} among sequences: {@link open} one, {@link prefill} its prompt, {@link decode} token by token. */
export class BatchScheduler {
  private waiting: Request[] = [];
  /** Those of the pass under way. */
  private batch: readonly Request[] = [];
  private running = false;
  private readonly times = new StepTimes();
  /** Whether the next step takes parts of prompts along. */
  private takesAlong = false;
  /** @internal {@link MANY_ROWS} */
  manyRows = MANY_ROWS;
  private readonly residents = new Residents();
  private readonly context = new AsyncResource('BatchScheduler');
  private readonly pacer: Pacer;
  private readonly prompts: PromptQueue;
  private readonly ahead: StepAhead<Request>;

  constructor(readonly runner: Runner) {
    this.prompts = new PromptQueue(runner, () => {
      const { lately, room } = this.times;
      return { areWaiting: this.running, ...lately, room: this.takesAlong ? room : 0 };
    });
    this.ahead = new StepAhead(runner, this.prompts, (cache, length) => this.tryReserve(cache, length), MAX_BATCH);
    this.pacer = this.paced(() => {
      if (this.batch.every(({ signal }) => signal?.aborted)) this.batch[0]?.signal?.throwIfAborted();
    });
  }

  /**
   * An empty sequence. {@link close} it.
   * @param kept it does not give up its blocks for others, which the scheduler has sequences do between two steps
   * @param adapter what its tokens are computed with; default none
   * @throws DisposedError for an adapter that was unloaded
   */
  open(kept = false, adapter?: AdapterUse): SequenceCache {
    const cache = this.runner.cache(adapter);
    this.residents.add(cache, kept);
    return cache;
  }

  /** Wakes all that wait for room, where there will be none. */
  wake(): void {
    this.residents.report();
  }

  /** Gives a sequence's blocks back, for others that wait; beginnings of prompts may stay in the cache. */
  close(cache: SequenceCache): void {
    this.residents.remove(cache);
    cache.dispose();
    this.residents.report();
  }

  /** Takes blocks for `length` positions where nobody has to give up any for it. */
  tryReserve(cache: SequenceCache, length: number): boolean {
    return this.residents.take(cache, length) === undefined;
  }

  /** Keeps a sequence's blocks for it until it is closed; others wait for that. */
  hold(cache: SequenceCache): void {
    this.residents.hold(cache);
  }

  /** Takes blocks for `length` positions, and keeps them as {@link hold}. @returns false when others have to end first */
  tryHold(cache: SequenceCache, length: number): boolean {
    if (!this.residents.makeRoom(cache, length)) return false;
    this.hold(cache);
    return true;
  }

  /** Takes blocks for `length` positions at once. @throws TransformersError CACHE_FULL */
  reserve(cache: SequenceCache, length: number): void {
    if (this.residents.makeRoom(cache, length)) return;
    // Says why not.
    cache.reserve(length);
  }

  /**
   * Appends a prompt to a sequence and chooses the token after it. What the cache holds of its beginning, from this sequence
   * or another one, is not computed again.
   * @throws TransformersError EMPTY_INPUT, BAD_TOKEN, CONTEXT_EXCEEDED, CACHE_FULL, BAD_LOGITS; the signal's reason
   */
  prefill(
    cache: SequenceCache,
    ids: readonly number[],
    sampler: Sampler,
    options: PrefillOptions = {},
  ): Promise<Choice> {
    return this.context.runInAsyncScope(() => this.read(cache, ids, sampler, options));
  }

  /**
   * Appends a token to a sequence and chooses the next one. The sequence is the caller's again when the promise settles, not
   * before.
   * @param sampler read until then
   * @param signal once aborted, the step is left unless others share it; the promise then rejects with the signal's reason
   * @param goesOn whether the token after that is likely to be asked for too, so that its pass can begin before this one is read
   * @throws TransformersError as {@link prefill}
   */
  async decode(
    cache: SequenceCache,
    id: number,
    sampler: Sampler,
    signal?: AbortSignal,
    goesOn = false,
  ): Promise<Choice> {
    return (await this.verify(cache, [id], [sampler], signal, goesOn)).choices[0];
  }

  /**
   * As {@link decode} for a few tokens, of which the last ones are drafts: guesses of what will be chosen. The sequence keeps those
   * that are chosen where they stand, and one step gives their choices and the next. Drafts are left out where there is no room for
   * them, in the cache or in the batch.
   * @param ids tokens that come next, at least one, then drafts
   * @param samplers for the token behind those, and for the token behind each draft
   * @param goesOn as of {@link decode}, where there are no drafts
   */
  verify(
    cache: SequenceCache,
    ids: readonly number[],
    samplers: readonly Sampler[],
    signal?: AbortSignal,
    goesOn = false,
  ): Promise<Verified> {
    return new Promise((resolve, reject) => {
      this.checkFree(cache);
      this.runner.check(ids, cache.tokens.length);
      this.waiting.push({ cache, ids, samplers, signal, goesOn, resolve, reject });
      this.residents.set(cache, 'waiting');
      // A loop that waits for a change has a request that may need no room.
      this.residents.report();
      if (!this.running) void this.context.runInAsyncScope(() => this.run());
    });
  }

  private async read(
    cache: SequenceCache,
    ids: readonly number[],
    sampler: Sampler,
    { signal, reuse = true, onReused, onProgress }: PrefillOptions,
  ): Promise<Choice> {
    const { runner } = this;
    this.checkFree(cache);
    runner.check(ids, cache.tokens.length);
    const prompt = [...cache.tokens, ...ids];
    const known = prompt.length - ids.length;
    const listener: { isOver: boolean; thrown?: { error: unknown } } = { isOver: false };
    this.residents.set(cache, 'waiting');
    try {
      // Lets the event loop run, so that timers and abort signals work even on a device that computes synchronously.
      await nextTurn();
      if (reuse && cache.capacity === 0) onReused?.(cache.adopt(prompt));
      for (;;) {
        signal?.throwIfAborted();
        runner.checkRanks();
        const start = cache.length;
        const end = runner.chunkEnd(start, prompt.length);
        if (!this.residents.makeRoom(cache, end)) {
          await this.waitForRoom(cache, signal);
          continue;
        }
        // A sequence that lost its blocks while it waited has taken those back that are still there, and goes on behind them.
        if (cache.length !== start) continue;
        const chunk = prompt.slice(start, end);
        this.residents.set(cache, 'running');
        const last = start + chunk.length === prompt.length;
        // Called in passes of others too, which what it throws is not to end.
        const onDone = (share: number) => {
          if (listener.isOver || listener.thrown) return;
          try {
            onProgress?.(Math.max(0, start + Math.floor(share * chunk.length) - known));
          } catch (error) {
            listener.thrown = { error };
          }
        };
        const choice = await this.prompts.read({
          cache,
          ids: chunk,
          sampler: last ? sampler : undefined,
          signal,
          onDone,
        });
        if (listener.thrown) throw listener.thrown.error;
        if (!choice) continue;
        listener.isOver = true;
        onProgress?.(ids.length);
        return choice;
      }
    } catch (error) {
      throw await runner.reason(error);
    } finally {
      listener.isOver = true;
      this.residents.set(cache, 'idle');
      this.residents.report();
    }
  }

  private paced(check: () => void): Pacer {
    const { runner } = this;
    return new Pacer(check, { settled: (work) => runner.settled(work) });
  }

  /** Until something has changed. Meanwhile others may take what the sequence has. */
  async waitForRoom(cache: SequenceCache, signal: AbortSignal | undefined): Promise<void> {
    if (this.residents.stateOf(cache) === 'running') this.residents.report();
    this.residents.set(cache, 'waiting');
    await this.residents.change([signal]);
    signal?.throwIfAborted();
  }

  private async run(): Promise<void> {
    this.running = true;
    // Others that ask within this turn of the event loop come along.
    await nextTurn();
    while (this.waiting.length > 0 || this.ahead.isAsked) {
      const asked = this.ahead.take(this.waiting);
      if (asked) this.waiting = asked.rest;
      const isAsked = asked !== undefined && asked.requests.length + asked.parts.length > 0;
      this.batch = isAsked ? asked.requests : await this.admit();
      if (isAsked || this.batch.length > 0) await this.step(this.batch, isAsked ? asked : undefined);
      else this.setTakesAlong(false);
      // Only prompts are being read: their end makes room.
      if (!isAsked && this.batch.length === 0 && this.waiting.length > 0)
        await this.residents.change(this.waiting.map(({ signal }) => signal));
      await nextTurn();
    }
    this.batch = [];
    this.running = false;
    this.setTakesAlong(false);
  }

  /** Parts of prompts that were left to steps and not taken are looked at again: these may take none along now, or shorter ones. */
  private setTakesAlong(takesAlong: boolean): void {
    this.takesAlong = takesAlong;
    this.prompts.lookAgain();
  }

  /** Takes the next batch from those who wait: the first that came and that there is room for. */
  private async admit(): Promise<Request[]> {
    this.sortWaiting();
    const admitted: Request[] = [];
    const later: Request[] = [];
    let tokens = 0;
    for (const request of this.waiting.splice(0)) {
      const { cache, signal } = request;
      const own = known(request);
      try {
        signal?.throwIfAborted();
        this.runner.checkRanks();
        const isNext = tokens + own <= MAX_BATCH || tokens === 0;
        const isRoom = isNext && this.residents.makeRoom(cache, cache.tokens.length + own);
        (isRoom ? admitted : later).push(request);
        if (!isRoom) continue;
        tokens += own;
        this.residents.set(cache, 'running');
      } catch (error) {
        this.residents.set(cache, 'idle');
        request.reject(signal?.aborted ? signal.reason : await this.runner.reason(error));
      }
    }
    this.waiting = [...later, ...this.waiting];
    const ready: Request[] = [];
    for (const request of admitted) {
      try {
        await this.restore(request);
        ready.push(request);
      } catch (error) {
        this.residents.set(request.cache, 'idle');
        request.reject(await this.runner.reason(error));
      }
    }
    // Sequences with one adapter are neighbours, so that each adapter is one product a layer.
    const keyOf = ({ cache }: Request) => cache.adapter?.key ?? '';
    return ready.sort((a, b) => keyOf(a).localeCompare(keyOf(b)));
  }

  /** Who came first is first. */
  private sortWaiting(): void {
    if (this.waiting.length < 2) return;
    const order = this.residents.places;
    this.waiting.sort((a, b) => order.get(a.cache)! - order.get(b.cache)!);
  }

  /** Computes what a sequence had to give up. */
  private async restore({ cache, signal }: Request): Promise<void> {
    const { tokens } = cache;
    if (cache.length === tokens.length) return;
    const pacer = this.paced(() => signal?.throwIfAborted());
    try {
      while (cache.length < tokens.length) {
        const end = this.runner.chunkEnd(cache.length, tokens.length);
        await pacer.run(this.runner.pass([{ cache, ids: tokens.slice(cache.length, end) }], false));
      }
    } finally {
      await pacer.idle();
    }
  }

  /** @param asked the step, where its pass is on its way already */
  private async step(requests: readonly Request[], asked: Asked<Request> | undefined): Promise<void> {
    const begun = performance.now();
    const { runner } = this;
    try {
      const steps = asked ? requests.map(({ cache, ids }) => ({ cache, ids, drafts: 0 })) : this.steps(requests);
      const samplers = requests.flatMap(({ samplers }, row) => samplers.slice(0, steps[row].drafts + 1));
      const isPaced = !asked && this.times.isWatched(runner.stepKind);
      let choices: readonly (Choice | undefined)[];
      if (isPaced) {
        choices = await runner.chosen((await this.pacer.run(runner.pass(steps, true)))!, samplers);
        await this.pacer.idle();
      } else {
        for (const { cache } of requests) this.residents.set(cache, 'running');
        const under = asked ? runner.answer(asked.ahead, asked.samplers) : runner.choose(steps, samplers);
        if (under.leads) this.lookAhead(requests, asked?.rows ?? [...requests.keys()]);
        else this.setTakesAlong(false);
        choices = await under.choices;
        this.ahead.know(requests, choices);
      }
      const took = performance.now() - begun;
      this.times.measure(took, asked?.parts ?? [], runner.chunkAt(0), this.prompts.isReading);
      const accepted = runner.accept(steps, choices);
      if (asked) this.answer(asked.parts, choices.slice(requests.length));
      requests.forEach((request, row) => {
        const own = accepted[row];
        this.residents.set(request.cache, 'idle');
        if (own) request.resolve({ choices: own, drafts: steps[row].drafts });
        else request.reject(badLogits(runner.model.config.vocabSize));
      });
    } catch (error) {
      await this.pacer.idle();
      this.setTakesAlong(false);
      const reason = await runner.reason(error);
      for (const { signal, reject } of asked?.parts ?? []) reject(signal?.aborted ? signal.reason : reason);
      for (const request of requests) {
        this.residents.set(request.cache, 'idle');
        request.reject(request.signal?.aborted ? request.signal.reason : reason);
      }
    } finally {
      this.residents.report();
    }
  }

  /** Enqueues the pass behind a step, also of those who wait. */
  private lookAhead(requests: readonly Request[], rows: readonly number[]): void {
    this.sortWaiting();
    const served = this.ahead.enqueue(requests, rows, this.waiting);
    for (const { cache } of this.waiting.splice(0, served)) this.residents.set(cache, 'running');
    this.setTakesAlong(this.ahead.rows >= this.manyRows);
  }

  /** @param choices behind the parts that have a sampler */
  private answer(parts: readonly QueuedPart[], choices: readonly (Choice | undefined)[]): void {
    let next = 0;
    for (const { sampler, signal, onDone, resolve, reject } of parts) {
      onDone(1);
      if (!sampler) continue;
      const choice = choices[next++];
      if (signal?.aborted) reject(signal.reason);
      else if (choice) resolve(choice);
      else reject(badLogits(this.runner.model.config.vocabSize));
    }
  }

  /** The tokens of each request, with drafts as far as there is room in the batch and the cache. */
  private steps(requests: readonly Request[]): { cache: SequenceCache; ids: readonly number[]; drafts: number }[] {
    const needed = requests.reduce((sum, request) => sum + known(request), 0);
    const drafting = requests.filter(({ samplers }) => samplers.length > 1).length;
    const share = drafting === 0 ? 0 : Math.floor((MAX_DRAFTING - needed) / drafting);
    return requests.map((request) => {
      const { cache, ids, samplers } = request;
      const own = known(request);
      const wished = Math.min(samplers.length - 1, share);
      const drafts = wished > 0 && this.tryReserve(cache, cache.length + own + wished) ? wished : 0;
      return { cache, ids: ids.slice(0, own + drafts), drafts };
    });
  }

  /** @throws TransformersError INVALID_OPTION unless the sequence is open and nothing of it is under way */
  private checkFree(cache: SequenceCache): void {
    const state = this.residents.stateOf(cache);
    if (state === 'idle' || state === 'kept') return;
    throw new TransformersError(
      'INVALID_OPTION',
      state === undefined
        ? 'The sequence was closed, or another scheduler has opened it; open() one.'
        : 'A step of the sequence is under way; wait for it, or open() another sequence.',
    );
  }
}

/** Tokens of a request that are no drafts. */
function known({ ids, samplers }: Request): number {
  return ids.length - samplers.length + 1;
}
