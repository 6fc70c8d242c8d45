/** Written by tools/kernels/launchers.ts from the declarations in kernels/ternary.hip: do not edit. */
import { TERNARY } from '@x/kernels';
import type { LaunchShape } from '../launch-shape';
import type { Address, Launcher } from './launcher';

/** `where_u8_u8`, and 49 more. */
export interface WhereArguments {
  numel: number;
  numDims: number;
  info: Address;
  ids: Address;
  t: Address;
  f: Address;
  out: Address;
}

export function launchWhere(device: Launcher, kernel: string, shape: LaunchShape, a: WhereArguments): void {
  device.launch(TERNARY, kernel, shape, [a.numel, a.numDims, a.info, a.ids, a.t, a.f, a.out]);
}
