/**
 * A forward pass in numbers: which rows are whose tokens, where their keys and values go, and what each attends to. What ranks are
 * told, and compute a pass from.
 */
import { type VarlenPart, varlenTiles } from '@x/nn';
import { type PassNumbers, type PassSizes, promptStart, type SegmentShape } from '../execute/batch';
import { StepNumbers } from '../execute/step-inputs';
import type { KvPool } from '../kv/pool';
import type { SequenceCache } from '../kv/sequence-cache';
import { fillSpans, spanSizes } from '../kv/spans';

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

/** What of a step one of two passes computes that make one. */
export interface PassPart extends Step {
  /** Tokens of the step in front of these, which the other pass computes. Default 0. */
  skipped?: number;
  /** Whether no logits are wanted, for the other pass has those behind it. Default false. */
  isCut?: boolean;
}

export class PassPlanner {
  /** @param hasKernels whether the device has kernels for tokens of several sequences at once */
  constructor(
    private readonly pool: KvPool,
    private readonly hasKernels: boolean,
  ) {}

  /** What the other ranks, and this one, compute a pass from. */
  numbers(steps: readonly PassPart[], logits: boolean): PassNumbers {
    const groups = this.grouped(steps);
    const total = tokensOf(steps);
    const segments = this.segments(groups);
    const tiles = this.tiles(segments);
    const numbers = new StepNumbers<PassSizes>({
      tokens: total,
      positions: total,
      slots: total,
      outputs: steps.reduce((sum, step) => sum + outputsOf(step), 0),
      lengths: total,
      ...spanSizes(this.pool, steps.length),
      tables: segments.reduce((sum, { tables }) => sum + tables, 0),
      tiles: tiles.length,
    });
    const [tokens, positions, slots, outputs, lengths, blocks] = (
      ['tokens', 'positions', 'slots', 'outputs', 'lengths', 'tables'] as const
    ).map((name) => numbers.piece(name));
    let [at, output] = [0, 0];
    for (const step of steps) {
      const { cache, ids } = step;
      const before = positionOf(step);
      tokens.set(ids, at);
      for (let i = 0; i < ids.length; i++) {
        positions[at + i] = before + i;
        slots[at + i] = cache.slot(before + i);
        lengths[at + i] = before + i + 1;
      }
      at += ids.length;
      for (let behind = outputsOf(step); behind > 0; behind--) outputs[output++] = at - behind;
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
    const isOneByOne = total > steps.length && steps.every((step) => this.isByToken(step));
    const roundsAs = isOneByOne ? steps.length : undefined;
    return { sizes: numbers.sizes, values: numbers.values, segments, counts, logits, roundsAs };
  }

  /** Tiles of prompts, where the device attends in such and decoding sequences are in front; else none. */
  private tiles(segments: readonly SegmentShape[]): Uint32Array {
    const rows = this.pool.memory.varlenRows;
    const first = segments.findIndex(({ kind }) => kind === 'sequence');
    const isOrdered = first >= 0 && segments.slice(first).every(({ kind }) => kind === 'sequence');
    return rows === undefined || !isOrdered ? new Uint32Array(0) : varlenTiles(partsOf(segments), rows);
  }

  private segments(groups: PassPart[][]): SegmentShape[] {
    let start = 0;
    return groups.map((group) => {
      const count = tokensOf(group);
      const own = { start, count, tables: this.rowsOf(group) * widthOf(group) };
      start += count;
      return this.isByToken(group[0])
        ? { kind: 'tokens', ...own }
        : { kind: 'sequence', ...own, before: positionOf(group[0]) };
    });
  }

  /** Neighbours that are computed token by token together; others by themselves. */
  private grouped(steps: readonly PassPart[]): PassPart[][] {
    const groups: PassPart[][] = [];
    for (const step of steps) {
      const last = groups.at(-1);
      if (last && this.isByToken(step) && this.isByToken(last[0])) last.push(step);
      else groups.push([step]);
    }
    return groups;
  }

  /** Whether each token has a row of the block tables: where there are kernels for that, and a step is no prompt's. */
  isByToken({ ids, drafts }: Step): boolean {
    return this.hasKernels && (ids.length === 1 || (drafts !== undefined && !this.pool.states));
  }

  /** Rows of the block tables of a group. */
  private rowsOf(group: readonly Step[]): number {
    return this.isByToken(group[0]) ? tokensOf(group) : group.length;
  }
}

/** The position of its first token. */
function positionOf({ cache, skipped = 0 }: PassPart): number {
  return cache.length + skipped;
}

/** Rows of logits behind its tokens. */
function outputsOf({ drafts = 0, isCut = false }: PassPart): number {
  return isCut ? 0 : drafts + 1;
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

export function tokensOf(steps: readonly Step[]): number {
  return steps.reduce((sum, { ids }) => sum + ids.length, 0);
}

/** Blocks of the longest sequence. */
function widthOf(group: readonly Step[]): number {
  return Math.max(...group.map(({ cache }) => cache.blocks.length));
}
