/** Written by tools/kernels/launchers.ts from the declarations in kernels/fill.hip: do not edit. */
import { FILL } from '@x/kernels';
import type { LaunchShape } from '../launch-shape';
import type { Address, Launcher } from './launcher';

/** `fill_u8`, and 9 more. */
export interface FillArguments {
  buf: Address;
  value: number | bigint;
  numel: number;
}

export function launchFill(device: Launcher, kernel: string, shape: LaunchShape, a: FillArguments): void {
  device.launch(FILL, kernel, shape, [a.buf, a.value, a.numel]);
}

/** `const_set_u8`, and 9 more. */
export interface ConstSetArguments {
  numel: number;
  numDims: number;
  info: Address;
  value: number | bigint;
  out: Address;
}

export function launchConstSet(device: Launcher, kernel: string, shape: LaunchShape, a: ConstSetArguments): void {
  device.launch(FILL, kernel, shape, [a.numel, a.numDims, a.info, a.value, a.out]);
}

/** `copy2d_u8`, and 9 more. */
export interface Copy2dArguments {
  src: Address;
  dst: Address;
  d1: number;
  d2: number;
  srcS: number;
  dstS: number;
}

export function launchCopy2d(device: Launcher, kernel: string, shape: LaunchShape, a: Copy2dArguments): void {
  device.launch(FILL, kernel, shape, [a.src, a.dst, a.d1, a.d2, a.srcS, a.dstS]);
}

/** `transpose_b8`, and 4 more. */
export interface TransposeArguments {
  batches: number;
  rows: number;
  cols: number;
  numDims: number;
  info: Address;
  rowStep: number;
  colStep: number;
  src: Address;
  dst: Address;
}

export function launchTranspose(device: Launcher, kernel: string, shape: LaunchShape, a: TransposeArguments): void {
  device.launch(FILL, kernel, shape, [
    a.batches,
    a.rows,
    a.cols,
    a.numDims,
    a.info,
    a.rowStep,
    a.colStep,
    a.src,
    a.dst,
  ]);
}

/** `copy_back_b8`, and 3 more. */
export interface CopyBackArguments {
  numel: number;
  numDims: number;
  info: Address;
  src: Address;
  dst: Address;
}

export function launchCopyBack(device: Launcher, kernel: string, shape: LaunchShape, a: CopyBackArguments): void {
  device.launch(FILL, kernel, shape, [a.numel, a.numDims, a.info, a.src, a.dst]);
}
