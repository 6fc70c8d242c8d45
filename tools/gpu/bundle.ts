/**
 * Bundles the device tests and the `candle` command for a machine with a GPU on which nothing is installed:
 *
 *   tsx tools/gpu/bundle.ts [--node]        writes .gpu/; --node adds this machine's Node binary, compressed
 *   tools/gpu/run.sh test|sanitize|decode|bench|example   there, in a copy of the checkout that has .gpu/
 *
 * Everything JavaScript is bundled, since the links of pnpm's node_modules rarely survive copying. Each source keeps the
 * file URL that it has in the repository, so that fixtures, models, the addon and kernels are found where they are; ranks in
 * worker threads have programs of their own beside the bundles.
 */
import { execFileSync } from 'node:child_process';
import { existsSync, mkdirSync, readFileSync, rmSync } from 'node:fs';
import { dirname, join, relative } from 'node:path';
import { fileURLToPath } from 'node:url';
import { type BuildOptions, build, type Plugin } from 'esbuild';
import { parseTargets } from '../kernels/targets';

const root = join(dirname(fileURLToPath(import.meta.url)), '../..');
const out = join(root, '.gpu');

/** Tests that run over every device present: directories, and which of their files where they are divided. */
const SUITES: Record<string, { directories: string[]; only?: RegExp; except?: RegExp }> = {
  ops: { directories: ['packages/rocm-backend/test'], except: /runtime-|hiprtc|nvcc|module-store|libraries/ },
  // Kernels compiled at run time, which takes minutes.
  compile: { directories: ['packages/rocm-backend/test'], only: /runtime-|hiprtc|nvcc|module-store/ },
  // What the vendors' libraries do is not for compute-sanitizer.
  libraries: { directories: ['packages/rocm-backend/test'], only: /libraries/ },
  model: {
    directories: ['packages/engine/test', 'packages/transformers/test', 'packages/quantized/test', 'packages/nn/test'],
  },
};

/** Code objects that the tests need there: the GPU's, the host's, and one of another warp size. */
const TARGETS = ['nvptx64', 'sm_90a', 'gfx1100', ...parseTargets('host').map(({ name }) => name)];

/** Examples that say something about a GPU and are one program (worker-threads starts another one). */
const EXAMPLES = ['custom-kernel', 'linear-regression', 'mandelbrot', 'train-char-lm'];

/** Programs of worker threads and what they import, in files of their own that share core: see {@link STANDS_FOR}. */
const THREAD_ENTRIES = {
  worker: 'packages/engine/src/parallel/worker.ts',
  backend: 'packages/rocm-backend/src/index.ts',
  core: 'packages/core/src/index.ts',
};

/** Sources that look for a thread's program beside themselves, or are one's import: where they are in the bundle. */
const STANDS_FOR: Record<string, string> = {
  'packages/engine/src/parallel/thread-program.ts': '.gpu/threads.js',
  'packages/testing/src/ranks.ts': '.gpu/ranks.js',
  'packages/rocm-backend/src/index.ts': '.gpu/backend.js',
};

const sourceUrls: Plugin = {
  name: 'source-urls',
  setup({ onLoad }) {
    onLoad({ filter: /\.ts$/ }, ({ path }) => {
      if (path.includes('node_modules')) return undefined;
      const source = relative(root, path);
      const url = `globalThis.__fileUrl(${JSON.stringify(STANDS_FOR[source] ?? source)})`;
      return { contents: readFileSync(path, 'utf8').replaceAll('import.meta.url', url), loader: 'ts' };
    });
  },
};

const SETTINGS: BuildOptions = {
  bundle: true,
  platform: 'node',
  format: 'esm',
  target: 'node20',
  tsconfig: join(root, 'tsconfig.base.json'),
  alias: { vitest: join(root, 'tools/gpu/vitest-shim.ts') },
  plugins: [sourceUrls],
  banner: {
    js: [
      "import { createRequire as __createRequire } from 'node:module';",
      "import { pathToFileURL as __pathToFileURL } from 'node:url';",
      'const require = __createRequire(import.meta.url);',
      'globalThis.__fileUrl = (path) => __pathToFileURL(path).href;',
    ].join('\n'),
  },
  logLevel: 'warning',
  // Tests are imported for their effects, which the packages' manifests rule out.
  ignoreAnnotations: true,
};

async function main(): Promise<void> {
  rmSync(out, { recursive: true, force: true });
  mkdirSync(out, { recursive: true });
  for (const [name, { directories, only, except }] of Object.entries(SUITES)) {
    const files = directories.flatMap(testFiles).filter((file) => only?.test(file) !== false && !except?.test(file));
    // X_TEST_FILES, a regular expression, picks files.
    const contents = files.map((file) => {
      const name = JSON.stringify(`./${file}`);
      return `if (new RegExp(process.env.X_TEST_FILES ?? '').test(${name})) await import(${name});`;
    });
    await bundle(
      { stdin: { contents: contents.join('\n'), resolveDir: root, sourcefile: `${name}.ts` } },
      `${name}.test.mjs`,
    );
  }
  await bundle({ entryPoints: [join(root, 'packages/candle/src/cli.ts')] }, 'candle.mjs');
  for (const name of [
    'all-reduce',
    'architectures',
    'decode-gaps',
    'decode-kernels',
    'differences',
    'embed',
    'ops',
    'gemm',
    'conv',
    'dispatch',
    'cpu-bandwidth',
    'quantized-matmul',
    'quantized',
    'scans',
    'serve',
  ])
    await bundle({ entryPoints: [join(root, `tools/bench/${name}.ts`)] }, `bench-${name}.mjs`);
  for (const name of EXAMPLES)
    await bundle({ entryPoints: [join(root, `examples/${name}/main.ts`)] }, `example-${name}.mjs`);
  await bundleThreads();
  const built = TARGETS.map((target) => `packages/kernels/objects/${target}`).filter((path) =>
    existsSync(join(root, path)),
  );
  const parts = ['packages/hip/prebuilds', 'packages/kernels/sources', ...built];
  execFileSync('tar', ['-cJf', join(out, 'built.tar.xz'), ...parts], { cwd: root });
  if (process.argv.includes('--node'))
    execFileSync('sh', ['-c', `xz -T0 -6 -c ${process.execPath} > ${join(out, 'node.xz')}`]);
  console.log(`.gpu holds ${execFileSync('du', ['-sh', out], { encoding: 'utf8' }).split('\t')[0]}`);
}

function testFiles(directory: string): string[] {
  return execFileSync('find', [directory, '-name', '*.test.ts'], { cwd: root, encoding: 'utf8' })
    .trim()
    .split('\n')
    .sort();
}

async function bundle(input: { stdin?: object; entryPoints?: string[] }, name: string): Promise<void> {
  await build({ ...SETTINGS, ...(input as object), outfile: join(out, name) });
}

async function bundleThreads(): Promise<void> {
  const entryPoints = Object.fromEntries(
    Object.entries(THREAD_ENTRIES).map(([name, source]) => [name, join(root, source)]),
  );
  await build({ ...SETTINGS, entryPoints, outdir: out, splitting: true });
}

void main();
