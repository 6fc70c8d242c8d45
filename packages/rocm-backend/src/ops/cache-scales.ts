/** Caches in 8 bits: kernels/shared/q8-cache.h. */
import type { PagedPool } from '@x/core';
import type { KernelDevice } from '../device';

/** Values that share a scale. */
export const CACHE_GROUP = 32;

/** Of keys and values, as launches have them. */
export function scaleAddresses(device: KernelDevice, { keys, values }: NonNullable<PagedPool['scales']>) {
  return { kScales: device.address(keys), vScales: device.address(values) };
}
