// Bundles sources for processes and threads that tests start: a file starts in a fourth of what it takes through tsx.
//
//   node write-bundle.mjs DIRECTORY NAME=SOURCE...   writes DIRECTORY/NAME.mjs, which share what they have in common, and prints
//                                                    their inputs and a digest of what was written
import { createHash } from 'node:crypto';
import { readdirSync, readFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
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

/** Packages that are imported in time are left to Node, which gives those of CommonJS their names. Few runs need one. */
const later = {
  name: 'later',
  setup(build) {
    build.onResolve({ filter: /^[^./]/ }, async ({ path, pluginData, ...options }) => {
      if (options.kind !== 'dynamic-import' || path.startsWith('@x/') || pluginData === later) return undefined;
      const found = await build.resolve(path, { ...options, pluginData: later });
      return found.external ? found : { path: pathToFileURL(found.path).href, external: true };
    });
  },
};

const [outdir, ...sources] = process.argv.slice(2);
const { metafile } = await build({
  entryPoints: Object.fromEntries(sources.map((source) => source.split('='))),
  outdir,
  outExtension: { '.js': '.mjs' },
  bundle: true,
  splitting: true,
  // A test may ask for the name of a class.
  keepNames: true,
  platform: 'node',
  format: 'esm',
  target: 'node20',
  tsconfig: fileURLToPath(new URL('../../../tsconfig.base.json', import.meta.url)),
  plugins: [sourceUrls, later],
  banner: { js: "import { createRequire as req } from 'node:module'; const require = req(import.meta.url);" },
  logLevel: 'warning',
  metafile: true,
});
const digest = createHash('sha256');
for (const name of readdirSync(outdir).sort()) digest.update(name).update(readFileSync(join(outdir, name)));
const inputs = Object.keys(metafile.inputs).map((path) => resolve(path));
console.log(JSON.stringify({ inputs, digest: digest.digest('hex').slice(0, 16) }));
