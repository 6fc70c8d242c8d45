/**
 * Forward passes for sequences: puts the tokens of several sequences into one batch, gives the model a view of their blocks,
 * and commits what was written when all layers are through. Decode steps are replayed from graphs where the device has them.
 */
import type { Tensor } from '@x/core';
import { type CausalModel, type ForwardPass, TransformersError } from '@x/transformers';
import { DecodeGraphs } from './decode-graphs';
import { PagedKv, type Segment } from './kv/paged';
import { KvPool, type KvPoolOptions } from './kv/pool';
import type { SequenceCache } from './kv/sequence-cache';
import { fillSpans, spanSizes, spansOf } from './kv/spans';
import { promptChunk } from './prompt-chunk';
import { type Choice, choose, type Sampler } from './sampling';
import { canChoose, chooseOnDevice } from './sampling/device';
import { StepInputs } from './step-inputs';

/** Tokens that follow what a sequence's cache holds. */
export interface Step {
  cache: SequenceCache;
  ids: ArrayLike<number>;
}

export class Runner {
  readonly pool: KvPool;
  private readonly graphs: DecodeGraphs | undefined;
  /** Whether the device chooses tokens. */
  private readonly chooses: boolean;

  /** @param maxContext positions that a sequence may have */
  constructor(
    readonly model: CausalModel,
    readonly maxContext: number,
    cache: KvPoolOptions = {},
  ) {
    const { device, kvLayouts, stateLayouts } = model;
    this.pool = new KvPool(kvLayouts, device, cache, stateLayouts);
    const { dtype } = this.pool;
    const kernels = device.backend.pagedAttention;
    const isPaged = kvLayouts.every(
      (layout) => !layout || kernels?.supports('f32', dtype, layout.keyDim, layout.valueDim),
    );
    const hasKernels = isPaged && (!this.pool.states || device.backend.recurrent !== undefined);
    if (hasKernels) this.graphs = new DecodeGraphs(model, this.pool);
    this.chooses = canChoose(device, model.config.vocabSize);
  }

  /**
   * Where the next chunk of a sequence's tokens ends, which begins at `start`. Where there are states one ends with the last
   * whole block, so that a longer text with this beginning can go on from there.
   */
  chunkEnd(start: number, total: number): number {
    const { model, pool } = this;
    const end = Math.min(total, start + promptChunk(model.config, model.device, start));
    const boundary = Math.floor((total - 1) / pool.blockSize) * pool.blockSize;
    return pool.states && start < boundary && boundary < end ? boundary : end;
  }

  /** An empty sequence: the caller's to dispose. */
  cache(): SequenceCache {
    return this.pool.sequence(this.maxContext);
  }

  /** {@link pass} to its end, with logits; a graph of it where each sequence has one token. */
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
   * As {@link step}, and chooses the token after each: on the device where it can, so that no logits are read. Undefined for a
   * sequence whose logits are bad (`badLogits`).
   */
  async choose(steps: readonly Step[], samplers: readonly Sampler[]): Promise<(Choice | undefined)[]> {
    if (this.graphs && this.chooses && steps.every(({ ids }) => ids.length === 1)) {
      this.prepare(steps);
      const choices = this.graphs.choices(steps, samplers);
      if (choices) {
        for (const { cache, ids } of steps) cache.commit(ids);
        return choices;
      }
    }
    return this.chosen(this.whole(steps), samplers);
  }

  /** Chooses from logits [samplers, vocabSize] that a pass gave, and disposes them. */
  async chosen(logits: Tensor, samplers: readonly Sampler[]): Promise<(Choice | undefined)[]> {
    try {
      if (this.chooses && logits.isContiguous()) return await chooseOnDevice(logits, samplers);
      const values = await logits.toArray<Float32Array>();
      const width = values.length / samplers.length;
      return samplers.map((sampler, row) => choose(values.subarray(row * width, (row + 1) * width), sampler));
    } finally {
      logits.dispose();
    }
  }

  /**
   * Reads tokens and predicts, for each sequence, the one after its last: logits [steps, vocabSize], f32, the caller's to
   * dispose. The sequences change when the pass has come to its end; one that fails or is left changes nothing. A sequence
   * is in one pass at a time. The checks are made at the first `next()`.
   * @throws TransformersError EMPTY_INPUT, BAD_TOKEN, CONTEXT_EXCEEDED, CACHE_FULL
   */
  *pass(steps: readonly Step[], logits: boolean): ForwardPass {
    this.prepare(steps);
    const { inputs, segments } = this.inputs(steps);
    const { tokens, positions, slots, outputs } = inputs.pieces;
    const counts = steps.map(({ ids }) => ids.length);
    const view = new PagedKv(this.pool, slots, segments, this.pool.states && spansOf(inputs.pieces, counts));
    const wanted = !logits ? 'none' : tokens.dim(0) === steps.length ? 'all' : outputs;
    try {
      const result = yield* this.model.pass({ tokens, positions, outputs: wanted }, view);
      for (const { cache, ids } of steps) cache.commit(ids);
      return result;
    } finally {
      view.dispose();
      for (const segment of segments) {
        if (segment.kind === 'tokens') for (const ids of [segment.tables, segment.lengths]) ids.dispose();
        else segment.blocks.dispose();
      }
      inputs.dispose();
    }
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
    this.pool.empty();
  }

  /** Gives back graphs and cache; the model stays. */
  dispose(): void {
    this.graphs?.dispose();
    this.pool.dispose();
  }

  private whole(steps: readonly Step[]): Tensor {
    const pass = this.pass(steps, true);
    for (;;) {
      const step = pass.next();
      if (step.done) return step.value!;
    }
  }

  private prepare(steps: readonly Step[]): void {
    for (const { cache, ids } of steps) {
      this.check(ids, cache.length);
      cache.reserve(cache.length + ids.length);
    }
  }

  private inputs(steps: readonly Step[]) {
    const groups = this.grouped(steps);
    const total = steps.reduce((sum, { ids }) => sum + ids.length, 0);
    const tables = groups.map((group) => group.length * widthOf(group));
    const inputs = new StepInputs(this.model.device, {
      tokens: total,
      positions: total,
      slots: total,
      outputs: steps.length,
      lengths: steps.length,
      ...spanSizes(this.pool, steps.length),
      tables: tables.reduce((sum, size) => sum + size, 0),
    });
    const [tokens, positions, slots, outputs, lengths, blocks] = (
      ['tokens', 'positions', 'slots', 'outputs', 'lengths', 'tables'] as const
    ).map((name) => inputs.host(name));
    let at = 0;
    steps.forEach(({ cache, ids }, row) => {
      tokens.set(ids, at);
      for (let i = 0; i < ids.length; i++) {
        positions[at + i] = cache.length + i;
        slots[at + i] = cache.slot(cache.length + i);
      }
      at += ids.length;
      outputs[row] = at - 1;
      lengths[row] = cache.length + ids.length;
    });
    if (this.pool.states) fillSpans(inputs, steps, steps.length);
    let place = 0;
    for (const group of groups) {
      const width = widthOf(group);
      for (const { cache } of group) {
        blocks.set(cache.blocks, place);
        place += width;
      }
    }
    try {
      inputs.upload();
    } catch (error) {
      inputs.dispose();
      throw error;
    }
    return { inputs, segments: this.segments(groups, inputs.pieces, tables) };
  }

  /** @param sizes elements of each group's block tables */
  private segments(groups: Step[][], pieces: Record<'tables' | 'lengths', Tensor>, sizes: number[]): Segment[] {
    const segments: Segment[] = [];
    let [start, row, place] = [0, 0, 0];
    groups.forEach((group, g) => {
      const table = pieces.tables.narrow(0, place, sizes[g]);
      const count = group.reduce((sum, { ids }) => sum + ids.length, 0);
      if (this.graphs && count === group.length) {
        const own = { tables: table.reshape([count, sizes[g] / count]), lengths: pieces.lengths.narrow(0, row, count) };
        segments.push({ kind: 'tokens', start, count, ...own });
        table.dispose();
      } else segments.push({ kind: 'sequence', start, count, before: group[0].cache.length, blocks: table });
      [start, row, place] = [start + count, row + group.length, place + sizes[g]];
    });
    return segments;
  }

  /** Neighbours with one token each together, where there are kernels for them; others by themselves. */
  private grouped(steps: readonly Step[]): Step[][] {
    const groups: Step[][] = [];
    for (const step of steps) {
      const last = groups.at(-1);
      const joins = this.graphs && step.ids.length === 1 && last?.[0].ids.length === 1;
      if (joins) last.push(step);
      else groups.push([step]);
    }
    return groups;
  }
}

/** Blocks of the longest sequence. */
function widthOf(group: readonly Step[]): number {
  return Math.max(...group.map(({ cache }) => cache.blocks.length));
}
