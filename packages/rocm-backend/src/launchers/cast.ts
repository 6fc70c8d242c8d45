/** Written by tools/kernels/launchers.ts from the declarations in kernels/cast.hip: do not edit. */
import { CAST } from '@x/kernels';
import type { LaunchShape } from '../launch-shape';
import type { Address, Launcher } from './launcher';

/** `cast_u8_u8`, and 99 more. */
export interface CastArguments {
  numel: number;
  numDims: number;
  info: Address;
  inp: Address;
  out: Address;
}

export function launchCast(device: Launcher, kernel: string, shape: LaunchShape, a: CastArguments): void {
  device.launch(CAST, kernel, shape, [a.numel, a.numDims, a.info, a.inp, a.out]);
}
