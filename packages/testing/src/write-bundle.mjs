// Bundles sources for processes and threads that tests start: a file starts in a fourth of what it takes through tsx.
//
//   node write-bundle.mjs DIRECTORY NAME=SOURCE...   writes DIRECTORY/NAME.mjs, which share what they have in common
import { readFileSync } from 'node:fs';
import { fileURLToPath, pathToFileURL } from 'node:url';
import { build } from 'esbuild';

/** Each source keeps its own URL, by which the addon and the kernels are found. */
const sourceUrls = {
  name: 'source-urls',
  setup({ onLoad }) {
    onLoad({ filter: /packages\/[^/]+\/src\/.*\.ts$/ }, ({ path }) => {
      const url = JSON.stringify(pathToFileURL(path).href);
      return { contents: readFileSync(path, 'utf8').replaceAll('import.meta.url', url), loader: 'ts' };
    });
  },
};

const [outdir, ...sources] = process.argv.slice(2);
await build({
  entryPoints: Object.fromEntries(sources.map((source) => source.split('='))),
  outdir,
  outExtension: { '.js': '.mjs' },
  bundle: true,
  // Only where modules have to be shared: packages of CommonJS that are imported in time would lose their names.
  splitting: sources.length > 1,
  // A test may ask for the name of a class.
  keepNames: true,
  platform: 'node',
  format: 'esm',
  target: 'node20',
  tsconfig: fileURLToPath(new URL('../../../tsconfig.base.json', import.meta.url)),
  plugins: [sourceUrls],
  banner: { js: "import { createRequire as req } from 'node:module'; const require = req(import.meta.url);" },
  logLevel: 'warning',
});
