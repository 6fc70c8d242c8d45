/** Written by tools/kernels/launchers.ts from the declarations in kernels/decode.hip: do not edit. */
import { DECODE } from '@x/kernels';
import type { LaunchShape } from '../launch-shape';
import type { Address, Launcher } from './launcher';

/** `decode_norm_q8_1_f32`, and 2 more. */
export interface DecodeNormQ81Arguments {
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
}

export function launchDecodeNormQ81(
  device: Launcher,
  kernel: string,
  shape: LaunchShape,
  a: DecodeNormQ81Arguments,
): void {
  device.launch(DECODE, kernel, shape, [
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
  ]);
}

/** `decode_norm_biased`. */
export interface DecodeNormBiasedArguments {
  rows: number;
  n: number;
  padded: number;
  eps: number;
  centred: boolean;
  x: Address;
  delta: Address;
  deltaBias: Address;
  alpha: Address;
  beta: Address;
  sum: Address;
  blocks: Address;
  y: Address;
}

export function launchDecodeNormBiased(
  device: Launcher,
  kernel: string,
  shape: LaunchShape,
  a: DecodeNormBiasedArguments,
): void {
  device.launch(DECODE, kernel, shape, [
    a.rows,
    a.n,
    a.padded,
    a.eps,
    Number(a.centred),
    a.x,
    a.delta,
    a.deltaBias,
    a.alpha,
    a.beta,
    a.sum,
    a.blocks,
    a.y,
  ]);
}

/** `decode_activated_silu`, and 2 more. */
export interface DecodeActivatedArguments {
  rows: number;
  n: number;
  padded: number;
  x: Address;
  xRow: number;
  bias: Address;
  blocks: Address;
  y: Address;
}

export function launchDecodeActivated(
  device: Launcher,
  kernel: string,
  shape: LaunchShape,
  a: DecodeActivatedArguments,
): void {
  device.launch(DECODE, kernel, shape, [a.rows, a.n, a.padded, a.x, a.xRow, a.bias, a.blocks, a.y]);
}

/** `decode_gated_q8_1_silu`, and 2 more. */
export interface DecodeGatedQ81Arguments {
  rows: number;
  n: number;
  padded: number;
  gate: Address;
  gateRow: number;
  up: Address;
  upRow: number;
  blocks: Address;
  y: Address;
}

export function launchDecodeGatedQ81(
  device: Launcher,
  kernel: string,
  shape: LaunchShape,
  a: DecodeGatedQ81Arguments,
): void {
  device.launch(DECODE, kernel, shape, [a.rows, a.n, a.padded, a.gate, a.gateRow, a.up, a.upRow, a.blocks, a.y]);
}

/** `decode_gate_silu_f32`, and 8 more. */
export interface DecodeGateArguments {
  rows: number;
  n: number;
  gate: Address;
  gateRow: number;
  up: Address;
  upRow: number;
  y: Address;
}

export function launchDecodeGate(device: Launcher, kernel: string, shape: LaunchShape, a: DecodeGateArguments): void {
  device.launch(DECODE, kernel, shape, [a.rows, a.n, a.gate, a.gateRow, a.up, a.upRow, a.y]);
}

/** `decode_heads_f32`, and 2 more. */
export interface DecodeHeadsArguments {
  tokens: number;
  heads: number;
  kvHeads: number;
  d: number;
  dv: number;
  rotated: number;
  interleaved: boolean;
  scale: number;
  eps: number;
  q: Address;
  qRow: number;
  k: Address;
  kRow: number;
  v: Address;
  vRow: number;
  qNorm: Address;
  kNorm: Address;
  cos: Address;
  sin: Address;
  tableRow: number;
  tableLength: number;
  positions: Address;
  slots: Address;
  poolSlots: number;
  out: Address;
  kPool: Address;
  vPool: Address;
}

export function launchDecodeHeads(device: Launcher, kernel: string, shape: LaunchShape, a: DecodeHeadsArguments): void {
  device.launch(DECODE, kernel, shape, [
    a.tokens,
    a.heads,
    a.kvHeads,
    a.d,
    a.dv,
    a.rotated,
    Number(a.interleaved),
    a.scale,
    a.eps,
    a.q,
    a.qRow,
    a.k,
    a.kRow,
    a.v,
    a.vRow,
    a.qNorm,
    a.kNorm,
    a.cos,
    a.sin,
    a.tableRow,
    a.tableLength,
    a.positions,
    a.slots,
    a.poolSlots,
    a.out,
    a.kPool,
    a.vPool,
  ]);
}

/** `decode_heads_q8_0`. */
export interface DecodeHeadsQ8Arguments {
  tokens: number;
  heads: number;
  kvHeads: number;
  d: number;
  dv: number;
  rotated: number;
  interleaved: boolean;
  scale: number;
  eps: number;
  q: Address;
  qRow: number;
  k: Address;
  kRow: number;
  v: Address;
  vRow: number;
  qNorm: Address;
  kNorm: Address;
  cos: Address;
  sin: Address;
  tableRow: number;
  tableLength: number;
  positions: Address;
  slots: Address;
  poolSlots: number;
  out: Address;
  kPool: Address;
  kScales: Address;
  vPool: Address;
  vScales: Address;
}

export function launchDecodeHeadsQ8(
  device: Launcher,
  kernel: string,
  shape: LaunchShape,
  a: DecodeHeadsQ8Arguments,
): void {
  device.launch(DECODE, kernel, shape, [
    a.tokens,
    a.heads,
    a.kvHeads,
    a.d,
    a.dv,
    a.rotated,
    Number(a.interleaved),
    a.scale,
    a.eps,
    a.q,
    a.qRow,
    a.k,
    a.kRow,
    a.v,
    a.vRow,
    a.qNorm,
    a.kNorm,
    a.cos,
    a.sin,
    a.tableRow,
    a.tableLength,
    a.positions,
    a.slots,
    a.poolSlots,
    a.out,
    a.kPool,
    a.kScales,
    a.vPool,
    a.vScales,
  ]);
}

/** `decode_prompt_heads_f16`, and 1 more. */
export interface DecodePromptHeadsArguments {
  tokens: number;
  heads: number;
  kvHeads: number;
  d: number;
  dv: number;
  rotated: number;
  interleaved: boolean;
  scale: number;
  eps: number;
  q: Address;
  qRow: number;
  k: Address;
  kRow: number;
  v: Address;
  vRow: number;
  qNorm: Address;
  kNorm: Address;
  cos: Address;
  sin: Address;
  tableRow: number;
  tableLength: number;
  positions: Address;
  slots: Address;
  poolSlots: number;
  out: Address;
  kPool: Address;
  vPool: Address;
  wide: number;
  qNarrow: Address;
}

export function launchDecodePromptHeads(
  device: Launcher,
  kernel: string,
  shape: LaunchShape,
  a: DecodePromptHeadsArguments,
): void {
  device.launch(DECODE, kernel, shape, [
    a.tokens,
    a.heads,
    a.kvHeads,
    a.d,
    a.dv,
    a.rotated,
    Number(a.interleaved),
    a.scale,
    a.eps,
    a.q,
    a.qRow,
    a.k,
    a.kRow,
    a.v,
    a.vRow,
    a.qNorm,
    a.kNorm,
    a.cos,
    a.sin,
    a.tableRow,
    a.tableLength,
    a.positions,
    a.slots,
    a.poolSlots,
    a.out,
    a.kPool,
    a.vPool,
    a.wide,
    a.qNarrow,
  ]);
}

/** `decode_latent_f32`, and 2 more. */
export interface DecodeLatentArguments {
  tokens: number;
  heads: number;
  plain: number;
  rotated: number;
  rank: number;
  padded: number;
  interleaved: boolean;
  eps: number;
  q: Address;
  qRow: number;
  latent: Address;
  latentRow: number;
  alpha: Address;
  cos: Address;
  sin: Address;
  tableRow: number;
  tableLength: number;
  positions: Address;
  slots: Address;
  poolSlots: number;
  out: Address;
  blocks: Address;
  pool: Address;
}

export function launchDecodeLatent(
  device: Launcher,
  kernel: string,
  shape: LaunchShape,
  a: DecodeLatentArguments,
): void {
  device.launch(DECODE, kernel, shape, [
    a.tokens,
    a.heads,
    a.plain,
    a.rotated,
    a.rank,
    a.padded,
    Number(a.interleaved),
    a.eps,
    a.q,
    a.qRow,
    a.latent,
    a.latentRow,
    a.alpha,
    a.cos,
    a.sin,
    a.tableRow,
    a.tableLength,
    a.positions,
    a.slots,
    a.poolSlots,
    a.out,
    a.blocks,
    a.pool,
  ]);
}

/** `decode_head_norm_silu_q8_1`. */
export interface DecodeHeadNormSiluQ81Arguments {
  rows: number;
  heads: number;
  d: number;
  padded: number;
  eps: number;
  x: Address;
  alpha: Address;
  gate: Address;
  gateRow: number;
  blocks: Address;
}

export function launchDecodeHeadNormSiluQ81(
  device: Launcher,
  kernel: string,
  shape: LaunchShape,
  a: DecodeHeadNormSiluQ81Arguments,
): void {
  device.launch(DECODE, kernel, shape, [
    a.rows,
    a.heads,
    a.d,
    a.padded,
    a.eps,
    a.x,
    a.alpha,
    a.gate,
    a.gateRow,
    a.blocks,
  ]);
}

/** `decode_silu_group_norm_q8_1`. */
export interface DecodeSiluGroupNormQ81Arguments {
  rows: number;
  groups: number;
  d: number;
  padded: number;
  eps: number;
  x: Address;
  alpha: Address;
  gate: Address;
  gateRow: number;
  blocks: Address;
}

export function launchDecodeSiluGroupNormQ81(
  device: Launcher,
  kernel: string,
  shape: LaunchShape,
  a: DecodeSiluGroupNormQ81Arguments,
): void {
  device.launch(DECODE, kernel, shape, [
    a.rows,
    a.groups,
    a.d,
    a.padded,
    a.eps,
    a.x,
    a.alpha,
    a.gate,
    a.gateRow,
    a.blocks,
  ]);
}

/** `decode_route`. */
export interface DecodeRouteArguments {
  tokens: number;
  experts: number;
  chosen: number;
  groups: number;
  openGroups: number;
  best: number;
  sigmoid: boolean;
  renormalise: boolean;
  scale: number;
  logits: Address;
  logitsRow: number;
  bias: Address;
  correction: Address;
  weights: Address;
  ids: Address;
}

export function launchDecodeRoute(device: Launcher, kernel: string, shape: LaunchShape, a: DecodeRouteArguments): void {
  device.launch(DECODE, kernel, shape, [
    a.tokens,
    a.experts,
    a.chosen,
    a.groups,
    a.openGroups,
    a.best,
    Number(a.sigmoid),
    Number(a.renormalise),
    a.scale,
    a.logits,
    a.logitsRow,
    a.bias,
    a.correction,
    a.weights,
    a.ids,
  ]);
}

/** `decode_router`. */
export interface DecodeRouterArguments {
  tokens: number;
  hidden: number;
  rows: number;
  x: Address;
  weight: Address;
  counters: Address;
  experts: number;
  chosen: number;
  groups: number;
  openGroups: number;
  best: number;
  sigmoid: boolean;
  renormalise: boolean;
  scale: number;
  logits: Address;
  bias: Address;
  correction: Address;
  weights: Address;
  ids: Address;
}

export function launchDecodeRouter(
  device: Launcher,
  kernel: string,
  shape: LaunchShape,
  a: DecodeRouterArguments,
): void {
  device.launch(DECODE, kernel, shape, [
    a.tokens,
    a.hidden,
    a.rows,
    a.x,
    a.weight,
    a.counters,
    a.experts,
    a.chosen,
    a.groups,
    a.openGroups,
    a.best,
    Number(a.sigmoid),
    Number(a.renormalise),
    a.scale,
    a.logits,
    a.bias,
    a.correction,
    a.weights,
    a.ids,
  ]);
}

/** `decode_group`. */
export interface DecodeGroupArguments {
  pairs: number;
  experts: number;
  chosen: number;
  tile: number;
  tiles: number;
  ids: Address;
  places: Address;
  sources: Address;
  owners: Address;
  out: Address;
}

export function launchDecodeGroup(device: Launcher, kernel: string, shape: LaunchShape, a: DecodeGroupArguments): void {
  device.launch(DECODE, kernel, shape, [
    a.pairs,
    a.experts,
    a.chosen,
    a.tile,
    a.tiles,
    a.ids,
    a.places,
    a.sources,
    a.owners,
    a.out,
  ]);
}
