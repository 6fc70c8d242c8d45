/** Pools and resized images, of selections along an axis. */
import type { BackendStorage, BilinearParams, Pool2dParams } from '../backend';
import { isFloat } from '../dtype';
import { isNarrowFloat } from '../host-array';
import type { Tensor } from '../tensor';
import { fromValuesBy, idsOn } from '../tensor/base';
import { type Between, between, nearest } from '../windows';
import { compose } from './compose';

/** [b, c, hOut, wOut, kH * kW] */
function windowsOf(x: Tensor, { kH, kW, strideH, strideW, hOut, wOut }: Pool2dParams): Tensor {
  const [b, c] = x.shape;
  return x
    .unfold(2, kH, strideH)
    .unfold(3, kW, strideW)
    .reshape([b, c, hOut, wOut, kH * kW]);
}

export function avgPool2d(x: Tensor, params: Pool2dParams): BackendStorage {
  return compose(() => {
    // A sum of small integers has no room in their type.
    const exact = isFloat(x.dtype) ? (isNarrowFloat(x.dtype) ? 'f32' : x.dtype) : 'i64';
    const sums = windowsOf(x, params).toDtype(exact).sum(-1);
    return sums.div(params.kH * params.kW).toDtype(x.dtype);
  });
}

export function maxPool2d(x: Tensor, params: Pool2dParams): BackendStorage {
  return compose(() => windowsOf(x, params).max(-1));
}

export function upsampleNearest1d(x: Tensor, lOut: number): BackendStorage {
  return compose(() => x.indexSelect(idsOn(x, nearest(x.dim(2), lOut)), 2));
}

export function upsampleNearest2d(x: Tensor, hOut: number, wOut: number): BackendStorage {
  return compose(() => {
    const rows = x.indexSelect(idsOn(x, nearest(x.dim(2), hOut)), 2);
    return rows.indexSelect(idsOn(x, nearest(x.dim(3), wOut)), 3);
  });
}

export function upsampleBilinear2d(x: Tensor, params: BilinearParams): BackendStorage {
  const { hOut, wOut, alignCorners, scaleH, scaleW } = params;
  return compose(() => {
    const columns = mixed(x.toDtype('f64'), 3, between(x.dim(3), wOut, alignCorners, scaleW));
    return mixed(columns, 2, between(x.dim(2), hOut, alignCorners, scaleH)).toDtype(x.dtype);
  });
}

/** The two neighbours of each position along `dim`, by their weights. */
function mixed(x: Tensor, dim: number, positions: readonly Between[]): Tensor {
  const part = (side: 'low' | 'high', weightOf: (place: Between) => number) => {
    const ids = Uint32Array.from(positions, (place) => place[side]);
    const shape = x.shape.map((_, d) => (d === dim ? positions.length : 1));
    const weights = fromValuesBy(x, Float64Array.from(positions, weightOf), shape);
    return x.indexSelect(idsOn(x, ids), dim).broadcastMul(weights);
  };
  return part('low', ({ weight }) => 1 - weight).add(part('high', ({ weight }) => weight));
}
