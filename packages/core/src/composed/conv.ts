/** Convolutions: every window is laid out as a column, and the kernel multiplies all of them, each group its own. */
import type {
  BackendStorage,
  Conv1dParams,
  Conv2dParams,
  ConvTranspose1dParams,
  ConvTranspose2dParams,
} from '../backend';
import type { Tensor } from '../tensor';
import { idsOn } from '../tensor/base';
import { type Axis, direct, SINGLE, transposed } from '../windows';
import { compose } from './compose';

export function conv1d(x: Tensor, kernel: Tensor, p: Conv1dParams): BackendStorage {
  const across = direct(p.lIn, p.lOut, p.k, p);
  return compose(() => convolve(x.unsqueeze(2), grouped(kernel.unsqueeze(2), p), SINGLE, across));
}

export function convTranspose1d(x: Tensor, kernel: Tensor, p: ConvTranspose1dParams): BackendStorage {
  const across = transposed(p.lIn, p.lOut, p.k, p);
  return compose(() => convolve(x.unsqueeze(2), outFirst(kernel.unsqueeze(2), p), SINGLE, across));
}

export function conv2d(x: Tensor, kernel: Tensor, p: Conv2dParams): BackendStorage {
  const [down, across] = [direct(p.hIn, p.hOut, p.kH, p), direct(p.wIn, p.wOut, p.kW, p)];
  return compose(() => convolve(x, grouped(kernel, p), down, across));
}

export function convTranspose2d(x: Tensor, kernel: Tensor, p: ConvTranspose2dParams): BackendStorage {
  const [down, across] = [transposed(p.hIn, p.hOut, p.kH, p), transposed(p.wIn, p.wOut, p.kW, p)];
  return compose(() => convolve(x, outFirst(kernel, p), down, across));
}

/** A kernel [cOut, ..] as [groups, cOut / groups, ..]. */
function grouped(kernel: Tensor, { groups }: { groups: number }): Tensor {
  const [channels, ...rest] = kernel.shape;
  return kernel.reshape([groups, channels / groups, ...rest]);
}

/** The kernel of a transposed convolution, [cIn, cOut / groups, ..], as [groups, cOut / groups, cIn / groups, ..]. */
function outFirst(kernel: Tensor, p: { groups: number }): Tensor {
  return grouped(kernel, p).transpose(1, 2);
}

/** Input [b, groups * cIn, h, w], kernel [groups, cOut, cIn, kH, kW]: [b, groups * cOut, rows.out, columns.out]. */
function convolve(x: Tensor, kernel: Tensor, rows: Axis, columns: Axis): Tensor {
  const [b] = x.shape;
  const [groups, cOut, cIn] = kernel.shape;
  const [k, n] = [cIn * rows.k * columns.k, rows.out * columns.out];
  const windows = picked(picked(x, 2, rows), 4, columns);
  // [b, channels, out, k, out, k] to [b, channels, k, k, out, out].
  const unfolded = windows.permute([0, 1, 3, 5, 2, 4]).reshape([b, groups, k, n]);
  const products = kernel.reshape([1, groups, cOut, k]).broadcastAs([b, groups, cOut, k]).matmul(unfolded);
  return products.reshape([b, groups * cOut, rows.out, columns.out]);
}

/** Dimension `dim` as [outputs, taps]; taps that read nothing find the zero behind the end. */
function picked(x: Tensor, dim: number, { out, k, at }: Axis): Tensor {
  const size = x.dim(dim);
  const padded = at.includes(-1) ? x.padWithZeros(dim, 0, 1) : x;
  const ids = idsOn(
    x,
    Uint32Array.from(at, (position) => (position < 0 ? size : position)),
  );
  return padded.indexSelect(ids, dim).reshape(x.shape.toSpliced(dim, 1, out, k));
}
