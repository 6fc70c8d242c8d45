/** What functions of this package are given: this one depends on no other, so it has checks of its own. */
import { KernelError } from './errors';

/** @throws KernelError KERNEL_ARGUMENT_INVALID for what is no text */
export function checkName(what: string, value: unknown, example: string): asserts value is string {
  if (typeof value === 'string') return;
  throw new KernelError('KERNEL_ARGUMENT_INVALID', `${what} is ${kindOf(value)}; give its name, as "${example}".`);
}

/** @throws KernelError KERNEL_ARGUMENT_INVALID for what are no bytes */
export function checkBytes(what: string, value: unknown): asserts value is Uint8Array {
  if (value instanceof Uint8Array || Object.prototype.toString.call(value) === '[object Uint8Array]') return;
  throw new KernelError('KERNEL_ARGUMENT_INVALID', `${what} is ${kindOf(value)}; give a Uint8Array.`);
}

function kindOf(value: unknown): string {
  if (value === null || value === undefined) return String(value);
  return Array.isArray(value) ? 'a list' : typeof value === 'object' ? 'an object' : `a ${typeof value}`;
}
