/** Written by tools/kernels/launchers.ts from the declarations in kernels/quantized.hip: do not edit. */
import { QUANTIZED } from '@x/kernels';
import type { LaunchShape } from '../launch-shape';
import type { Address, Launcher } from './launcher';

/** `dequantize_block_q4_0_f32`, and 17 more. */
export interface DequantizeCountedArguments {
  x: Address;
  y: Address;
  k: number;
}

export function launchDequantizeCounted(
  device: Launcher,
  kernel: string,
  shape: LaunchShape,
  a: DequantizeCountedArguments,
): void {
  device.launch(QUANTIZED, kernel, shape, [a.x, a.y, a.k]);
}

/** `dequantize_block_q4_0_bf16`, and 24 more. */
export interface DequantizePairsArguments {
  x: Address;
  y: Address;
  blocks: number;
}

export function launchDequantizePairs(
  device: Launcher,
  kernel: string,
  shape: LaunchShape,
  a: DequantizePairsArguments,
): void {
  device.launch(QUANTIZED, kernel, shape, [a.x, a.y, a.blocks]);
}

/** `dequantize_block_q2_K_f32`, and 31 more. */
export interface DequantizeBlockArguments {
  x: Address;
  y: Address;
}

export function launchDequantizeBlock(
  device: Launcher,
  kernel: string,
  shape: LaunchShape,
  a: DequantizeBlockArguments,
): void {
  device.launch(QUANTIZED, kernel, shape, [a.x, a.y]);
}

/** `get_rows_q4_0`, and 27 more. */
export interface GetRowsArguments {
  src0: Address;
  ids: Address;
  dst: Address;
  ne00: number | bigint;
  nb01: number;
}

export function launchGetRows(device: Launcher, kernel: string, shape: LaunchShape, a: GetRowsArguments): void {
  device.launch(QUANTIZED, kernel, shape, [a.src0, a.ids, a.dst, a.ne00, a.nb01]);
}

/** `mul_mat_q4_0`, and 46 more. */
export interface MulMatArguments {
  x: Address;
  y: Address;
  dst: Address;
  ncolsX: number;
  nrowsX: number;
  ncolsY: number;
  nrowsY: number;
  nrowsDst: number;
}

export function launchMulMat(device: Launcher, kernel: string, shape: LaunchShape, a: MulMatArguments): void {
  device.launch(QUANTIZED, kernel, shape, [a.x, a.y, a.dst, a.ncolsX, a.nrowsX, a.ncolsY, a.nrowsY, a.nrowsDst]);
}

/** `mul_mat_grouped_q4_0`, and 35 more. */
export interface MulMatGroupedArguments {
  x: Address;
  y: Address;
  dst: Address;
  ncolsX: number;
  nrowsX: number;
  tiles: Address;
  tileCount: number;
  nrowsY: number;
}

export function launchMulMatGrouped(
  device: Launcher,
  kernel: string,
  shape: LaunchShape,
  a: MulMatGroupedArguments,
): void {
  device.launch(QUANTIZED, kernel, shape, [a.x, a.y, a.dst, a.ncolsX, a.nrowsX, a.tiles, a.tileCount, a.nrowsY]);
}

/** `mul_mat_vec_q4_0_q8_1_cuda1`, and 79 more. */
export interface MulMatVecArguments {
  x: Address;
  y: Address;
  dst: Address;
  ncolsX: number;
  nrowsX: number;
  nrowsY: number;
  nrowsDst: number;
}

export function launchMulMatVec(device: Launcher, kernel: string, shape: LaunchShape, a: MulMatVecArguments): void {
  device.launch(QUANTIZED, kernel, shape, [a.x, a.y, a.dst, a.ncolsX, a.nrowsX, a.nrowsY, a.nrowsDst]);
}

/** `mul_mat_stream_q4_0_8`, and 43 more. */
export interface MulMatStreamArguments {
  x: Address;
  y: Address;
  dst: Address;
  ncolsX: number;
  nrowsX: number;
  ncolsY: number;
  nrowsY: number;
  nrowsDst: number;
  parts: Address;
  counters: Address;
}

export function launchMulMatStream(
  device: Launcher,
  kernel: string,
  shape: LaunchShape,
  a: MulMatStreamArguments,
): void {
  device.launch(QUANTIZED, kernel, shape, [
    a.x,
    a.y,
    a.dst,
    a.ncolsX,
    a.nrowsX,
    a.ncolsY,
    a.nrowsY,
    a.nrowsDst,
    a.parts,
    a.counters,
  ]);
}

/** `mul_mat_stream_grouped_q4_0_16`, and 32 more. */
export interface MulMatStreamGroupedArguments {
  x: Address;
  y: Address;
  dst: Address;
  ncolsX: number;
  nrowsX: number;
  tiles: Address;
  tileCount: number;
  nrowsY: number;
  parts: Address;
  counters: Address;
}

export function launchMulMatStreamGrouped(
  device: Launcher,
  kernel: string,
  shape: LaunchShape,
  a: MulMatStreamGroupedArguments,
): void {
  device.launch(QUANTIZED, kernel, shape, [
    a.x,
    a.y,
    a.dst,
    a.ncolsX,
    a.nrowsX,
    a.tiles,
    a.tileCount,
    a.nrowsY,
    a.parts,
    a.counters,
  ]);
}

/** `dequantize_mul_mat_vec_q4_0_cuda`, and 8 more. */
export interface DequantizeMulMatVecArguments {
  x: Address;
  y: Address;
  dst: Address;
  ncols: number;
  nrows: number;
}

export function launchDequantizeMulMatVec(
  device: Launcher,
  kernel: string,
  shape: LaunchShape,
  a: DequantizeMulMatVecArguments,
): void {
  device.launch(QUANTIZED, kernel, shape, [a.x, a.y, a.dst, a.ncols, a.nrows]);
}

/** `dequantize_mul_mat_vec_q5_k`. */
export interface DequantizeMulMatVecColumnsArguments {
  x: Address;
  y: Address;
  dst: Address;
  ncols: number;
}

export function launchDequantizeMulMatVecColumns(
  device: Launcher,
  kernel: string,
  shape: LaunchShape,
  a: DequantizeMulMatVecColumnsArguments,
): void {
  device.launch(QUANTIZED, kernel, shape, [a.x, a.y, a.dst, a.ncols]);
}

/** `indexed_moe_forward_q2k_q8_1`, and 24 more. */
export interface IndexedMoeForwardArguments {
  weights: Address;
  inputs: Address;
  indices: Address;
  out: Address;
  n: number;
  k: number;
  batch: number;
  topk: number;
  kPadded: number;
  inputDim1: number;
}

export function launchIndexedMoeForward(
  device: Launcher,
  kernel: string,
  shape: LaunchShape,
  a: IndexedMoeForwardArguments,
): void {
  device.launch(QUANTIZED, kernel, shape, [
    a.weights,
    a.inputs,
    a.indices,
    a.out,
    a.n,
    a.k,
    a.batch,
    a.topk,
    a.kPadded,
    a.inputDim1,
  ]);
}

/** `mul_mat_vec_q8_1_q8_1_upto1`, and 59 more. */
export interface MulMatVecUpToArguments {
  x: Address;
  y: Address;
  dst: Address;
  ncolsX: number;
  nrowsX: number;
  nrowsY: number;
  nrowsDst: number;
  ncolsY: number;
}

export function launchMulMatVecUpTo(
  device: Launcher,
  kernel: string,
  shape: LaunchShape,
  a: MulMatVecUpToArguments,
): void {
  device.launch(QUANTIZED, kernel, shape, [a.x, a.y, a.dst, a.ncolsX, a.nrowsX, a.nrowsY, a.nrowsDst, a.ncolsY]);
}

/** `mul_mat_vec_beside_q8_1`. */
export interface MulMatVecBesideArguments {
  x0: Address;
  x1: Address;
  x2: Address;
  y: Address;
  dst: Address;
  columns: number;
  rows0: number;
  rows1: number;
  rows2: number;
  blocks0: number;
  blocks1: number;
  blocks2: number;
  types: number;
}

export function launchMulMatVecBeside(
  device: Launcher,
  kernel: string,
  shape: LaunchShape,
  a: MulMatVecBesideArguments,
): void {
  device.launch(QUANTIZED, kernel, shape, [
    a.x0,
    a.x1,
    a.x2,
    a.y,
    a.dst,
    a.columns,
    a.rows0,
    a.rows1,
    a.rows2,
    a.blocks0,
    a.blocks1,
    a.blocks2,
    a.types,
  ]);
}

/** `quantize_q8_1`, and 2 more. */
export interface QuantizeQ81Arguments {
  x: Address;
  y: Address;
  kx: number;
  kxPadded: number;
}

export function launchQuantizeQ81(device: Launcher, kernel: string, shape: LaunchShape, a: QuantizeQ81Arguments): void {
  device.launch(QUANTIZED, kernel, shape, [a.x, a.y, a.kx, a.kxPadded]);
}
