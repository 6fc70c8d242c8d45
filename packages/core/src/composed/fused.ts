/** Softmax, norms and rotary embedding of elementwise operations and sums; narrow floats go through f32. */
import type { BackendStorage, RopeKind } from '../backend';
import { isNarrowFloat } from '../host-array';
import type { Tensor } from '../tensor';
import { cat, stack } from '../tensor/joining';
import { compose } from './compose';

const wide = (x: Tensor): Tensor => (isNarrowFloat(x.dtype) ? x.toDtype('f32') : x);

export function softmaxLastDim(x: Tensor): BackendStorage {
  return compose(() => {
    const values = wide(x);
    const weights = values.broadcastSub(values.maxKeepdim(-1)).exp();
    return weights.broadcastDiv(weights.sumKeepdim(-1)).toDtype(x.dtype);
  });
}

export function rmsNorm(x: Tensor, alpha: Tensor, eps: number): BackendStorage {
  return compose(() => {
    const values = wide(x);
    const scale = values.sqr().meanKeepdim(-1).affine(1, eps).sqrt().recip();
    return values.broadcastMul(scale).broadcastMul(wide(alpha)).toDtype(x.dtype);
  });
}

export function layerNorm(x: Tensor, alpha: Tensor, beta: Tensor, eps: number): BackendStorage {
  return compose(() => {
    const values = wide(x);
    const centred = values.broadcastSub(values.meanKeepdim(-1));
    const scale = centred.sqr().meanKeepdim(-1).affine(1, eps).sqrt().recip();
    return centred.broadcastMul(scale).broadcastMul(wide(alpha)).broadcastAdd(wide(beta)).toDtype(x.dtype);
  });
}

export function rope(kind: RopeKind, x: Tensor, cos: Tensor, sin: Tensor): BackendStorage {
  return compose(() => {
    const [values, c, s] = [x, cos, sin].map(wide);
    const half = x.dim(-1) / 2;
    // [b or 1, t, d / 2] with a dimension for the heads: before positions, for `thd` behind them.
    const [byCos, bySin] = [c, s].map((angles) => {
      return (angles.rank === 3 ? angles : angles.unsqueeze(0)).unsqueeze(kind === 'thd' ? 2 : 1);
    });
    const pairs = kind === 'interleaved' ? values.reshape([...x.shape.slice(0, -1), half, 2]) : undefined;
    const first = pairs ? pairs.getOnDim(-1, 0) : values.narrow(-1, 0, half);
    const second = pairs ? pairs.getOnDim(-1, 1) : values.narrow(-1, half, half);
    const turned = [
      first.broadcastMul(byCos).sub(second.broadcastMul(bySin)),
      first.broadcastMul(bySin).add(second.broadcastMul(byCos)),
    ];
    return (pairs ? stack(turned, -1).reshape(x.shape) : cat(turned, -1)).toDtype(x.dtype);
  });
}
