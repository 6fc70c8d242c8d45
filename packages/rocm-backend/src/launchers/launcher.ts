/**
 * What the launchers of this directory have in common. Their arguments are objects that callers write out: one that is spread
 * together from others costs as much as all else that a launch does in JavaScript, and the device waits for it.
 */
import type { KernelModule } from '@x/kernels';
import type { LaunchShape } from '../launch-shape';

/** Where something lies in the device's memory; 0 is null. */
export type Address = number;

/** What launches kernels: a device. */
export interface Launcher {
  launch(module: KernelModule, kernel: string, shape: LaunchShape, args: readonly (number | bigint)[]): void;
}
