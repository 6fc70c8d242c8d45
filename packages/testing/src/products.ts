/** What the tests of products and convolutions share, through libraries and through our own kernels. */
import { Device, type DType } from '@x/core';
import type { RocmDevice } from '@x/rocm-backend';
import { Pair } from './operands';

/** Error of a sum of `terms` products of values up to 4. */
export const tolerance = (type: DType, terms: number) => ({
  absolute: (terms + 1) * { f64: 1e-14, f32: 1e-5, f16: 8e-3, bf16: 6.4e-2 }[type as 'f32'],
});

/** Operands on the reference and on a device, freed when `body` is done. */
export function withPair(device: RocmDevice, body: (pair: Pair) => void): void {
  const pair = new Pair(Device.js().backend, device);
  try {
    body(pair);
  } finally {
    pair.dispose();
  }
}
