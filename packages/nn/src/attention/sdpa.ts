/**
 * Scaled dot-product attention: candle-nn's `sdpa` (ops.rs), which is for Metal only. Here it is two products and a softmax
 * on every device, with gradients; the scores take [b, heads, seq, kv] of memory, which `flashAttn` does not. Where the
 * device has a kernel for the whole of it, and no gradient is wanted, that kernel runs.
 */
import {
  type AttentionProblem,
  CandleError,
  type DeviceLike,
  type DType,
  isGradEnabled,
  kinds,
  ShapeError,
  scope,
  type Tensor,
} from '@x/core';
import { checkObjects, checkTensors } from '../check';
import { additive, checkHeads, checkSinks, positionBias } from './mask';
import { scoresOf, softcapped, softmaxBeside, weighted } from './scores';

export interface SdpaOptions {
  /** Of an integer dtype: visible where it is not 0, as PyTorch's; of a float one: added to the scores. Fits [b, heads, seq, kv]. */
  mask?: Tensor;
  /** The last query sees all keys, the one before it all but one, and so on. Default false. */
  causal?: boolean;
  /** With `causal`: a query sees this many keys at most, its own included. Default: all. */
  window?: number;
  /** Gives {@link causalBias} of this problem where it is needed, so that several layers can share it. Default: it is made anew. */
  causalBias?: () => Tensor | undefined;
  /** Multiplies the scores. Default 1 / sqrt(d). */
  scale?: number;
  /** Scores become cap · tanh(scores / cap) before the mask; 1, as in candle, is none. Default 1. */
  softcapping?: number;
  /** A score of each head that takes its share of the softmax and has no value (attention sinks): [heads]. Default: none. */
  sinks?: Tensor;
}

/**
 * softmax(q · kᵀ · scale) · v. A query that may look at nothing gives NaN, as in PyTorch.
 * @param q [b, heads, seq, d]
 * @param k [b, kvHeads, kv, d], heads a multiple of kvHeads
 * @param v [b, kvHeads, kv, dv]
 * @returns [b, heads, seq, dv]
 */
export function sdpa(q: Tensor, k: Tensor, v: Tensor, options: SdpaOptions = {}): Tensor {
  checkTensors('sdpa', { q, k, v });
  checkObjects('sdpa', { options });
  checkShapes(q, k, v);
  const [, heads, seq, d] = q.shape;
  const kv = k.dim(2);
  const { mask, causal = false, window, scale = 1 / Math.sqrt(d), softcapping = 1, sinks } = options;
  if (!(softcapping > 0)) {
    throw new CandleError(
      'INVALID_ARGUMENT',
      `sdpa: softcapping is ${softcapping}; give a positive number, 1 for none.`,
    );
  }
  checkWindow(window, causal);
  checkHeads('sdpa', heads, k.dim(1), v.dim(1));
  checkSinks('sdpa', sinks, heads);
  const narrow = window !== undefined && window < kv;
  const fused = mask || narrow || sinks || softcapping !== 1 ? undefined : inOneKernel(q, k, v, scale, causal);
  if (fused) return fused;
  return scope(() => {
    // The queries are scaled, not the scores: there are fewer, and products of f16 stay in range.
    let scores = scoresOf(scale === 1 ? q : q.affine(scale, 0), k);
    if (softcapping !== 1) scores = softcapped(scores, softcapping);
    if (mask) scores = scores.broadcastAdd(additive(mask, q.dtype));
    if (causal) {
      const { device, dtype } = q;
      const hidden = options.causalBias ? options.causalBias() : causalBias(seq, kv, { window, device, dtype });
      if (hidden) scores = scores.broadcastAdd(hidden);
    }
    return weighted(sinks ? softmaxBeside(scores, sinks) : scores.softmaxLastDim(), v);
  });
}

const BIAS_OPTIONS = kinds.fields({ window: kinds.optional(kinds.POSITIVE), device: kinds.DEVICE, dtype: kinds.DTYPE });

/**
 * What `causal` adds to the scores of `seq` queries, the last of `kv` positions: [seq, kv], 0 where a query may look and
 * -Infinity where not; undefined when every query sees every key.
 */
export function causalBias(
  seq: number,
  kv: number,
  options: { window?: number; device: DeviceLike; dtype: DType },
): Tensor | undefined {
  kinds.check('causalBias', 'seq', seq, kinds.COUNT);
  kinds.check('causalBias', 'kv', kv, kinds.COUNT);
  kinds.check('causalBias', 'options', options, BIAS_OPTIONS);
  const { window, device, dtype } = options;
  const behind = window === undefined ? Number.POSITIVE_INFINITY : window - 1;
  return positionBias({ seq, offset: kv - seq, ahead: 0, behind, device, dtype })?.(0, kv);
}

function checkWindow(window: number | undefined, causal: boolean): void {
  if (window === undefined || (causal && Number.isInteger(window) && window >= 1)) return;
  throw new CandleError(
    'INVALID_ARGUMENT',
    causal
      ? `sdpa: window is ${window}; give a whole number of keys from 1.`
      : 'sdpa: window is for causal attention; give causal: true with it.',
  );
}

/** The device's own attention, where it has one for this problem and nothing is recorded for gradients. */
function inOneKernel(q: Tensor, k: Tensor, v: Tensor, scale: number, causal: boolean): Tensor | undefined {
  const { attention } = q.device.backend;
  const [b, heads, seq, d] = q.shape;
  const [, kvHeads, kv] = k.shape;
  const recorded = isGradEnabled() && (q.trackOp || k.trackOp || v.trackOp);
  const alike = v.shape[3] === d && v.shape[1] === kvHeads && k.dtype === q.dtype && v.dtype === q.dtype;
  if (!attention || recorded || !alike) return undefined;
  const problem: AttentionProblem = { b, heads, kvHeads, seq, kv, d, scale, causal };
  if (!attention.supports(q.dtype, problem)) return undefined;
  return q.applyOp3NoBwd(k, v, {
    name: 'sdpa',
    fwd(queries, queriesLayout, keys, keysLayout, values, valuesLayout) {
      const [from, to] = [
        { storage: queries, layout: queriesLayout },
        { storage: keys, layout: keysLayout },
      ];
      return [attention.forward(problem, from, to, { storage: values, layout: valuesLayout }), [b, heads, seq, d]];
    },
  });
}

function checkShapes(q: Tensor, k: Tensor, v: Tensor): void {
  const ranks = q.rank === 4 && k.rank === 4 && v.rank === 4;
  if (ranks && q.dim(0) === k.dim(0) && q.dim(0) === v.dim(0) && q.dim(3) === k.dim(3) && k.dim(2) === v.dim(2)) return;
  throw new ShapeError(
    'SHAPE_MISMATCH',
    `sdpa: queries [${q.shape}], keys [${k.shape}] and values [${v.shape}]; give [b, heads, seq, d], [b, kvHeads, kv, d] and [b, kvHeads, kv, dv].`,
  );
}
