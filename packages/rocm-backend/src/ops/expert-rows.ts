/** Rows of pairs of token and expert in the form that products in groups read: the kernels `experts_rows` and `experts_combine`. */
import type { BlockType } from '@x/core';
import type { KernelDevice } from '../device';
import type { LaunchShape } from '../launch-shape';
import { launchExpertsRows } from '../launchers/experts';
import type { KernelStorage } from '../storage';
import { activationRowBytes, activationRows, MAX_GRID_Y, paddedWidth } from './activations';
import { filled } from './result';

/**
 * q8_1 blocks; or operands of matrix units in f16 (kernels/quantized/activations.h), of which there are two orders: for types whose
 * superblocks have a scale for every 16 values, and for all others.
 */
export type PairForm = 'blocks' | 'operands' | 'operandsOfHalves';

const HALVES: ReadonlySet<BlockType> = new Set(['q2_K', 'q3_K', 'q6_K']);
/** Threads of a block, and values of a row that a thread has. */
const THREADS = 256;
export const QUADS = 4;
const OPERAND_BYTES = 2;

export function operandsFor(type: BlockType): PairForm {
  return HALVES.has(type) ? 'operandsOfHalves' : 'operands';
}

/** What kernels that write such rows are given beside what they are made of. */
export interface RowTarget {
  blocks: number;
  operands: number;
  fourWay: boolean;
}

/** Memory for `pairs` rows of `width` values, which `fill` writes. */
export function pairRows(
  device: KernelDevice,
  form: PairForm,
  { pairs, width }: { pairs: number; width: number },
  fill: (to: RowTarget, padded: number, shape: LaunchShape) => void,
): KernelStorage {
  const padded = paddedWidth(width);
  const inBlocks = form === 'blocks';
  const bytes = inBlocks ? activationRows(pairs) * activationRowBytes(width) : pairs * padded * OPERAND_BYTES;
  return filled(device, 'u8', pairs === 0 ? 0 : bytes, (ptr) => {
    const to = { blocks: inBlocks ? ptr : 0, operands: inBlocks ? 0 : ptr, fourWay: form === 'operandsOfHalves' };
    fill(to, padded, rowShape(device, pairs, padded / QUADS));
  });
}

/** Rows of x [.., k], f32, that `sources` names, or without it each by itself. */
export function rowsOfPairs(
  device: KernelDevice,
  form: PairForm,
  { pairs, k }: { pairs: number; k: number },
  { x, sources }: { x: number; sources: number },
): KernelStorage {
  return pairRows(device, form, { pairs, width: k }, (to, kPadded, shape) =>
    launchExpertsRows(device, 'experts_rows', shape, { x, sources, ...to, pairs, k, kPadded }),
  );
}

/** Of so many rows, whose `across` pieces threads share. */
export function rowShape({ shapes }: KernelDevice, rows: number, across: number): LaunchShape {
  const block = shapes.isHost ? 1 : THREADS;
  return { grid: [shapes.isHost ? 1 : Math.ceil(across / block), ...counted(rows)], block };
}

/** The y and z axes of a grid that count to `count`, or past it. */
export function counted(count: number): [y: number, z: number] {
  const y = Math.min(count, MAX_GRID_Y);
  return [y, Math.ceil(count / y)];
}
