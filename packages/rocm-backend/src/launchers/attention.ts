/** Written by tools/kernels/launchers.ts from the declarations in kernels/attention.hip: do not edit. */
import { ATTENTION } from '@x/kernels';
import type { LaunchShape } from '../launch-shape';
import type { Address, Launcher } from './launcher';

/** `attention_64_bf16`, and 5 more. */
export interface AttentionArguments {
  b: number;
  heads: number;
  kvHeads: number;
  seq: number;
  kv: number;
  q: Address;
  qBatchStride: number;
  qHeadStride: number;
  qRowStride: number;
  k: Address;
  kBatchStride: number;
  kHeadStride: number;
  kRowStride: number;
  v: Address;
  vBatchStride: number;
  vHeadStride: number;
  vRowStride: number;
  out: Address;
  scale: number;
  causal: boolean;
}

export function launchAttention(device: Launcher, kernel: string, shape: LaunchShape, a: AttentionArguments): void {
  device.launch(ATTENTION, kernel, shape, [
    a.b,
    a.heads,
    a.kvHeads,
    a.seq,
    a.kv,
    a.q,
    a.qBatchStride,
    a.qHeadStride,
    a.qRowStride,
    a.k,
    a.kBatchStride,
    a.kHeadStride,
    a.kRowStride,
    a.v,
    a.vBatchStride,
    a.vHeadStride,
    a.vRowStride,
    a.out,
    a.scale,
    Number(a.causal),
  ]);
}

/** `attention_varlen_64_bf16`, and 7 more. */
export interface AttentionVarlenArguments {
  tiles: Address;
  count: number;
  heads: number;
  kvHeads: number;
  d: number;
  dv: number;
  blockShift: number;
  blocks: number;
  window: number;
  scale: number;
  softcap: number;
  q: Address;
  qRow: number;
  qHead: number;
  k: Address;
  v: Address;
  vRow: number;
  tables: Address;
  sinks: Address;
  out: Address;
}

export function launchAttentionVarlen(
  device: Launcher,
  kernel: string,
  shape: LaunchShape,
  a: AttentionVarlenArguments,
): void {
  device.launch(ATTENTION, kernel, shape, [
    a.tiles,
    a.count,
    a.heads,
    a.kvHeads,
    a.d,
    a.dv,
    a.blockShift,
    a.blocks,
    a.window,
    a.scale,
    a.softcap,
    a.q,
    a.qRow,
    a.qHead,
    a.k,
    a.v,
    a.vRow,
    a.tables,
    a.sinks,
    a.out,
  ]);
}

/** `attention_paged_1_f32_f32`, and 26 more. */
export interface AttentionPagedArguments {
  items: number;
  heads: number;
  kvHeads: number;
  d: number;
  dv: number;
  blockShift: number;
  maxBlocks: number;
  sequences: number;
  blocks: number;
  parts: number;
  window: number;
  scale: number;
  softcap: number;
  q: Address;
  qRow: number;
  qHead: number;
  k: Address;
  v: Address;
  vRow: number;
  sinks: Address;
  tables: Address;
  rows: Address;
  lengths: Address;
  partial: Address;
  counters: Address;
  out: Address;
  quantized: Address;
  padded: number;
}

export function launchAttentionPaged(
  device: Launcher,
  kernel: string,
  shape: LaunchShape,
  a: AttentionPagedArguments,
): void {
  device.launch(ATTENTION, kernel, shape, [
    a.items,
    a.heads,
    a.kvHeads,
    a.d,
    a.dv,
    a.blockShift,
    a.maxBlocks,
    a.sequences,
    a.blocks,
    a.parts,
    a.window,
    a.scale,
    a.softcap,
    a.q,
    a.qRow,
    a.qHead,
    a.k,
    a.v,
    a.vRow,
    a.sinks,
    a.tables,
    a.rows,
    a.lengths,
    a.partial,
    a.counters,
    a.out,
    a.quantized,
    a.padded,
  ]);
}

/** `attention_append_f32_f32`, and 8 more. */
export interface AttentionAppendArguments {
  tokens: number;
  kvHeads: number;
  d: number;
  dv: number;
  poolSlots: number;
  slots: Address;
  k: Address;
  kHead: number;
  kRow: number;
  v: Address;
  vHead: number;
  vRow: number;
  kPool: Address;
  vPool: Address;
}

export function launchAttentionAppend(
  device: Launcher,
  kernel: string,
  shape: LaunchShape,
  a: AttentionAppendArguments,
): void {
  device.launch(ATTENTION, kernel, shape, [
    a.tokens,
    a.kvHeads,
    a.d,
    a.dv,
    a.poolSlots,
    a.slots,
    a.k,
    a.kHead,
    a.kRow,
    a.v,
    a.vHead,
    a.vRow,
    a.kPool,
    a.vPool,
  ]);
}

/** `attention_step_1_f32`, and 8 more. */
export interface AttentionStepArguments {
  items: number;
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
  kPool: Address;
  vPool: Address;
  blockShift: number;
  maxBlocks: number;
  blocks: number;
  parts: number;
  window: number;
  softcap: number;
  sinks: Address;
  tables: Address;
  lengths: Address;
  partial: Address;
  counters: Address;
  quantized: Address;
  padded: number;
}

export function launchAttentionStep(
  device: Launcher,
  kernel: string,
  shape: LaunchShape,
  a: AttentionStepArguments,
): void {
  device.launch(ATTENTION, kernel, shape, [
    a.items,
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
    a.kPool,
    a.vPool,
    a.blockShift,
    a.maxBlocks,
    a.blocks,
    a.parts,
    a.window,
    a.softcap,
    a.sinks,
    a.tables,
    a.lengths,
    a.partial,
    a.counters,
    a.quantized,
    a.padded,
  ]);
}

/** `attention_paged_1_f32_q8_0`, and 2 more. */
export interface AttentionPagedQ8Arguments {
  items: number;
  heads: number;
  kvHeads: number;
  d: number;
  dv: number;
  blockShift: number;
  maxBlocks: number;
  sequences: number;
  blocks: number;
  parts: number;
  window: number;
  scale: number;
  softcap: number;
  q: Address;
  qRow: number;
  qHead: number;
  k: Address;
  kScales: Address;
  v: Address;
  vScales: Address;
  vRow: number;
  sinks: Address;
  tables: Address;
  rows: Address;
  lengths: Address;
  partial: Address;
  counters: Address;
  out: Address;
  quantized: Address;
  padded: number;
}

export function launchAttentionPagedQ8(
  device: Launcher,
  kernel: string,
  shape: LaunchShape,
  a: AttentionPagedQ8Arguments,
): void {
  device.launch(ATTENTION, kernel, shape, [
    a.items,
    a.heads,
    a.kvHeads,
    a.d,
    a.dv,
    a.blockShift,
    a.maxBlocks,
    a.sequences,
    a.blocks,
    a.parts,
    a.window,
    a.scale,
    a.softcap,
    a.q,
    a.qRow,
    a.qHead,
    a.k,
    a.kScales,
    a.v,
    a.vScales,
    a.vRow,
    a.sinks,
    a.tables,
    a.rows,
    a.lengths,
    a.partial,
    a.counters,
    a.out,
    a.quantized,
    a.padded,
  ]);
}

/** `attention_append_f32_q8_0`. */
export interface AttentionAppendQ8Arguments {
  tokens: number;
  kvHeads: number;
  d: number;
  dv: number;
  poolSlots: number;
  slots: Address;
  k: Address;
  kHead: number;
  kRow: number;
  v: Address;
  vHead: number;
  vRow: number;
  kPool: Address;
  kScales: Address;
  vPool: Address;
  vScales: Address;
}

export function launchAttentionAppendQ8(
  device: Launcher,
  kernel: string,
  shape: LaunchShape,
  a: AttentionAppendQ8Arguments,
): void {
  device.launch(ATTENTION, kernel, shape, [
    a.tokens,
    a.kvHeads,
    a.d,
    a.dv,
    a.poolSlots,
    a.slots,
    a.k,
    a.kHead,
    a.kRow,
    a.v,
    a.vHead,
    a.vRow,
    a.kPool,
    a.kScales,
    a.vPool,
    a.vScales,
  ]);
}

/** `attention_unpack_q8_0_f32`, and 2 more. */
export interface AttentionUnpackArguments {
  count: number;
  blockValues: number;
  poolBlocks: number;
  blocks: Address;
  codes: Address;
  scales: Address;
  out: Address;
}

export function launchAttentionUnpack(
  device: Launcher,
  kernel: string,
  shape: LaunchShape,
  a: AttentionUnpackArguments,
): void {
  device.launch(ATTENTION, kernel, shape, [a.count, a.blockValues, a.poolBlocks, a.blocks, a.codes, a.scales, a.out]);
}

/** `attention_packed_f32`, and 2 more. */
export interface AttentionPackedArguments {
  tiles: Address;
  count: number;
  heads: number;
  kvHeads: number;
  d: number;
  before: number;
  after: number;
  scale: number;
  slopes: Address;
  q: Address;
  qRow: number;
  qHead: number;
  k: Address;
  kRow: number;
  kHead: number;
  v: Address;
  vRow: number;
  vHead: number;
  out: Address;
}

export function launchAttentionPacked(
  device: Launcher,
  kernel: string,
  shape: LaunchShape,
  a: AttentionPackedArguments,
): void {
  device.launch(ATTENTION, kernel, shape, [
    a.tiles,
    a.count,
    a.heads,
    a.kvHeads,
    a.d,
    a.before,
    a.after,
    a.scale,
    a.slopes,
    a.q,
    a.qRow,
    a.qHead,
    a.k,
    a.kRow,
    a.kHead,
    a.v,
    a.vRow,
    a.vHead,
    a.out,
  ]);
}

/** `attention_prompt_64_f32`, and 11 more. */
export interface AttentionPromptArguments {
  tokens: number;
  heads: number;
  kvHeads: number;
  d: number;
  dv: number;
  blockShift: number;
  blocks: number;
  before: number;
  window: number;
  scale: number;
  softcap: number;
  q: Address;
  qHead: number;
  qRow: number;
  k: Address;
  v: Address;
  vRow: number;
  sinks: Address;
  table: Address;
  out: Address;
}

export function launchAttentionPrompt(
  device: Launcher,
  kernel: string,
  shape: LaunchShape,
  a: AttentionPromptArguments,
): void {
  device.launch(ATTENTION, kernel, shape, [
    a.tokens,
    a.heads,
    a.kvHeads,
    a.d,
    a.dv,
    a.blockShift,
    a.blocks,
    a.before,
    a.window,
    a.scale,
    a.softcap,
    a.q,
    a.qHead,
    a.qRow,
    a.k,
    a.v,
    a.vRow,
    a.sinks,
    a.table,
    a.out,
  ]);
}
