/**
 * The router of a mixture of experts: which experts each token takes, and how much of each. The choice stays on the device;
 * candle writes it of operations in every model.
 */
import {
  type Device,
  type ExpertOps,
  formatShape,
  fusedKernels,
  isGradEnabled,
  kinds,
  type RouteRules,
  ShapeError,
  type StoragePart,
  scope,
  Tensor,
} from '@x/core';
import { checkTensors } from './check';

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
  /** Added to the logits: [experts], f32. Default: nothing. */
  bias?: Tensor;
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
  bias: kinds.optional(kinds.TENSOR),
  correction: kinds.optional(kinds.TENSOR),
});

/**
 * Which experts each token takes: one kernel where the device has it and nothing is recorded.
 * @param logits [tokens, experts], f32, a view of rows too
 * @returns weights, f32, and ids, u32, of the chosen experts, the best first: [tokens, chosen]
 * @throws ShapeError `SHAPE_MISMATCH` for sizes that do not go together
 */
export function routeExperts(logits: Tensor, options: RouteOptions): { weights: Tensor; ids: Tensor } {
  checkTensors('routeExperts', { logits });
  kinds.check('routeExperts', 'options', options, ROUTE);
  const { chosen, scores = 'softmax', renormalise = false, scale = 1, groups, bias, correction } = options;
  const [tokens, experts] = logits.shape;
  const fits = logits.rank === 2 && areFitting(experts, options);
  if (!fits) {
    const grouped = groups ? `, ${groups.chosen} of ${groups.count} groups judged by ${groups.best}` : '';
    throw new ShapeError(
      'SHAPE_MISMATCH',
      `routeExperts: logits ${formatShape(logits.shape)}, ${chosen} experts a token${grouped}${bias ? `, bias ${formatShape(bias.shape)}` : ''}${correction ? `, correction ${formatShape(correction.shape)}` : ''}; ` +
        'give [tokens, experts], no more experts than the groups have, and [experts].',
    );
  }
  const { device } = logits;
  const ops = fusedKernels(device, 'experts');
  if (arePlain([logits, bias, correction]) && tokens > 0 && ops?.supportsRoute(experts, chosen)) {
    return scope(() => {
      const made = ops.route({ ...rulesOf(options, tokens, experts), ...rowsOf(logits) });
      return choiceOf(made, [tokens, chosen], device);
    });
  }
  return scope(() => {
    const biased = bias ? logits.broadcastAdd(bias) : logits;
    const all = scores === 'softmax' ? biased.softmaxLastDim() : biased.sigmoid();
    const corrected = correction ? all.broadcastAdd(correction) : all;
    const [best, ids] = (groups ? withinGroups(corrected, groups) : corrected).topk(chosen);
    const own = correction || groups ? all.gather(ids, -1) : best;
    const shares = renormalise ? own.broadcastDiv(own.sumKeepdim(-1)) : own;
    return { weights: scale === 1 ? shares : shares.mul(scale), ids };
  });
}

/**
 * {@link routeExperts} of the logits x · weightᵀ: one kernel for few tokens where the device has it and nothing is recorded.
 * @param x [tokens, hidden], f32
 * @param weight [experts, hidden], f32, or more rows, whose logits are of something else
 * @returns the same, and all logits, [tokens, rows]
 * @throws as `routeExperts`, and as a product does
 */
export function routeTokens(
  x: Tensor,
  weight: Tensor,
  experts: number,
  options: RouteOptions,
): { weights: Tensor; ids: Tensor; logits: Tensor } {
  checkTensors('routeTokens', { x, weight });
  kinds.check('routeTokens', 'options', options, ROUTE);
  const { chosen, bias, correction } = options;
  const { device } = x;
  const ops = fusedKernels(device, 'experts');
  const [[tokens, hidden], [rows, width]] = [x.shape, weight.shape];
  const fits = x.rank === 2 && weight.rank === 2 && hidden === width && rows >= experts;
  const whole = x.isContiguous() && weight.isContiguous() && areFitting(experts, options);
  if (fits && whole && arePlain([x, weight, bias, correction]) && ops?.supportsRouter({ tokens, experts, chosen })) {
    return scope(() => {
      const operands = { x: x.storagePart(), weight: weight.storagePart() };
      const made = ops.router({ ...rulesOf(options, tokens, experts), hidden, rows, ...operands });
      const logits = Tensor.fromStorage(made.logits, [tokens, rows], device);
      return { ...choiceOf(made, [tokens, chosen], device), logits };
    });
  }
  return scope(() => {
    const logits = x.matmul(weight.t());
    return { ...routeExperts(rows > experts ? logits.narrow(1, 0, experts) : logits, options), logits };
  });
}

/** Whether sizes go together. */
function areFitting(experts: number, { chosen, groups, bias, correction }: RouteOptions): boolean {
  const size = groups ? experts / groups.count : experts;
  return (
    Number.isInteger(size) &&
    (!groups || (groups.chosen <= groups.count && groups.best <= size)) &&
    chosen <= (groups ? groups.chosen * size : experts) &&
    [bias, correction].every((x) => !x || (x.rank === 1 && x.dim(0) === experts))
  );
}

/** Whether kernels may have these: f32 on one device, nothing recorded. */
function arePlain(operands: readonly (Tensor | undefined)[]): boolean {
  const there = operands.filter((x): x is Tensor => x !== undefined);
  const { device } = there[0];
  return there.every((x) => x.dtype === 'f32' && x.device === device && !(isGradEnabled() && x.trackOp));
}

/** Of a device's kernels. What is made on the way is the caller's scope's. */
function rulesOf(options: RouteOptions, tokens: number, experts: number): RouteRules {
  const { chosen, scores = 'softmax', renormalise = false, scale = 1, groups, bias, correction } = options;
  return {
    ...{ tokens, experts, chosen, scores, renormalise, scale },
    ...(groups && { groups }),
    ...(bias && { bias: bias.contiguous().storagePart() }),
    ...(correction && { correction: correction.contiguous().storagePart() }),
  };
}

function choiceOf(
  { weights, ids }: ReturnType<ExpertOps['route']>,
  shape: readonly number[],
  device: Device,
): { weights: Tensor; ids: Tensor } {
  return { weights: Tensor.fromStorage(weights, shape, device), ids: Tensor.fromStorage(ids, shape, device) };
}

/** Logits as kernels read them; copied where they are no rows. */
function rowsOf(logits: Tensor): { logits: StoragePart; logitsRow: number } {
  const { strides } = logits.storageAndLayout().layout;
  const experts = logits.dim(1);
  const isRows = (experts <= 1 || strides[1] === 1) && strides[0] >= experts;
  const rows = isRows ? logits : logits.contiguous();
  return { logits: rows.storagePart(), logitsRow: isRows ? strides[0] : experts };
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
