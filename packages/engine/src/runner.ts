/**
 * Forward passes for sequences: puts the tokens of several sequences into one batch, gives the model a view of their blocks,
 * and commits what was written when all layers are through. Decode steps are replayed from graphs where the device has them.
 */
import { settings, type Tensor } from '@x/core';
import { type Batch, type CausalModel, type ForwardPass, type LoraBase, TransformersError } from '@x/transformers';
import { Adapters, type AdapterUse, adaptedRows } from './adapters';
import { Executor, type Followers } from './execute/executor';
import { DecodeGraphs } from './graphs/decode-graphs';
import { PromptGraphs } from './graphs/prompt-graphs';
import { KvPool, type KvPoolOptions } from './kv/pool';
import type { SequenceCache } from './kv/sequence-cache';
import { type Choice, choose, type Sampler } from './sampling';
import { canChoose, isIdOfRow, type RowSamplers } from './sampling/device';
import { DeviceChooser } from './sampling/device-chooser';
import { halvesOf, inTurn } from './schedule/paired-pass';
import { PassPlanner, type Step } from './schedule/pass-planner';
import { promptChunk } from './schedule/prompt-chunk';
import type { StepKind } from './schedule/step-times';

/** A step that is enqueued. */
export interface StepUnderWay {
  /** The token after each sequence and draft; undefined where logits are bad (`badLogits`). */
  choices: Promise<(Choice | undefined)[]>;
  /** Whether {@link Runner.follow} may enqueue another one behind it. */
  leads: boolean;
}

/** What a step gives that was enqueued before its tokens were known. */
export interface LogitsAhead {
  logits: Tensor;
  /** {@link DecodeGraphs.uses}, of logits that are a graph's; undefined of a pass that made them for itself. */
  use: number | undefined;
}

export interface RunnerOptions {
  /** Positions that a sequence may have. */
  maxContext: number;
  cache?: KvPoolOptions | undefined;
  /** Whether steps are captured. Default true. */
  graphs?: boolean | undefined;
  /** What adapters are opened for; without it there are none. */
  base?: Omit<LoraBase, 'pairs'> | undefined;
  /** Other ranks of the model. */
  followers?: Followers | undefined;
}

/** Computes tokens of sequences for a {@link BatchScheduler}, with the cache, adapters and graphs of one model. */
export class Runner {
  readonly maxContext: number;
  readonly pool: KvPool;
  readonly adapters: Adapters;
  /** @internal Tokens of a half of a pass, at least: fewer take longer by themselves than sums of ranks that they run beside. */
  leastHalf = 512;
  private readonly executor: Executor;
  private readonly followers: Followers | undefined;
  /** Whether the device has kernels for tokens of several sequences at once. */
  private readonly hasKernels: boolean;
  private readonly planner: PassPlanner;
  private readonly graphs: DecodeGraphs | undefined;
  private readonly promptGraphs: PromptGraphs | undefined;
  /** Where the device chooses tokens. */
  private readonly chooser: DeviceChooser | undefined;
  /** The same, where its choices may be tokens of the next pass. */
  private readonly leader: DeviceChooser | undefined;

  /** @param model stays the caller's to dispose */
  constructor(
    readonly model: CausalModel,
    { maxContext, cache, graphs = true, base, followers }: RunnerOptions,
  ) {
    this.maxContext = maxContext;
    this.followers = followers;
    const { device, kvLayouts, stateLayouts } = model;
    this.pool = new KvPool(kvLayouts, device, cache, stateLayouts, (change) => {
      if (followers && !followers.failure) followers.tell({ kind: 'memory', change });
    });
    this.executor = new Executor(model, this.pool.memory, followers);
    const { dtype } = this.pool;
    const kernels = device.backend.pagedAttention;
    const isPaged = kvLayouts.every(
      (layout) => !layout || kernels?.supports('f32', dtype, layout.keyDim, layout.valueDim),
    );
    this.hasKernels = isPaged && (!this.pool.states || device.backend.recurrent !== undefined);
    this.planner = new PassPlanner(this.pool, this.hasKernels);
    const { vocabSize } = model.config;
    if (canChoose(device, vocabSize)) this.chooser = new DeviceChooser(device, vocabSize);
    const { hostExperts } = model;
    // A state that was written over cannot be gone back to, and who brings experts to the device waits for each layer.
    if (!this.pool.states && !hostExperts) this.leader = this.chooser;
    if (this.hasKernels && graphs) {
      this.graphs = new DecodeGraphs(this.executor, this.pool, this.leader, hostExperts?.tokensAtOnce);
      // Prompts may want more experts than there are slots.
      if (!hostExperts) this.promptGraphs = new PromptGraphs(this.executor, this.pool);
    }
    this.adapters = new Adapters(model.lora, base, (lora) => this.graphs?.forget(lora));
  }

  /**
   * Where the next chunk of a sequence's tokens ends, which begins at `start`. Where there are states one ends with the last
   * whole block, so that a longer text with this beginning can go on from there.
   */
  chunkEnd(start: number, total: number): number {
    const { pool } = this;
    const end = Math.min(total, start + this.chunkAt(start));
    const boundary = Math.floor((total - 1) / pool.blockSize) * pool.blockSize;
    return pool.states && start < boundary && boundary < end ? boundary : end;
  }

  /** Tokens of a prompt in one pass, the first of which is at `position`. */
  chunkAt(position: number): number {
    const ranks = this.sharesTensors ? this.followers!.communicator!.size : 1;
    return promptChunk(this.model.config, this.model.device, position, ranks);
  }

  /** An empty sequence: the caller's to dispose. @throws DisposedError for an adapter that was unloaded */
  cache(adapter?: AdapterUse): SequenceCache {
    return this.pool.sequence(this.maxContext, adapter);
  }

  /** {@link pass} to its end, with logits; a graph of it where each sequence has one token. Of steps without drafts. */
  step(steps: readonly Step[]): Tensor {
    if (this.graphs && steps.every(({ ids }) => ids.length === 1)) {
      this.prepare(steps);
      const logits = this.graphs.logits(steps);
      if (logits) {
        for (const { cache, ids } of steps) cache.commit(ids);
        return logits;
      }
    }
    return this.whole(steps);
  }

  /**
   * As {@link step}, and chooses the token after each: on the device where it can, so that no logits are read. Nothing is waited for.
   * @param samplers for each step one, and one for each of its drafts
   */
  choose(steps: readonly Step[], samplers: readonly Sampler[]): StepUnderWay {
    const { graphs, chooser } = this;
    if (graphs && chooser && steps.every((step) => this.planner.isByToken(step))) {
      this.prepare(steps);
      const rows = samplersOfTokens(steps, samplers);
      const choices = graphs.forward(steps, (logits) => chooser.choose(logits, rows, true));
      if (choices) {
        for (const step of steps) step.cache.commit(known(step));
        return { choices: this.settled(choices), leads: steps.every(({ ids }) => ids.length === 1) };
      }
    }
    return { choices: this.chosen(this.whole(steps), samplers), leads: false };
  }

  /** How steps of {@link choose} go out, once their graphs are captured. */
  get stepKind(): StepKind {
    if (!this.chooser || !this.graphs?.isUsable) return 'launched';
    return this.model.hostExperts ? 'waited' : 'replayed';
  }

  /**
   * Enqueues the forward pass right behind a step that {@link StepUnderWay.leads}, before its choices are known. Room is reserved for a
   * token of each sequence, which may be what a row of the step before chooses (`idOfRow`); such a one is not committed.
   * @returns undefined where the graph is not captured yet, or there is none
   */
  follow(steps: readonly Step[]): LogitsAhead | undefined {
    const logits = settings.stepAhead() ? this.graphs?.follow(steps) : undefined;
    if (!logits) return undefined;
    for (const { cache, ids } of steps) if (!isIdOfRow(ids[0])) cache.commit(ids);
    return { logits, use: this.graphs!.uses };
  }

  /**
   * As {@link follow}, with parts of prompts in the same pass, for which room is reserved: weights are read once for both. Rows of
   * logits are those of the steps, then those behind each part.
   */
  followBeside(steps: readonly Step[], parts: readonly Step[]): LogitsAhead | undefined {
    if (!this.hasKernels || !this.leader || !settings.stepAhead()) return undefined;
    const all = [...steps, ...parts];
    const logits = toItsEnd(this.executor.pass(this.planner.numbers(all, true), adaptersOf(all), this.leader));
    for (const { cache, ids } of all) if (!isIdOfRow(ids[0])) cache.commit(ids);
    return { logits, use: undefined };
  }

  /** Whether logits of {@link follow} are there still: no other step was computed since. */
  has({ use }: LogitsAhead): boolean {
    return use === undefined || this.graphs?.uses === use;
  }

  /** Chooses from logits of {@link follow}. @param samplers of its rows; the choices are of those that have one */
  answer(ahead: LogitsAhead, samplers: RowSamplers): StepUnderWay {
    const choices = this.chooser!.choose(ahead.logits, samplers, true);
    this.forget(ahead);
    return { choices: this.settled(choices), leads: true };
  }

  /** Gives back logits that nobody chooses from, or everything was enqueued for that does. */
  forget({ logits, use }: LogitsAhead): void {
    if (use === undefined) logits.dispose();
  }

  /**
   * Of what was chosen for each step and its drafts: the choices up to the first that is no draft. The drafts in front of it
   * become part of the sequence; others are written over by its next tokens. Undefined for a step whose first choice is.
   */
  accept(steps: readonly Step[], choices: readonly (Choice | undefined)[]): (readonly Choice[] | undefined)[] {
    let row = 0;
    return steps.map((step) => {
      const { cache, ids, drafts = 0 } = step;
      const own = choices.slice(row, row + drafts + 1);
      row += drafts + 1;
      const first = ids.length - drafts;
      let accepted = 0;
      while (accepted < drafts && own[accepted]?.id === ids[first + accepted]) accepted++;
      // Bad logits behind a draft are met again by the step that begins with it.
      if (accepted > 0 && !own[accepted]) accepted--;
      if (accepted > 0) cache.commit(Array.from(ids).slice(first, first + accepted));
      const kept = own.slice(0, accepted + 1).filter((choice) => choice !== undefined);
      return kept.length > 0 ? kept : undefined;
    });
  }

  /** Chooses from logits [samplers, vocabSize] that a pass gave, and disposes them. */
  chosen(logits: Tensor, samplers: readonly Sampler[]): Promise<(Choice | undefined)[]> {
    return this.settled(this.chooseFrom(logits, samplers));
  }

  /** What the device gives later; an error where other ranks fail meanwhile. */
  settled<T>(work: Promise<T>): Promise<T> {
    return this.followers ? this.followers.settle(work) : work;
  }

  /** Why a step failed: the failure of a rank, where one did. */
  async reason(error: unknown): Promise<unknown> {
    return (await this.followers?.reason()) ?? error;
  }

  /** @throws CollectiveError where a rank of the model has failed */
  checkRanks(): void {
    if (this.followers?.failure) throw this.followers.failure;
  }

  private async chooseFrom(logits: Tensor, samplers: readonly Sampler[]): Promise<(Choice | undefined)[]> {
    try {
      if (this.chooser && logits.isContiguous()) return await this.chooser.choose(logits, samplers, false);
      const values = await logits.toArray<Float32Array>();
      const width = values.length / samplers.length;
      return samplers.map((sampler, row) => choose(values.subarray(row * width, (row + 1) * width), sampler));
    } finally {
      logits.dispose();
    }
  }

  /**
   * Reads tokens and predicts, for each sequence, the one after its last, and those after its drafts: logits [steps and drafts,
   * vocabSize], f32, in the order of the tokens, the caller's to dispose. The sequences change when the pass has come to its
   * end; one that fails or is left changes nothing. A sequence is in one pass at a time. The checks are made at the first `next()`.
   * @param atOnce whether it may be one step, which nobody gets between
   * @throws TransformersError EMPTY_INPUT, BAD_TOKEN, CONTEXT_EXCEEDED, CACHE_FULL
   */
  *pass(steps: readonly Step[], logits: boolean, atOnce = false): ForwardPass {
    this.prepare(steps);
    const whole = atOnce && logits ? this.promptGraphs?.logits(steps) : undefined;
    if (whole) return yield* this.oneStep(steps, whole);
    const result = yield* this.computed(steps, logits);
    for (const step of steps) step.cache.commit(known(step));
    return result;
  }

  /** A pass that is enqueued. */
  private *oneStep(steps: readonly Step[], logits: Tensor): ForwardPass {
    let isLeft = true;
    try {
      // Of two parts a layer, and the head.
      yield { output: logits, share: 1, steps: 2 * this.model.kvLayouts.length + 1 };
      isLeft = false;
    } finally {
      if (isLeft) logits.dispose();
    }
    for (const step of steps) step.cache.commit(known(step));
    return logits;
  }

  /** @throws what {@link pass} throws for tokens at a position */
  check(ids: ArrayLike<number>, position: number): void {
    if (ids.length === 0) {
      throw new TransformersError(
        'EMPTY_INPUT',
        'forward: there are no tokens; give at least one, such as the BOS token.',
      );
    }
    const { vocabSize, contextLength } = this.model.config;
    for (let i = 0; i < ids.length; i++) {
      if (Number.isInteger(ids[i]) && ids[i] >= 0 && ids[i] < vocabSize) continue;
      throw new TransformersError(
        'BAD_TOKEN',
        `forward: token ${ids[i]} at index ${i} is not in the vocabulary of ${vocabSize}; use ids of this model's tokenizer.`,
      );
    }
    if (position + ids.length > this.maxContext) {
      throw new TransformersError(
        'CONTEXT_EXCEEDED',
        `forward: ${ids.length} tokens at position ${position} need ${position + ids.length} positions, a sequence has ${this.maxContext}; ` +
          `give fewer tokens, or load the model with a larger maxContext (it was made for ${contextLength}).`,
      );
    }
  }

  /** Gives back graphs, and the cache where no sequence is in it. */
  emptyCache(): void {
    this.graphs?.dispose();
    this.promptGraphs?.dispose();
    this.chooser?.dispose();
    this.pool.empty();
  }

  /** Gives back graphs and cache; the model stays. The other ranks' go with them. */
  dispose(): void {
    this.graphs?.dispose();
    this.promptGraphs?.dispose();
    this.chooser?.dispose();
    this.pool.dispose();
  }

  /**
   * A pass of steps that were prepared; of ranks that share tensors in two halves, where it has so many tokens and their sums would
   * be waited for.
   */
  private computed(steps: readonly Step[], logits: boolean): ForwardPass {
    const { executor, planner } = this;
    const adapters = adaptersOf(steps);
    const waits = this.sharesTensors && this.followers?.communicator?.joinsSums !== true;
    const halves = waits && !adapters && halvesOf(steps, this.leastHalf, !this.pool.states);
    if (!halves) return executor.pass(planner.numbers(steps, logits), adapters);
    const [first, second] = halves.map((half) =>
      executor.pass(planner.numbers(half, logits && half.some(({ isCut }) => !isCut))),
    );
    return inTurn(first, second);
  }

  /** Whether each rank has parts of all layers. */
  private get sharesTensors(): boolean {
    return this.followers?.communicator !== undefined && this.followers.split !== 'layers';
  }

  private whole(steps: readonly Step[]): Tensor {
    return toItsEnd(this.pass(steps, true, true));
  }

  private prepare(steps: readonly Step[]): void {
    for (const { cache, ids } of steps) {
      this.check(ids, cache.length);
      cache.reserve(cache.length + ids.length);
    }
  }
}

/** Logits of a pass whose steps are enqueued in one go. */
function toItsEnd(pass: ForwardPass): Tensor {
  for (;;) {
    const step = pass.next();
    if (step.done) return step.value!;
  }
}

/** The tokens of a step that are no drafts. */
function known({ ids, drafts = 0 }: Step): ArrayLike<number> {
  return drafts === 0 ? ids : Array.from(ids).slice(0, ids.length - drafts);
}

/** For each token of the steps what chooses behind it: nothing where another known one follows. */
function samplersOfTokens(steps: readonly Step[], samplers: readonly Sampler[]): (Sampler | undefined)[] {
  let next = 0;
  return steps.flatMap(({ ids, drafts = 0 }) => {
    const first = ids.length - drafts - 1;
    return Array.from(ids, (_, i) => (i < first ? undefined : samplers[next++]));
  });
}

/** Which rows of a batch adapters are for: of its tokens, and of those whose logits are wanted. */
function adaptersOf(steps: readonly Step[]): Batch['lora'] {
  if (!steps.some(({ cache }) => cache.adapter)) return undefined;
  return {
    tokens: adaptedRows(steps.map(({ cache, ids }) => ({ use: cache.adapter, count: ids.length }))),
    outputs: adaptedRows(steps.map(({ cache, drafts = 0 }) => ({ use: cache.adapter, count: drafts + 1 }))),
  };
}
