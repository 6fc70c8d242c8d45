/**
 * Operations that backends do in one kernel, or compose: softmax, the two norms and rotary embedding. `@x/nn` builds its modules on
 * them. Inputs are made contiguous first where they are not.
 */
import * as rules from '../autograd/rules/fused';
import type { BackendDevice, RopeKind } from '../backend';
import * as composed from '../composed/fused';
import { isFloat } from '../dtype';
import { DTypeError, ShapeError } from '../errors';
import { formatShape, sameShape } from '../shape';
import type { Tensor } from '../tensor';
import { compute, operandOf, sameDType, shapesDiffer, withTemporaries } from './base';
import { TensorProducts } from './products';

export abstract class TensorFused extends TensorProducts {
  /**
   * exp(x) over the sum of exp(x) along the last dimension; narrow floats are summed in f32. Any shape but a scalar;
   * float dtypes.
   * @throws DTypeError for integers, ShapeError `INVALID_SHAPE` for a scalar
   * @example
   * ```ts
   * Tensor.from([[1, 1], [0, Infinity]]).narrow(0, 0, 1).softmaxLastDim().toVecSync(); // => [[0.5, 0.5]]
   * ```
   */
  softmaxLastDim(this: Tensor): Tensor {
    requireFloatRows('softmaxLastDim', this);
    return dense([this], ([x]) => {
      const run = ({ fused }: BackendDevice) =>
        fused?.softmaxLastDim?.(operandOf('softmaxLastDim', x)) ?? composed.softmaxLastDim(x);
      return compute('softmaxLastDim', [x], x.shape, x.dtype, run, rules.softmaxLastDim);
    });
  }

  /**
   * x / sqrt(mean(x²) + eps) * alpha along the last dimension: this [.., d], alpha [d] of this dtype. Float dtypes; eps is
   * an f32 for all of them, as candle's.
   * @throws DTypeError, ShapeError `SHAPE_MISMATCH`
   */
  rmsNorm(this: Tensor, alpha: Tensor, eps: number): Tensor {
    requireFloatRows('rmsNorm', this);
    requireRow('rmsNorm', this, alpha);
    const single = Math.fround(eps);
    return dense([this, alpha], ([x, a]) => {
      const run = ({ fused }: BackendDevice) =>
        fused?.rmsNorm?.(operandOf('rmsNorm', x), operandOf('rmsNorm', a), single) ?? composed.rmsNorm(x, a, single);
      return compute('rmsNorm', [x, a], x.shape, x.dtype, run, rules.rmsNorm, single);
    });
  }

  /**
   * (x - mean) / sqrt(variance + eps) * alpha + beta along the last dimension: this [.., d], alpha and beta [d] of this
   * dtype. Float dtypes; eps is an f32 for all of them, as candle's.
   * @throws DTypeError, ShapeError `SHAPE_MISMATCH`
   */
  layerNorm(this: Tensor, alpha: Tensor, beta: Tensor, eps: number): Tensor {
    requireFloatRows('layerNorm', this);
    requireRow('layerNorm', this, alpha);
    requireRow('layerNorm', this, beta);
    const single = Math.fround(eps);
    return dense([this, alpha, beta], ([x, a, b]) => {
      const operand = (tensor: Tensor) => operandOf('layerNorm', tensor);
      const run = ({ fused }: BackendDevice) =>
        fused?.layerNorm?.(operand(x), operand(a), operand(b), single) ?? composed.layerNorm(x, a, b, single);
      return compute('layerNorm', [x, a, b], x.shape, x.dtype, run, rules.layerNorm, single);
    });
  }

  /**
   * Rotary embedding of [b, h, t, d] by angles whose cosines and sines are [t, d / 2] or [b, t, d / 2] (rows beyond t
   * are not allowed: narrow them). `half` pairs element i with i + d/2 (GPT-NeoX, candle `rope`), `interleaved` pairs
   * neighbours (candle `rope_i`), `thd` pairs as `half` in a tensor [b, t, h, d] (candle `rope_thd`).
   */
  rope(this: Tensor, cos: Tensor, sin: Tensor, kind: RopeKind = 'half'): Tensor {
    requireFloatRows('rope', this);
    if (this.rank !== 4 || this.shape[3] % 2 !== 0) {
      throw new ShapeError(
        'INVALID_SHAPE',
        `rope: shape ${formatShape(this.shape)} is not ${kind === 'thd' ? '[b, t, h, d]' : '[b, h, t, d]'} with even d; reshape it.`,
      );
    }
    const [b, , , d] = this.shape;
    const t = this.shape[kind === 'thd' ? 1 : 2];
    for (const angles of [cos, sin]) {
      sameDType('rope', this, angles);
      if (!sameShape(angles.shape, [t, d / 2]) && !sameShape(angles.shape, [b, t, d / 2])) {
        throw shapesDiffer(
          'rope',
          this.shape,
          angles.shape,
          `cos and sin must be ${formatShape([t, d / 2])} or ${formatShape([b, t, d / 2])}`,
        );
      }
    }
    if (cos.rank !== sin.rank) throw shapesDiffer('rope', cos.shape, sin.shape, 'cos and sin must have one shape');
    return dense([this, cos, sin], ([x, c, s]) => {
      const operand = (tensor: Tensor) => operandOf('rope', tensor);
      const run = ({ fused }: BackendDevice) =>
        fused?.rope?.(kind, operand(x), operand(c), operand(s)) ?? composed.rope(kind, x, c, s);
      return compute('rope', [x, c, s], x.shape, x.dtype, run, rules.rope, kind);
    });
  }
}

function dense(inputs: readonly Tensor[], body: (inputs: Tensor[]) => Tensor): Tensor {
  return withTemporaries((temporary) =>
    body(inputs.map((input) => (input.isContiguous() ? input : temporary(input.contiguous())))),
  );
}

function requireFloatRows(op: string, tensor: Tensor): void {
  if (!isFloat(tensor.dtype)) {
    throw new DTypeError(
      'DTYPE_MISMATCH',
      `${op}: needs a float dtype, the tensor is ${tensor.dtype}; convert it with toDtype('f32').`,
    );
  }
  if (tensor.rank === 0) {
    throw new ShapeError('INVALID_SHAPE', `${op}: a scalar has no last dimension; unsqueeze it first.`);
  }
}

function requireRow(op: string, tensor: Tensor, row: Tensor): void {
  sameDType(op, tensor, row);
  if (row.rank !== 1 || row.shape[0] !== tensor.dim(-1)) {
    throw shapesDiffer(op, tensor.shape, row.shape, `the weight must be [${tensor.dim(-1)}], the last size`);
  }
}
