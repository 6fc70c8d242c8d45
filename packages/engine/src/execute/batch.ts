/**
 * A forward pass as numbers: what a rank computes it from, whoever decided that it is to be computed. Numbers and plain
 * objects only, so that they can be sent to other threads and processes.
 */
import type { Tensor } from '@x/core';
import { TILE_NUMBERS } from '@x/nn';
import type { KvMemory } from '../kv/memory';
import type { PromptTiles, Segment } from '../kv/paged';
import { type SpanSizes, spanSizes } from '../kv/spans';
import type { PieceSizes } from './step-inputs';

/** Pieces of the inputs of a pass. */
export interface PassSizes extends PieceSizes, SpanSizes {
  tokens: number;
  positions: number;
  slots: number;
  outputs: number;
  lengths: number;
  tables: number;
  /** Of all prompts, where the device attends in such; else 0. */
  tiles: number;
}

/** Rows of a batch whose attention is one call, and the elements of their block tables. */
export type SegmentShape = { start: number; count: number; tables: number } & (
  | { kind: 'tokens' }
  /** `before`: positions in front of these tokens. */
  | { kind: 'sequence'; before: number }
);

export interface PassNumbers {
  sizes: PassSizes;
  /** Of all pieces, in the order of `sizes`. */
  values: Uint32Array;
  /** In the order of rows and of block tables. */
  segments: readonly SegmentShape[];
  /** Tokens of each sequence. */
  counts: readonly number[];
  /** Whether logits are wanted, of the rows in `outputs`. */
  logits: boolean;
  /** Whether tokens may be choices of the rank that leads, which the others learn of on their devices. Default false. */
  follows?: boolean;
  /** Of a step in which texts have several tokens, as with drafts: rows of one in which each has one (`QuantizedOps.roundsAs`). */
  roundsAs?: number | undefined;
}

/** The segments of a pass as views of its inputs, to be given to {@link disposeSegments}. */
export function segmentsOf(
  shapes: readonly SegmentShape[],
  pieces: { readonly tables: Tensor; readonly lengths: Tensor },
): Segment[] {
  let place = 0;
  return shapes.map((shape) => {
    const { start, count } = shape;
    const table = pieces.tables.narrow(0, place, shape.tables);
    place += shape.tables;
    if (shape.kind === 'sequence') return { kind: 'sequence', start, count, before: shape.before, blocks: table };
    const tables = table.reshape([count, shape.tables / count]);
    table.dispose();
    return { kind: 'tokens', start, count, tables, lengths: pieces.lengths.narrow(0, start, count) };
  });
}

/** The first row of a prompt: behind the tokens of decoding sequences. */
export function promptStart(segments: readonly SegmentShape[]): number {
  return segments.find(({ kind }) => kind === 'sequence')?.start ?? 0;
}

/** The tiles of a pass as views of its inputs; undefined where it has none. */
export function tilesOf(
  start: number,
  pieces: { readonly tables: Tensor; readonly tiles: Tensor },
): PromptTiles | undefined {
  const numbers = pieces.tiles.dim(0);
  if (numbers === 0) return undefined;
  const tiles = pieces.tiles.reshape([numbers / TILE_NUMBERS, TILE_NUMBERS]);
  return { start, tiles, tables: pieces.tables };
}

export function disposeSegments(segments: readonly Segment[]): void {
  for (const segment of segments) {
    if (segment.kind === 'tokens') for (const ids of [segment.tables, segment.lengths]) ids.dispose();
    else segment.blocks.dispose();
  }
}

/** Rows of a captured step, at most. */
export const MAX_ROWS = 128;

/** Parts of prompts beside the rows of a step, at most. */
export const MAX_PARTS = 16;

/** What a captured decode step has room for. */
export interface StepShape {
  /** Rows, a token each. */
  batch: number;
  /** Blocks of each. */
  width: number;
  /** As {@link PassNumbers.roundsAs}. */
  roundsAs?: number | undefined;
}

/** Pieces of the inputs of a captured step. */
export interface StepSizes extends PieceSizes, SpanSizes {
  tokens: number;
  positions: number;
  slots: number;
  lengths: number;
  tables: number;
}

export function stepSizes(memory: KvMemory, { batch, width }: StepShape): StepSizes {
  return {
    tokens: batch,
    positions: batch,
    slots: batch,
    lengths: batch,
    tables: batch * width,
    ...spanSizes(memory, batch),
  };
}

/** What a captured pass of prompts has room for. */
export interface PromptShape {
  rows: number;
  sequences: number;
  /** Blocks of all of them. */
  blocks: number;
}

/** Pieces of the inputs of a captured pass of prompts. */
export interface PromptSizes extends PieceSizes {
  tokens: number;
  positions: number;
  slots: number;
  outputs: number;
  tables: number;
  tiles: number;
}

export function promptSizes(memory: KvMemory, { rows, sequences, blocks }: PromptShape): PromptSizes {
  // Of each sequence, and of the rows behind them, one may be not full.
  const tiles = Math.floor(rows / memory.varlenRows!) + sequences + 1;
  return {
    tokens: rows,
    positions: rows,
    slots: rows,
    outputs: sequences,
    tables: blocks,
    tiles: tiles * TILE_NUMBERS,
  };
}

/** What a captured pass has room for. */
export type GraphShape = StepShape | PromptShape;
