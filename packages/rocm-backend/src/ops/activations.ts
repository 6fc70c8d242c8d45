/**
 * Activations in q8_1 blocks, as the QUANTIZED kernels read them: rows padded with zeros (kernels/quantized/activations.h),
 * as many as the kernels read.
 */
import type { Operand } from '@x/core';
import type { KernelDevice } from '../device';
import type { LaunchShape } from '../launch-shape';
import { launchQuantizeQ81 } from '../launchers/quantized';
import type { KernelStorage } from '../storage';

/** Rows that the matrix-vector kernels take; more go to the tiled ones. */
export const MAX_VECTOR_ROWS = 8;
export const MAX_GRID_Y = 65535;
/** Rows are padded to this many values, as candle's MATRIX_ROW_PADDING. */
const ROW_PADDING = 512;
/** Values of a block. */
export const BLOCK_VALUES = 32;
const BLOCK_BYTES = 36;

/** Values of a row of `width` with its padding. */
export function paddedWidth(width: number): number {
  return Math.ceil(width / ROW_PADDING) * ROW_PADDING;
}

/** Rows that there is memory for: kernels for up to 1, 2, 4 or 8 rows read so many, whatever lies in those past the last. */
export function activationRows(rows: number): number {
  return rows > MAX_VECTOR_ROWS ? rows : 2 ** Math.ceil(Math.log2(Math.max(1, rows)));
}

export function activationRowBytes(width: number): number {
  return (paddedWidth(width) / BLOCK_VALUES) * BLOCK_BYTES;
}

/**
 * x [rows.count, width], in f32, f16 or bf16, as blocks, in memory with room for `rows.room`.
 */
export function quantizeRows(
  device: KernelDevice,
  x: Operand,
  rows: { count: number; room: number },
  width: number,
): KernelStorage {
  const padded = paddedWidth(width);
  const rowBytes = activationRowBytes(width);
  const { ptr, itemBytes } = device.view(x);
  const kernel = x.storage.dtype === 'f32' ? 'quantize_q8_1' : `quantize_q8_1_${x.storage.dtype}`;
  const blocks = device.allocUninit(rows.room * rowBytes, 'u8');
  try {
    // More rows than a grid's y dimension has go in slices, as in candle.
    for (let row = 0; row < rows.count; row += MAX_GRID_Y) {
      const count = Math.min(MAX_GRID_Y, rows.count - row);
      const shape: LaunchShape = { grid: [Math.ceil(padded / 256), count, 1], block: 256 };
      launchQuantizeQ81(device, kernel, shape, {
        x: ptr + row * width * itemBytes,
        y: blocks.ptr + row * rowBytes,
        kx: width,
        kxPadded: padded,
      });
    }
    return blocks;
  } catch (error) {
    blocks.dispose();
    throw error;
  }
}
