/**
 * The package in a browser: bundlers take it as it is, and what they make computes in Chromium, where there is one
 * (tools/setup.mjs installs it for the tests).
 */
import { spawnSync } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';
import * as esbuild from 'esbuild';
import { afterAll, expect, test } from 'vitest';
import { npyHeader } from '../src/files/npy-header';

const at = (path: string) => fileURLToPath(new URL(`../src/${path}`, import.meta.url));
const SOURCES = { '@x/core/files': at('files/index.ts'), '@x/core': at('index.ts') };
const directory = mkdtempSync(join(tmpdir(), 'browser-'));
afterAll(() => rmSync(directory, { recursive: true, force: true }));

/** What a page does; it leaves `result` in its document. */
const npy = Buffer.concat([npyHeader('f32', [2]), Buffer.from(Float32Array.of(3, 4).buffer)]);
const PAGE = `
import { Device, memoryStats, noGrad, isGradEnabled, scope, Tensor, Var } from '@x/core';
import { readNpy, readNpySync } from '@x/core/files';
const out = {};
const main = async () => {
  out.product = Tensor.arange(0, 6, { device: 'js' }).reshape([2, 3]).matmul(Tensor.ones([3, 2], 'f32', 'js')).toVecSync();
  out.cpu = Tensor.ones([2]).device.toString();
  out.scoped = Device.scoped('js', () => Tensor.ones([1])).device.toString();
  out.noGrad = [noGrad(isGradEnabled), isGradEnabled()];
  const x = Var.fromTensor(Tensor.from([1, 2], { device: 'js' }));
  out.grad = x.sqr().sumAll().backward().get(x).toVecSync();
  const before = memoryStats().liveTensors;
  scope(() => { Tensor.ones([4]); });
  out.left = memoryStats().liveTensors - before;
  const bytes = Uint8Array.from(${JSON.stringify([...npy])});
  out.npy = [(await readNpy(bytes)).toVecSync(), readNpySync(bytes).toVecSync()];
  out.path = await readNpy('a.npy').catch((error) => error.code + ' ' + error.message);
  out.write = await Tensor.ones([1]).writeNpy('a.npy').catch((error) => error.code);
  try { out.shared = Tensor.fromShared(Tensor.ones([2]).toSharedSync()).toVecSync(); } catch (error) { out.shared = error.code; }
  out.list = Device.list().filter(({ available }) => available).map(({ name }) => name);
};
main().catch((error) => { out.error = String(error.stack); }).then(() => {
  document.body.textContent = JSON.stringify(out);
});`;

async function bundle(contents: string, options: esbuild.BuildOptions = {}): Promise<string> {
  const { outputFiles, warnings, metafile } = await esbuild.build({
    stdin: { contents, resolveDir: directory, sourcefile: 'page.ts' },
    alias: SOURCES,
    bundle: true,
    write: false,
    metafile: true,
    logLevel: 'silent',
    ...options,
  });
  expect(warnings).toEqual([]);
  expect(Object.values(metafile!.outputs).flatMap(({ imports }) => imports)).toEqual([]);
  return outputFiles![0].text;
}

const ONLY_TENSOR = `import { Tensor } from '@x/core'; console.log(Tensor.ones([2], 'f32', 'js').toVecSync());`;

test.each([
  { platform: 'browser' },
  { platform: 'browser', format: 'esm' },
  { platform: 'neutral' },
  { platform: 'browser', minify: true, conditions: ['worker'] },
] as esbuild.BuildOptions[])('esbuild bundles it without stubs: %o', async (options) => {
  await bundle(ONLY_TENSOR, options);
});

test('vite bundles it without stubs or warnings', { timeout: 120_000 }, async () => {
  // The one that vitest runs on.
  const vite = createRequire(createRequire(import.meta.url).resolve('vitest/package.json')).resolve('vite');
  const { build } = await import(pathToFileURL(vite).href);
  const entry = join(directory, 'main.ts');
  writeFileSync(entry, ONLY_TENSOR);
  const warnings: string[] = [];
  const warn = (message: string) => void warnings.push(message);
  const result = await build({
    root: directory,
    configFile: false,
    resolve: { alias: SOURCES },
    customLogger: {
      info() {},
      warn,
      warnOnce: warn,
      error: warn,
      clearScreen() {},
      hasErrorLogged: () => false,
      hasWarned: false,
    },
    build: { write: false, rollupOptions: { input: entry } },
  });
  expect(warnings).toEqual([]);
  const { output } = result as { output: { fileName: string; code?: string }[] };
  const code = output.map((chunk) => chunk.code ?? '').join('');
  expect(code.length).toBeGreaterThan(10_000);
  expect(code).not.toMatch(/__vite-browser-external|node:/);
});

const CHROMIUM = ['chromium', 'chromium-browser', 'google-chrome'].find(
  (name) => spawnSync('sh', ['-c', `command -v ${name}`]).status === 0,
);

test.skipIf(!CHROMIUM)('computes in Chromium', { timeout: 180_000 }, async () => {
  const page = join(directory, 'page.html');
  const script = (await bundle(PAGE)).replaceAll('</script', '<\\/script');
  writeFileSync(page, `<!doctype html><meta charset="utf-8"><body></body><script>${script}</script>`);
  const flags = [
    '--headless',
    '--no-sandbox',
    '--disable-gpu',
    '--disable-dev-shm-usage',
    '--virtual-time-budget=20000',
  ];
  const { stdout, stderr } = spawnSync(
    CHROMIUM!,
    [...flags, `--user-data-dir=${join(directory, 'profile')}`, '--dump-dom', `file://${page}`],
    { encoding: 'utf8', timeout: 120_000 },
  );
  const [, json] = /<body>(\{.*\})<\/body>/s.exec(stdout.replace(/<script[\s\S]*<\/script>/, '')) ?? [];
  expect(json, `${stdout.slice(-2000)}\n${stderr}`).toBeDefined();
  const result = JSON.parse(json!.replaceAll('&gt;', '>').replaceAll('&lt;', '<').replaceAll('&amp;', '&'));
  expect(result).toEqual({
    product: [
      [3, 3],
      [12, 12],
    ],
    cpu: 'cpu',
    scoped: 'js',
    noGrad: [false, true],
    grad: [2, 4],
    left: 0,
    npy: [
      [3, 4],
      [3, 4],
    ],
    path: expect.stringMatching(/^UNSUPPORTED .*fetch\(url\)/),
    write: 'UNSUPPORTED',
    // A page from a file is not isolated.
    shared: 'UNSUPPORTED',
    list: ['js', 'cpu'],
  });
});
