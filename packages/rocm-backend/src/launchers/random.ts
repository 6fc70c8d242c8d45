/** Written by tools/kernels/launchers.ts from the declarations in kernels/random.hip: do not edit. */
import { RANDOM } from '@x/kernels';
import type { LaunchShape } from '../launch-shape';
import type { Address, Launcher } from './launcher';

/** `rand_uniform_bf16`, and 9 more. */
export interface RandomArguments {
  numel: number;
  seed: number;
  call: number;
  mul: number;
  add: number;
  out: Address;
}

export function launchRandom(device: Launcher, kernel: string, shape: LaunchShape, a: RandomArguments): void {
  device.launch(RANDOM, kernel, shape, [a.numel, a.seed, a.call, a.mul, a.add, a.out]);
}
