/** Written by tools/kernels/launchers.ts from the declarations in kernels/gemm.hip: do not edit. */
import { GEMM } from '@x/kernels';
import type { LaunchShape } from '../launch-shape';
import type { Address, Launcher } from './launcher';

/** `gemm_groups_bf16`, and 4 more. */
export interface GemmGroupsArguments {
  n: number;
  k: number;
  rows: Address;
  weights: Address;
  tiles: Address;
  count: number;
  out: Address;
}

export function launchGemmGroups(device: Launcher, kernel: string, shape: LaunchShape, a: GemmGroupsArguments): void {
  device.launch(GEMM, kernel, shape, [a.n, a.k, a.rows, a.weights, a.tiles, a.count, a.out]);
}

/** `gemm_bf16`, and 21 more. */
export interface GemmArguments {
  b: number;
  m: number;
  n: number;
  k: number;
  lhs: Address;
  lhsBatchStride: number;
  lhsRowStride: number;
  lhsColStride: number;
  rhs: Address;
  rhsBatchStride: number;
  rhsRowStride: number;
  rhsColStride: number;
  out: Address;
}

export function launchGemm(device: Launcher, kernel: string, shape: LaunchShape, a: GemmArguments): void {
  device.launch(GEMM, kernel, shape, [
    a.b,
    a.m,
    a.n,
    a.k,
    a.lhs,
    a.lhsBatchStride,
    a.lhsRowStride,
    a.lhsColStride,
    a.rhs,
    a.rhsBatchStride,
    a.rhsRowStride,
    a.rhsColStride,
    a.out,
  ]);
}

/** `linear_upto1_bf16`, and 11 more. */
export interface LinearArguments {
  m: number;
  n: number;
  k: number;
  x: Address;
  weights: Address;
  out: Address;
}

export function launchLinear(device: Launcher, kernel: string, shape: LaunchShape, a: LinearArguments): void {
  device.launch(GEMM, kernel, shape, [a.m, a.n, a.k, a.x, a.weights, a.out]);
}

/** `linear_round_bf16`, and 1 more. */
export interface LinearRoundArguments {
  count: number;
  x: Address;
  less: Address;
  y: Address;
}

export function launchLinearRound(device: Launcher, kernel: string, shape: LaunchShape, a: LinearRoundArguments): void {
  device.launch(GEMM, kernel, shape, [a.count, a.x, a.less, a.y]);
}

/** `linear_experts_bf16`, and 1 more. */
export interface LinearExpertsArguments {
  pairs: number;
  n: number;
  k: number;
  topk: number;
  shared: boolean;
  x: Address;
  weights: Address;
  ids: Address;
  out: Address;
}

export function launchLinearExperts(
  device: Launcher,
  kernel: string,
  shape: LaunchShape,
  a: LinearExpertsArguments,
): void {
  device.launch(GEMM, kernel, shape, [a.pairs, a.n, a.k, a.topk, Number(a.shared), a.x, a.weights, a.ids, a.out]);
}
