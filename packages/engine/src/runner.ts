/**
 * Forward passes for sequences: puts the tokens of several sequences into one batch, gives the model a view of their blocks,
 * and commits what was written when all layers are through. Decode steps are replayed from graphs where the device has them.
 */
import { settings, type Tensor } from '@x/core';
import { type VarlenPart, varlenTiles } from '@x/nn';
import { type Batch, type CausalModel, type ForwardPass, type LoraBase, TransformersError } from '@x/transformers';
import { Adapters, type AdapterUse, adaptedRows } from './adapters';
import { DecodeGraphs } from './decode-graphs';
import { type PassNumbers, type PassSizes, promptStart, type SegmentShape } from './execute/batch';
import { Executor, type Followers } from './execute/executor';
import { StepNumbers } from './execute/step-inputs';
import { KvPool, type KvPoolOptions } from './kv/pool';
import type { SequenceCache } from './kv/sequence-cache';
import { fillSpans, spanSizes } from './kv/spans';
import { promptChunk } from './prompt-chunk';
import { PromptGraphs } from './prompt-graphs';
import { type Choice, choose, type Sampler } from './sampling';
import { canChoose, isIdOfRow, type RowSamplers } from './sampling/device';
import { DeviceChooser } from './sampling/device-chooser';

/** Tokens that follow what a sequence's cache holds. */
export interface Step {
  cache: SequenceCache;
  ids: ArrayLike<number>;
  /**
   * How many of the ids, the last ones, are drafts: guesses of what the tokens in front of them let be chosen. Each has a row of
   * logits, as the last token that is none, and is not part of the sequence before {@link Runner.accept}. Where this is given,
   * also as 0, tokens are computed one by one as in a decode step, otherwise as those of a prompt. Default: none.
   */
  drafts?: number;
}

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

export class Runner {
  readonly maxContext: number;
  readonly pool: KvPool;
  readonly adapters: Adapters;
  private readonly executor: Executor;
  private readonly followers: Followers | undefined;
  /** Whether the device has kernels for tokens of several sequences at once. */
  private readonly hasKernels: boolean;
  private readonly graphs: DecodeGraphs | undefined;
  private readonly promptGraphs: PromptGraphs | undefined;
  /** Where the device chooses tokens. */
  private readonly chooser: DeviceChooser | undefined;
  /** The same, where its choices may be tokens of the next pass. */
  private readonly leader: DeviceChooser | undefined;

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
    const { vocabSize } = model.config;
    if (canChoose(device, vocabSize)) this.chooser = new DeviceChooser(device, vocabSize);
    // A state that was written over cannot be gone back to.
    if (!this.pool.states) this.leader = this.chooser;
    // What a pass reads on its way cannot be captured.
    if (this.hasKernels && graphs && !model.hostExperts) {
      this.graphs = new DecodeGraphs(this.executor, this.pool, this.leader);
      this.promptGraphs = new PromptGraphs(this.executor, this.pool);
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
    return promptChunk(this.model.config, this.model.device, position, this.followers?.communicator?.size);
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
    if (graphs && chooser && steps.every((step) => this.isByToken(step))) {
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
    if (!this.hasKernels || this.model.hostExperts || !this.leader || !settings.stepAhead()) return undefined;
    const all = [...steps, ...parts];
    const logits = toItsEnd(this.executor.pass(this.numbers(all, true), adaptersOf(all), this.leader));
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
    const result = yield* this.executor.pass(this.numbers(steps, logits), adaptersOf(steps));
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

  private whole(steps: readonly Step[]): Tensor {
    return toItsEnd(this.pass(steps, true, true));
  }

  private prepare(steps: readonly Step[]): void {
    for (const { cache, ids } of steps) {
      this.check(ids, cache.length);
      cache.reserve(cache.length + ids.length);
    }
  }

  /** What the other ranks, and this one, compute a pass from. */
  private numbers(steps: readonly Step[], logits: boolean): PassNumbers {
    const groups = this.grouped(steps);
    const total = tokensOf(steps);
    const segments = this.segments(groups);
    const tiles = this.tiles(segments);
    const numbers = new StepNumbers<PassSizes>({
      tokens: total,
      positions: total,
      slots: total,
      outputs: steps.reduce((sum, { drafts = 0 }) => sum + drafts + 1, 0),
      lengths: total,
      ...spanSizes(this.pool, steps.length),
      tables: segments.reduce((sum, { tables }) => sum + tables, 0),
      tiles: tiles.length,
    });
    const [tokens, positions, slots, outputs, lengths, blocks] = (
      ['tokens', 'positions', 'slots', 'outputs', 'lengths', 'tables'] as const
    ).map((name) => numbers.piece(name));
    let [at, output] = [0, 0];
    for (const { cache, ids, drafts = 0 } of steps) {
      tokens.set(ids, at);
      for (let i = 0; i < ids.length; i++) {
        positions[at + i] = cache.length + i;
        slots[at + i] = cache.slot(cache.length + i);
        lengths[at + i] = cache.length + i + 1;
      }
      at += ids.length;
      for (let behind = drafts; behind >= 0; behind--) outputs[output++] = at - 1 - behind;
    }
    if (this.pool.states) fillSpans(numbers, steps, steps.length);
    let place = 0;
    for (const group of groups) {
      const width = widthOf(group);
      for (const step of group) {
        for (let row = 0; row < this.rowsOf([step]); row++, place += width) blocks.set(step.cache.blocks, place);
      }
    }
    numbers.piece('tiles').set(tiles);
    const counts = steps.map(({ ids }) => ids.length);
    return { sizes: numbers.sizes, values: numbers.values, segments, counts, logits };
  }

  /** Tiles of prompts, where the device attends in such and decoding sequences are in front; else none. */
  private tiles(segments: readonly SegmentShape[]): Uint32Array {
    const rows = this.pool.memory.varlenRows;
    const first = segments.findIndex(({ kind }) => kind === 'sequence');
    const isOrdered = first >= 0 && segments.slice(first).every(({ kind }) => kind === 'sequence');
    return rows === undefined || !isOrdered ? new Uint32Array(0) : varlenTiles(partsOf(segments), rows);
  }

  private segments(groups: Step[][]): SegmentShape[] {
    let start = 0;
    return groups.map((group) => {
      const count = tokensOf(group);
      const own = { start, count, tables: this.rowsOf(group) * widthOf(group) };
      start += count;
      return this.isByToken(group[0])
        ? { kind: 'tokens', ...own }
        : { kind: 'sequence', ...own, before: group[0].cache.length };
    });
  }

  /** Neighbours that are computed token by token together; others by themselves. */
  private grouped(steps: readonly Step[]): Step[][] {
    const groups: Step[][] = [];
    for (const step of steps) {
      const last = groups.at(-1);
      if (last && this.isByToken(step) && this.isByToken(last[0])) last.push(step);
      else groups.push([step]);
    }
    return groups;
  }

  /** Whether each token has a row of the block tables: where there are kernels for that, and a step is no prompt's. */
  private isByToken({ ids, drafts }: Step): boolean {
    return this.hasKernels && (ids.length === 1 || (drafts !== undefined && !this.pool.states));
  }

  /** Rows of the block tables of a group. */
  private rowsOf(group: readonly Step[]): number {
    return this.isByToken(group[0]) ? tokensOf(group) : group.length;
  }
}

/** Parts of prompts, whose rows count from the first of them. */
function partsOf(segments: readonly SegmentShape[]): VarlenPart[] {
  const first = promptStart(segments);
  let table = 0;
  return segments.flatMap((segment) => {
    const own = table;
    table += segment.tables;
    const { start, count } = segment;
    return segment.kind === 'sequence' ? [{ start: start - first, count, before: segment.before, table: own }] : [];
  });
}

/** Logits of a pass whose steps are enqueued in one go. */
function toItsEnd(pass: ForwardPass): Tensor {
  for (;;) {
    const step = pass.next();
    if (step.done) return step.value!;
  }
}

function tokensOf(steps: readonly Step[]): number {
  return steps.reduce((sum, { ids }) => sum + ids.length, 0);
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

/** Blocks of the longest sequence. */
function widthOf(group: readonly Step[]): number {
  return Math.max(...group.map(({ cache }) => cache.blocks.length));
}
