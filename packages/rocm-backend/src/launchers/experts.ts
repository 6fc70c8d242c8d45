/** Written by tools/kernels/launchers.ts from the declarations in kernels/experts.hip: do not edit. */
import { EXPERTS } from '@x/kernels';
import type { LaunchShape } from '../launch-shape';
import type { Address, Launcher } from './launcher';

/** `experts_gated_q4_0`, and 24 more. */
export interface ExpertsGatedArguments {
  gate: Address;
  up: Address;
  inputs: Address;
  ids: Address;
  gateBias: Address;
  upBias: Address;
  blocks: Address;
  n: number;
  k: number;
  tokens: number;
  topk: number;
  kPadded: number;
  nPadded: number;
  activation: number;
  limit: number;
  sharedGate: Address;
  sharedUp: Address;
  sharedBlocks: Address;
  sharedN: number;
  sharedNPadded: number;
}

export function launchExpertsGated(
  device: Launcher,
  kernel: string,
  shape: LaunchShape,
  a: ExpertsGatedArguments,
): void {
  device.launch(EXPERTS, kernel, shape, [
    a.gate,
    a.up,
    a.inputs,
    a.ids,
    a.gateBias,
    a.upBias,
    a.blocks,
    a.n,
    a.k,
    a.tokens,
    a.topk,
    a.kPadded,
    a.nPadded,
    a.activation,
    a.limit,
    a.sharedGate,
    a.sharedUp,
    a.sharedBlocks,
    a.sharedN,
    a.sharedNPadded,
  ]);
}

/** `experts_mixed_q4_0`, and 24 more. */
export interface ExpertsMixedArguments {
  weights: Address;
  inputs: Address;
  ids: Address;
  mix: Address;
  bias: Address;
  base: Address;
  gates: Address;
  gatesRow: number;
  out: Address;
  outRow: number;
  n: number;
  k: number;
  tokens: number;
  topk: number;
  kPadded: number;
  shared: Address;
  sharedInputs: Address;
  sharedK: number;
  sharedKPadded: number;
}

export function launchExpertsMixed(
  device: Launcher,
  kernel: string,
  shape: LaunchShape,
  a: ExpertsMixedArguments,
): void {
  device.launch(EXPERTS, kernel, shape, [
    a.weights,
    a.inputs,
    a.ids,
    a.mix,
    a.bias,
    a.base,
    a.gates,
    a.gatesRow,
    a.out,
    a.outRow,
    a.n,
    a.k,
    a.tokens,
    a.topk,
    a.kPadded,
    a.shared,
    a.sharedInputs,
    a.sharedK,
    a.sharedKPadded,
  ]);
}

/** `experts_rows`. */
export interface ExpertsRowsArguments {
  x: Address;
  sources: Address;
  blocks: Address;
  operands: Address;
  fourWay: boolean;
  pairs: number;
  k: number;
  kPadded: number;
}

export function launchExpertsRows(device: Launcher, kernel: string, shape: LaunchShape, a: ExpertsRowsArguments): void {
  device.launch(EXPERTS, kernel, shape, [
    a.x,
    a.sources,
    a.blocks,
    a.operands,
    Number(a.fourWay),
    a.pairs,
    a.k,
    a.kPadded,
  ]);
}

/** `experts_combine`. */
export interface ExpertsCombineArguments {
  gate: Address;
  up: Address;
  owners: Address;
  gateBias: Address;
  upBias: Address;
  blocks: Address;
  operands: Address;
  fourWay: boolean;
  pairs: number;
  n: number;
  nPadded: number;
  activation: number;
  limit: number;
}

export function launchExpertsCombine(
  device: Launcher,
  kernel: string,
  shape: LaunchShape,
  a: ExpertsCombineArguments,
): void {
  device.launch(EXPERTS, kernel, shape, [
    a.gate,
    a.up,
    a.owners,
    a.gateBias,
    a.upBias,
    a.blocks,
    a.operands,
    Number(a.fourWay),
    a.pairs,
    a.n,
    a.nPadded,
    a.activation,
    a.limit,
  ]);
}

/** `experts_sum`. */
export interface ExpertsSumArguments {
  given: Address;
  places: Address;
  ids: Address;
  mix: Address;
  bias: Address;
  base: Address;
  gates: Address;
  gatesRow: number;
  out: Address;
  tokens: number;
  n: number;
  topk: number;
}

export function launchExpertsSum(device: Launcher, kernel: string, shape: LaunchShape, a: ExpertsSumArguments): void {
  device.launch(EXPERTS, kernel, shape, [
    a.given,
    a.places,
    a.ids,
    a.mix,
    a.bias,
    a.base,
    a.gates,
    a.gatesRow,
    a.out,
    a.tokens,
    a.n,
    a.topk,
  ]);
}
