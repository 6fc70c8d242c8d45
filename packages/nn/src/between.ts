/**
 * What lies between the products of a language model's layer, each step a launch where a device has kernels for it
 * (`BackendDevice.decode`) and nothing is recorded for gradients, elsewhere composed of operations with the same results. A
 * kernel's may be in the blocks that quantized products read, so that these need not quantize them. Not in candle.
 */
import {
  type DType,
  fusedKernels,
  isGradEnabled,
  type NormDType,
  type PlainActivation,
  QuantizedActivations,
  type StoragePart,
  scope,
  Tensor,
} from '@x/core';
import { type ActivationName, activate } from './activation';
import { checkNumbers, checkObjects, checkTensors } from './check';
import { LayerNorm, type RmsNorm } from './layer-norm';
import { hasRows } from './recurrent/spans';

/** What a linear layer reads: numbers, or the blocks of its device. */
export type Activations = Tensor | QuantizedActivations;

/**
 * As what a step gives its result: in blocks where the device can (else f32), in a dtype, or `both`, blocks with numbers in f32
 * beside them (`QuantizedActivations.numbers`; else f32).
 */
export type ActivationForm = 'blocks' | 'both' | NormDType;

export interface NormAddOptions {
  /** Default f32. */
  as?: ActivationForm;
  /** A norm of `delta` before it is added. */
  deltaNorm?: RmsNorm;
  /** Multiplies `delta`, behind its norm. Default 1. */
  deltaScale?: number;
  /** [n], added to `delta` first: of the product that made it. */
  deltaBias?: Tensor;
}

/**
 * The norm of x + delta, and that sum. Without a norm it is the sum itself.
 * @param x [rows, n], f32
 * @param delta of x's shape; undefined: the sum is x itself
 */
export function normAdd(
  x: Tensor,
  delta: Tensor | undefined,
  norm: RmsNorm | LayerNorm | undefined,
  options: NormAddOptions = {},
): { sum: Tensor; normed: Activations } {
  checkObjects('normAdd', { ...(norm !== undefined && { norm }), options });
  if (norm !== undefined) checkTensors('normAdd', { 'norm.weight': norm.weight });
  const { as = 'f32', deltaNorm, deltaScale = 1, deltaBias } = options;
  checkNumbers('normAdd', { deltaScale });
  if (delta && deltaBias) {
    checkTensors('normAdd', { x, delta, deltaBias });
    const fused = deltaNorm || deltaScale !== 1 ? undefined : biasedNorm(x, delta, deltaBias, norm, as);
    const rest = { as, deltaScale, ...(deltaNorm && { deltaNorm }) };
    return fused ?? scope(() => normAdd(x, delta.broadcastAdd(deltaBias), norm, rest));
  }
  const { alpha, beta, centred } = kindOf(norm);
  const weights = [...(alpha ? [alpha] : []), ...(beta ? [beta] : []), ...(deltaNorm ? [deltaNorm.weight] : [])];
  checkTensors('normAdd', { x, ...(delta && { delta }), ...weights });
  const operands = [x, ...(delta ? [delta] : []), ...weights];
  const [rows, n] = x.shape;
  const decode = fusedKernels(x.device, 'decode');
  const fits = x.rank === 2 && rows > 0 && n > 0 && weights.every((weight) => weight.dim(0) === n);
  const alike = fits && (!delta || (delta.rank === 2 && delta.dim(0) === rows && delta.dim(1) === n));
  const inBlocks = as === 'blocks' || as === 'both';
  const one = !deltaNorm || ((!norm || deltaNorm.eps === norm.eps) && deltaScale === 1);
  // Without a norm only blocks are something new.
  const isNew = norm !== undefined || (delta !== undefined && inBlocks);
  const whole = operands.every((operand) => operand.isContiguous());
  if (decode && isNew && alike && one && whole && isPlain(operands) && (!inBlocks || decode.supports(n))) {
    const problem = {
      rows,
      n,
      eps: (norm ?? deltaNorm)?.eps ?? 0,
      x: x.storagePart(),
      ...(alpha && { alpha: alpha.storagePart() }),
      centred,
      ...(beta && { beta: beta.storagePart() }),
      ...(delta && { delta: delta.storagePart(), deltaScale }),
      ...(delta && deltaNorm && { deltaAlpha: deltaNorm.weight.storagePart() }),
    };
    const { sum, normed, blocks } = decode.norm(problem, as);
    const numbers = as === 'blocks' ? undefined : Tensor.fromStorage(normed, x.shape, x.device);
    const made = as === 'blocks' ? normed : blocks;
    return {
      sum: sum ? Tensor.fromStorage(sum, x.shape, x.device) : x,
      normed: made ? inBlocksOf(made, rows, n, x, numbers) : numbers!,
    };
  }
  return scope(() => {
    const before = delta && deltaNorm ? deltaNorm.forward(delta) : delta;
    const added = before && deltaScale !== 1 ? before.mul(deltaScale) : before;
    const sum = added ? x.add(added) : x;
    return { sum, normed: (norm ? norm.forward(sum) : sum).toDtype(inBlocks ? 'f32' : as) };
  });
}

/** {@link normAdd} with a bias in one kernel, where the device has it. */
function biasedNorm(
  x: Tensor,
  delta: Tensor,
  bias: Tensor,
  norm: RmsNorm | LayerNorm | undefined,
  as: ActivationForm,
): { sum: Tensor; normed: Activations } | undefined {
  const decode = fusedKernels(x.device, 'decode');
  const { alpha, beta, centred } = kindOf(norm);
  if (!decode?.biased || !alpha || as === 'f16' || as === 'bf16') return undefined;
  const [rows, n] = x.shape;
  const fits = [x, delta].every((one) => one.rank === 2 && one.dim(0) === rows && one.dim(1) === n) && rows > 0;
  const weights = [alpha, bias, ...(beta ? [beta] : [])];
  const operands = [x, delta, ...weights];
  const alike = fits && weights.every((weight) => weight.rank === 1 && weight.dim(0) === n);
  const plain = operands.every((operand) => operand.isContiguous()) && isPlain(operands);
  if (!alike || !plain || (as !== 'f32' && !decode.supports(n))) return undefined;
  const parts = {
    x: x.storagePart(),
    delta: delta.storagePart(),
    bias: bias.storagePart(),
    alpha: alpha.storagePart(),
  };
  const problem = { rows, n, eps: norm!.eps, ...parts, centred, ...(beta && { beta: beta.storagePart() }) };
  const { sum, normed, blocks } = decode.biased.norm(problem, as);
  const numbers = as === 'blocks' ? undefined : Tensor.fromStorage(normed, x.shape, x.device);
  const made = as === 'blocks' ? normed : blocks;
  return {
    sum: Tensor.fromStorage(sum, x.shape, x.device),
    normed: made ? inBlocksOf(made, rows, n, x, numbers) : numbers!,
  };
}

/** What a norm multiplies by and adds, and whether it takes the mean away. */
function kindOf(norm: RmsNorm | LayerNorm | undefined): { alpha?: Tensor; beta?: Tensor; centred: boolean } {
  if (!norm) return { centred: false };
  const { weight: alpha } = norm;
  if (!(norm instanceof LayerNorm)) return { alpha, centred: false };
  return { alpha, centred: norm.removeMean, ...(norm.bias && { beta: norm.bias }) };
}

/** Activations that gates of kernels have. */
const GATES: Partial<Record<ActivationName, 'silu' | 'gelu'>> = {
  silu: 'silu',
  swish: 'silu',
  gelu_new: 'gelu',
  gelu_pytorch_tanh: 'gelu',
};

/** What a device's fused kernels call an activation of gates; undefined for one that they have not. */
export function gateActivation(activation: ActivationName): 'silu' | 'gelu' | undefined {
  return GATES[activation];
}

/**
 * activation(gate) · up, for two results of one product or of two.
 * @param gate and up: [rows, n], views too
 * @param as 'blocks' where the next product takes them, or a dtype that it rounds them to; else numbers in their own
 */
export function gatedActivation(
  gate: Tensor,
  up: Tensor,
  activation: ActivationName,
  as: 'blocks' | 'numbers' | NormDType = 'numbers',
): Activations {
  checkTensors('gatedActivation', { gate, up });
  const kernel = activation === 'sigmoid' ? activation : GATES[activation];
  const decode = fusedKernels(gate.device, 'decode');
  const both = [gate, up];
  const [rows, n] = gate.shape;
  const fits = both.every((x) => hasRows(x) && x.dim(0) === rows && x.dim(1) === n) && rows > 0;
  if (kernel && fits && decode && isPlain(both)) {
    const wanted = as === 'numbers' ? 'f32' : as;
    const form = wanted === 'blocks' && !decode.supports(n) ? 'f32' : wanted;
    const [gateRow, upRow] = both.map((x) => x.storageAndLayout().layout.strides[0]);
    const problem = { rows, n, gate: gate.storagePart(), gateRow, up: up.storagePart(), upRow };
    const made = decode.gated(kernel, problem, form);
    return form === 'blocks' ? inBlocksOf(made, rows, n, gate) : Tensor.fromStorage(made, [rows, n], gate.device);
  }
  const made = () => activate(gate, activation).mul(up);
  return scope(() => (as === 'blocks' || as === 'numbers' ? made() : made().toDtype(as)));
}

/** Activations that kernels of layers without a gate have. */
const PLAIN: Partial<Record<ActivationName, PlainActivation>> = { ...GATES, gelu: 'gelu_erf' };

/**
 * activation(x + bias), of a layer without a gate.
 * @param x [rows, n], a view too @param as 'blocks' where the next product takes them; else numbers in its dtype
 * @param bias [n], of the product that made x
 */
export function activateAs(
  x: Tensor,
  name: ActivationName,
  as: 'blocks' | 'numbers' = 'numbers',
  bias?: Tensor,
): Activations {
  checkTensors('activateAs', { x, ...(bias && { bias }) });
  const kernel = GATES[name];
  const plain = PLAIN[name];
  const decode = fusedKernels(x.device, 'decode');
  const [rows, n] = x.shape;
  const alike = rows > 0 && hasRows(x) && isPlain([x, ...(bias ? [bias] : [])]);
  const inBlocks = as === 'blocks' && decode?.supports(n) === true;
  const row = () => x.storageAndLayout().layout.strides[0];
  if (plain && alike && decode?.biased && (!bias || (bias.isContiguous() && bias.elemCount === n))) {
    const problem = { rows, n, x: x.storagePart(), row: row(), ...(bias && { bias: bias.storagePart() }) };
    const made = decode.biased.activated(plain, problem, inBlocks ? 'blocks' : 'f32');
    return inBlocks ? inBlocksOf(made, rows, n, x) : Tensor.fromStorage(made, [rows, n], x.device);
  }
  if (bias) return scope(() => activateAs(x.broadcastAdd(bias), name, as));
  if (inBlocks && kernel && alike)
    return inBlocksOf(decode.activated(kernel, { rows, n, gate: x.storagePart(), gateRow: row() }), rows, n, x);
  return activate(x, name);
}

/**
 * The RMS norm of each group of x · silu(gate), as Mamba 2 has it.
 * @param x [rows, groups · d] @param weight [groups, d] @param gate of x's shape, a view of rows too
 * @param as 'blocks' where the next product takes them; else numbers
 */
export function gatedGroupNorm(
  x: Tensor,
  weight: Tensor,
  eps: number,
  gate: Tensor,
  as: 'blocks' | 'numbers' = 'numbers',
): Activations {
  checkTensors('gatedGroupNorm', { x, weight, gate });
  checkNumbers('gatedGroupNorm', { eps });
  const [rows, n] = x.shape;
  const [groups, d] = weight.shape;
  const decode = fusedKernels(x.device, 'decode');
  const fits = x.rank === 2 && n === groups * d && hasRows(gate) && gate.dim(0) === rows && gate.dim(1) === n;
  const whole = x.isContiguous() && weight.isContiguous();
  if (as === 'blocks' && fits && whole && isPlain([x, weight, gate]) && decode?.supportsGroupNorm(rows, d)) {
    const operands = { x: x.storagePart(), alpha: weight.storagePart(), gate: gate.storagePart() };
    const gateRow = gate.storageAndLayout().layout.strides[0];
    return inBlocksOf(decode.groupNorm({ rows, groups, d, eps, ...operands, gateRow }), rows, n, x);
  }
  return scope(() => {
    const gated = x.mul(gate.silu()).reshape([rows, groups, d]);
    return gated.div(gated.sqr().meanKeepdim(2).add(eps).sqrt()).mul(weight).reshape(x.shape);
  });
}

/**
 * The RMS norm of each head of x, [rows, heads · d], times silu of a gate of that shape.
 * @param norm of d values @param gate a view of rows too
 * @param as 'blocks' where the next product takes them; else numbers
 */
export function headNorm(x: Tensor, norm: RmsNorm, gate: Tensor, as: 'blocks' | 'numbers' = 'numbers'): Activations {
  checkObjects('headNorm', { norm });
  const { weight, eps } = norm;
  checkTensors('headNorm', { x, gate, weight });
  const [rows, n] = x.shape;
  const d = weight.dim(0);
  const decode = fusedKernels(x.device, 'decode');
  const fits = x.rank === 2 && n % d === 0 && hasRows(gate) && gate.dim(0) === rows && gate.dim(1) === n;
  const whole = x.isContiguous() && weight.isContiguous();
  if (as === 'blocks' && fits && whole && isPlain([x, weight, gate]) && decode?.supportsHeadNorm(rows, d)) {
    const operands = { x: x.storagePart(), alpha: weight.storagePart(), gate: gate.storagePart() };
    const gateRow = gate.storageAndLayout().layout.strides[0];
    return inBlocksOf(decode.headNorm({ rows, heads: n / d, d, eps, ...operands, gateRow }), rows, n, x);
  }
  return scope(() =>
    norm
      .forward(x.reshape([(rows * n) / d, d]))
      .reshape(x.shape)
      .mul(gate.silu()),
  );
}

/** Whether kernels may have these: f32 on one device, nothing recorded. */
export function isPlain(operands: readonly Tensor[]): boolean {
  const [{ device }] = operands;
  const recorded = isGradEnabled() && operands.some((operand) => operand.trackOp);
  return !recorded && operands.every((x) => x.dtype === ('f32' satisfies DType) && x.device === device);
}

function inBlocksOf(
  blocks: StoragePart[0],
  rows: number,
  width: number,
  { device }: Tensor,
  numbers?: Tensor,
): QuantizedActivations {
  return new QuantizedActivations(Tensor.fromStorage(blocks, [blocks.elemCount], device), rows, width, numbers);
}
