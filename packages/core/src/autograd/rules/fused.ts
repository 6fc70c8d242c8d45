/** Gradients of the operations that backends do in one kernel; candle has none for them. f16 and bf16 go through f32. */
import type { RopeKind } from '../../backend';
import { isNarrowFloat } from '../../host-array';
import type { Tensor } from '../../tensor';
import { adopt, operandOf } from '../../tensor/base';
import { isGradEnabled } from '../mode';
import type { Call, Rule } from '../record';
import { sumTo } from './shared';

const wide = (tensor: Tensor): Tensor => (isNarrowFloat(tensor.dtype) ? tensor.toDtype('f32') : tensor);

export const softmaxLastDim: Rule = {
  output: true,
  backward(call) {
    const [grad, y] = [wide(call.grad), wide(call.output)];
    const weighted = grad.mul(y);
    return [weighted.sub(y.broadcastMul(weighted.sumKeepdim(-1))).toDtype(call.dtype(0))];
  },
};

/** Gradients of x and alpha by the device's kernel, which have no gradients of their own; undefined where it is not for these. */
function byKernel(call: Call<number>, centred: boolean): [Tensor | null, Tensor | null] | undefined {
  const [x, alpha] = [call.input(0), call.input(1)];
  const { fused } = x.device.backend;
  const alike = x.dtype === 'f32' && alpha.dtype === 'f32';
  if (isGradEnabled() || !fused?.normBackward || !alike || x.elemCount === 0) return undefined;
  const parts = [x, alpha, call.grad].map((part) => operandOf('normBackward', part.contiguous()));
  const { dx, scaled } = fused.normBackward(parts[0], parts[1], parts[2], { eps: call.args, centred });
  const [ofX, product] = [dx, scaled].map((storage) => adopt(x, storage, x.shape) as Tensor);
  return [call.needs(0) ? ofX : null, call.needs(1) ? sumTo(product, call.shape(1)) : null];
}

/** Operands: x and alpha; `args` is epsilon. */
export const rmsNorm: Rule<number> = {
  inputs: 'all',
  backward(call) {
    const made = byKernel(call, false);
    if (made) return made;
    const [grad, x, alpha] = [call.grad, call.input(0), call.input(1)].map(wide);
    const scale = x.sqr().meanKeepdim(-1).affine(1, call.args).sqrt().recip();
    const normed = x.broadcastMul(scale);
    const inner = grad.broadcastMul(alpha);
    const along = normed.broadcastMul(inner.mul(normed).meanKeepdim(-1));
    return [
      call.needs(0) ? inner.sub(along).broadcastMul(scale).toDtype(call.dtype(0)) : null,
      call.needs(1) ? sumTo(grad.mul(normed), call.shape(1)).toDtype(call.dtype(1)) : null,
    ];
  },
};

/** Operands: x, alpha and beta; `args` is epsilon. */
export const layerNorm: Rule<number> = {
  inputs: [0, 1],
  backward(call) {
    const made = byKernel(call, true);
    if (made) return [...made, call.needs(2) ? sumTo(call.grad, call.shape(2)) : null];
    const [grad, x, alpha] = [call.grad, call.input(0), call.input(1)].map(wide);
    const centred = x.broadcastSub(x.meanKeepdim(-1));
    const scale = centred.sqr().meanKeepdim(-1).affine(1, call.args).sqrt().recip();
    const normed = centred.broadcastMul(scale);
    const inner = grad.broadcastMul(alpha);
    const along = normed.broadcastMul(inner.mul(normed).meanKeepdim(-1));
    return [
      call.needs(0)
        ? inner.broadcastSub(inner.meanKeepdim(-1)).sub(along).broadcastMul(scale).toDtype(call.dtype(0))
        : null,
      call.needs(1) ? sumTo(grad.mul(normed), call.shape(1)).toDtype(call.dtype(1)) : null,
      call.needs(2) ? sumTo(grad, call.shape(2)).toDtype(call.dtype(2)) : null,
    ];
  },
};

/** Operands: x, cosines, sines. Turning by an angle is undone by turning back. */
export const rope: Rule<RopeKind> = {
  inputs: 'all',
  backward(call) {
    const { grad, args: kind } = call;
    const [cos, sin] = [call.input(1), call.input(2)];
    const x = call.needs(0) ? grad.contiguous().rope(cos, sin.neg(), kind) : null;
    if (!call.needs(1) && !call.needs(2)) return [x, null, null];
    const [first, second] = pairs(call.input(0), kind);
    const [gradFirst, gradSecond] = pairs(grad, kind);
    const angles = (turned: Tensor) => {
      // [b, h, t, d / 2] (thd: [b, t, h, d / 2]) summed over heads, and over the batch where it shares its angles.
      const perPosition = turned.sum(kind === 'thd' ? 2 : 1);
      return sumTo(perPosition, call.shape(1));
    };
    return [
      x,
      angles(gradFirst.mul(first).add(gradSecond.mul(second))),
      angles(gradSecond.mul(first).sub(gradFirst.mul(second))),
    ];
  },
};

/** The two halves of all pairs that rope turns, each [.., d / 2]. */
function pairs(tensor: Tensor, kind: RopeKind): [Tensor, Tensor] {
  const half = tensor.dim(-1) / 2;
  if (kind !== 'interleaved') return [tensor.narrow(-1, 0, half), tensor.narrow(-1, half, half)];
  const split = tensor.reshape([...tensor.shape.slice(0, -1), half, 2]);
  return [split.getOnDim(-1, 0), split.getOnDim(-1, 1)];
}
