/** Written by tools/kernels/launchers.ts from the declarations in kernels/conv.hip: do not edit. */
import { CONV } from '@x/kernels';
import type { LaunchShape } from '../launch-shape';
import type { Address, Launcher } from './launcher';

/** `conv1d_bf16`, and 9 more. */
export interface Conv1dArguments {
  srcNumel: number;
  lOut: number;
  stride: number;
  padding: number;
  dilation: number;
  info: Address;
  src: Address;
  kernel: Address;
  dst: Address;
}

export function launchConv1d(device: Launcher, kernel: string, shape: LaunchShape, a: Conv1dArguments): void {
  device.launch(CONV, kernel, shape, [
    a.srcNumel,
    a.lOut,
    a.stride,
    a.padding,
    a.dilation,
    a.info,
    a.src,
    a.kernel,
    a.dst,
  ]);
}

/** `conv2d_bf16`, and 9 more. */
export interface Conv2dArguments {
  srcNumel: number;
  wOut: number;
  hOut: number;
  stride: number;
  padding: number;
  dilation: number;
  info: Address;
  src: Address;
  kernel: Address;
  dst: Address;
}

export function launchConv2d(device: Launcher, kernel: string, shape: LaunchShape, a: Conv2dArguments): void {
  device.launch(CONV, kernel, shape, [
    a.srcNumel,
    a.wOut,
    a.hOut,
    a.stride,
    a.padding,
    a.dilation,
    a.info,
    a.src,
    a.kernel,
    a.dst,
  ]);
}

/** `conv_transpose1d_bf16`, and 9 more. */
export interface ConvTranspose1dArguments {
  srcNumel: number;
  lOut: number;
  stride: number;
  padding: number;
  outPadding: number;
  dilation: number;
  info: Address;
  src: Address;
  kernel: Address;
  dst: Address;
}

export function launchConvTranspose1d(
  device: Launcher,
  kernel: string,
  shape: LaunchShape,
  a: ConvTranspose1dArguments,
): void {
  device.launch(CONV, kernel, shape, [
    a.srcNumel,
    a.lOut,
    a.stride,
    a.padding,
    a.outPadding,
    a.dilation,
    a.info,
    a.src,
    a.kernel,
    a.dst,
  ]);
}

/** `conv_transpose2d_bf16`, and 9 more. */
export interface ConvTranspose2dArguments {
  srcNumel: number;
  wOut: number;
  hOut: number;
  stride: number;
  padding: number;
  outPadding: number;
  dilation: number;
  info: Address;
  src: Address;
  kernel: Address;
  dst: Address;
}

export function launchConvTranspose2d(
  device: Launcher,
  kernel: string,
  shape: LaunchShape,
  a: ConvTranspose2dArguments,
): void {
  device.launch(CONV, kernel, shape, [
    a.srcNumel,
    a.wOut,
    a.hOut,
    a.stride,
    a.padding,
    a.outPadding,
    a.dilation,
    a.info,
    a.src,
    a.kernel,
    a.dst,
  ]);
}

/** `conv_groups_bf16`, and 19 more. */
export interface ConvGroupsArguments {
  groups: number;
  hOut: number;
  wOut: number;
  downStride: number;
  downPadding: number;
  downDilation: number;
  acrossStride: number;
  acrossPadding: number;
  acrossDilation: number;
  info: Address;
  src: Address;
  kernel: Address;
  dst: Address;
}

export function launchConvGroups(device: Launcher, kernel: string, shape: LaunchShape, a: ConvGroupsArguments): void {
  device.launch(CONV, kernel, shape, [
    a.groups,
    a.hOut,
    a.wOut,
    a.downStride,
    a.downPadding,
    a.downDilation,
    a.acrossStride,
    a.acrossPadding,
    a.acrossDilation,
    a.info,
    a.src,
    a.kernel,
    a.dst,
  ]);
}

/** `avg_pool2d_bf16`, and 19 more. */
export interface Pool2dArguments {
  srcNumel: number;
  wK: number;
  hK: number;
  wStride: number;
  hStride: number;
  info: Address;
  src: Address;
  dst: Address;
}

export function launchPool2d(device: Launcher, kernel: string, shape: LaunchShape, a: Pool2dArguments): void {
  device.launch(CONV, kernel, shape, [a.srcNumel, a.wK, a.hK, a.wStride, a.hStride, a.info, a.src, a.dst]);
}

/** `upsample_nearest1d_bf16`, and 9 more. */
export interface UpsampleNearest1dArguments {
  wOut: number;
  wScale: number;
  info: Address;
  src: Address;
  dst: Address;
}

export function launchUpsampleNearest1d(
  device: Launcher,
  kernel: string,
  shape: LaunchShape,
  a: UpsampleNearest1dArguments,
): void {
  device.launch(CONV, kernel, shape, [a.wOut, a.wScale, a.info, a.src, a.dst]);
}

/** `upsample_nearest2d_bf16`, and 9 more. */
export interface UpsampleNearest2dArguments {
  wOut: number;
  hOut: number;
  wScale: number;
  hScale: number;
  info: Address;
  src: Address;
  dst: Address;
}

export function launchUpsampleNearest2d(
  device: Launcher,
  kernel: string,
  shape: LaunchShape,
  a: UpsampleNearest2dArguments,
): void {
  device.launch(CONV, kernel, shape, [a.wOut, a.hOut, a.wScale, a.hScale, a.info, a.src, a.dst]);
}

/** `upsample_bilinear2d_bf16`, and 9 more. */
export interface UpsampleBilinear2dArguments {
  wOut: number;
  hOut: number;
  alignCorners: boolean;
  hasScaleH: boolean;
  scaleH: number;
  hasScaleW: boolean;
  scaleW: number;
  info: Address;
  src: Address;
  dst: Address;
}

export function launchUpsampleBilinear2d(
  device: Launcher,
  kernel: string,
  shape: LaunchShape,
  a: UpsampleBilinear2dArguments,
): void {
  device.launch(CONV, kernel, shape, [
    a.wOut,
    a.hOut,
    Number(a.alignCorners),
    Number(a.hasScaleH),
    a.scaleH,
    Number(a.hasScaleW),
    a.scaleW,
    a.info,
    a.src,
    a.dst,
  ]);
}

/** `im2col_bf16`, and 9 more. */
export interface Im2colArguments {
  dstNumel: number;
  hOut: number;
  wOut: number;
  hK: number;
  wK: number;
  stride: number;
  padding: number;
  dilation: number;
  info: Address;
  src: Address;
  dst: Address;
}

export function launchIm2col(device: Launcher, kernel: string, shape: LaunchShape, a: Im2colArguments): void {
  device.launch(CONV, kernel, shape, [
    a.dstNumel,
    a.hOut,
    a.wOut,
    a.hK,
    a.wK,
    a.stride,
    a.padding,
    a.dilation,
    a.info,
    a.src,
    a.dst,
  ]);
}

/** `im2col1d_bf16`, and 9 more. */
export interface Im2col1dArguments {
  numel: number;
  lOut: number;
  lK: number;
  stride: number;
  padding: number;
  dilation: number;
  info: Address;
  src: Address;
  dst: Address;
}

export function launchIm2col1d(device: Launcher, kernel: string, shape: LaunchShape, a: Im2col1dArguments): void {
  device.launch(CONV, kernel, shape, [a.numel, a.lOut, a.lK, a.stride, a.padding, a.dilation, a.info, a.src, a.dst]);
}

/** `col2im1d_bf16`, and 9 more. */
export interface Col2im1dArguments {
  dstEl: number;
  lOut: number;
  lIn: number;
  cOut: number;
  kSize: number;
  stride: number;
  src: Address;
  dst: Address;
}

export function launchCol2im1d(device: Launcher, kernel: string, shape: LaunchShape, a: Col2im1dArguments): void {
  device.launch(CONV, kernel, shape, [a.dstEl, a.lOut, a.lIn, a.cOut, a.kSize, a.stride, a.src, a.dst]);
}

/** `max_pool2d_backward_bf16`, and 2 more. */
export interface MaxPool2dBackwardArguments {
  srcNumel: number;
  wK: number;
  hK: number;
  wStride: number;
  hStride: number;
  info: Address;
  src: Address;
  top: Address;
  grad: Address;
  dst: Address;
}

export function launchMaxPool2dBackward(
  device: Launcher,
  kernel: string,
  shape: LaunchShape,
  a: MaxPool2dBackwardArguments,
): void {
  device.launch(CONV, kernel, shape, [
    a.srcNumel,
    a.wK,
    a.hK,
    a.wStride,
    a.hStride,
    a.info,
    a.src,
    a.top,
    a.grad,
    a.dst,
  ]);
}

/** `conv_planes_bf16`, and 4 more. */
export interface ConvPlanesArguments {
  downParts: number;
  downSize: number;
  downStep: number;
  downBefore: number;
  acrossParts: number;
  acrossSize: number;
  acrossStep: number;
  acrossBefore: number;
  channels: number;
  info: Address;
  src: Address;
  dst: Address;
}

export function launchConvPlanes(device: Launcher, kernel: string, shape: LaunchShape, a: ConvPlanesArguments): void {
  device.launch(CONV, kernel, shape, [
    a.downParts,
    a.downSize,
    a.downStep,
    a.downBefore,
    a.acrossParts,
    a.acrossSize,
    a.acrossStep,
    a.acrossBefore,
    a.channels,
    a.info,
    a.src,
    a.dst,
  ]);
}

/** `conv_strips_bf16`, and 4 more. */
export interface ConvStripsArguments {
  groups: number;
  cOut: number;
  cIn: number;
  phases: number;
  groupStride: number;
  outStride: number;
  inStride: number;
  table: Address;
  kernel: Address;
  dst: Address;
}

export function launchConvStrips(device: Launcher, kernel: string, shape: LaunchShape, a: ConvStripsArguments): void {
  device.launch(CONV, kernel, shape, [
    a.groups,
    a.cOut,
    a.cIn,
    a.phases,
    a.groupStride,
    a.outStride,
    a.inStride,
    a.table,
    a.kernel,
    a.dst,
  ]);
}

/** `conv_taps_bf16`, and 4 more. */
export interface ConvTapsArguments {
  images: number;
  groups: number;
  cOut: number;
  cIn: number;
  phases: number;
  planeSize: number;
  rowsEach: number;
  pitch: number;
  down: number;
  across: number;
  channel: number;
  table: Address;
  planes: Address;
  strips: Address;
  dst: Address;
}

export function launchConvTaps(device: Launcher, kernel: string, shape: LaunchShape, a: ConvTapsArguments): void {
  device.launch(CONV, kernel, shape, [
    a.images,
    a.groups,
    a.cOut,
    a.cIn,
    a.phases,
    a.planeSize,
    a.rowsEach,
    a.pitch,
    a.down,
    a.across,
    a.channel,
    a.table,
    a.planes,
    a.strips,
    a.dst,
  ]);
}

/** `conv_windows_bf16`, and 4 more. */
export interface ConvWindowsArguments {
  images: number;
  groups: number;
  cOut: number;
  cIn: number;
  planeSize: number;
  lines: number;
  width: number;
  pitch: number;
  outputs: number;
  places: Address;
  planes: Address;
  kernel: Address;
  dst: Address;
}

export function launchConvWindows(device: Launcher, kernel: string, shape: LaunchShape, a: ConvWindowsArguments): void {
  device.launch(CONV, kernel, shape, [
    a.images,
    a.groups,
    a.cOut,
    a.cIn,
    a.planeSize,
    a.lines,
    a.width,
    a.pitch,
    a.outputs,
    a.places,
    a.planes,
    a.kernel,
    a.dst,
  ]);
}

/** `conv_own_bf16`, and 4 more. */
export interface ConvOwnArguments {
  images: number;
  groups: number;
  cOut: number;
  phases: number;
  downParts: number;
  downSize: number;
  downStep: number;
  downBefore: number;
  acrossParts: number;
  acrossSize: number;
  acrossStep: number;
  acrossBefore: number;
  planeSize: number;
  groupStride: number;
  outStride: number;
  down: number;
  across: number;
  channel: number;
  table: Address;
  info: Address;
  src: Address;
  kernel: Address;
  dst: Address;
}

export function launchConvOwn(device: Launcher, kernel: string, shape: LaunchShape, a: ConvOwnArguments): void {
  device.launch(CONV, kernel, shape, [
    a.images,
    a.groups,
    a.cOut,
    a.phases,
    a.downParts,
    a.downSize,
    a.downStep,
    a.downBefore,
    a.acrossParts,
    a.acrossSize,
    a.acrossStep,
    a.acrossBefore,
    a.planeSize,
    a.groupStride,
    a.outStride,
    a.down,
    a.across,
    a.channel,
    a.table,
    a.info,
    a.src,
    a.kernel,
    a.dst,
  ]);
}
