/** Convolutions: every window is laid out as a column, and the kernel multiplies all of them. */
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
  return compose(() => convolve(x.unsqueeze(2), kernel.unsqueeze(2), SINGLE, direct(p.lIn, p.lOut, p.k, p)));
}

export function convTranspose1d(x: Tensor, kernel: Tensor, p: ConvTranspose1dParams): BackendStorage {
  return compose(() => {
    const outFirst = kernel.transpose(0, 1).unsqueeze(2);
    return convolve(x.unsqueeze(2), outFirst, SINGLE, transposed(p.lIn, p.lOut, p.k, p));
  });
}

export function conv2d(x: Tensor, kernel: Tensor, p: Conv2dParams): BackendStorage {
  return compose(() => convolve(x, kernel, direct(p.hIn, p.hOut, p.kH, p), direct(p.wIn, p.wOut, p.kW, p)));
}

export function convTranspose2d(x: Tensor, kernel: Tensor, p: ConvTranspose2dParams): BackendStorage {
  const rows = transposed(p.hIn, p.hOut, p.kH, p);
  const columns = transposed(p.wIn, p.wOut, p.kW, p);
  return compose(() => convolve(x, kernel.transpose(0, 1), rows, columns));
}

/** Input [b, cIn, h, w], kernel [cOut, cIn, kH, kW]: [b, cOut, rows.out, columns.out]. */
function convolve(x: Tensor, kernel: Tensor, rows: Axis, columns: Axis): Tensor {
  const [b, cIn] = x.shape;
  const [cOut] = kernel.shape;
  const k = cIn * rows.k * columns.k;
  const windows = picked(picked(x, 2, rows), 4, columns);
  // [b, cIn, out, k, out, k] to [b, cIn, k, k, out, out].
  const unfolded = windows.permute([0, 1, 3, 5, 2, 4]).reshape([b, k, rows.out * columns.out]);
  const products = kernel.reshape([1, cOut, k]).broadcastAs([b, cOut, k]).matmul(unfolded);
  return products.reshape([b, cOut, rows.out, columns.out]);
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
