import type { Options } from 'tsup';

/** Contexts of `node:vm`, in which Jest and Vitest's `vmThreads` run tests, have none on Node 20 and 22. */
const DISPOSE = "Symbol.dispose ??= Symbol.for('Symbol.dispose');";

/** What every package of the workspace is built with: ESM and CommonJS with types for both. */
export function library(entry: string[] | Record<string, string> = ['src/index.ts'], extra: Options = {}): Options {
  return {
    entry,
    format: ['esm', 'cjs'],
    // What the sources mean is checked once for all packages (`pnpm typecheck`): here it would double the time.
    dts: { compilerOptions: { noCheck: true } },
    sourcemap: true,
    clean: true,
    target: 'node20',
    shims: true,
    banner: ({ format }) => ({ js: (format === 'cjs' ? '"use strict";\n' : '') + DISPOSE }),
    // The sources are in the maps of the ESM files.
    esbuildOptions(options, { format }) {
      options.sourcesContent = format === 'esm';
    },
    ...extra,
  };
}
