/**
 * The two products of attention with fewer heads of keys and values than of queries (grouped queries): the queries of one
 * group are rows of one matrix, so nothing is repeated.
 */
import { scope, Tensor } from '@x/core';

/** q [b, heads, seq, d] times k [b, kvHeads, kv, d] transposed: [b, heads, seq, kv]. */
export function scoresOf(q: Tensor, k: Tensor): Tensor {
  const [b, heads, seq, d] = q.shape;
  const [, kvHeads, kv] = k.shape;
  const rows = (heads / kvHeads) * seq;
  return scope(() => q.reshape([b, kvHeads, rows, d]).matmul(k.transpose(2, 3)).reshape([b, heads, seq, kv]));
}

/** Weights [b, heads, seq, kv] times v [b, kvHeads, kv, dv]: [b, heads, seq, dv]. */
export function weighted(weights: Tensor, v: Tensor): Tensor {
  const [b, heads, seq, kv] = weights.shape;
  const [, kvHeads, , dv] = v.shape;
  const rows = (heads / kvHeads) * seq;
  return scope(() => weights.reshape([b, kvHeads, rows, kv]).matmul(v).reshape([b, heads, seq, dv]));
}

/** cap · tanh(scores / cap), which keeps them within ±cap. */
export function softcapped(scores: Tensor, cap: number): Tensor {
  return scope(() => scores.div(cap).tanh().mul(cap));
}

/** Softmax of scores [b, heads, seq, kv] and one score more a head, `sinks` [heads], whose share is left out. */
export function softmaxBeside(scores: Tensor, sinks: Tensor): Tensor {
  const [b, heads, seq, kv] = scores.shape;
  return scope(() => {
    const column = sinks.toDtype(scores.dtype).reshape([1, heads, 1, 1]).broadcastAs([b, heads, seq, 1]);
    return Tensor.cat([scores, column], -1).softmaxLastDim().narrow(-1, 0, kv);
  });
}
