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

/** `norm_of_ranks_f32`, and 2 more. */
export interface NormOfRanksArguments {
  rows: number;
  first: number;
  n: number;
  eps: number;
  deltaScale: number;
  centred: boolean;
  x: Address;
  delta: Address;
  deltaAlpha: Address;
  alpha: Address;
  beta: Address;
  sum: Address;
  y: Address;
  deltaHere: Address;
  rank: number;
  ranks: number;
  patience: number;
  control: Address;
  stage: Address;
}

export function launchNormOfRanks(device: Launcher, kernel: string, shape: LaunchShape, a: NormOfRanksArguments): void {
  device.launch(COLLECTIVES, kernel, shape, [
    a.rows,
    a.first,
    a.n,
    a.eps,
    a.deltaScale,
    Number(a.centred),
    a.x,
    a.delta,
    a.deltaAlpha,
    a.alpha,
    a.beta,
    a.sum,
    a.y,
    a.deltaHere,
    a.rank,
    a.ranks,
    a.patience,
    a.control,
    a.stage,
  ]);
}

/** `summed_norm_f32`, and 2 more. */
export interface SummedNormArguments {
  rows: number;
  n: number;
  padded: number;
  eps: number;
  deltaScale: number;
  centred: boolean;
  x: Address;
  delta: Address;
  deltaAlpha: Address;
  alpha: Address;
  beta: Address;
  sum: Address;
  blocks: Address;
  y: Address;
  inboxAt: number;
  rank: number;
  ranks: number;
  patience: number;
  control: Address;
  stage: Address;
}

export function launchSummedNorm(device: Launcher, kernel: string, shape: LaunchShape, a: SummedNormArguments): void {
  device.launch(COLLECTIVES, kernel, shape, [
    a.rows,
    a.n,
    a.padded,
    a.eps,
    a.deltaScale,
    Number(a.centred),
    a.x,
    a.delta,
    a.deltaAlpha,
    a.alpha,
    a.beta,
    a.sum,
    a.blocks,
    a.y,
    a.inboxAt,
    a.rank,
    a.ranks,
    a.patience,
    a.control,
    a.stage,
  ]);
}
