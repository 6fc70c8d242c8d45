/** Written by tools/kernels/launchers.ts from the declarations in kernels/sampling.hip: do not edit. */
import { SAMPLING } from '@x/kernels';
import type { LaunchShape } from '../launch-shape';
import type { Address, Launcher } from './launcher';

/** `sample_f32`. */
export interface SampleArguments {
  rows: number;
  vocab: number;
  top: number;
  logits: Address;
  params: Address;
  edits: Address;
  masks: Address;
  out: Address;
}

export function launchSample(device: Launcher, kernel: string, shape: LaunchShape, a: SampleArguments): void {
  device.launch(SAMPLING, kernel, shape, [a.rows, a.vocab, a.top, a.logits, a.params, a.edits, a.masks, a.out]);
}

/** `sample_scan_f32`, and 3 more. */
export interface SamplePartsArguments {
  rows: number;
  vocab: number;
  top: number;
  parts: number;
  logits: Address;
  params: Address;
  edits: Address;
  masks: Address;
  out: Address;
  work: Address;
  counters: Address;
}

export function launchSampleParts(device: Launcher, kernel: string, shape: LaunchShape, a: SamplePartsArguments): void {
  device.launch(SAMPLING, kernel, shape, [
    a.rows,
    a.vocab,
    a.top,
    a.parts,
    a.logits,
    a.params,
    a.edits,
    a.masks,
    a.out,
    a.work,
    a.counters,
  ]);
}

/** `follow_u32`. */
export interface FollowArguments {
  rows: number;
  vocab: number;
  ids: Address;
  chosen: Address;
  out: Address;
}

export function launchFollow(device: Launcher, kernel: string, shape: LaunchShape, a: FollowArguments): void {
  device.launch(SAMPLING, kernel, shape, [a.rows, a.vocab, a.ids, a.chosen, a.out]);
}
