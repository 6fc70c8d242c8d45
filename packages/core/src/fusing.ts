/**
 * Whether kernels may be used that do several operations at once. They are what makes decoding fast; without them the same is
 * computed of single operations, so that a wrong result can be traced to one of them. The mode is kept as that of gradients is
 * (autograd/mode.ts).
 */
import type { BackendDevice } from './backend';
import { check, FUNCTION } from './check';
import { createContext } from './context';
import type { Device } from './device';
import { shared } from './one-core';

/** Capabilities of a device with such kernels. Some of them have kernels of single operations, too. */
export type FusedCapability = 'decode' | 'experts' | 'pagedAttention' | 'quantizedExperts';

const mode = shared('fusing', () => createContext<boolean>());

/**
 * Runs `fn` without kernels that do several operations at once. `fn` may be async; the mode holds until its promise settles.
 * @returns what `fn` returns
 */
export function noFusing<T>(fn: () => T): T {
  check('noFusing', 'fn', fn, FUNCTION);
  return mode.run(false, fn);
}

/** A capability of a device, for its kernels of several operations; undefined where it has none, and inside of {@link noFusing}. */
export function fusedKernels<Name extends FusedCapability>(
  device: Device,
  name: Name,
): BackendDevice[Name] | undefined {
  return (mode.getStore() ?? true) ? device.backend[name] : undefined;
}
