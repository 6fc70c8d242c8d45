/**
 * The functions of one element: everything that is known of each, once. The plain backend computes `reference`, devices
 * launch `kernel`, `backward` applies `gradient`, and the tests draw their operands by `domain`.
 *
 * A new function is a row here, a line in kernels/unary.hip and a documented method in tensor/elementwise.ts.
 *
 * Gradients differ from candle's at single points: relu and abs have slope 0 at 0, as in PyTorch, and gelu's constants are
 * exact.
 */
import type { Rule } from '../autograd/record';
import { byInput, byOutput } from '../autograd/rules/shared';
import { erf, normalBelow, round, sigmoid, softplus } from './numbers';

/** An integer function, of the dtypes that are numbers in JavaScript and of i64. Results wrap when they are stored. */
export interface IntegerReference {
  number(x: number): number;
  bigint(x: bigint): bigint;
}

/** What is known of a function of one element. */
export interface UnaryRow {
  /** Kernels are `{kernel}_{dtype}` of the UNARY module. */
  readonly kernel: string;
  /** The value for a float dtype, before it is rounded to that dtype. */
  readonly reference: (x: number) => number;
  /** What integer dtypes have: a function with kernels, or `same` where their elements stay. Missing: float dtypes only. */
  readonly integers?: IntegerReference | 'same';
  /** Null where the slope is zero everywhere. */
  readonly gradient: Rule | null;
  /** Whether a GPU computes an element in a few instructions, so that memory is all that counts. */
  readonly cost: 'short' | 'long';
  /** Where implementations agree, for tests: `small` leaves out large arguments, `positive` is where values and slopes are. */
  readonly domain?: 'small' | 'positive';
  /** Results are exact, or one rounding away. Otherwise they are good to a few units in the last place. */
  readonly exact?: true;
  /** The slope jumps somewhere. */
  readonly kinked?: true;
  /** The second derivative is zero. */
  readonly linear?: true;
}

const GELU_CUBIC = 0.044715;
const SQRT_2_OVER_PI = Math.sqrt(2 / Math.PI);
const TWO_OVER_SQRT_PI = 2 / Math.sqrt(Math.PI);

/** By the names that `BackendOperations.unary` takes. */
export const UNARY_OPS = {
  exp: { kernel: 'uexp', reference: Math.exp, gradient: byOutput((grad, y) => grad.mul(y)), cost: 'short' },
  expm1: { kernel: 'uexpm1', reference: Math.expm1, gradient: byInput((grad, x) => grad.mul(x.exp())), cost: 'long' },
  log: {
    kernel: 'ulog',
    reference: Math.log,
    gradient: byInput((grad, x) => grad.div(x)),
    cost: 'long',
    domain: 'positive',
  },
  sin: {
    kernel: 'usin',
    reference: Math.sin,
    gradient: byInput((grad, x) => grad.mul(x.cos())),
    cost: 'long',
    domain: 'small',
  },
  cos: {
    kernel: 'ucos',
    reference: Math.cos,
    gradient: byInput((grad, x) => grad.mul(x.sin()).neg()),
    cost: 'long',
    domain: 'small',
  },
  tanh: {
    kernel: 'utanh',
    reference: Math.tanh,
    gradient: byOutput((grad, y) => grad.mul(y.sqr().affine(-1, 1))),
    cost: 'long',
  },
  abs: {
    kernel: 'uabs',
    reference: Math.abs,
    integers: { number: Math.abs, bigint: (x) => (x < 0n ? -x : x) },
    gradient: byInput((grad, x) => grad.mul(x.sign())),
    cost: 'short',
    exact: true,
    kinked: true,
    linear: true,
  },
  neg: {
    kernel: 'uneg',
    reference: (x) => -x,
    integers: { number: (x) => -x, bigint: (x) => -x },
    gradient: { backward: ({ grad }) => [grad.neg()] },
    cost: 'short',
    exact: true,
    linear: true,
  },
  recip: {
    kernel: 'urecip',
    reference: (x) => 1 / x,
    gradient: byOutput((grad, y) => grad.mul(y.sqr()).neg()),
    cost: 'short',
    domain: 'positive',
    exact: true,
  },
  sqr: {
    kernel: 'usqr',
    reference: (x) => x * x,
    integers: { number: (x) => Math.imul(x, x), bigint: (x) => x * x },
    gradient: byInput((grad, x) => grad.mul(x.affine(2, 0))),
    cost: 'short',
    exact: true,
  },
  sqrt: {
    kernel: 'usqrt',
    reference: Math.sqrt,
    gradient: byOutput((grad, y) => grad.div(y).affine(0.5, 0)),
    cost: 'short',
    domain: 'positive',
    exact: true,
  },
  gelu: {
    kernel: 'ugelu',
    // x (1 + tanh u) / 2 = x σ(2u), which loses nothing where tanh is near -1.
    reference: (x) => x * sigmoid(2 * SQRT_2_OVER_PI * x * (1 + GELU_CUBIC * x * x)),
    gradient: byInput((grad, x) => {
      // y = x σ(2u) with 2u = x w, w = 2 √(2/π) (1 + 0.044715 x²).
      // Beyond 16 the slope is 0 or 1 in every dtype, and x² would overflow.
      const near = x.clamp(-16, 16);
      const w = near.sqr().affine(2 * GELU_CUBIC * SQRT_2_OVER_PI, 2 * SQRT_2_OVER_PI);
      const s = near.mul(w).sigmoid();
      const slopeOfArgument = w.affine(3, -4 * SQRT_2_OVER_PI);
      const inner = near.mul(slopeOfArgument).mul(s.affine(-1, 1)).affine(1, 1);
      return grad.mul(s).mul(inner);
    }),
    cost: 'long',
  },
  geluErf: {
    kernel: 'ugelu_erf',
    reference: (x) => x * normalBelow(x),
    gradient: byInput((grad, x) => {
      // y = x Φ(x); its slope is Φ(x) + x φ(x).
      const below = x.affine(Math.SQRT1_2, 0).erf().affine(0.5, 0.5);
      const density = x
        .sqr()
        .affine(-0.5, 0)
        .exp()
        .affine(SQRT_2_OVER_PI / 2, 0);
      return grad.mul(below.add(x.mul(density)));
    }),
    cost: 'long',
  },
  erf: {
    kernel: 'uerf',
    reference: erf,
    gradient: byInput((grad, x) => grad.mul(x.sqr().neg().exp().affine(TWO_OVER_SQRT_PI, 0))),
    cost: 'long',
  },
  relu: {
    kernel: 'urelu',
    // biome-ignore lint/complexity/useMathMinMax: -0 stays, as in the kernels
    reference: (x) => (x < 0 ? 0 : x),
    integers: { number: (x) => Math.max(x, 0), bigint: (x) => (x < 0n ? 0n : x) },
    // What relu leaves is positive or 0, so its sign is its slope.
    gradient: byOutput((grad, y) => grad.mul(y.sign())),
    cost: 'short',
    exact: true,
    kinked: true,
    linear: true,
  },
  silu: {
    kernel: 'usilu',
    reference: (x) => x * sigmoid(x),
    gradient: byInput((grad, x) => {
      const s = x.sigmoid();
      return grad.mul(s.mul(x.mul(s.affine(-1, 1)).affine(1, 1)));
    }),
    cost: 'long',
  },
  sigmoid: {
    kernel: 'usigmoid',
    reference: sigmoid,
    gradient: byOutput((grad, y) => grad.mul(y.mul(y.affine(-1, 1)))),
    cost: 'long',
  },
  softplus: {
    kernel: 'usoftplus',
    reference: softplus,
    gradient: byInput((grad, x) => grad.mul(x.sigmoid())),
    cost: 'long',
  },
  mish: {
    kernel: 'umish',
    reference: (x) => x * Math.tanh(softplus(x)),
    gradient: byInput((grad, x) => {
      // y = x t with t = tanh(softplus(x)), whose slope is (1 - t²) σ(x). Infinities would be multiplied by 0.
      const near = x.clamp(-1000, 1000);
      const t = near.softplus().tanh();
      return grad.mul(near.mul(near.sigmoid()).mul(t.sqr().affine(-1, 1)).add(t));
    }),
    cost: 'long',
  },
  floor: { kernel: 'ufloor', reference: Math.floor, integers: 'same', gradient: null, cost: 'short', exact: true },
  ceil: { kernel: 'uceil', reference: Math.ceil, integers: 'same', gradient: null, cost: 'short', exact: true },
  round: { kernel: 'uround', reference: round, integers: 'same', gradient: null, cost: 'long', exact: true },
  sign: {
    kernel: 'usign',
    reference: (x) => (x > 0 ? 1 : x < 0 ? -1 : 0),
    integers: { number: Math.sign, bigint: (x) => (x > 0n ? 1n : x < 0n ? -1n : 0n) },
    gradient: null,
    cost: 'short',
    exact: true,
  },
} as const satisfies Record<string, UnaryRow>;

export type UnaryOp = keyof typeof UNARY_OPS;

/** The row of a function; typed as any row. */
export function unaryRow(op: UnaryOp): UnaryRow {
  return UNARY_OPS[op];
}

export const UNARY_NAMES = Object.keys(UNARY_OPS) as UnaryOp[];
