/**
 * `X_DEBUG`: 1 device choice, 2 module lookups, 3 allocations, 4 every launch with its time (which synchronises).
 * Lines go to stderr, so programs keep their output.
 */
export function debugLevel(): number {
  const level = Number(process.env.X_DEBUG ?? 0);
  return Number.isFinite(level) ? level : 0;
}

export function debug(level: number, message: () => string): void {
  if (debugLevel() >= level) process.stderr.write(`[x${level}] ${message()}\n`);
}
