/**
 * Products with the weights of the experts that tokens are routed to: candle-nn's `moe_gemm` and `moe_gemm_gguf` (moe.rs),
 * which are for CUDA only. Here the rows of one expert are one product, on every device, in any float dtype and through
 * gradients. The routing is on the host, where the products are laid out: read the chosen experts with
 * `await ids.toArray()` and give them to {@link sortByExpert}.
 */
import { CandleError, formatShape, ShapeError, scope, Tensor } from '@x/core';
import { QMatMul, QTensor } from '@x/quantized';

/** Pairs of token and expert, by expert. A pair's number is token * topk + its place among the token's experts. */
export interface SortedExperts {
  /** Numbers of the pairs. */
  sortedTokenIds: Uint32Array;
  /** The expert of each. */
  expertIds: Uint32Array;
}

/** Puts the experts of all tokens, [tokens * topk] as the router gives them, into the order that products need. */
export function sortByExpert(experts: ArrayLike<number>): SortedExperts {
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
  const [experts, , k] = checked('moeGemm', weights.shape, input, sorted, topkWeights, topk);
  const product = (expert: number, rows: Tensor) => rows.matmul(weights.narrow(0, expert, 1).squeeze(0).t());
  return byExpert(input, experts, k, topkWeights, sorted, topk, product);
}

/** {@link moeGemm} with the experts' weights in a block format, [experts, n, k]; see `QMatMul` for how they are used. */
export function moeGemmGguf(
  input: Tensor,
  weights: QTensor,
  topkWeights: Tensor | undefined,
  sorted: SortedExperts,
  topk: number,
): Tensor {
  const [experts, n, k] = checked('moeGemmGguf', weights.shape, input, sorted, topkWeights, topk);
  const product = (expert: number, rows: Tensor) => {
    using blocks = expertOf(weights, expert, [n, k]);
    using linear = QMatMul.fromQTensor(blocks);
    return linear.forward(rows);
  };
  return byExpert(input, experts, k, topkWeights, sorted, topk, product);
}

/** Zero blocks, in values, that kernels may read behind the last row of a weight. */
const PADDING = 512;

/** The weight [n, k] of one expert, in memory of its own where it is in blocks. */
function expertOf(weights: QTensor, expert: number, [n, k]: readonly [number, number]): QTensor {
  return scope(() => {
    const { data, format, type } = weights;
    if (weights.kind === 'dense') return QTensor.wrap(type, [n, k], data.narrow(0, expert, 1).squeeze(0));
    const bytesOf = (values: number) => (values / format.blockSize) * format.blockBytes;
    const bytes = bytesOf(n * k);
    const zeros = Tensor.zeros([bytesOf(PADDING)], 'u8', data.device);
    const padded = Tensor.cat([data.narrow(0, expert * bytes, bytes), zeros], 0);
    return QTensor.wrap(type, [n, k], padded.narrow(0, 0, bytes));
  });
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
    const inOrder = Tensor.cat(parts, 0).indexSelect(ids(places), 0);
    if (!topkWeights) return inOrder;
    return inOrder.broadcastMul(topkWeights.reshape([-1, 1]).toDtype(inOrder.dtype));
  });
}

function checked(
  op: string,
  weights: readonly number[],
  input: Tensor,
  { sortedTokenIds, expertIds }: SortedExperts,
  topkWeights: Tensor | undefined,
  topk: number,
): [experts: number, n: number, k: number] {
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
