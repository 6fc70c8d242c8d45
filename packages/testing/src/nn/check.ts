import { memoryStats, scope } from '@x/core';
import { expect, test } from 'vitest';

/** A test whose body runs in a scope, and leaves nothing behind. */
export function check(title: string, body: () => void): void {
  test(title, () => {
    const before = memoryStats();
    scope(body);
    expect(memoryStats()).toEqual(before);
  });
}
