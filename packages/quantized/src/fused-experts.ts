/**
 * The experts of a mixture by a device's fused kernels (core's `QuantizedExpertOps`). For few tokens they are one launch for gate,
 * up and activation of all that were chosen, and one for down, the router's weights and the sum; with one weight and no ids the
 * same for a layer that all tokens take. For many tokens they are a few launches, with each expert's weights read once. Where a
 * device has none, {@link QTensor.indexedMoeForward}, {@link QTensor.groupedMoe} and tensor operations do it.
 */
import {
  type BackendStorage,
  type Device,
  DTypeError,
  type ExpertChoice,
  type ExpertMix,
  formatShape,
  fusedKernels,
  type GateActivation,
  type GatedExpertsProblem,
  type MixedExpertsProblem,
  QuantizedActivations,
  ShapeError,
  type StoragePart,
  Tensor,
} from '@x/core';
import { byteLengthOf } from './blocks';
import type { ExpertOrder } from './expert-order';
import type { QTensor } from './qtensor';

/** Values of the blocks that activations are in. */
const ACTIVATION_BLOCK = 32;

/** Gate and up of experts, [experts, n, k] each; or, of a layer that all tokens take, both as rows of one weight, [2n, k]. */
export type GateWeights = { gate: QTensor; up: QTensor } | { both: QTensor };

export interface GatedExpertsOptions {
  activation: GateActivation;
  /** [experts, n], f32, contiguous. */
  gateBias?: Tensor;
  upBias?: Tensor;
}

export interface MixedExpertsOptions {
  /** What multiplies the result of each of a token's experts: [tokens, topk], f32. Default: ones. */
  mix?: Tensor;
  /** [experts, n], f32, contiguous. */
  bias?: Tensor;
  /** Added to the sum: [tokens, n], f32. */
  base?: Tensor;
  /**
   * In the place of `base` an expert that all tokens take: its weight [n, its width], in blocks of the type that the others have, and
   * its x [tokens, its width], {@link areBlocks}.
   */
  shared?: { weight: QTensor; x: QuantizedActivations };
  /** Its sigmoid multiplies `base`, or what the shared expert gives: [tokens, 1], f32, a view of rows too. */
  baseGate?: Tensor;
}

/** Whether the device has {@link gatedExperts} for these weights: in blocks of one type, of rows in whole blocks of activations. */
export function fusesGate(weights: GateWeights): boolean {
  const [gate, up] = 'both' in weights ? [weights.both, weights.both] : [weights.gate, weights.up];
  const rows = 'both' in weights ? gate.shape[0] / 2 : gate.shape[1];
  const alike = gate.type === up.type && gate.shape.join() === up.shape.join() && gate.device.equals(up.device);
  return alike && rows % ACTIVATION_BLOCK === 0 && fusesMix(gate);
}

/** Whether the device has {@link mixedExperts} for this weight, in blocks, and such kernels may be used. */
export function fusesMix(weight: QTensor): boolean {
  const inBlocks = weight.kind === 'blocks' && weight.elemCount > 0;
  return inBlocks && fusedKernels(weight.device, 'quantizedExperts') !== undefined;
}

/**
 * Rows of numbers, [rows, width], f32, f16 or bf16, in the blocks that products of few rows read; undefined where the device has
 * no such form for so many.
 */
export function quantizedRows(x: Tensor): QuantizedActivations | undefined {
  const { quantized } = x.device.backend;
  const [rows, width] = x.shape;
  if (!quantized || x.rank !== 2 || width % ACTIVATION_BLOCK !== 0 || x.elemCount === 0) return undefined;
  using whole = x.contiguous();
  const made = quantized.quantizeActivations(whole.storageAndLayout(), { m: rows, k: width });
  const blocks = Tensor.fromStorage(made, [made.elemCount], x.device);
  if (areBlocks(blocks)) return new QuantizedActivations(blocks, rows, width);
  blocks.dispose();
  return undefined;
}

/** Whether activations are in blocks; for many rows a device may have them in another form. */
export function areBlocks(blocks: Tensor): boolean {
  return blocks.dtype === 'u8';
}

/**
 * activation(gate · x) times (up · x) of the experts that each token takes: [tokens * topk, n].
 * @param x [tokens, k], {@link areBlocks} @param ids [tokens, topk], u32, contiguous, below the number of experts
 * @throws ShapeError `SHAPE_MISMATCH` for weights of other widths
 */
export function gatedExperts(
  weights: GateWeights,
  x: QuantizedActivations,
  ids: Tensor | undefined,
  { activation, gateBias, upBias }: GatedExpertsOptions,
): QuantizedActivations {
  const { device } = x.blocks;
  const problem = gatedProblem('gatedExperts', weights, x, ids, activation);
  const made = device.backend.quantizedExperts!.gated({
    ...problem,
    ...(gateBias && { gateBias: gateBias.storagePart() }),
    ...(upBias && { upBias: upBias.storagePart() }),
  });
  return madeRows(made, problem.tokens * problem.topk, problem.n, device);
}

/**
 * {@link gatedExperts}, and in the same launch what an expert makes that all tokens take: [tokens, its width].
 * @param shared its gate and up, in blocks of the type that `weights` have
 * @throws ShapeError `SHAPE_MISMATCH` for weights of other widths; DTypeError `DTYPE_MISMATCH` for others of another type
 */
export function gatedExpertsBeside(
  weights: GateWeights,
  shared: { both: QTensor },
  x: QuantizedActivations,
  ids: Tensor,
  activation: GateActivation,
): { own: QuantizedActivations; shared: QuantizedActivations } {
  const { device } = x.blocks;
  checkAlike('gatedExpertsBeside', 'both' in weights ? weights.both : weights.gate, shared.both);
  const problem = gatedProblem('gatedExpertsBeside', weights, x, ids, activation);
  const { n, gate, up } = gatedProblem('gatedExpertsBeside', shared, x, undefined, activation);
  const made = device.backend.quantizedExperts!.gatedBeside(problem, { n, gate, up });
  return {
    own: madeRows(made.own, problem.tokens * problem.topk, problem.n, device),
    shared: madeRows(made.shared, problem.tokens, n, device),
  };
}

function gatedProblem(
  op: string,
  weights: GateWeights,
  x: QuantizedActivations,
  ids: Tensor | undefined,
  activation: GateActivation,
): GatedExpertsProblem {
  const isOne = 'both' in weights;
  const first = isOne ? weights.both : weights.gate;
  const [n, k] = isOne ? [first.shape[0] / 2, first.shape[1]] : first.shape.slice(1);
  checkWidth(op, x, k, first);
  const gate = first.data.storagePart();
  const up: StoragePart = isOne
    ? [gate[0], gate[1] + byteLengthOf(first.format, n * k)]
    : weights.up.data.storagePart();
  return { ...choiceOf(x.rows, ids), type: first.blockType, n, k, gate, up, activation, x: blocksOf(x) };
}

function madeRows(storage: BackendStorage, rows: number, n: number, device: Device): QuantizedActivations {
  return new QuantizedActivations(Tensor.fromStorage(storage, [storage.elemCount], device), rows, n);
}

/**
 * The sum over the experts that each token takes of weight · x, by their weights: [tokens, n], f32.
 * @param weight [experts, n, k], or [n, k] without ids @param x [tokens * topk, k], {@link areBlocks}
 * @param ids [tokens, topk], u32, contiguous, below the number of experts
 * @throws ShapeError `SHAPE_MISMATCH` for a weight of another width; DTypeError `DTYPE_MISMATCH` for a shared one of another type
 */
export function mixedExperts(
  weight: QTensor,
  x: QuantizedActivations,
  ids: Tensor | undefined,
  options: MixedExpertsOptions,
): Tensor {
  const { device } = weight;
  const problem = mixedProblem('mixedExperts', weight, x, ids, options);
  const made = device.backend.quantizedExperts!.mixed(problem);
  return Tensor.fromStorage(made, [problem.tokens, problem.n], device);
}

/**
 * {@link mixedExperts} into the first columns of a matrix that is not read yet by anyone.
 * @param out [tokens, n or more], f32, contiguous
 * @throws ShapeError `SHAPE_MISMATCH` for a weight or a matrix of another width
 */
export function mixedExpertsInto(
  out: Tensor,
  weight: QTensor,
  x: QuantizedActivations,
  ids: Tensor | undefined,
  options: MixedExpertsOptions = {},
): void {
  const problem = mixedProblem('mixedExpertsInto', weight, x, ids, options);
  const { tokens, n } = problem;
  if (out.rank !== 2 || out.dim(0) !== tokens || out.dim(1) < n || out.dtype !== 'f32' || !out.isContiguous()) {
    throw new ShapeError(
      'SHAPE_MISMATCH',
      `mixedExpertsInto: a product of ${tokens} rows of ${n} values into ${formatShape(out.shape)} (${out.dtype}). Give ` +
        'contiguous f32 of as many rows, at least as wide.',
    );
  }
  weight.device.backend.quantizedExperts!.mixedInto(problem, out.storagePart(), out.dim(1));
}

/**
 * What the experts that each token takes give, by their weights: the sum of down · (activation(gate · x) times (up · x)),
 * [tokens, n], f32. {@link fusesGate} and {@link fusesMix} say whether the device has it.
 * @param weights gate and up [experts, width, n], down [experts, n, width]
 * @param x [tokens, n], f32, contiguous
 * @param ids [tokens, topk], u32, contiguous, below the number of experts @param order of these ids
 * @throws ShapeError `SHAPE_MISMATCH` for weights of other widths, or an order of other ids; DTypeError `DTYPE_MISMATCH`
 */
export function groupedExperts(
  weights: { gate: QTensor; up: QTensor; down: QTensor },
  x: Tensor,
  ids: Tensor,
  order: ExpertOrder,
  { activation, gateBias, upBias, ...mix }: GatedExpertsOptions & MixedExpertsOptions,
): Tensor {
  const { gate, up, down } = weights;
  const [experts, width, n] = gate.shape;
  const [tokens, topk] = ids.shape;
  const fits =
    x.rank === 2 && x.dim(0) === tokens && x.dim(1) === n && down.shape.join() === [experts, n, width].join();
  if (!fits || order.pairs !== tokens * topk || order.experts !== experts) {
    throw new ShapeError(
      'SHAPE_MISMATCH',
      `groupedExperts: x ${formatShape(x.shape)}, ids ${formatShape(ids.shape)} in an order of ${order.pairs} pairs of ` +
        `${order.experts} experts, gate ${formatShape(gate.shape)} and down ${formatShape(down.shape)}. Give [tokens, n], ` +
        '[tokens, topk], the order of these ids, [experts, width, n] and [experts, n, width].',
    );
  }
  if (x.dtype !== 'f32' || !x.isContiguous() || ids.dtype !== 'u32' || !ids.isContiguous()) {
    throw new DTypeError(
      'DTYPE_MISMATCH',
      `groupedExperts: x is ${x.dtype} and the ids are ${ids.dtype}; give contiguous f32 and u32.`,
    );
  }
  const made = gate.device.backend.quantizedExperts!.grouped({
    ...{ tokens, topk, n, width, activation },
    ids: ids.storagePart(),
    order: order.problem,
    x: x.storagePart(),
    type: gate.blockType,
    gate: gate.data.storagePart(),
    up: up.data.storagePart(),
    downType: down.blockType,
    down: down.data.storagePart(),
    ...(gateBias && { gateBias: gateBias.storagePart() }),
    ...(upBias && { upBias: upBias.storagePart() }),
    ...mixOf(mix),
  });
  return Tensor.fromStorage(made, [tokens, n], gate.device);
}

function mixedProblem(
  op: string,
  weight: QTensor,
  x: QuantizedActivations,
  ids: Tensor | undefined,
  options: MixedExpertsOptions,
): MixedExpertsProblem {
  const [n, k] = weight.shape.slice(-2);
  checkWidth(op, x, k, weight);
  const { shared } = options;
  if (shared) {
    checkAlike(op, weight, shared.weight);
    checkWidth(op, shared.x, shared.weight.shape[1], shared.weight);
    if (shared.weight.shape[0] !== n) {
      throw new ShapeError(
        'SHAPE_MISMATCH',
        `${op}: a shared weight ${formatShape(shared.weight.shape)} beside ${formatShape(weight.shape)}; give one of ${n} rows.`,
      );
    }
  }
  return {
    ...choiceOf(ids ? ids.dim(0) : x.rows, ids),
    ...{ type: weight.blockType, n, k, weights: weight.data.storagePart(), x: blocksOf(x) },
    ...mixOf(options),
    ...(shared && {
      shared: { weights: shared.weight.data.storagePart(), k: shared.x.width, x: blocksOf(shared.x) },
    }),
  };
}

function mixOf({ mix, bias, base, baseGate }: MixedExpertsOptions): ExpertMix {
  return {
    ...(mix && { mix: mix.storagePart() }),
    ...(bias && { bias: bias.storagePart() }),
    ...(base && { base: base.storagePart() }),
    ...(baseGate && {
      baseGate: { values: baseGate.storagePart(), row: baseGate.storageAndLayout().layout.strides[0] },
    }),
  };
}

function choiceOf(tokens: number, ids: Tensor | undefined): ExpertChoice {
  return { tokens, topk: ids ? ids.dim(1) : 1, ...(ids && { ids: ids.storagePart() }) };
}

function blocksOf(x: QuantizedActivations) {
  return x.blocks.storageAndLayout().storage;
}

/** Of a shared expert, whose weights one kernel multiplies beside those of others. */
function checkAlike(op: string, weight: QTensor, shared: QTensor): void {
  if (weight.type === shared.type) return;
  throw new DTypeError(
    'DTYPE_MISMATCH',
    `${op}: a shared weight in ${shared.type} beside others in ${weight.type}; give weights of one type.`,
  );
}

function checkWidth(op: string, x: QuantizedActivations, k: number, weight: QTensor): void {
  if (x.width === k) return;
  throw new ShapeError(
    'SHAPE_MISMATCH',
    `${op}: rows of ${x.width} values and a weight ${formatShape(weight.shape)}. Check which layer the input belongs to.`,
  );
}
