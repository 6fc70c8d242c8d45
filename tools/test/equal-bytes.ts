/**
 * Typed arrays of one kind that have the same bytes are equal. Vitest asks for every element of them several times, in the form of a
 * property with a name, which for results of kernels takes longer than emulated lanes take to compute them. What differs in a
 * byte is compared as before, so that a NaN is another NaN, and a failure shows what it always did.
 */
import { expect } from 'vitest';

const bytesOf = ({ buffer, byteOffset, byteLength }: ArrayBufferView) => Buffer.from(buffer, byteOffset, byteLength);

// Once, for files that share a process each run this, and all testers are asked of every pair.
const ADDED = Symbol.for('@x/test/equal-bytes');
const realm = globalThis as { [ADDED]?: true };
if (!realm[ADDED]) {
  realm[ADDED] = true;
  expect.addEqualityTesters([
    (a: unknown, b: unknown): true | undefined => {
      if (!ArrayBuffer.isView(a) || !ArrayBuffer.isView(b)) return undefined;
      const alike = Object.getPrototypeOf(a) === Object.getPrototypeOf(b);
      return alike && bytesOf(a).equals(bytesOf(b)) ? true : undefined;
    },
  ]);
}
