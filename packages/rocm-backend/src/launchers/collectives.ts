/** Written by tools/kernels/launchers.ts from the declarations in kernels/collectives.hip: do not edit. */
import { COLLECTIVES } from '@x/kernels';
import type { LaunchShape } from '../launch-shape';
import type { Address, Launcher } from './launcher';

/** `all_reduce_peers_f32`, and 5 more. */
export interface AllReducePeersArguments {
  count: number;
  rank: number;
  ranks: number;
  turns: number;
  patience: number;
  source: Address;
  target: Address;
  control: Address;
  stage: Address;
}

export function launchAllReducePeers(
  device: Launcher,
  kernel: string,
  shape: LaunchShape,
  a: AllReducePeersArguments,
): void {
  device.launch(COLLECTIVES, kernel, shape, [
    a.count,
    a.rank,
    a.ranks,
    a.turns,
    a.patience,
    a.source,
    a.target,
    a.control,
    a.stage,
  ]);
}
