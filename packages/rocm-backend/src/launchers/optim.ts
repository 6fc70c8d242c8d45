/** Written by tools/kernels/launchers.ts from the declarations in kernels/optim.hip: do not edit. */
import { OPTIM } from '@x/kernels';
import type { LaunchShape } from '../launch-shape';
import type { Address, Launcher } from './launcher';

/** `adam_bf16`, and 3 more. */
export interface AdamArguments {
  count: number;
  grad: Address;
  value: Address;
  first: Address;
  second: Address;
  beta1: number;
  beta2: number;
  root: number;
  eps: number;
  rate: number;
  keep: number;
  decay: number;
}

export function launchAdam(device: Launcher, kernel: string, shape: LaunchShape, a: AdamArguments): void {
  device.launch(OPTIM, kernel, shape, [
    a.count,
    a.grad,
    a.value,
    a.first,
    a.second,
    a.beta1,
    a.beta2,
    a.root,
    a.eps,
    a.rate,
    a.keep,
    a.decay,
  ]);
}

/** `squares_f32`, and 1 more. */
export interface SquaresArguments {
  count: number;
  parts: number;
  grad: Address;
  sums: Address;
}

export function launchSquares(device: Launcher, kernel: string, shape: LaunchShape, a: SquaresArguments): void {
  device.launch(OPTIM, kernel, shape, [a.count, a.parts, a.grad, a.sums]);
}

/** `scale_by_f32`, and 1 more. */
export interface ScaleByArguments {
  count: number;
  factor: Address;
  from: Address;
  to: Address;
}

export function launchScaleBy(device: Launcher, kernel: string, shape: LaunchShape, a: ScaleByArguments): void {
  device.launch(OPTIM, kernel, shape, [a.count, a.factor, a.from, a.to]);
}
