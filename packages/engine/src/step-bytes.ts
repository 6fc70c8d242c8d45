/**
 * Bytes that a decode step reads: by these, a rate of tokens is a rate of bytes, which the memory's own is the limit of. What is small
 * and stays in caches, activations and tables of rotations, is not counted.
 */
import { sizeInBytes } from '@x/core';
import type { CausalModel, DecoderConfig, WeightRead } from '@x/transformers';

export interface StepBytes {
  /** Of a mixture those of the experts that tokens take when they are spread evenly, of a table the rows that are looked up. */
  weights: number;
  /** Keys and values, of layers with a window those in it; and states, which are read and written. */
  cache: number;
}

/** What of a model's configuration says it. */
interface Settings {
  moe?: { chosen: number };
  slidingWindow?: number;
  /** Whether a layer has the window. Default: each has. */
  local?: readonly boolean[];
  /** Of each layer, in place of both. */
  windows?: readonly (number | undefined)[];
}

export function weightBytesOf(reads: readonly WeightRead[], config: DecoderConfig, sequences: number): number {
  const { moe } = config as DecoderConfig & Settings;
  return reads.reduce((sum, { bytes, rows, experts }) => {
    if (rows !== undefined) return sum + bytes * Math.min(1, sequences / rows);
    // An expert is read once for all tokens that take it.
    const isLeft = experts !== undefined && moe ? (1 - moe.chosen / experts) ** sequences : 0;
    return sum + bytes * (1 - isLeft);
  }, 0);
}

/**
 * Of one sequence.
 * @param position whose token looks at those in front and itself
 * @param positionBytes of keys and values, all layers together
 */
export function cacheBytesOf(
  { config, kvLayouts, stateLayouts = [] }: Pick<CausalModel, 'config' | 'kvLayouts' | 'stateLayouts'>,
  position: number,
  positionBytes: number,
): number {
  const { local, windows, slidingWindow } = config as DecoderConfig & Settings;
  const widths = kvLayouts.map((layout) => {
    if (!layout) return 0;
    const { kvHeads, keyDim, valueDim, valuesInKeys } = layout;
    return kvHeads * (keyDim + (valuesInKeys ? 0 : valueDim));
  });
  const all = widths.reduce((sum, width) => sum + width, 0);
  let bytes = 0;
  for (const [i, width] of widths.entries()) {
    if (width === 0) continue;
    const window = windows ? windows[i] : local && !local[i] ? undefined : slidingWindow;
    bytes += (Math.min(position, window ?? position) * positionBytes * width) / all;
  }
  for (const layout of stateLayouts) {
    for (const shape of Object.values(layout ?? {}))
      bytes += 2 * sizeInBytes('f32') * shape.reduce((product, size) => product * size, 1);
  }
  return bytes;
}
