/**
 * Products with the weights of the experts that tokens are routed to: candle-nn's `moe_gemm` and `moe_gemm_gguf` (moe.rs),
 * which are for CUDA only. Here the rows of one expert are one product, on every device, in any float dtype and through
 * gradients. The routing is on the host, where the products are laid out: read the chosen experts with
 * `await ids.toArray()` and give them to {@link sortByExpert}.
 */
import { CandleError, formatShape, isGradEnabled, kinds, ShapeError, scope, Tensor } from '@x/core';
import { checkNumbers, checkTensors } from './check';

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

export interface RouteOptions {
  /** Experts that each token takes. */
  chosen: number;
  /** What the logits become before the choice. Default `softmax`. */
  scores?: 'softmax' | 'sigmoid';
  /** Whether the weights of those chosen are divided by their sum. Default false. */
  renormalise?: boolean;
  /** Multiplies the weights. Default 1. */
  scale?: number;
  /**
   * Experts lie in `count` groups of equal size, of which a token takes the `chosen` best, judged by their `best` best experts
   * together (DeepSeek-V2 1, DeepSeek-V3 2). Default: one group.
   */
  groups?: { count: number; chosen: number; best: 1 | 2 };
  /** Added to the scores for the choice, not for the weights: [experts]. Default: nothing. */
  correction?: Tensor;
}

const ROUTE = kinds.fields({
  chosen: kinds.POSITIVE,
  scores: kinds.optional(
    kinds.kind((value) => value === 'softmax' || value === 'sigmoid', "give 'softmax' or 'sigmoid'"),
  ),
  renormalise: kinds.optional(kinds.BOOLEAN),
  scale: kinds.optional(kinds.NUMBER),
  groups: kinds.optional(
    kinds.fields({
      count: kinds.POSITIVE,
      chosen: kinds.POSITIVE,
      best: kinds.kind((value) => value === 1 || value === 2, 'give 1 or 2'),
    }),
  ),
  correction: kinds.optional(kinds.TENSOR),
});

/**
 * Which experts each token takes: one kernel where the device has it and nothing is recorded.
 * @param logits [tokens, experts], f32
 * @returns weights, f32, and ids, u32, of the chosen experts, the best first: [tokens, chosen]
 * @throws ShapeError `SHAPE_MISMATCH` for sizes that do not go together
 */
export function routeExperts(logits: Tensor, options: RouteOptions): { weights: Tensor; ids: Tensor } {
  checkTensors('routeExperts', { logits });
  kinds.check('routeExperts', 'options', options, ROUTE);
  const { chosen, scores = 'softmax', renormalise = false, scale = 1, groups, correction } = options;
  const [tokens, experts] = logits.shape;
  const size = groups ? experts / groups.count : experts;
  const fits =
    logits.rank === 2 &&
    Number.isInteger(size) &&
    (!groups || (groups.chosen <= groups.count && groups.best <= size)) &&
    chosen <= (groups ? groups.chosen * size : experts) &&
    (!correction || (correction.rank === 1 && correction.dim(0) === experts));
  if (!fits) {
    const grouped = groups ? `, ${groups.chosen} of ${groups.count} groups judged by ${groups.best}` : '';
    throw new ShapeError(
      'SHAPE_MISMATCH',
      `routeExperts: logits ${formatShape(logits.shape)}, ${chosen} experts a token${grouped}${correction ? `, correction ${formatShape(correction.shape)}` : ''}; ` +
        'give [tokens, experts], no more experts than the groups have, and [experts].',
    );
  }
  const { device } = logits;
  const { experts: ops } = device.backend;
  const operands = correction ? [logits, correction] : [logits];
  const plain = operands.every((x) => x.dtype === 'f32' && x.device === device && !(isGradEnabled() && x.trackOp));
  if (plain && tokens > 0 && ops?.supportsRoute(experts, chosen)) {
    return scope(() => {
      const made = ops.route({
        ...{ tokens, experts, chosen, scores, renormalise, scale },
        ...(groups && { groups }),
        logits: logits.contiguous().storagePart(),
        ...(correction && { correction: correction.contiguous().storagePart() }),
      });
      const shape = [tokens, chosen];
      const weights = Tensor.fromStorage(made.weights, shape, device);
      return { weights, ids: Tensor.fromStorage(made.ids, shape, device) };
    });
  }
  return scope(() => {
    const all = scores === 'softmax' ? logits.softmaxLastDim() : logits.sigmoid();
    const corrected = correction ? all.broadcastAdd(correction) : all;
    const [best, ids] = (groups ? withinGroups(corrected, groups) : corrected).topk(chosen);
    const own = correction || groups ? all.gather(ids, -1) : best;
    const shares = renormalise ? own.broadcastDiv(own.sumKeepdim(-1)) : own;
    return { weights: scale === 1 ? shares : shares.mul(scale), ids };
  });
}

/** Scores [tokens, experts], minus infinity outside of each token's best groups. */
function withinGroups(scores: Tensor, { count, chosen, best }: NonNullable<RouteOptions['groups']>): Tensor {
  const [tokens, experts] = scores.shape;
  const grouped = scores.reshape([tokens, count, experts / count]);
  const [, ids] = grouped.topk(best)[0].sum(-1).topk(chosen);
  const open = Tensor.zeros([tokens, count], 'u8', scores.device);
  open.scatterSet(ids, Tensor.ones([tokens, chosen], 'u8', scores.device), 1);
  const hidden = Tensor.full(Number.NEGATIVE_INFINITY, grouped.shape, scores.dtype, scores.device);
  return open.unsqueeze(2).broadcastAs(grouped.shape).whereCond(grouped, hidden).reshape([tokens, experts]);
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
