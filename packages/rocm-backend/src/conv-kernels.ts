/**
 * Launch functions of the CONV module: the only place that knows the parameter order of its kernels. `info` is never null
 * there. Names of axes are candle's: in pools and the nearest upsampling its `w` is dimension 2 and its `h` dimension 3,
 * elsewhere the other way round.
 */
import type {
  BilinearParams,
  Conv1dParams,
  Conv2dParams,
  ConvTranspose1dParams,
  ConvTranspose2dParams,
  DType,
  Layout,
  Pool2dParams,
} from '@x/core';
import { CONV } from '@x/kernels';
import type { RocmDevice } from './device';
import type { Operand } from './kernels';

/** `conv1d_{t}(src_numel, l_out, stride, padding, dilation, info, src, kernel, dst)`; info describes src, then kernel. */
export function launchConv1d(
  device: RocmDevice,
  dtype: DType,
  src: Operand,
  kernel: Operand,
  p: Conv1dParams,
  out: number,
): void {
  const sizes = [src.layout.elemCount, p.lOut, p.stride, p.padding, p.dilation];
  launchDirect(device, `conv1d_${dtype}`, p.b * p.cOut * p.lOut, sizes, src, kernel, out);
}

/** `conv2d_{t}(src_numel, w_out, h_out, stride, padding, dilation, info, src, kernel, dst)`. */
export function launchConv2d(
  device: RocmDevice,
  dtype: DType,
  src: Operand,
  kernel: Operand,
  p: Conv2dParams,
  out: number,
): void {
  const sizes = [src.layout.elemCount, p.wOut, p.hOut, p.stride, p.padding, p.dilation];
  launchDirect(device, `conv2d_${dtype}`, p.b * p.cOut * p.hOut * p.wOut, sizes, src, kernel, out);
}

/** `conv_transpose1d_{t}(src_numel, l_out, stride, padding, out_padding, dilation, info, src, kernel, dst)`. */
export function launchConvTranspose1d(
  device: RocmDevice,
  dtype: DType,
  src: Operand,
  kernel: Operand,
  p: ConvTranspose1dParams,
  out: number,
): void {
  const sizes = [src.layout.elemCount, p.lOut, p.stride, p.padding, p.outputPadding, p.dilation];
  launchDirect(device, `conv_transpose1d_${dtype}`, p.b * p.cOut * p.lOut, sizes, src, kernel, out);
}

/** `conv_transpose2d_{t}(src_numel, w_out, h_out, stride, padding, out_padding, dilation, info, src, kernel, dst)`. */
export function launchConvTranspose2d(
  device: RocmDevice,
  dtype: DType,
  src: Operand,
  kernel: Operand,
  p: ConvTranspose2dParams,
  out: number,
): void {
  const sizes = [src.layout.elemCount, p.wOut, p.hOut, p.stride, p.padding, p.outputPadding, p.dilation];
  launchDirect(device, `conv_transpose2d_${dtype}`, p.b * p.cOut * p.hOut * p.wOut, sizes, src, kernel, out);
}

/** An output element is a sum over the whole kernel, so each gets a thread of its own. */
function launchDirect(
  device: RocmDevice,
  kernel: string,
  outputs: number,
  sizes: readonly number[],
  src: Operand,
  weights: Operand,
  out: number,
): void {
  const { shape, strides } = src.layout;
  const { ptr } = device.infoFor(shape, strides, weights.layout.shape, weights.layout.strides);
  device.launch(CONV, kernel, device.shapes.perItem(outputs), [...sizes, ptr, src.ptr, weights.ptr, out]);
}

/** `im2col1d_{t}(numel, l_out, l_k, stride, padding, dilation, info, src, dst)`: [b, lOut, cIn, k]; numel leaves k out. */
export function launchIm2col1d(device: RocmDevice, dtype: DType, src: Operand, p: Conv1dParams, out: number): void {
  const numel = p.b * p.lOut * p.cIn;
  const args = [numel, p.lOut, p.k, p.stride, p.padding, p.dilation, infoOf(device, src.layout), src.ptr, out];
  device.launch(CONV, `im2col1d_${dtype}`, device.shapes.elementwise(numel * p.k), args);
}

/** `im2col_{t}(dst_numel, h_out, w_out, h_k, w_k, stride, padding, dilation, info, src, dst)`: [b, hOut, wOut, cIn, kH, kW]. */
export function launchIm2col(device: RocmDevice, dtype: DType, src: Operand, p: Conv2dParams, out: number): void {
  const numel = p.b * p.hOut * p.wOut * p.cIn * p.kH * p.kW;
  const sizes = [numel, p.hOut, p.wOut, p.kH, p.kW, p.stride, p.padding, p.dilation];
  const args = [...sizes, infoOf(device, src.layout), src.ptr, out];
  device.launch(CONV, `im2col_${dtype}`, device.shapes.elementwise(numel), args);
}

/** `col2im1d_{t}(dst_el, l_out, l_in, c_out, k_size, stride, src, dst)`: columns [b, lIn, cOut, k] added up. */
export function launchCol2im1d(device: RocmDevice, dtype: DType, src: number, p: Conv1dParams, out: number): void {
  const numel = p.b * p.cOut * p.lOut;
  const args = [numel, p.lOut, p.lIn, p.cOut, p.k, p.stride, src, out];
  device.launch(CONV, `col2im1d_${dtype}`, device.shapes.perItem(numel), args);
}

/** `{avg,max}_pool2d_{t}(src_numel, w_k, h_k, w_stride, h_stride, info, src, dst)`. */
export function launchPool2d(
  device: RocmDevice,
  kernel: string,
  outputs: number,
  src: Operand,
  p: Pool2dParams,
  out: number,
): void {
  const sizes = [src.layout.elemCount, p.kH, p.kW, p.strideH, p.strideW];
  const args = [...sizes, infoOf(device, src.layout), src.ptr, out];
  device.launch(CONV, kernel, device.shapes.perItem(outputs), args);
}

/** `upsample_nearest1d_{t}(w_out, w_scale, info, src, dst)`. */
export function launchUpsampleNearest1d(
  device: RocmDevice,
  dtype: DType,
  src: Operand,
  lOut: number,
  out: number,
): void {
  const [b, c, l] = src.layout.shape;
  const args = [lOut, l / lOut, infoOf(device, src.layout), src.ptr, out];
  device.launch(CONV, `upsample_nearest1d_${dtype}`, device.shapes.elementwise(b * c * lOut), args);
}

/** `upsample_nearest2d_{t}(w_out, h_out, w_scale, h_scale, info, src, dst)`. */
export function launchUpsampleNearest2d(
  device: RocmDevice,
  dtype: DType,
  src: Operand,
  hOut: number,
  wOut: number,
  out: number,
): void {
  const [b, c, h, w] = src.layout.shape;
  const args = [hOut, wOut, h / hOut, w / wOut, infoOf(device, src.layout), src.ptr, out];
  device.launch(CONV, `upsample_nearest2d_${dtype}`, device.shapes.elementwise(b * c * hOut * wOut), args);
}

/** `upsample_bilinear2d_{t}(w_out, h_out, align_corners, has_h, scale_h, has_w, scale_w, info, src, dst)`. */
export function launchUpsampleBilinear2d(
  device: RocmDevice,
  dtype: DType,
  src: Operand,
  { hOut, wOut, alignCorners, scaleH, scaleW }: BilinearParams,
  out: number,
): void {
  const [b, c] = src.layout.shape;
  const scale = (factor: number | undefined) => (factor === undefined ? [0, 0] : [1, factor]);
  const sizes = [wOut, hOut, alignCorners ? 1 : 0, ...scale(scaleH), ...scale(scaleW)];
  const args = [...sizes, infoOf(device, src.layout), src.ptr, out];
  device.launch(CONV, `upsample_bilinear2d_${dtype}`, device.shapes.elementwise(b * c * hOut * wOut), args);
}

function infoOf(device: RocmDevice, layout: Layout): number {
  return device.infoFor(layout.shape, layout.strides).ptr;
}
