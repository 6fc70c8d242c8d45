/** Written by tools/kernels/launchers.ts from the declarations in kernels/affine.hip: do not edit. */
import { AFFINE } from '@x/kernels';
import type { LaunchShape } from '../launch-shape';
import type { Address, Launcher } from './launcher';

/** `affine_u8`, and 9 more. */
export interface AffineArguments {
  numel: number;
  numDims: number;
  info: Address;
  inp: Address;
  out: Address;
  mul: number | bigint;
  add: number | bigint;
}

export function launchAffine(device: Launcher, kernel: string, shape: LaunchShape, a: AffineArguments): void {
  device.launch(AFFINE, kernel, shape, [a.numel, a.numDims, a.info, a.inp, a.out, a.mul, a.add]);
}
