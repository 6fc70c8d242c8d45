/** Written by tools/kernels/launchers.ts from the declarations in kernels/unary.hip: do not edit. */
import { UNARY } from '@x/kernels';
import type { LaunchShape } from '../launch-shape';
import type { Address, Launcher } from './launcher';

/** `ucopy_u8`, and 154 more. */
export interface UnaryArguments {
  numel: number;
  numDims: number;
  info: Address;
  inp: Address;
  out: Address;
}

export function launchUnary(device: Launcher, kernel: string, shape: LaunchShape, a: UnaryArguments): void {
  device.launch(UNARY, kernel, shape, [a.numel, a.numDims, a.info, a.inp, a.out]);
}

/** `uelu_bf16`, and 9 more. */
export interface UnaryParamArguments {
  numel: number;
  numDims: number;
  info: Address;
  param: number | bigint;
  inp: Address;
  out: Address;
}

export function launchUnaryParam(device: Launcher, kernel: string, shape: LaunchShape, a: UnaryParamArguments): void {
  device.launch(UNARY, kernel, shape, [a.numel, a.numDims, a.info, a.param, a.inp, a.out]);
}
