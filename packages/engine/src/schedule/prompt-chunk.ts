/**
 * How many tokens of a prompt are read in one pass. Chunks change the last bits of results (products with few rows and with
 * many are different kernels), so their size follows from model, device and position, never from a clock.
 */
import type { Device } from '@x/core';
import type { DecoderConfig } from '@x/transformers';

/** On a GPU: the narrower a model, the more tokens it takes until products fill the GPU, and the sooner a pass is over. */
const GPU = { work: 2 ** 34, min: 1024, max: 4096 };

/**
 * Elsewhere it is the largest power of two from `min` to `max` with at most `work` multiply-adds in a step: some 50 ms on
 * two cores. Fewer tokens than `min` share the reading of the weights among too few, more than `max` gain nothing.
 */
const CHUNKS: Partial<Record<Device['location']['kind'], { work: number; min: number; max: number }>> = {
  cpu: { work: 2 ** 34, min: 64, max: 256 },
  js: { work: 2 ** 24, min: 8, max: 128 },
};

/**
 * @param position of the first token of the chunk
 * @param ranks that share the work of each token: more tokens fill their parts of the products, and as many again go out in turn with
 *   these (paired-pass.ts)
 */
export function promptChunk(config: DecoderConfig, device: Device, position: number, ranks = 1): number {
  const { hiddenSize, headDim, numHeads, numKvHeads, intermediateSize } = config;
  const rule = CHUNKS[device.location.kind];
  if (!rule) return powerOfTwo(GPU, hiddenSize ** 2 / ranks) * Math.min(2, ranks);
  const width = numHeads * headDim;
  const attention = 2 * hiddenSize * (width + numKvHeads * headDim) + 2 * width * position;
  return powerOfTwo(rule, Math.max(3 * hiddenSize * intermediateSize, attention));
}

/** The largest one, within bounds, of tokens of `each` work that come to no more than the rule's. */
function powerOfTwo({ work, min, max }: { work: number; min: number; max: number }, each: number): number {
  return Math.min(max, Math.max(min, 2 ** Math.floor(Math.log2(work / each))));
}
