/**
 * Attention a block of keys at a time with the online softmax: the arithmetic of candle-nn's cpu_flash kernels
 * (attention/cpu_flash/online_softmax.rs), in tensor operations, so that it runs on every device and has gradients. Memory
 * is that of one block of scores, whatever the number of keys. Sums are made in f32 for the narrow floats, in the inputs'
 * dtype otherwise; a query that may look at nothing gives 0.
 */
import { scope, Tensor } from '@x/core';
import { wideDType } from '../ops';
import type { Bias } from './mask';
import { scoresOf, softcapped, weighted } from './scores';

/** Keys of one block: large enough for a GPU, small enough for a long context. */
const BLOCK = 512;
/** Below every score of use: what a query that has seen nothing compares with. */
const FLOOR = -1e30;
/** Divides in place of a sum of no weights. */
const TINY = 1e-30;

export interface OnlineOptions {
  scale: number;
  /** 0: none. */
  softcap?: number;
  bias?: Bias;
  /** Keys looked at by any query; default all. */
  from?: number;
  to?: number;
  /** Default 512; for tests. */
  block?: number;
}

/** What the blocks so far come to. */
interface Running {
  /** Largest score, [b, heads, seq, 1], a constant for gradients. */
  top: Tensor;
  /** Sum of weights, [b, heads, seq, 1]. */
  sum: Tensor;
  /** Weighted values, [b, heads, seq, dv]. */
  values: Tensor;
}

/**
 * @param q [b, heads, seq, d]
 * @param k [b, kvHeads, kv, d]
 * @param v [b, kvHeads, kv, dv]
 * @returns [b, heads, seq, dv] in q's dtype
 */
export function onlineAttention(q: Tensor, k: Tensor, v: Tensor, options: OnlineOptions): Tensor {
  const { scale, softcap = 0, bias, from = 0, to = k.dim(2), block = BLOCK } = options;
  const dtype = wideDType(q.dtype);
  return scope(() => {
    const queries = q.toDtype(dtype).affine(scale, 0);
    let running: Running | undefined;
    for (let start = from; start < to; start += block) {
      const count = Math.min(block, to - start);
      const before: Running | undefined = running;
      running = scope(() => {
        const [keys, values] = [k, v].map((part) => part.narrow(2, start, count).toDtype(dtype));
        let scores = scoresOf(queries, keys);
        if (softcap !== 0) scores = softcapped(scores, softcap);
        const added = bias?.(start, count);
        if (added) scores = scores.broadcastAdd(added);
        return step(before, scores, values);
      });
      if (before) for (const tensor of Object.values(before)) tensor.dispose();
    }
    if (!running) return Tensor.zeros([...q.shape.slice(0, 3), v.dim(3)], q.dtype, q.device);
    return running.values.broadcastDiv(running.sum.maximum(TINY)).toDtype(q.dtype);
  });
}

function step(before: Running | undefined, scores: Tensor, v: Tensor): Running {
  const blockTop = scores.detach().maxKeepdim(-1).maximum(FLOOR);
  const top = before ? before.top.maximum(blockTop) : blockTop;
  const weights = scores.broadcastSub(top).exp();
  const sum = weights.sumKeepdim(-1);
  const values = weighted(weights, v);
  if (!before) return { top, sum, values };
  const kept = before.top.sub(top).exp();
  return {
    top,
    sum: before.sum.mul(kept).add(sum),
    values: before.values.broadcastMul(kept).add(values),
  };
}
