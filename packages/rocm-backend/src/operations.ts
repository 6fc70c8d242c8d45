/** What a device with kernels computes, as core's interface asks for it. */
import type { BackendOperations, BackendStorage, ConvOps, FusedOps, Operand, ResamplingOps, SortOps } from '@x/core';
import type { RocmDevice } from './device';
import { RocmStorage } from './storage';
import * as convolution from './storage/conv';
import { toDtype } from './storage/conversions';
import * as copying from './storage/copy';
import * as rows from './storage/fused';
import * as indexing from './storage/indexing';
import { matmul } from './storage/matmul';
import * as elementwise from './storage/operations';
import * as images from './storage/pool';
import { reduce } from './storage/reduce';
import * as sorting from './storage/sort';

/** Core's operands as storages of a device. */
function owner(device: RocmDevice): (storage: BackendStorage) => RocmStorage {
  return (storage) => RocmStorage.on(device, storage);
}

export function operationsOf(device: RocmDevice): BackendOperations {
  const own = owner(device);
  return {
    unary: (op, x, out) => elementwise.unary(own(x.storage), op, x.layout, out),
    affine: (x, mul, add, out) => elementwise.affine(own(x.storage), x.layout, mul, add, out),
    powf: (x, exponent) => elementwise.powf(own(x.storage), x.layout, exponent),
    elu: (x, alpha) => elementwise.elu(own(x.storage), x.layout, alpha),
    binary: (op, a, b, out) => elementwise.binary(own(a.storage), op, own(b.storage), a.layout, b.layout, out),
    cmp: (op, a, b) => elementwise.cmp(own(a.storage), op, own(b.storage), a.layout, b.layout),
    whereCond: (cond, a, b) =>
      elementwise.whereCond(own(cond.storage), cond.layout, own(a.storage), a.layout, own(b.storage), b.layout),
    toDtype: (x, dtype) => toDtype(own(x.storage), x.layout, dtype),
    reduce: (op, x, dims) => reduce(own(x.storage), op, x.layout, dims),
    matmul: (a, b, size, out) => matmul(own(a.storage), own(b.storage), size, a.layout, b.layout, out),
    checkIds: (op, ids, range) => indexing.checkIds(op, own(ids.storage), ids.layout, range),
    indexSelect: (x, ids, dim) => indexing.indexSelect(own(x.storage), x.layout, own(ids.storage), ids.layout, dim),
    gather: (x, ids, dim) => indexing.gather(own(x.storage), x.layout, own(ids.storage), ids.layout, dim),
    indexAdd: (x, ids, src, dim) =>
      indexing.indexAdd(own(x.storage), x.layout, own(ids.storage), ids.layout, own(src.storage), src.layout, dim),
    scatterSet: (dst, ids, src, dim) => scatter('s', dst, ids, src, dim),
    scatterAddSet: (dst, ids, src, dim) => scatter('sa', dst, ids, src, dim),
    copy: (x, out) => copying.copy(own(x.storage), x.layout, out && { storage: own(out.storage), layout: out.layout }),
    copy2d: (src, dst, copy) => copying.copy2d(own(src), own(dst), copy),
    fill: (dst, value) => copying.constSet(own(dst.storage), value, dst.layout),
  };

  function scatter(kind: 's' | 'sa', dst: Operand, ids: Operand, src: Operand, dim: number): void {
    const [to, at, from] = [dst, ids, src].map(({ storage }) => own(storage));
    indexing.scatter(kind, to, dst.layout, at, ids.layout, from, src.layout, dim);
  }
}

export function fusedOf(device: RocmDevice): FusedOps {
  const own = owner(device);
  return {
    softmaxLastDim: (x) => rows.softmaxLastDim(own(x.storage), x.layout),
    rmsNorm: (x, alpha, eps) => rows.rmsNorm(own(x.storage), x.layout, own(alpha.storage), alpha.layout, eps),
    layerNorm: (x, a, b, eps) =>
      rows.layerNorm(own(x.storage), x.layout, own(a.storage), a.layout, own(b.storage), b.layout, eps),
    rope: (kind, x, cos, sin) =>
      rows.rope(own(x.storage), kind, x.layout, own(cos.storage), cos.layout, own(sin.storage), sin.layout),
  };
}

export function convOf(device: RocmDevice): ConvOps {
  const own = owner(device);
  return {
    conv1d: (x, w, p) => convolution.conv1d(own(x.storage), x.layout, own(w.storage), w.layout, p),
    convTranspose1d: (x, w, p) => convolution.convTranspose1d(own(x.storage), x.layout, own(w.storage), w.layout, p),
    conv2d: (x, w, p) => convolution.conv2d(own(x.storage), x.layout, own(w.storage), w.layout, p),
    convTranspose2d: (x, w, p) => convolution.convTranspose2d(own(x.storage), x.layout, own(w.storage), w.layout, p),
  };
}

export function resamplingOf(device: RocmDevice): ResamplingOps {
  const own = owner(device);
  return {
    avgPool2d: (x, params) => images.pool2d('avg', own(x.storage), x.layout, params),
    maxPool2d: (x, params) => images.pool2d('max', own(x.storage), x.layout, params),
    upsampleNearest1d: (x, lOut) => images.upsampleNearest1d(own(x.storage), x.layout, lOut),
    upsampleNearest2d: (x, hOut, wOut) => images.upsampleNearest2d(own(x.storage), x.layout, hOut, wOut),
    upsampleBilinear2d: (x, params) => images.upsampleBilinear2d(own(x.storage), x.layout, params),
  };
}

export function sortingOf(device: RocmDevice): SortOps {
  const own = owner(device);
  return {
    argSortLastDim: (x, descending) => sorting.argSortLastDim(own(x.storage), x.layout, descending),
    sortLastDim: (x, descending) => sorting.sortLastDim(own(x.storage), x.layout, descending),
    topkLastDim: (x, k, descending) => sorting.topkLastDim(own(x.storage), x.layout, k, descending),
  };
}
