/** What an adapter is opened for, and the order in which the model has the rows that it changes. */
import type { RopeKind } from '@x/core';
import type { DecoderConfig } from '../config/decoder-config';
import { checkpointRow, ggufRow } from '../weights/row-order';
import type { TensorLayout } from '../weights/weights';

export interface LoraBase {
  readonly architecture: TensorLayout & { readonly gguf: string };
  readonly config: Pick<DecoderConfig, 'numHeads' | 'numKvHeads'>;
  /** How rotated pairs lie in the rows of queries and keys of the model's file: `Weights.ropeKind`. */
  readonly pairs: RopeKind;
}

/**
 * Which row of a file's B each row of the model's is; undefined where they are the same.
 * @param rows of B @param pairs how rotated pairs lie in the file
 */
export function rowsFor(
  target: string,
  rows: number,
  pairs: 'half' | 'interleaved',
  { architecture, config, pairs: wanted }: LoraBase,
): number[] | undefined {
  const [, name] = /^blk\.\d+\.(attn_[qk])$/.exec(target) ?? [];
  if (name === undefined || architecture.pairs !== 'reordered' || pairs === wanted) return undefined;
  const size = rows / (name === 'attn_q' ? config.numHeads : config.numKvHeads);
  const source = pairs === 'half' ? checkpointRow : ggufRow;
  // What has no whole heads does not fit the model, and is refused for its shape.
  return size % 2 === 0 ? Array.from({ length: rows }, (_, row) => source(row, size)) : undefined;
}

/** The rows of a matrix [rows, width] in another order. */
export function withRows(values: Float32Array, width: number, rows: readonly number[] | undefined): Float32Array {
  if (!rows) return values;
  const ordered = new Float32Array(rows.length * width);
  rows.forEach((row, i) => {
    ordered.set(values.subarray(row * width, (row + 1) * width), i * width);
  });
  return ordered;
}
