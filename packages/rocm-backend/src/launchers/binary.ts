/** Written by tools/kernels/launchers.ts from the declarations in kernels/binary.hip: do not edit. */
import { BINARY } from '@x/kernels';
import type { LaunchShape } from '../launch-shape';
import type { Address, Launcher } from './launcher';

/** `badd_u8`, and 124 more. */
export interface BinaryArguments {
  numel: number;
  numDims: number;
  info: Address;
  lhs: Address;
  rhs: Address;
  out: Address;
}

export function launchBinary(device: Launcher, kernel: string, shape: LaunchShape, a: BinaryArguments): void {
  device.launch(BINARY, kernel, shape, [a.numel, a.numDims, a.info, a.lhs, a.rhs, a.out]);
}
