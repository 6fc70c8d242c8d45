/**
 * `X_DEBUG`: 1 device choice, 2 module lookups, 3 allocations, 4 every launch with its time (which synchronises).
 * Lines go to stderr, so programs keep their output.
 */
import { settings } from '@x/core';
export function debugLevel(): number {
  return settings.debug();
}

export function debug(level: number, message: () => string): void {
  if (debugLevel() >= level) process.stderr.write(`[x${level}] ${message()}\n`);
}
