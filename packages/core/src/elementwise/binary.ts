/** The functions of two elements and the comparisons: everything that is known of each, once; see unary.ts. */
import type { Call, Rule } from '../autograd/record';
import { powf } from '../autograd/rules/elementwise';
import { asNumbers, identity, sumTo } from '../autograd/rules/shared';
import type { Tensor } from '../tensor';
import { pow } from './numbers';

/** What is known of a function of two elements. */
export interface BinaryRow {
  /** Kernels are `{kernel}_{dtype}` of the BINARY module. */
  readonly kernel: string;
  /** The value for a float dtype, before it is rounded to that dtype. */
  readonly reference: (a: number, b: number) => number;
  /** The same for integers, which wrap when they are stored; missing where there is none. */
  readonly integers?: { number(a: number, b: number): number; bigint(a: bigint, b: bigint): bigint };
  /** Operands of one shape or of two that broadcast. */
  readonly gradient: Rule;
  /** With a number on the right: `args`. */
  readonly scalarGradient: Rule<number>;
  /** Where values and slopes are, for tests. */
  readonly domain?: 'positive';
  /** The slope jumps somewhere. */
  readonly kinked?: true;
  /** The second derivative is zero. */
  readonly linear?: true;
}

/** By the names that `BackendOperations.binary` takes. */
export const BINARY_OPS = {
  add: {
    kernel: 'badd',
    reference: (a, b) => a + b,
    integers: { number: (a, b) => a + b, bigint: (a, b) => a + b },
    gradient: {
      backward: (call) =>
        unbroadcast(
          call,
          () => call.grad,
          () => call.grad,
        ),
    },
    scalarGradient: identity as Rule<unknown>,
    linear: true,
  },
  sub: {
    kernel: 'bsub',
    reference: (a, b) => a - b,
    integers: { number: (a, b) => a - b, bigint: (a, b) => a - b },
    gradient: {
      backward: (call) =>
        unbroadcast(
          call,
          () => call.grad,
          () => call.grad.neg(),
        ),
    },
    scalarGradient: identity as Rule<unknown>,
    linear: true,
  },
  mul: {
    kernel: 'bmul',
    reference: (a, b) => a * b,
    // The exact product of two integers may not fit a double.
    integers: { number: Math.imul, bigint: (a, b) => a * b },
    gradient: {
      inputs: 'others',
      backward: (call) =>
        unbroadcast(
          call,
          () => call.grad.broadcastMul(call.input(1)),
          () => call.grad.broadcastMul(call.input(0)),
        ),
    },
    scalarGradient: { backward: ({ grad, args }) => [grad.mul(args)] },
  },
  /** Integers truncate towards zero; by 0 they give 0. */
  div: {
    kernel: 'bdiv',
    reference: (a, b) => a / b,
    integers: { number: (a, b) => (b === 0 ? 0 : Math.trunc(a / b)), bigint: (a, b) => (b === 0n ? 0n : a / b) },
    gradient: {
      inputs: 'all',
      backward: (call) =>
        unbroadcast(
          call,
          () => call.grad.broadcastDiv(call.input(1)),
          () => call.grad.broadcastMul(call.input(0)).broadcastDiv(call.input(1).sqr()).neg(),
        ),
    },
    scalarGradient: { backward: ({ grad, args }) => [grad.div(args)] },
    domain: 'positive',
  },
  maximum: {
    kernel: 'bmaximum',
    reference: Math.max,
    // biome-ignore lint/complexity/useMathMinMax: Math.max takes no bigints
    integers: { number: Math.max, bigint: (a, b) => (a > b ? a : b) },
    gradient: { inputs: 'all', backward: (call) => extreme(call, (a, b) => a.broadcastGt(b)) },
    scalarGradient: { inputs: [0], backward: (call) => [scalarExtreme(call, call.input(0).gt(call.args))] },
    kinked: true,
    linear: true,
  },
  minimum: {
    kernel: 'bminimum',
    reference: Math.min,
    // biome-ignore lint/complexity/useMathMinMax: Math.min takes no bigints
    integers: { number: Math.min, bigint: (a, b) => (a < b ? a : b) },
    gradient: { inputs: 'all', backward: (call) => extreme(call, (a, b) => a.broadcastLt(b)) },
    scalarGradient: { inputs: [0], backward: (call) => [scalarExtreme(call, call.input(0).lt(call.args))] },
    kinked: true,
    linear: true,
  },
  /** C's. */
  pow: {
    kernel: 'bpow',
    reference: pow,
    gradient: {
      inputs: 'all',
      output: true,
      backward: (call) =>
        unbroadcast(
          call,
          () => slopeOfBase(call),
          () => slopeOfExponent(call),
        ),
    },
    scalarGradient: powf,
    domain: 'positive',
  },
} as const satisfies Record<string, BinaryRow>;

export type BinaryOp = keyof typeof BINARY_OPS;

/** The row of a function; typed as any row. */
export function binaryRow(op: BinaryOp): BinaryRow {
  return BINARY_OPS[op];
}

export const BINARY_NAMES = Object.keys(BINARY_OPS) as BinaryOp[];

type Comparable = number | bigint;

/** Comparisons, of every dtype; the kernels of the BINARY module are `{name}_{dtype}`. */
export const CMP_OPS = {
  eq: (a, b) => a === b,
  ne: (a, b) => a !== b,
  lt: (a, b) => a < b,
  le: (a, b) => a <= b,
  gt: (a, b) => a > b,
  ge: (a, b) => a >= b,
} as const satisfies Record<string, (a: Comparable, b: Comparable) => boolean>;

export type CmpOp = keyof typeof CMP_OPS;

export const CMP_NAMES = Object.keys(CMP_OPS) as CmpOp[];

/** The two gradients in the shape of the result, summed to those of the operands. */
function unbroadcast(call: Call<void>, lhs: () => Tensor, rhs: () => Tensor): (Tensor | null)[] {
  return [lhs, rhs].map((gradient, i) => (call.needs(i) ? sumTo(gradient(), call.shape(i)) : null));
}

/** Maximum and minimum: the operand that `wins` has the gradient, half of it where both are equal (as candle). */
function extreme(call: Call<void>, wins: (a: Tensor, b: Tensor) => Tensor): (Tensor | null)[] {
  const [a, b] = [call.input(0), call.input(1)];
  const tie = asNumbers(a.broadcastEq(b), call.grad).affine(0.5, 0);
  const share = (mask: Tensor) => call.grad.mul(asNumbers(mask, call.grad).add(tie));
  return unbroadcast(
    call,
    () => share(wins(a, b)),
    () => share(wins(b, a)),
  );
}

function scalarExtreme(call: Call<number>, wins: Tensor): Tensor {
  const tie = asNumbers(call.input(0).eq(call.args), call.grad).affine(0.5, 0);
  return call.grad.mul(asNumbers(wins, call.grad).add(tie));
}

/** y xʸ⁻¹; 0 where y is 0, at which 0 · x⁻¹ would be NaN for x = 0. */
function slopeOfBase(call: Call<void>): Tensor {
  const { grad } = call;
  const [x, y] = [call.input(0), call.input(1)];
  const slope = x.broadcastPow(y.sub(1)).broadcastMul(y);
  return y.eq(0).broadcastAs(grad.shape).whereCond(grad.zerosLike(), grad.mul(slope));
}

/** xʸ log x; 0 at x = 0 for y from 0, where it would be 0 · -∞. */
function slopeOfExponent(call: Call<void>): Tensor {
  const { grad } = call;
  const [x, y] = [call.input(0), call.input(1)];
  const slope = call.output.broadcastMul(x.log());
  const flat = x.eq(0).broadcastMul(y.ge(0));
  return flat.whereCond(grad.zerosLike(), grad.mul(slope));
}
