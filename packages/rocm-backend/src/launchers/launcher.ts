/** What the launchers of this directory have in common. */
import type { KernelModule } from '@x/kernels';
import type { LaunchShape } from '../launch-shape';

/** Where something lies in the device's memory; 0 is null. */
export type Address = number;

/** What launches kernels: a device. */
export interface Launcher {
  launch(module: KernelModule, kernel: string, shape: LaunchShape, args: readonly (number | bigint)[]): void;
}
