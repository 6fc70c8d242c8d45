/**
 * How variables start: candle-nn's `Init` (init.rs), with PyTorch's fans and gains. `Init.const(0)`, `Init.randn(0, 1)` and
 * so on make the plain objects that `VarBuilder.getWithHints` and `VarMap.get` take.
 */
import { CandleError, type DeviceLike, type DType, kinds, type Shape, Tensor, Var } from '@x/core';

/** Which connections of a unit {@link fanForShape} counts. */
export type FanInOut = 'fanIn' | 'fanOut';
export type NormalOrUniform = 'normal' | 'uniform';
/** The function behind a layer, or its gain as a number. */
export type NonLinearity = 'relu' | 'linear' | 'sigmoid' | 'tanh' | 'selu' | number;

/** How a variable starts. */
export type Init =
  | { kind: 'const'; value: number }
  | { kind: 'randn'; mean: number; stdev: number }
  | { kind: 'uniform'; lo: number; up: number }
  | { kind: 'kaiming'; dist: NormalOrUniform; fan: FanInOut; nonLinearity: NonLinearity };

export const Init = {
  const: (value: number): Init => ({ kind: 'const', value }),
  /** Normal with mean and standard deviation. */
  randn: (mean: number, stdev: number): Init => ({ kind: 'randn', mean, stdev }),
  /** Uniform in [lo, up). */
  uniform: (lo: number, up: number): Init => ({ kind: 'uniform', lo, up }),
  /** He et al. 2015: a deviation of gain / sqrt(fan). */
  kaiming: (dist: NormalOrUniform, fan: FanInOut = 'fanIn', nonLinearity: NonLinearity = 'relu'): Init => ({
    kind: 'kaiming',
    dist,
    fan,
    nonLinearity,
  }),
} as const;

export const ZERO: Init = Init.const(0);
export const ONE: Init = Init.const(1);
/** By the inputs, with the gain of relu, as candle's. */
export const DEFAULT_KAIMING_UNIFORM: Init = Init.kaiming('uniform');
/** As {@link DEFAULT_KAIMING_UNIFORM}, normal. */
export const DEFAULT_KAIMING_NORMAL: Init = Init.kaiming('normal');

/** Inputs or outputs of one unit of a weight [out, in, ...taps]. */
export function fanForShape(fan: FanInOut, shape: Shape): number {
  const receptiveField = shape.slice(2).reduce((a, b) => a * b, 1);
  if (fan === 'fanIn') return shape.length < 2 ? 1 : shape[1] * receptiveField;
  return shape.length === 0 ? 1 : shape[0] * receptiveField;
}

/** By how much a layer before this function must be scaled up to keep the variance, as PyTorch's `calculate_gain`. */
export function gainOf(nonLinearity: NonLinearity): number {
  if (typeof nonLinearity === 'number') return nonLinearity;
  return { relu: Math.SQRT2, linear: 1, sigmoid: 1, tanh: 5 / 3, selu: 3 / 4 }[nonLinearity];
}

/** `Tensor` or `Var`. */
interface Maker<T> {
  zeros(shape: Shape, dtype: DType, device: DeviceLike): T;
  full(value: number, shape: Shape, dtype: DType, device: DeviceLike): T;
  rand(lo: number, up: number, shape: Shape, dtype: DType, device: DeviceLike): T;
  randn(mean: number, std: number, shape: Shape, dtype: DType, device: DeviceLike): T;
}

function make<T>(maker: Maker<T>, init: Init, shape: Shape, dtype: DType, device: DeviceLike): T {
  switch (init.kind) {
    case 'const':
      return init.value === 0 ? maker.zeros(shape, dtype, device) : maker.full(init.value, shape, dtype, device);
    case 'randn':
      return maker.randn(init.mean, init.stdev, shape, dtype, device);
    case 'uniform':
      if (!(init.lo <= init.up)) {
        throw new CandleError(
          'INVALID_ARGUMENT',
          `Init.uniform: ${init.lo} to ${init.up} is no range; give the lower bound first.`,
        );
      }
      return maker.rand(init.lo, init.up, shape, dtype, device);
    case 'kaiming': {
      // Without inputs or outputs there are no values either.
      if (shape.includes(0)) return maker.zeros(shape, dtype, device);
      const std = gainOf(init.nonLinearity) / Math.sqrt(fanForShape(init.fan, shape));
      const bound = Math.sqrt(3) * std;
      return init.dist === 'uniform'
        ? maker.rand(-bound, bound, shape, dtype, device)
        : maker.randn(0, std, shape, dtype, device);
    }
    default:
      throw new CandleError(
        'INVALID_ARGUMENT',
        `Init: there is no kind ${kinds.show((init as { kind?: unknown }).kind)}; give Init.const, Init.randn, Init.uniform or Init.kaiming.`,
      );
  }
}

/**
 * A tensor of initial values; random ones come from the device's stream (`Device.setSeed`).
 * @throws CandleError INVALID_ARGUMENT for bounds that are no range
 */
export function initTensor(init: Init, shape: Shape, dtype: DType, device: DeviceLike): Tensor {
  return make<Tensor>(Tensor, init, shape, dtype, device);
}

/** As {@link initTensor}, a variable: candle's `Init::var`. */
export function initVar(init: Init, shape: Shape, dtype: DType, device: DeviceLike): Var {
  return make<Var>(Var, init, shape, dtype, device);
}
