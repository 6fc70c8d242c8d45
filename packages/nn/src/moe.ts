/**
 * Products with the weights of the experts that tokens are routed to: candle-nn's `moe_gemm` and `moe_gemm_gguf` (moe.rs),
 * which are for CUDA only. Here the rows of one expert are one product, on every device, in any float dtype and through
 * gradients. The routing is on the host, where the products are laid out: read the chosen experts with
 * `await ids.toArray()` and give them to {@link sortByExpert}.
 */
import { CandleError, formatShape, kinds, ShapeError, scope, Tensor } from '@x/core';
import { checkNumbers, checkObjects, checkTensors } from './check';

/** Pairs of token and expert, by expert. A pair's number is token * topk + its place among the token's experts. */
export interface SortedExperts {
  /** Numbers of the pairs. */
  sortedTokenIds: Uint32Array;
  /** The expert of each. */
  expertIds: Uint32Array;
}

const NUMBERS = kinds.kind(
  (value) => Array.isArray(value) || ArrayBuffer.isView(value),
  'give an array or a typed array of numbers',
);
const SORTED = kinds.fields({ sortedTokenIds: NUMBERS, expertIds: NUMBERS });

/** The weights of experts in a form of their own: a `QTensor` of `@x/quantized`. */
export interface ExpertWeights {
  /** [experts, n, k] */
  readonly shape: readonly number[];
  /** Products of x [tokens, topk or 1, k] with the weights of the experts `ids`, topk a token: [tokens, topk, n]. */
  indexedMoe(x: Tensor, ids: Uint32Array): Tensor;
}

/** Puts the experts of all tokens, [tokens * topk] as the router gives them, into the order that products need. */
export function sortByExpert(experts: ArrayLike<number>): SortedExperts {
  kinds.check('sortByExpert', 'experts', experts, NUMBERS);
  const order = Uint32Array.from(experts, (_, i) => i).sort((a, b) => experts[a] - experts[b] || a - b);
  return { sortedTokenIds: order, expertIds: Uint32Array.from(order, (pair) => experts[pair]) };
}

/**
 * Each token's rows times the weights of its experts.
 * @param input [tokens, k]; with `topkWeights` [tokens * topk, k], a row a pair: what an earlier call returned
 * @param weights [experts, n, k]
 * @param topkWeights [tokens * topk] (or [tokens, topk]): what each pair's row is multiplied with
 * @returns [tokens * topk, n], by pair
 */
export function moeGemm(
  input: Tensor,
  weights: Tensor,
  topkWeights: Tensor | undefined,
  sorted: SortedExperts,
  topk: number,
): Tensor {
  checkTensors('moeGemm', { input, weights });
  checkNumbers('moeGemm', { topk });
  const [experts, , k] = checked('moeGemm', weights.shape, input, sorted, topkWeights, topk);
  const product = (expert: number, rows: Tensor) => rows.matmul(weights.narrow(0, expert, 1).squeeze(0).t());
  return byExpert(input, experts, k, topkWeights, sorted, topk, product);
}

/** {@link moeGemm} with the experts' weights in a block format, [experts, n, k]; see `QTensor.indexedMoe` for how they are used. */
export function moeGemmGguf(
  input: Tensor,
  weights: ExpertWeights,
  topkWeights: Tensor | undefined,
  sorted: SortedExperts,
  topk: number,
): Tensor {
  checkObjects('moeGemmGguf', { weights });
  checkTensors('moeGemmGguf', { input });
  checkNumbers('moeGemmGguf', { topk });
  const [, n, k] = checked('moeGemmGguf', weights.shape, input, sorted, topkWeights, topk);
  const chosen = new Uint32Array(sorted.expertIds.length);
  sorted.sortedTokenIds.forEach((pair, i) => {
    chosen[pair] = sorted.expertIds[i];
  });
  return scope(() => {
    // A row a token, or with weights a row a pair, each of which is then a token with one expert.
    const rows = input.reshape([input.dim(0), 1, k]);
    return weighted(weights.indexedMoe(rows, chosen).reshape([chosen.length, n]), topkWeights);
  });
}

/** Rows of pairs times the pairs' weights. */
function weighted(rows: Tensor, topkWeights: Tensor | undefined): Tensor {
  if (!topkWeights) return rows;
  return rows.broadcastMul(topkWeights.reshape([-1, 1]).toDtype(rows.dtype));
}

function byExpert(
  input: Tensor,
  experts: number,
  k: number,
  topkWeights: Tensor | undefined,
  { sortedTokenIds, expertIds }: SortedExperts,
  topk: number,
  product: (expert: number, rows: Tensor) => Tensor,
): Tensor {
  const { device } = input;
  const ids = (values: Uint32Array) => Tensor.from(values, { device });
  return scope(() => {
    const rows = input.reshape([-1, k]);
    const parts: Tensor[] = [];
    for (let start = 0, end = 0; start < expertIds.length; start = end) {
      const expert = expertIds[start];
      if (expert >= experts) {
        throw new ShapeError(
          'INDEX_OUT_OF_RANGE',
          `moeGemm: expert ${expert} of ${experts}; route to 0 to ${experts - 1}.`,
        );
      }
      while (end < expertIds.length && expertIds[end] === expert) end++;
      const pairs = sortedTokenIds.subarray(start, end);
      const from = topkWeights ? pairs : pairs.map((pair) => Math.floor(pair / topk));
      parts.push(scope(() => product(expert, rows.indexSelect(ids(from), 0))));
    }
    const places = new Uint32Array(sortedTokenIds.length);
    sortedTokenIds.forEach((pair, i) => {
      places[pair] = i;
    });
    return weighted(Tensor.cat(parts, 0).indexSelect(ids(places), 0), topkWeights);
  });
}

function checked(
  op: string,
  weights: readonly number[],
  input: Tensor,
  sorted: SortedExperts,
  topkWeights: Tensor | undefined,
  topk: number,
): [experts: number, n: number, k: number] {
  kinds.check(op, 'the shape of weights', weights, kinds.SHAPE);
  kinds.check(op, 'sorted', sorted, SORTED);
  if (topkWeights !== undefined) checkTensors(op, { topkWeights });
  const { sortedTokenIds, expertIds } = sorted;
  const [experts, n, k] = weights;
  if (!Number.isInteger(topk) || topk < 1) {
    throw new CandleError('INVALID_ARGUMENT', `${op}: ${topk} experts a token; give a whole number from 1.`);
  }
  const pairs = input.dim(0) * (topkWeights ? 1 : topk);
  const counts = [sortedTokenIds.length, expertIds.length, topkWeights?.elemCount ?? pairs];
  if (
    weights.length !== 3 ||
    input.rank !== 2 ||
    input.dim(1) !== k ||
    pairs === 0 ||
    counts.some((c) => c !== pairs)
  ) {
    throw new ShapeError(
      'SHAPE_MISMATCH',
      `${op}: input ${formatShape(input.shape)}, weights ${formatShape(weights)}, ${topk} experts a token and ${counts.join(', ')} sorted ids, experts and weights of pairs; ` +
        'give [tokens, k], [experts, n, k] and one of each a pair.',
    );
  }
  return [experts, n, k];
}
