/** What every family needs: a result to fill, and what a dtype allows. */
import type { DType, Operand } from '@x/core';
import type { KernelDevice } from '../device';
import { unsupported } from '../errors';
import { KernelStorage } from '../storage';

export const FLOATS: readonly DType[] = ['bf16', 'f16', 'f32', 'f64', 'f8e4m3'];
const INDEX_DTYPES: readonly DType[] = ['u8', 'u32', 'i16', 'i32', 'i64'];

/**
 * Allocates a result, fills it, and gives it back when the launch fails; `into` is memory of the caller's instead. Nothing
 * is launched for an empty result.
 */
export function filled(
  device: KernelDevice,
  dtype: DType,
  elemCount: number,
  fill: (out: number) => void,
  into?: Operand,
): KernelStorage {
  if (into) {
    const target = KernelStorage.on(device, into.storage);
    if (elemCount > 0) fill(target.view(into.layout).ptr);
    return target;
  }
  const out = device.allocUninit(elemCount, dtype);
  return elemCount === 0 ? out : keptIfFilled(out, fill);
}

/** As {@link filled}, of rows whose kernel may write more of them: `room` rows. */
export function filledRows(
  device: KernelDevice,
  dtype: DType,
  { rows, room, width }: { rows: number; room: number; width: number },
  fill: (out: number) => void,
): KernelStorage {
  const out = device.allocUninit(rows * width, dtype, room * width);
  return rows * width === 0 ? out : keptIfFilled(out, fill);
}

/** Rows of a product, and the address that they go to. */
export interface ProductRows {
  first: number;
  count: number;
  to: number;
}

/** All rows of a product [m, n] of f32, in the parts that it is to be made in: most are made in one, at `out`. */
export function rowsOfProduct(device: KernelDevice, size: { m: number; n: number }, out: number): ProductRows[] {
  return device.splitProduct?.(size, out) ?? [{ first: 0, count: size.m, to: out }];
}

/** A result that `fill` writes to; given back when that fails. */
export function keptIfFilled(result: KernelStorage, fill: (out: number) => void): KernelStorage {
  try {
    fill(result.ptr);
    return result;
  } catch (error) {
    result.dispose();
    throw error;
  }
}

/** The dtype of conditions and ids, an integer one. */
export function indexDtype(device: KernelDevice, { storage }: Operand): DType {
  if (!INDEX_DTYPES.includes(storage.dtype)) throw unsupported('indexing', storage.dtype, device);
  return storage.dtype;
}
