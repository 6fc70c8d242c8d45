import { execFileSync } from 'node:child_process';
import { copyFileSync, mkdirSync, readdirSync, writeFileSync } from 'node:fs';
import { basename, join, relative } from 'node:path';
import type { Options } from 'tsup';

const ROOT = __dirname;

/** Contexts of `node:vm`, in which Jest and Vitest's `vmThreads` run tests, have none on Node 20 and 22. */
const DISPOSE = "Symbol.dispose ??= Symbol.for('Symbol.dispose');";

type Entry = string[] | Record<string, string>;

/** What every package of the workspace is built with: ESM and CommonJS with types for both. */
export function library(entry: Entry = ['src/index.ts'], extra: Options = {}): Options {
  return {
    entry,
    format: ['esm', 'cjs'],
    dts: { entry: declarations(entry), compilerOptions: { noCheck: true, noLib: true, types: [] } },
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

/**
 * Each entry's declarations, a file a module, which tsup puts into one: compiled TypeScript writes them in a tenth of the time. What the
 * sources mean is checked once for all packages (`pnpm typecheck`).
 */
function declarations(entry: Entry): Record<string, string> {
  const home = process.cwd();
  const outDir = join(ROOT, '.cache/declarations', basename(home));
  const inside = join(outDir, relative(ROOT, home));
  const entries = Array.isArray(entry) ? Object.fromEntries(entry.map((path) => [basename(path, '.ts'), path])) : entry;
  const project = {
    extends: join(ROOT, 'tsconfig.base.json'),
    compilerOptions: { noEmit: false, emitDeclarationOnly: true, noCheck: true, rootDir: ROOT, outDir },
    files: Object.values(entries).map((path) => join(home, path)),
  };
  mkdirSync(join(inside, 'src'), { recursive: true });
  writeFileSync(join(outDir, 'tsconfig.json'), JSON.stringify(project));
  execFileSync(process.execPath, [join(ROOT, 'node_modules/typescript-native/bin/tsc'), '-p', outDir], {
    stdio: 'inherit',
  });
  // Those of modules in JavaScript are written by hand.
  const byHand = readdirSync(join(home, 'src')).filter((name) => name.endsWith('.d.mts'));
  for (const name of byHand) copyFileSync(join(home, 'src', name), join(inside, 'src', name));
  return Object.fromEntries(
    Object.entries(entries).map(([name, path]) => [name, join(inside, path.replace(/\.ts$/, '.d.ts'))]),
  );
}
