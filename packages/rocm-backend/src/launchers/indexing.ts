/** Written by tools/kernels/launchers.ts from the declarations in kernels/indexing.hip: do not edit. */
import { INDEXING } from '@x/kernels';
import type { LaunchShape } from '../launch-shape';
import type { Address, Launcher } from './launcher';

/** `is_u8_u8`, and 49 more. */
export interface IndexSelectArguments {
  numel: number;
  numDims: number;
  info: Address;
  ids: Address;
  inp: Address;
  out: Address;
  leftSize: number;
  srcDimSize: number;
  idsDimSize: number;
  rightSize: number;
}

export function launchIndexSelect(device: Launcher, kernel: string, shape: LaunchShape, a: IndexSelectArguments): void {
  device.launch(INDEXING, kernel, shape, [
    a.numel,
    a.numDims,
    a.info,
    a.ids,
    a.inp,
    a.out,
    a.leftSize,
    a.srcDimSize,
    a.idsDimSize,
    a.rightSize,
  ]);
}

/** `gather_u8_u8`, and 49 more. */
export interface GatherArguments {
  numel: number;
  ids: Address;
  inp: Address;
  out: Address;
  leftSize: number;
  srcDimSize: number;
  idsDimSize: number;
  rightSize: number;
}

export function launchGather(device: Launcher, kernel: string, shape: LaunchShape, a: GatherArguments): void {
  device.launch(INDEXING, kernel, shape, [
    a.numel,
    a.ids,
    a.inp,
    a.out,
    a.leftSize,
    a.srcDimSize,
    a.idsDimSize,
    a.rightSize,
  ]);
}

/** `ia_u8_u8`, and 49 more. */
export interface IndexAddArguments {
  ids: Address;
  idsDimSize: number;
  inp: Address;
  out: Address;
  leftSize: number;
  srcDimSize: number;
  dstDimSize: number;
  rightSize: number;
}

export function launchIndexAdd(device: Launcher, kernel: string, shape: LaunchShape, a: IndexAddArguments): void {
  device.launch(INDEXING, kernel, shape, [
    a.ids,
    a.idsDimSize,
    a.inp,
    a.out,
    a.leftSize,
    a.srcDimSize,
    a.dstDimSize,
    a.rightSize,
  ]);
}

/** `s_u8_u8`, and 99 more. */
export interface ScatterArguments {
  ids: Address;
  inp: Address;
  out: Address;
  leftSize: number;
  srcDimSize: number;
  dstDimSize: number;
  rightSize: number;
}

export function launchScatter(device: Launcher, kernel: string, shape: LaunchShape, a: ScatterArguments): void {
  device.launch(INDEXING, kernel, shape, [a.ids, a.inp, a.out, a.leftSize, a.srcDimSize, a.dstDimSize, a.rightSize]);
}

/** `sa_view_u8_u8`, and 69 more. */
export interface ScatterViewArguments {
  places: number;
  numDims: number;
  info: Address;
  ids: Address;
  inp: Address;
  out: Address;
  idsDimSize: number;
  dstDimSize: number;
  idsStep: number;
  srcStep: number;
  dstStep: number;
}

export function launchScatterView(device: Launcher, kernel: string, shape: LaunchShape, a: ScatterViewArguments): void {
  device.launch(INDEXING, kernel, shape, [
    a.places,
    a.numDims,
    a.info,
    a.ids,
    a.inp,
    a.out,
    a.idsDimSize,
    a.dstDimSize,
    a.idsStep,
    a.srcStep,
    a.dstStep,
  ]);
}

/** `gather_view_u8_b8`, and 19 more. */
export interface GatherViewArguments {
  numel: number;
  numDims: number;
  info: Address;
  ids: Address;
  inp: Address;
  out: Address;
  srcDimSize: number;
  srcStep: number;
}

export function launchGatherView(device: Launcher, kernel: string, shape: LaunchShape, a: GatherViewArguments): void {
  device.launch(INDEXING, kernel, shape, [a.numel, a.numDims, a.info, a.ids, a.inp, a.out, a.srcDimSize, a.srcStep]);
}

/** `check_ids_u8`, and 4 more. */
export interface CheckIdsArguments {
  numel: number;
  numDims: number;
  info: Address;
  ids: Address;
  low: number | bigint;
  size: number;
  op: number;
  dim: number;
  report: Address;
}

export function launchCheckIds(device: Launcher, kernel: string, shape: LaunchShape, a: CheckIdsArguments): void {
  device.launch(INDEXING, kernel, shape, [a.numel, a.numDims, a.info, a.ids, a.low, a.size, a.op, a.dim, a.report]);
}
