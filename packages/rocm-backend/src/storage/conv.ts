/**
 * Convolutions, after candle's cuda_backend: through MIOpen or cuDNN where one is chosen (conv-library.ts; a kernel of
 * size 1 is one product and stays one). Otherwise floats go through images to columns and the matrix product, integers and the
 * transposed 2-D form through the direct kernels. What differs: the product is [cOut, k] times the columns transposed, so
 * its result needs no transposition; a kernel of size 1 reads the image itself as the columns; and a kernel tensor whose
 * strides allow no matrix view is copied, and the copy is what is multiplied (candle's multiplied the original's bytes).
 */
import {
  type Conv1dParams,
  type Conv2dParams,
  type ConvTranspose1dParams,
  type ConvTranspose2dParams,
  isFloat,
  Layout,
} from '@x/core';
import {
  launchCol2im1d,
  launchConv1d,
  launchConv2d,
  launchConvTranspose1d,
  launchConvTranspose2d,
  launchIm2col,
  launchIm2col1d,
} from '../conv-kernels';
import { Copy, run } from '../ops';
import { convThroughLibrary, geometry1d, geometry2d, geometryTranspose1d, geometryTranspose2d } from './conv-library';
import type { RocmStorage } from './index';
import { matmul } from './matmul';

export function conv1d(
  src: RocmStorage,
  layout: Layout,
  kernel: RocmStorage,
  kernelLayout: Layout,
  p: Conv1dParams,
): RocmStorage {
  const { device, dtype } = src;
  if (!isFloat(dtype)) {
    return run(device, dtype, p.b * p.cOut * p.lOut, (out) =>
      launchConv1d(device, dtype, src.operand(layout), kernel.operand(kernelLayout), p, out),
    );
  }
  const size: ProductSize = { b: p.b, cOut: p.cOut, k: p.cIn * p.k, n: p.lOut };
  if (p.k === 1 && p.stride === 1 && p.padding === 0) return pointwise(src, layout, kernel, kernelLayout, size);
  const result = convThroughLibrary(src, layout, kernel, kernelLayout, geometry1d(p));
  if (result) return result;
  return throughColumns(src, kernel, kernelLayout, size, (out) =>
    launchIm2col1d(device, dtype, src.operand(layout), p, out),
  );
}

export function conv2d(
  src: RocmStorage,
  layout: Layout,
  kernel: RocmStorage,
  kernelLayout: Layout,
  p: Conv2dParams,
): RocmStorage {
  const { device, dtype } = src;
  if (!isFloat(dtype)) {
    return run(device, dtype, p.b * p.cOut * p.hOut * p.wOut, (out) =>
      launchConv2d(device, dtype, src.operand(layout), kernel.operand(kernelLayout), p, out),
    );
  }
  const size: ProductSize = { b: p.b, cOut: p.cOut, k: p.cIn * p.kH * p.kW, n: p.hOut * p.wOut };
  if (p.kH === 1 && p.kW === 1 && p.stride === 1 && p.padding === 0) {
    return pointwise(src, layout, kernel, kernelLayout, size);
  }
  const result = convThroughLibrary(src, layout, kernel, kernelLayout, geometry2d(p));
  if (result) return result;
  return throughColumns(src, kernel, kernelLayout, size, (out) =>
    launchIm2col(device, dtype, src.operand(layout), p, out),
  );
}

/**
 * Columns [b, lIn, cOut, k] by one product, then added up, where nothing is dilated or cut off; else the direct kernel,
 * and for f8e4m3, which would lose most of what it has by being rounded before the addition.
 */
export function convTranspose1d(
  src: RocmStorage,
  layout: Layout,
  kernel: RocmStorage,
  kernelLayout: Layout,
  p: ConvTranspose1dParams,
): RocmStorage {
  const { device, dtype } = src;
  const result = convThroughLibrary(src, layout, kernel, kernelLayout, geometryTranspose1d(p));
  if (result) return result;
  const plain = p.dilation === 1 && p.padding === 0 && p.outputPadding === 0;
  if (!plain || !isFloat(dtype) || dtype === 'f8e4m3') {
    return run(device, dtype, p.b * p.cOut * p.lOut, (out) =>
      launchConvTranspose1d(device, dtype, src.operand(layout), kernel.operand(kernelLayout), p, out),
    );
  }
  const taps = p.cOut * p.k;
  const columns = withShape(kernel, kernelLayout, [p.cIn, taps], (weights, weightsLayout) =>
    matmul(
      src,
      weights,
      { b: p.b, m: p.lIn, n: taps, k: p.cIn },
      layout.transpose(1, 2),
      weightsLayout.broadcastAs([p.b, p.cIn, taps]),
    ),
  );
  try {
    return run(device, dtype, p.b * p.cOut * p.lOut, (out) => launchCol2im1d(device, dtype, columns.ptr, p, out));
  } finally {
    columns.dispose();
  }
}

export function convTranspose2d(
  src: RocmStorage,
  layout: Layout,
  kernel: RocmStorage,
  kernelLayout: Layout,
  p: ConvTranspose2dParams,
): RocmStorage {
  const { device, dtype } = src;
  const result = convThroughLibrary(src, layout, kernel, kernelLayout, geometryTranspose2d(p));
  if (result) return result;
  return run(device, dtype, p.b * p.cOut * p.hOut * p.wOut, (out) =>
    launchConvTranspose2d(device, dtype, src.operand(layout), kernel.operand(kernelLayout), p, out),
  );
}

/** out [b, cOut, n] = kernel [cOut, k] times columns [b, k, n]. */
interface ProductSize {
  b: number;
  cOut: number;
  k: number;
  n: number;
}

/** A kernel of size 1 without padding: the channels of each pixel are its column. */
function pointwise(
  src: RocmStorage,
  layout: Layout,
  kernel: RocmStorage,
  kernelLayout: Layout,
  size: ProductSize,
): RocmStorage {
  return withShape(src, layout, [size.b, size.k, size.n], (columns, columnsLayout) =>
    product(kernel, kernelLayout, columns, columnsLayout, size),
  );
}

function throughColumns(
  src: RocmStorage,
  kernel: RocmStorage,
  kernelLayout: Layout,
  size: ProductSize,
  fill: (out: number) => void,
): RocmStorage {
  const { b, k, n } = size;
  const columns = run(src.device, src.dtype, b * n * k, fill);
  try {
    return product(kernel, kernelLayout, columns, Layout.contiguous([b, n, k]).transpose(1, 2), size);
  } finally {
    columns.dispose();
  }
}

function product(
  kernel: RocmStorage,
  kernelLayout: Layout,
  columns: RocmStorage,
  columnsLayout: Layout,
  { b, cOut, k, n }: ProductSize,
): RocmStorage {
  return withShape(kernel, kernelLayout, [cOut, k], (weights, weightsLayout) =>
    matmul(weights, columns, { b, m: cOut, n, k }, weightsLayout.broadcastAs([b, cOut, k]), columnsLayout),
  );
}

/** Runs `use` with a view reshaped, of a copy where its strides do not allow that. */
function withShape<T>(
  storage: RocmStorage,
  layout: Layout,
  shape: readonly number[],
  use: (storage: RocmStorage, layout: Layout) => T,
): T {
  const view = layout.reshape(shape);
  if (view) return use(storage, view);
  const copy = new Copy().map(storage, layout);
  try {
    return use(copy, Layout.contiguous(shape));
  } finally {
    copy.dispose();
  }
}
