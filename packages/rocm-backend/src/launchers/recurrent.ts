/** Written by tools/kernels/launchers.ts from the declarations in kernels/recurrent.hip: do not edit. */
import { RECURRENT } from '@x/kernels';
import type { LaunchShape } from '../launch-shape';
import type { Address, Launcher } from './launcher';

/** `causal_conv1d_f32`. */
export interface CausalConv1dArguments {
  sequences: number;
  rows: number;
  starts: Address;
  from: Address;
  to: Address;
  slots: number;
  channels: number;
  taps: number;
  silu: boolean;
  x: Address;
  xRow: number;
  weight: Address;
  bias: Address;
  states: Address;
  out: Address;
  inGate: Address;
  outGate: Address;
}

export function launchCausalConv1d(
  device: Launcher,
  kernel: string,
  shape: LaunchShape,
  a: CausalConv1dArguments,
): void {
  device.launch(RECURRENT, kernel, shape, [
    a.sequences,
    a.rows,
    a.starts,
    a.from,
    a.to,
    a.slots,
    a.channels,
    a.taps,
    Number(a.silu),
    a.x,
    a.xRow,
    a.weight,
    a.bias,
    a.states,
    a.out,
    a.inGate,
    a.outGate,
  ]);
}

/** `selective_scan_f32`, and 1 more. */
export interface SelectiveScanArguments {
  sequences: number;
  rows: number;
  starts: Address;
  from: Address;
  to: Address;
  slots: number;
  channels: number;
  n: number;
  x: Address;
  xRow: number;
  dt: Address;
  dtRow: number;
  dtBias: Address;
  a: Address;
  b: Address;
  bRow: number;
  c: Address;
  cRow: number;
  d: Address;
  states: Address;
  out: Address;
}

export function launchSelectiveScan(
  device: Launcher,
  kernel: string,
  shape: LaunchShape,
  a: SelectiveScanArguments,
): void {
  device.launch(RECURRENT, kernel, shape, [
    a.sequences,
    a.rows,
    a.starts,
    a.from,
    a.to,
    a.slots,
    a.channels,
    a.n,
    a.x,
    a.xRow,
    a.dt,
    a.dtRow,
    a.dtBias,
    a.a,
    a.b,
    a.bRow,
    a.c,
    a.cRow,
    a.d,
    a.states,
    a.out,
  ]);
}

/** `ssd_f32_d32`, and 3 more. */
export interface SsdArguments {
  sequences: number;
  rows: number;
  starts: Address;
  from: Address;
  to: Address;
  slots: number;
  heads: number;
  keyHeads: number;
  valueDim: number;
  group: number;
  q: Address;
  qRow: number;
  k: Address;
  kRow: number;
  v: Address;
  vRow: number;
  dt: Address;
  dtRow: number;
  dtBias: Address;
  a: Address;
  d: Address;
  dtMin: number;
  dtMax: number;
  states: Address;
  out: Address;
}

export function launchSsd(device: Launcher, kernel: string, shape: LaunchShape, a: SsdArguments): void {
  device.launch(RECURRENT, kernel, shape, [
    a.sequences,
    a.rows,
    a.starts,
    a.from,
    a.to,
    a.slots,
    a.heads,
    a.keyHeads,
    a.valueDim,
    a.group,
    a.q,
    a.qRow,
    a.k,
    a.kRow,
    a.v,
    a.vRow,
    a.dt,
    a.dtRow,
    a.dtBias,
    a.a,
    a.d,
    a.dtMin,
    a.dtMax,
    a.states,
    a.out,
  ]);
}

/** `ssd_tables_f32_d32`, and 7 more. */
export interface SsdChunksArguments {
  sequences: number;
  rows: number;
  starts: Address;
  from: Address;
  to: Address;
  slots: number;
  heads: number;
  keyHeads: number;
  valueDim: number;
  group: number;
  q: Address;
  qRow: number;
  k: Address;
  kRow: number;
  v: Address;
  vRow: number;
  dt: Address;
  dtRow: number;
  dtBias: Address;
  a: Address;
  d: Address;
  dtMin: number;
  dtMax: number;
  states: Address;
  out: Address;
  tables: Address;
}

export function launchSsdChunks(device: Launcher, kernel: string, shape: LaunchShape, a: SsdChunksArguments): void {
  device.launch(RECURRENT, kernel, shape, [
    a.sequences,
    a.rows,
    a.starts,
    a.from,
    a.to,
    a.slots,
    a.heads,
    a.keyHeads,
    a.valueDim,
    a.group,
    a.q,
    a.qRow,
    a.k,
    a.kRow,
    a.v,
    a.vRow,
    a.dt,
    a.dtRow,
    a.dtBias,
    a.a,
    a.d,
    a.dtMin,
    a.dtMax,
    a.states,
    a.out,
    a.tables,
  ]);
}

/** `gated_delta_rule_f32_d32`, and 3 more. */
export interface GatedDeltaRuleArguments {
  sequences: number;
  rows: number;
  starts: Address;
  from: Address;
  to: Address;
  slots: number;
  heads: number;
  keyHeads: number;
  valueDim: number;
  group: number;
  q: Address;
  qRow: number;
  k: Address;
  kRow: number;
  v: Address;
  vRow: number;
  dt: Address;
  dtRow: number;
  dtBias: Address;
  a: Address;
  beta: Address;
  betaRow: number;
  scale: number;
  eps: number;
  states: Address;
  out: Address;
}

export function launchGatedDeltaRule(
  device: Launcher,
  kernel: string,
  shape: LaunchShape,
  a: GatedDeltaRuleArguments,
): void {
  device.launch(RECURRENT, kernel, shape, [
    a.sequences,
    a.rows,
    a.starts,
    a.from,
    a.to,
    a.slots,
    a.heads,
    a.keyHeads,
    a.valueDim,
    a.group,
    a.q,
    a.qRow,
    a.k,
    a.kRow,
    a.v,
    a.vRow,
    a.dt,
    a.dtRow,
    a.dtBias,
    a.a,
    a.beta,
    a.betaRow,
    a.scale,
    a.eps,
    a.states,
    a.out,
  ]);
}

/** `gated_delta_rule_tables_f32_d32`, and 7 more. */
export interface GatedDeltaRuleChunksArguments {
  sequences: number;
  rows: number;
  starts: Address;
  from: Address;
  to: Address;
  slots: number;
  heads: number;
  keyHeads: number;
  valueDim: number;
  group: number;
  q: Address;
  qRow: number;
  k: Address;
  kRow: number;
  v: Address;
  vRow: number;
  dt: Address;
  dtRow: number;
  dtBias: Address;
  a: Address;
  beta: Address;
  betaRow: number;
  scale: number;
  eps: number;
  states: Address;
  out: Address;
  tables: Address;
}

export function launchGatedDeltaRuleChunks(
  device: Launcher,
  kernel: string,
  shape: LaunchShape,
  a: GatedDeltaRuleChunksArguments,
): void {
  device.launch(RECURRENT, kernel, shape, [
    a.sequences,
    a.rows,
    a.starts,
    a.from,
    a.to,
    a.slots,
    a.heads,
    a.keyHeads,
    a.valueDim,
    a.group,
    a.q,
    a.qRow,
    a.k,
    a.kRow,
    a.v,
    a.vRow,
    a.dt,
    a.dtRow,
    a.dtBias,
    a.a,
    a.beta,
    a.betaRow,
    a.scale,
    a.eps,
    a.states,
    a.out,
    a.tables,
  ]);
}

/** `lstm_pack_f32`, and 1 more. */
export interface LstmPackArguments {
  hidden: number;
  weights: Address;
  packed: Address;
}

export function launchLstmPack(device: Launcher, kernel: string, shape: LaunchShape, a: LstmPackArguments): void {
  device.launch(RECURRENT, kernel, shape, [a.hidden, a.weights, a.packed]);
}

/** `lstm_f32`, and 1 more. */
export interface LstmArguments {
  rows: number;
  steps: number;
  hidden: number;
  reversed: boolean;
  gates: Address;
  bias: Address;
  packed: Address;
  h: Address;
  c: Address;
  outputs: Address;
  cells: Address;
  open: Address;
}

export function launchLstm(device: Launcher, kernel: string, shape: LaunchShape, a: LstmArguments): void {
  device.launch(RECURRENT, kernel, shape, [
    a.rows,
    a.steps,
    a.hidden,
    Number(a.reversed),
    a.gates,
    a.bias,
    a.packed,
    a.h,
    a.c,
    a.outputs,
    a.cells,
    a.open,
  ]);
}

/** `lstm_backward_f32`. */
export interface LstmBackwardArguments {
  rows: number;
  steps: number;
  hidden: number;
  reversed: boolean;
  open: Address;
  cells: Address;
  weights: Address;
  c: Address;
  grad: Address;
  gates: Address;
}

export function launchLstmBackward(
  device: Launcher,
  kernel: string,
  shape: LaunchShape,
  a: LstmBackwardArguments,
): void {
  device.launch(RECURRENT, kernel, shape, [
    a.rows,
    a.steps,
    a.hidden,
    Number(a.reversed),
    a.open,
    a.cells,
    a.weights,
    a.c,
    a.grad,
    a.gates,
  ]);
}
