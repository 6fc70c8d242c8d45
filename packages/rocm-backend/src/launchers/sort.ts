/** Written by tools/kernels/launchers.ts from the declarations in kernels/sort.hip: do not edit. */
import { SORT } from '@x/kernels';
import type { LaunchShape } from '../launch-shape';
import type { Address, Launcher } from './launcher';

/** `asort_asc_u8`, and 19 more. */
export interface AsortArguments {
  x: Address;
  dst: Address;
  ncols: number;
  ncolsPad: number;
}

export function launchAsort(device: Launcher, kernel: string, shape: LaunchShape, a: AsortArguments): void {
  device.launch(SORT, kernel, shape, [a.x, a.dst, a.ncols, a.ncolsPad]);
}

/** `sort_chunk_u8`, and 9 more. */
export interface SortChunkArguments {
  rows: number;
  cols: number;
  size: number;
  descending: number;
  x: Address;
  index: Address;
  values: Address;
}

export function launchSortChunk(device: Launcher, kernel: string, shape: LaunchShape, a: SortChunkArguments): void {
  device.launch(SORT, kernel, shape, [a.rows, a.cols, a.size, a.descending, a.x, a.index, a.values]);
}

/** `sort_radix_count_u8`, and 9 more. */
export interface SortRadixCountFirstArguments {
  rows: number;
  cols: number;
  part: number;
  descending: number;
  x: Address;
  counts: Address;
}

export function launchSortRadixCountFirst(
  device: Launcher,
  kernel: string,
  shape: LaunchShape,
  a: SortRadixCountFirstArguments,
): void {
  device.launch(SORT, kernel, shape, [a.rows, a.cols, a.part, a.descending, a.x, a.counts]);
}

/** `sort_radix_scatter_u8`, and 9 more. */
export interface SortRadixScatterFirstArguments {
  rows: number;
  cols: number;
  part: number;
  descending: number;
  x: Address;
  counts: Address;
  keys: Address;
  to: Address;
}

export function launchSortRadixScatterFirst(
  device: Launcher,
  kernel: string,
  shape: LaunchShape,
  a: SortRadixScatterFirstArguments,
): void {
  device.launch(SORT, kernel, shape, [a.rows, a.cols, a.part, a.descending, a.x, a.counts, a.keys, a.to]);
}

/** `topk_u8`, and 9 more. */
export interface TopkArguments {
  rows: number;
  cols: number;
  width: number;
  k: number;
  parts: number;
  descending: number;
  x: Address;
  from: Address;
  to: Address;
}

export function launchTopk(device: Launcher, kernel: string, shape: LaunchShape, a: TopkArguments): void {
  device.launch(SORT, kernel, shape, [a.rows, a.cols, a.width, a.k, a.parts, a.descending, a.x, a.from, a.to]);
}

/** `sort_warp_u8`, and 7 more. */
export interface SortWarpArguments {
  rows: number;
  cols: number;
  descending: number;
  x: Address;
  index: Address;
  values: Address;
}

export function launchSortWarp(device: Launcher, kernel: string, shape: LaunchShape, a: SortWarpArguments): void {
  device.launch(SORT, kernel, shape, [a.rows, a.cols, a.descending, a.x, a.index, a.values]);
}

/** `sort_radix_count_b16`, and 2 more. */
export interface SortRadixCountArguments {
  rows: number;
  cols: number;
  part: number;
  shift: number;
  from: Address;
  counts: Address;
}

export function launchSortRadixCount(
  device: Launcher,
  kernel: string,
  shape: LaunchShape,
  a: SortRadixCountArguments,
): void {
  device.launch(SORT, kernel, shape, [a.rows, a.cols, a.part, a.shift, a.from, a.counts]);
}

/** `sort_radix_scatter_b16`, and 2 more. */
export interface SortRadixScatterArguments {
  rows: number;
  cols: number;
  part: number;
  shift: number;
  from: Address;
  counts: Address;
  positions: Address;
  keys: Address;
  to: Address;
}

export function launchSortRadixScatter(
  device: Launcher,
  kernel: string,
  shape: LaunchShape,
  a: SortRadixScatterArguments,
): void {
  device.launch(SORT, kernel, shape, [a.rows, a.cols, a.part, a.shift, a.from, a.counts, a.positions, a.keys, a.to]);
}
