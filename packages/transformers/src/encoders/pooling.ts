/** How the hidden states of a sequence become one vector: the modes of sentence-transformers' Pooling. */
import { scope, Tensor } from '@x/core';
import type { Segments } from '@x/nn';

/**
 * `cls`, `last`: the first and the last token's; `mean`, `max`: over all tokens, an element at a time; `mean_sqrt_len`: the
 * sum over the root of their number; `weighted_mean`: token i counts i + 1 times.
 */
export type PoolingMode = 'cls' | 'last' | 'mean' | 'max' | 'mean_sqrt_len' | 'weighted_mean';

/**
 * One row a sequence: [sequences, hiddenSize], f32.
 * @param hidden [tokens, hiddenSize]
 * @param skip tokens at the beginning of each sequence that do not count; where all of them would be skipped, all count
 */
export function poolRows(hidden: Tensor, segments: Segments, mode: PoolingMode, skip: readonly number[] = []): Tensor {
  const { starts, lengths, device } = segments;
  const parts = starts.map((start, i) => {
    const skipped = (skip[i] ?? 0) < lengths[i] ? (skip[i] ?? 0) : 0;
    return { start: start + skipped, length: lengths[i] - skipped };
  });
  if (mode === 'cls' || mode === 'last') {
    const rows = parts.map(({ start, length }) => (mode === 'cls' ? start : start + length - 1));
    return scope(() => hidden.indexSelect(Tensor.from(Uint32Array.from(rows), { device }), 0));
  }
  return scope(() =>
    Tensor.stack(
      parts.map(({ start, length }) => pooled(hidden.narrow(0, start, length), mode)),
      0,
    ),
  );
}

/** rows [tokens, hiddenSize] to [hiddenSize] */
function pooled(rows: Tensor, mode: Exclude<PoolingMode, 'cls' | 'last'>): Tensor {
  const tokens = rows.dim(0);
  if (mode === 'max') return rows.max(0);
  if (mode === 'mean') return rows.mean(0);
  if (mode === 'mean_sqrt_len') return rows.sum(0).div(Math.sqrt(tokens));
  const weights = Float32Array.from({ length: tokens }, (_, i) => (2 * (i + 1)) / (tokens * (tokens + 1)));
  return Tensor.from(weights, { shape: [1, tokens], device: rows.device })
    .matmul(rows)
    .squeeze(0);
}
