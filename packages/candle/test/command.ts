/** The `candle` command of these sources as one file: starting it takes a fifth of what it takes through tsx. */
import { mkdtempSync, readFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';
import { build, type Plugin } from 'esbuild';

const root = fileURLToPath(new URL('../../..', import.meta.url));

/** Each source keeps its own URL, by which the addon and the kernels are found. */
const sourceUrls: Plugin = {
  name: 'source-urls',
  setup({ onLoad }) {
    onLoad({ filter: /packages\/[^/]+\/src\/.*\.ts$/ }, ({ path }) => {
      const url = JSON.stringify(pathToFileURL(path).href);
      return { contents: readFileSync(path, 'utf8').replaceAll('import.meta.url', url), loader: 'ts' };
    });
  },
};

/** @returns a program for Node, in a temporary directory that is the caller's to remove */
export async function bundleCommand(): Promise<{ directory: string; program: string }> {
  const directory = mkdtempSync(join(tmpdir(), 'candle-command-'));
  const program = join(directory, 'candle.mjs');
  await build({
    entryPoints: [join(root, 'packages/candle/src/cli.ts')],
    outfile: program,
    bundle: true,
    platform: 'node',
    format: 'esm',
    target: 'node20',
    tsconfig: join(root, 'tsconfig.base.json'),
    plugins: [sourceUrls],
    banner: { js: "import { createRequire as req } from 'node:module'; const require = req(import.meta.url);" },
    logLevel: 'warning',
  });
  return { directory, program };
}
