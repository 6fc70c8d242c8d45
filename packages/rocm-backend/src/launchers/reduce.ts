/** Written by tools/kernels/launchers.ts from the declarations in kernels/reduce.hip: do not edit. */
import { REDUCE } from '@x/kernels';
import type { LaunchShape } from '../launch-shape';
import type { Address, Launcher } from './launcher';

/** `fast_sum_u8`, and 49 more. */
export interface FastArguments {
  srcNumel: number;
  elPerBlock: number;
  numDims: number;
  info: Address;
  src: Address;
  dst: Address;
}

export function launchFast(device: Launcher, kernel: string, shape: LaunchShape, a: FastArguments): void {
  device.launch(REDUCE, kernel, shape, [a.srcNumel, a.elPerBlock, a.numDims, a.info, a.src, a.dst]);
}

/** `cols_sum_u8`, and 29 more. */
export interface ColsArguments {
  left: number;
  size: number;
  right: number;
  parts: number;
  src: Address;
  partial: Address;
  dst: Address;
}

export function launchCols(device: Launcher, kernel: string, shape: LaunchShape, a: ColsArguments): void {
  device.launch(REDUCE, kernel, shape, [a.left, a.size, a.right, a.parts, a.src, a.partial, a.dst]);
}

/** `cols_done_sum_u8`, and 29 more. */
export interface ColsDoneArguments {
  left: number;
  parts: number;
  right: number;
  partial: Address;
  dst: Address;
}

export function launchColsDone(device: Launcher, kernel: string, shape: LaunchShape, a: ColsDoneArguments): void {
  device.launch(REDUCE, kernel, shape, [a.left, a.parts, a.right, a.partial, a.dst]);
}

/** `rows_sum_u8`, and 49 more. */
export interface RowsArguments {
  rows: number;
  size: number;
  src: Address;
  dst: Address;
}

export function launchRows(device: Launcher, kernel: string, shape: LaunchShape, a: RowsArguments): void {
  device.launch(REDUCE, kernel, shape, [a.rows, a.size, a.src, a.dst]);
}

/** `part_sum_u8`, and 49 more. */
export interface PartArguments {
  rows: number;
  size: number;
  parts: number;
  src: Address;
  partial: Address;
}

export function launchPart(device: Launcher, kernel: string, shape: LaunchShape, a: PartArguments): void {
  device.launch(REDUCE, kernel, shape, [a.rows, a.size, a.parts, a.src, a.partial]);
}

/** `done_sum_u8`, and 29 more. */
export interface DoneArguments {
  rows: number;
  parts: number;
  partial: Address;
  dst: Address;
}

export function launchDone(device: Launcher, kernel: string, shape: LaunchShape, a: DoneArguments): void {
  device.launch(REDUCE, kernel, shape, [a.rows, a.parts, a.partial, a.dst]);
}

/** `cols_argmin_u8`, and 19 more. */
export interface ColsArgArguments {
  left: number;
  size: number;
  right: number;
  parts: number;
  src: Address;
  out: Address;
}

export function launchColsArg(device: Launcher, kernel: string, shape: LaunchShape, a: ColsArgArguments): void {
  device.launch(REDUCE, kernel, shape, [a.left, a.size, a.right, a.parts, a.src, a.out]);
}

/** `cols_done_argmin_u8`, and 19 more. */
export interface ColsDoneArgArguments {
  left: number;
  size: number;
  parts: number;
  right: number;
  src: Address;
  partial: Address;
  dst: Address;
}

export function launchColsDoneArg(device: Launcher, kernel: string, shape: LaunchShape, a: ColsDoneArgArguments): void {
  device.launch(REDUCE, kernel, shape, [a.left, a.size, a.parts, a.right, a.src, a.partial, a.dst]);
}

/** `done_argmin_u8`, and 19 more. */
export interface DoneArgArguments {
  rows: number;
  size: number;
  parts: number;
  src: Address;
  partial: Address;
  dst: Address;
}

export function launchDoneArg(device: Launcher, kernel: string, shape: LaunchShape, a: DoneArgArguments): void {
  device.launch(REDUCE, kernel, shape, [a.rows, a.size, a.parts, a.src, a.partial, a.dst]);
}

/** `cumsum_u8`, and 9 more. */
export interface CumsumArguments {
  left: number;
  size: number;
  right: number;
  src: Address;
  dst: Address;
}

export function launchCumsum(device: Launcher, kernel: string, shape: LaunchShape, a: CumsumArguments): void {
  device.launch(REDUCE, kernel, shape, [a.left, a.size, a.right, a.src, a.dst]);
}

/** `sum_bf16`, and 4 more. */
export interface SumIntoArguments {
  numel: number;
  numDims: number;
  numSumDims: number;
  info: Address;
  inp: Address;
  out: Address;
}

export function launchSumInto(device: Launcher, kernel: string, shape: LaunchShape, a: SumIntoArguments): void {
  device.launch(REDUCE, kernel, shape, [a.numel, a.numDims, a.numSumDims, a.info, a.inp, a.out]);
}

/** `norm_backward_f32`. */
export interface NormBackwardArguments {
  src: Address;
  alpha: Address;
  grad: Address;
  dx: Address;
  scaled: Address;
  nCols: number;
  eps: number;
  centred: boolean;
}

export function launchNormBackward(
  device: Launcher,
  kernel: string,
  shape: LaunchShape,
  a: NormBackwardArguments,
): void {
  device.launch(REDUCE, kernel, shape, [a.src, a.alpha, a.grad, a.dx, a.scaled, a.nCols, a.eps, Number(a.centred)]);
}

/** `softmax_bf16`, and 4 more. */
export interface SoftmaxArguments {
  src: Address;
  dst: Address;
  nCols: number;
}

export function launchSoftmax(device: Launcher, kernel: string, shape: LaunchShape, a: SoftmaxArguments): void {
  device.launch(REDUCE, kernel, shape, [a.src, a.dst, a.nCols]);
}

/** `rmsnorm_bf16`, and 4 more. */
export interface RmsnormArguments {
  src: Address;
  dst: Address;
  alpha: Address;
  nCols: number;
  blockSize: number;
  eps: number;
}

export function launchRmsnorm(device: Launcher, kernel: string, shape: LaunchShape, a: RmsnormArguments): void {
  device.launch(REDUCE, kernel, shape, [a.src, a.dst, a.alpha, a.nCols, a.blockSize, a.eps]);
}

/** `layernorm_bf16`, and 4 more. */
export interface LayernormArguments {
  src: Address;
  dst: Address;
  alpha: Address;
  beta: Address;
  nCols: number;
  blockSize: number;
  eps: number;
}

export function launchLayernorm(device: Launcher, kernel: string, shape: LaunchShape, a: LayernormArguments): void {
  device.launch(REDUCE, kernel, shape, [a.src, a.dst, a.alpha, a.beta, a.nCols, a.blockSize, a.eps]);
}

/** `rope_i_bf16`, and 4 more. */
export interface RopeIArguments {
  src: Address;
  cos: Address;
  sin: Address;
  dst: Address;
  bh: number;
  td: number;
  strideB: number;
}

export function launchRopeI(device: Launcher, kernel: string, shape: LaunchShape, a: RopeIArguments): void {
  device.launch(REDUCE, kernel, shape, [a.src, a.cos, a.sin, a.dst, a.bh, a.td, a.strideB]);
}

/** `rope_bf16`, and 4 more. */
export interface RopeArguments {
  src: Address;
  cos: Address;
  sin: Address;
  dst: Address;
  bh: number;
  td: number;
  d: number;
  strideB: number;
}

export function launchRope(device: Launcher, kernel: string, shape: LaunchShape, a: RopeArguments): void {
  device.launch(REDUCE, kernel, shape, [a.src, a.cos, a.sin, a.dst, a.bh, a.td, a.d, a.strideB]);
}

/** `rope_thd_bf16`, and 4 more. */
export interface RopeThdArguments {
  src: Address;
  cos: Address;
  sin: Address;
  dst: Address;
  b: number;
  t: number;
  h: number;
  d: number;
  strideB: number;
}

export function launchRopeThd(device: Launcher, kernel: string, shape: LaunchShape, a: RopeThdArguments): void {
  device.launch(REDUCE, kernel, shape, [a.src, a.cos, a.sin, a.dst, a.b, a.t, a.h, a.d, a.strideB]);
}
