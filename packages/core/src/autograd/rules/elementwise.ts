/**
 * Gradients of arithmetic element by element.
 *
 * Differs from candle at single points: relu and abs have slope 0 at 0, as PyTorch, and gelu's constants are exact.
 * Elements where two operands of maximum or minimum tie share the gradient, as candle.
 */
import type { BinaryOp, UnaryOp } from '../../backend';
import type { Tensor } from '../../tensor';
import type { Call, Rule } from '../record';
import { asNumbers, identity, sumTo } from './shared';

/** A rule from the slope at the operand's value. */
const byInput = (gradient: (grad: Tensor, x: Tensor) => Tensor): Rule => ({
  inputs: [0],
  backward: (call) => [gradient(call.grad, call.input(0))],
});

/** A rule from the slope at the result's value. */
const byOutput = (gradient: (grad: Tensor, y: Tensor) => Tensor): Rule => ({
  output: true,
  backward: (call) => [gradient(call.grad, call.output)],
});

const TWO_OVER_SQRT_PI = 2 / Math.sqrt(Math.PI);
const SQRT_2_OVER_PI = Math.sqrt(2 / Math.PI);
const GELU_CUBIC = 0.044715;

export const unaryRules: Record<UnaryOp, Rule | null> = {
  exp: byOutput((grad, y) => grad.mul(y)),
  log: byInput((grad, x) => grad.div(x)),
  sin: byInput((grad, x) => grad.mul(x.cos())),
  cos: byInput((grad, x) => grad.mul(x.sin()).neg()),
  tanh: byOutput((grad, y) => grad.mul(y.sqr().affine(-1, 1))),
  abs: byInput((grad, x) => grad.mul(x.sign())),
  neg: { backward: ({ grad }) => [grad.neg()] },
  recip: byOutput((grad, y) => grad.mul(y.sqr()).neg()),
  sqr: byInput((grad, x) => grad.mul(x.affine(2, 0))),
  sqrt: byOutput((grad, y) => grad.div(y).affine(0.5, 0)),
  gelu: byInput((grad, x) => {
    // y = x (1 + tanh u) / 2 = x σ(2u) with 2u = x w, w = 2 √(2/π) (1 + 0.044715 x²).
    // Beyond 16 the slope is 0 or 1 in every dtype, and x² would overflow.
    const near = x.clamp(-16, 16);
    const w = near.sqr().affine(2 * GELU_CUBIC * SQRT_2_OVER_PI, 2 * SQRT_2_OVER_PI);
    const s = near.mul(w).sigmoid();
    const slopeOfArgument = w.affine(3, -4 * SQRT_2_OVER_PI);
    const inner = near.mul(slopeOfArgument).mul(s.affine(-1, 1)).affine(1, 1);
    return grad.mul(s).mul(inner);
  }),
  geluErf: byInput((grad, x) => {
    // y = x Φ(x); its slope is Φ(x) + x φ(x).
    const below = x.affine(Math.SQRT1_2, 0).erf().affine(0.5, 0.5);
    const density = x
      .sqr()
      .affine(-0.5, 0)
      .exp()
      .affine(SQRT_2_OVER_PI / 2, 0);
    return grad.mul(below.add(x.mul(density)));
  }),
  erf: byInput((grad, x) => grad.mul(x.sqr().neg().exp().affine(TWO_OVER_SQRT_PI, 0))),
  // What relu leaves is positive or 0, so its sign is its slope.
  relu: byOutput((grad, y) => grad.mul(y.sign())),
  silu: byInput((grad, x) => {
    const s = x.sigmoid();
    return grad.mul(s.mul(x.mul(s.affine(-1, 1)).affine(1, 1)));
  }),
  sigmoid: byOutput((grad, y) => grad.mul(y.mul(y.affine(-1, 1)))),
  floor: null,
  ceil: null,
  round: null,
  sign: null,
};

/** `args` is the factor. */
export const affine: Rule<number> = { backward: ({ grad, args: mul }) => [grad.mul(mul)] };

/** `args` is the exponent. */
export const powf: Rule<number> = {
  inputs: [0],
  backward(call) {
    const exponent = call.args;
    // 0 · x⁻¹ would be NaN at 0, where the slope of a constant is 0.
    if (exponent === 0) return [call.grad.zerosLike()];
    return [
      call.grad.mul(
        call
          .input(0)
          .powf(exponent - 1)
          .affine(exponent, 0),
      ),
    ];
  },
};

/** `args` is alpha. */
export const elu: Rule<number> = {
  inputs: [0],
  backward(call) {
    const x = call.input(0);
    const positive = x.gt(0);
    // The exponential of large positive elements, which are not used, must not become infinite.
    const steep = positive.whereCond(x.zerosLike(), x).exp().affine(call.args, 0);
    return [call.grad.mul(positive.whereCond(x.onesLike(), steep))];
  },
};

/** The two gradients in the shape of the result, summed to those of the operands. */
function unbroadcast(call: Call<void>, lhs: () => Tensor, rhs: () => Tensor): (Tensor | null)[] {
  return [lhs, rhs].map((gradient, i) => (call.needs(i) ? sumTo(gradient(), call.shape(i)) : null));
}

/** Maximum and minimum: the operand that `wins` has the gradient, half of it where both are equal. */
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

/** Operands of one shape or of two that broadcast. */
export const binaryRules: Record<BinaryOp, Rule> = {
  add: {
    backward: (call) =>
      unbroadcast(
        call,
        () => call.grad,
        () => call.grad,
      ),
  },
  sub: {
    backward: (call) =>
      unbroadcast(
        call,
        () => call.grad,
        () => call.grad.neg(),
      ),
  },
  mul: {
    inputs: 'others',
    backward: (call) =>
      unbroadcast(
        call,
        () => call.grad.broadcastMul(call.input(1)),
        () => call.grad.broadcastMul(call.input(0)),
      ),
  },
  div: {
    inputs: 'all',
    backward: (call) =>
      unbroadcast(
        call,
        () => call.grad.broadcastDiv(call.input(1)),
        () => call.grad.broadcastMul(call.input(0)).broadcastDiv(call.input(1).sqr()).neg(),
      ),
  },
  pow: {
    inputs: 'all',
    output: true,
    backward: (call) =>
      unbroadcast(
        call,
        () => slopeOfBase(call),
        () => slopeOfExponent(call),
      ),
  },
  maximum: { inputs: 'all', backward: (call) => extreme(call, (a, b) => a.broadcastGt(b)) },
  minimum: { inputs: 'all', backward: (call) => extreme(call, (a, b) => a.broadcastLt(b)) },
};

/** A number on the right: `args`. */
export const scalarRules: Record<BinaryOp, Rule<number>> = {
  add: identity as Rule<unknown>,
  sub: identity as Rule<unknown>,
  mul: { backward: ({ grad, args }) => [grad.mul(args)] },
  div: { backward: ({ grad, args }) => [grad.div(args)] },
  pow: powf,
  maximum: { inputs: [0], backward: (call) => [scalarExtreme(call, call.input(0).gt(call.args))] },
  minimum: { inputs: [0], backward: (call) => [scalarExtreme(call, call.input(0).lt(call.args))] },
};

function scalarExtreme(call: Call<number>, wins: Tensor): Tensor {
  const tie = asNumbers(call.input(0).eq(call.args), call.grad).affine(0.5, 0);
  return call.grad.mul(asNumbers(wins, call.grad).add(tie));
}
