/** The switch of this package, which stands alone. See packages/core/src/settings.ts for the others. */

/** A directory with `objects/` and `sources/` in place of the package's own (`X_KERNEL_DIR`); undefined by default. */
export function namedDirectory(): string | undefined {
  return process.env.X_KERNEL_DIR || undefined;
}
