/**
 * Convolutions, after candle's cuda_backend: through MIOpen or cuDNN where one is chosen (conv-library.ts; a kernel of
 * size 1 is one product and stays one). Otherwise floats go through planes on the host (conv-host.ts) and through images to
 * columns and the matrix product on GPUs, integers and the transposed 2-D form through the direct kernels. Groups of few
 * channels are one direct kernel; of many, one after the other. What differs: the product is [cOut, k] times the columns transposed, so
 * its result needs no transposition; a kernel of size 1 reads the image itself as the columns; and a kernel tensor whose
 * strides allow no matrix view is copied, and the copy is what is multiplied (candle's multiplied the original's bytes).
 */
import {
  type Conv1dParams,
  type Conv2dParams,
  type ConvOps,
  type ConvTranspose1dParams,
  type ConvTranspose2dParams,
  type DType,
  isFloat,
  type Layout,
  type Operand,
} from '@x/core';
import type { KernelDevice } from '../device';
import { kernelName } from '../kernel-name';
import type { LaunchShape } from '../launch-shape';
import {
  launchCol2im1d,
  launchConv1d,
  launchConv2d,
  launchConvGroups,
  launchConvTranspose1d,
  launchConvTranspose2d,
  launchIm2col,
  launchIm2col1d,
} from '../launchers/conv';
import type { KernelStorage } from '../storage';
import { type ConvSizes, convOnHost } from './conv-host';
import { convThroughLibrary, geometry1d, geometry2d, geometryTranspose1d, geometryTranspose2d } from './conv-library';
import type { AxisSizes } from './conv-planes';
import { denseCopy, withTemporary } from './copy';
import { filled } from './result';

/** Taps of a group's channels up to which a thread a result is faster than a product a group. */
const FEW_TAPS = 128;

export function convOps(device: KernelDevice): ConvOps {
  return {
    conv1d: (x, kernel, p) =>
      convolve(device, x, kernel, sizes1d(p, false), (part, weights, counts) =>
        conv1d(device, part, weights, { ...p, ...counts }),
      ),
    conv2d: (x, kernel, p) =>
      convolve(device, x, kernel, sizes2d(p, false), (part, weights, counts) =>
        conv2d(device, part, weights, { ...p, ...counts }),
      ),
    convTranspose1d: (x, kernel, p) =>
      convolve(device, x, kernel, sizes1d(p, true), (part, weights, counts) =>
        convTranspose1d(device, part, weights, { ...p, ...counts }),
      ),
    convTranspose2d: (x, kernel, p) =>
      convolve(device, x, kernel, sizes2d(p, true), (part, weights, counts) =>
        convTranspose2d(device, part, weights, { ...p, ...counts }),
      ),
  };
}

type OneGroup = (x: Operand, kernel: Operand, counts: Pick<ConvSizes, 'cIn' | 'cOut' | 'groups'>) => KernelStorage;

/** `single` is what is done of one group, but for floats on the host. */
function convolve(
  device: KernelDevice,
  x: Operand,
  kernel: Operand,
  sizes: ConvSizes,
  single: OneGroup,
): KernelStorage {
  const { dtype } = x.storage;
  const { b, groups, down, across } = sizes;
  if (device.shapes.isHost && isFloat(dtype) && !(groups === 1 && isPointwise(sizes)))
    return convOnHost(device, withTwoAxes(x), withTwoAxes(kernel), sizes);
  const [cIn, cOut] = [sizes.cIn / groups, sizes.cOut / groups];
  if (groups === 1) return single(x, kernel, { cIn, cOut, groups });
  const each = cOut * down.out * across.out;
  if (!isFloat(dtype) || cIn * down.k * across.k <= FEW_TAPS)
    return filled(device, dtype, b * groups * each, (out) => directGroups(device, x, kernel, sizes, out));
  const part = ({ storage, layout }: Operand, dim: number, group: number): Operand => {
    const size = layout.shape[dim] / groups;
    return { storage, layout: layout.narrow(dim, group * size, size) };
  };
  const result = device.allocUninit(b * groups * each, dtype);
  try {
    for (let group = 0; group < groups; group++) {
      const one = single(part(x, 1, group), part(kernel, 0, group), { cIn, cOut, groups: 1 });
      try {
        const rows = { d1: b, d2: each, srcStride: each, dstStride: groups * each };
        device.ops.copy2d(one, result, { ...rows, srcOffset: 0, dstOffset: group * each });
      } finally {
        one.dispose();
      }
    }
    return result;
  } catch (error) {
    result.dispose();
    throw error;
  }
}

function isPointwise({ transposed, down, across }: ConvSizes): boolean {
  const plain = ({ k, stride, padding }: AxisSizes) => k === 1 && stride === 1 && padding === 0;
  return !transposed && plain(down) && plain(across);
}

/** [b, c, l] as [b, c, 1, l]. */
function withTwoAxes({ storage, layout }: Operand): Operand {
  return { storage, layout: layout.rank === 4 ? layout : layout.unsqueeze(2) };
}

const FLAT: AxisSizes = { out: 1, k: 1, padding: 0, stride: 1, dilation: 1 };

function sizes1d(p: Conv1dParams, transposed: boolean): ConvSizes {
  const { b, cIn, cOut, groups, lOut: out, k, padding, stride, dilation } = p;
  return { transposed, b, cIn, cOut, groups, down: FLAT, across: { out, k, padding, stride, dilation } };
}

function sizes2d(p: Conv2dParams, transposed: boolean): ConvSizes {
  const { b, cIn, cOut, groups, hOut, wOut, kH, kW, padding, stride, dilation } = p;
  const down = { out: hOut, k: kH, padding, stride, dilation };
  return { transposed, b, cIn, cOut, groups, down, across: { out: wOut, k: kW, padding, stride, dilation } };
}

function conv1d(device: KernelDevice, x: Operand, kernel: Operand, p: Conv1dParams): KernelStorage {
  const { dtype } = x.storage;
  if (!isFloat(dtype))
    return filled(device, dtype, p.b * p.cOut * p.lOut, (out) => directConv1d(device, x, kernel, p, out));
  const size: ProductSize = { b: p.b, cOut: p.cOut, k: p.cIn * p.k, n: p.lOut };
  if (p.k === 1 && p.stride === 1 && p.padding === 0) return pointwise(device, x, kernel, size);
  const result = convThroughLibrary(device, x, kernel, geometry1d(p));
  if (result) return result;
  return throughColumns(device, dtype, kernel, size, (dst) => {
    const numel = p.b * p.lOut * p.cIn;
    const { ptr: src, layout } = device.view(x);
    const { k: lK, lOut, stride, padding, dilation } = p;
    const args = { numel, lOut, lK, stride, padding, dilation, info: infoOf(device, layout), src, dst };
    launchIm2col1d(device, `im2col1d_${dtype}`, device.shapes.elementwise(numel * p.k), args);
  });
}

function conv2d(device: KernelDevice, x: Operand, kernel: Operand, p: Conv2dParams): KernelStorage {
  const { dtype } = x.storage;
  if (!isFloat(dtype)) {
    const count = p.b * p.cOut * p.hOut * p.wOut;
    return filled(device, dtype, count, (out) => directConv2d(device, x, kernel, p, out));
  }
  const size: ProductSize = { b: p.b, cOut: p.cOut, k: p.cIn * p.kH * p.kW, n: p.hOut * p.wOut };
  if (p.kH === 1 && p.kW === 1 && p.stride === 1 && p.padding === 0) return pointwise(device, x, kernel, size);
  const result = convThroughLibrary(device, x, kernel, geometry2d(p));
  if (result) return result;
  return throughColumns(device, dtype, kernel, size, (dst) => {
    const dstNumel = p.b * p.hOut * p.wOut * p.cIn * p.kH * p.kW;
    const { ptr: src, layout } = device.view(x);
    const { hOut, wOut, kH: hK, kW: wK, stride, padding, dilation } = p;
    const sizes = { dstNumel, hOut, wOut, hK, wK, stride, padding, dilation };
    const shape = device.shapes.elementwise(dstNumel);
    launchIm2col(device, `im2col_${dtype}`, shape, { ...sizes, info: infoOf(device, layout), src, dst });
  });
}

/**
 * Columns [b, lIn, cOut, k] by one product, then added up, where nothing is dilated or cut off; else the direct kernel,
 * and for f8e4m3, which would lose most of what it has by being rounded before the addition.
 */
function convTranspose1d(device: KernelDevice, x: Operand, kernel: Operand, p: ConvTranspose1dParams): KernelStorage {
  const { dtype } = x.storage;
  const result = convThroughLibrary(device, x, kernel, geometryTranspose1d(p));
  if (result) return result;
  const count = p.b * p.cOut * p.lOut;
  const plain = p.dilation === 1 && p.padding === 0 && p.outputPadding === 0;
  if (!plain || !isFloat(dtype) || dtype === 'f8e4m3') {
    return filled(device, dtype, count, (out) => directConvTranspose1d(device, x, kernel, p, out));
  }
  const taps = p.cOut * p.k;
  const columns = withShape(device, kernel, [p.cIn, taps], ({ storage, layout }) => {
    const lhs = { storage: x.storage, layout: x.layout.transpose(1, 2) };
    const rhs = { storage, layout: layout.broadcastAs([p.b, p.cIn, taps]) };
    return device.ops.matmul(lhs, rhs, { b: p.b, m: p.lIn, n: taps, k: p.cIn }) as KernelStorage;
  });
  try {
    return filled(device, dtype, count, (dst) => {
      const { lOut, lIn, cOut, k: kSize, stride } = p;
      const args = { dstEl: count, lOut, lIn, cOut, kSize, stride, src: columns.ptr, dst };
      launchCol2im1d(device, `col2im1d_${dtype}`, device.shapes.perItem(count), args);
    });
  } finally {
    columns.dispose();
  }
}

function convTranspose2d(device: KernelDevice, x: Operand, kernel: Operand, p: ConvTranspose2dParams): KernelStorage {
  const { dtype } = x.storage;
  const result = convThroughLibrary(device, x, kernel, geometryTranspose2d(p));
  if (result) return result;
  const count = p.b * p.cOut * p.hOut * p.wOut;
  return filled(device, dtype, count, (out) => directConvTranspose2d(device, x, kernel, p, out));
}

/** What the direct kernels have in common: an output element is a sum over the whole kernel, so each gets a thread of its own. */
function directArguments(device: KernelDevice, x: Operand, weights: Operand, outputs: number, dst: number) {
  const [src, kernel] = [device.view(x), device.view(weights)];
  const { shape, strides } = src.layout;
  const { ptr: info } = device.infoFor(shape, strides, kernel.layout.shape, kernel.layout.strides);
  const threads: LaunchShape = device.shapes.perItem(outputs);
  return { threads, args: { srcNumel: src.layout.elemCount, info, src: src.ptr, kernel: kernel.ptr, dst } };
}

/** All groups of channels. */
export function directGroups(device: KernelDevice, x: Operand, kernel: Operand, sizes: ConvSizes, out: number): void {
  const { b, cOut, groups, transposed, down, across } = sizes;
  const outputs = b * cOut * down.out * across.out;
  const { threads, args } = directArguments(device, withTwoAxes(x), withTwoAxes(kernel), outputs, out);
  const { info, src, kernel: weights, dst } = args;
  launchConvGroups(device, kernelName(transposed ? 'conv_transpose_groups' : 'conv_groups', x.storage.dtype), threads, {
    groups,
    hOut: down.out,
    wOut: across.out,
    downStride: down.stride,
    downPadding: down.padding,
    downDilation: down.dilation,
    acrossStride: across.stride,
    acrossPadding: across.padding,
    acrossDilation: across.dilation,
    info,
    src,
    kernel: weights,
    dst,
  });
}

export function directConv1d(device: KernelDevice, x: Operand, kernel: Operand, p: Conv1dParams, out: number): void {
  const { threads, args } = directArguments(device, x, kernel, p.b * p.cOut * p.lOut, out);
  const { lOut, stride, padding, dilation } = p;
  launchConv1d(device, `conv1d_${x.storage.dtype}`, threads, { ...args, lOut, stride, padding, dilation });
}

export function directConv2d(device: KernelDevice, x: Operand, kernel: Operand, p: Conv2dParams, out: number): void {
  const { threads, args } = directArguments(device, x, kernel, p.b * p.cOut * p.hOut * p.wOut, out);
  const { wOut, hOut, stride, padding, dilation } = p;
  launchConv2d(device, `conv2d_${x.storage.dtype}`, threads, { ...args, wOut, hOut, stride, padding, dilation });
}

export function directConvTranspose1d(
  device: KernelDevice,
  x: Operand,
  kernel: Operand,
  p: ConvTranspose1dParams,
  out: number,
): void {
  const { threads, args } = directArguments(device, x, kernel, p.b * p.cOut * p.lOut, out);
  const { lOut, stride, padding, outputPadding: outPadding, dilation } = p;
  const sizes = { lOut, stride, padding, outPadding, dilation };
  launchConvTranspose1d(device, `conv_transpose1d_${x.storage.dtype}`, threads, { ...args, ...sizes });
}

export function directConvTranspose2d(
  device: KernelDevice,
  x: Operand,
  kernel: Operand,
  p: ConvTranspose2dParams,
  out: number,
): void {
  const { threads, args } = directArguments(device, x, kernel, p.b * p.cOut * p.hOut * p.wOut, out);
  const { wOut, hOut, stride, padding, outputPadding: outPadding, dilation } = p;
  const sizes = { wOut, hOut, stride, padding, outPadding, dilation };
  launchConvTranspose2d(device, `conv_transpose2d_${x.storage.dtype}`, threads, { ...args, ...sizes });
}

/** Never null: these kernels read it also where the layout is contiguous. */
function infoOf(device: KernelDevice, layout: Layout): number {
  return device.infoFor(layout.shape, layout.strides).ptr;
}

/** out [b, cOut, n] = kernel [cOut, k] times columns [b, k, n]. */
interface ProductSize {
  b: number;
  cOut: number;
  k: number;
  n: number;
}

/** A kernel of size 1 without padding: the channels of each pixel are its column. */
function pointwise(device: KernelDevice, x: Operand, kernel: Operand, size: ProductSize): KernelStorage {
  return withShape(device, x, [size.b, size.k, size.n], (columns) => product(device, kernel, columns, size));
}

function throughColumns(
  device: KernelDevice,
  dtype: DType,
  kernel: Operand,
  size: ProductSize,
  fill: (out: number) => void,
): KernelStorage {
  const { b, k, n } = size;
  const columns = filled(device, dtype, b * n * k, fill);
  return withTemporary(columns, [b, n, k], ({ storage, layout }) =>
    product(device, kernel, { storage, layout: layout.transpose(1, 2) }, size),
  );
}

function product(
  device: KernelDevice,
  kernel: Operand,
  columns: Operand,
  { b, cOut, k, n }: ProductSize,
): KernelStorage {
  return withShape(device, kernel, [cOut, k], ({ storage, layout }) => {
    const weights = { storage, layout: layout.broadcastAs([b, cOut, k]) };
    return device.ops.matmul(weights, columns, { b, m: cOut, n, k }) as KernelStorage;
  });
}

/** Runs `use` with a view reshaped, of a copy where its strides do not allow that. */
function withShape<T>(device: KernelDevice, x: Operand, shape: readonly number[], use: (x: Operand) => T): T {
  const view = x.layout.reshape(shape);
  if (view) return use({ storage: x.storage, layout: view });
  return withTemporary(denseCopy(device, x), shape, use);
}
