/** Written by tools/kernels/launchers.ts from the declarations in kernels/gemm.hip: do not edit. */
import { GEMM } from '@x/kernels';
import type { LaunchShape } from '../launch-shape';
import type { Address, Launcher } from './launcher';

/** `gemm_groups_bf16`, and 2 more. */
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
