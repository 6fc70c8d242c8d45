// Programs in bundles: beside installed packages each runs with its kernels; in an empty folder it computes in plain TypeScript, or
// says what to install or to leave out of the bundle.
import { spawnSync } from 'node:child_process';
import { cpSync, mkdirSync, rmSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { dirname, join } from 'node:path';
import { report, work } from './project.mjs';
import { ran, TEXT } from './uses.mjs';

const require = createRequire(import.meta.url);
/** Its arguments are those of `candle run`, so to say: the model. */
export const APP = `import { loadModel } from '@x/candle';
async function main() {
  const model = await loadModel(process.argv[2], { device: 'cpu', maxContext: 64 });
  const text = await model.generate('Once upon a time', { maxTokens: 4, temperature: 0 }).text();
  console.log(JSON.stringify({ text, on: model.device.backend.description }));
  model.dispose();
}
main().catch((error) => {
  console.error(error);
  process.exitCode = 1;
});
`;
const WITHOUT_KERNELS = /plain TypeScript on the CPU, because .*npm install @x\/hip-linux-/;

export async function checkBundles(project) {
  const model = join(project, 'model.gguf');
  writeFileSync(join(project, 'app.mjs'), APP);
  const empty = join(work, 'empty');
  const inPlaces = (label, folder, file) => {
    const beside = ran(process.execPath, [join(folder, file), model], project);
    const good = beside.text === TEXT && !/plain TypeScript/.test(beside.on);
    report(`${label}: runs beside the packages`, good || `${JSON.stringify(beside)}\n${beside.stderr}`);
    rmSync(empty, { recursive: true, force: true });
    cpSync(folder, empty, { recursive: true });
    const alone = ran(process.execPath, [join(empty, file), model], empty);
    const told = alone.text === TEXT && WITHOUT_KERNELS.test(alone.on) && /CPU_WITHOUT_KERNELS/.test(alone.stderr);
    report(`${label}: alone, computes in TypeScript and says why`, told || `${JSON.stringify(alone)}\n${alone.stderr}`);
  };
  for (const [label, bundle] of Object.entries(BUNDLERS)) {
    const folder = join(project, 'bundles', label.replaceAll(' ', '-'));
    mkdirSync(folder, { recursive: true });
    inPlaces(label, folder, await bundle(project, folder));
  }
  await checkWebpack(project, model);
  await checkTrace(project, model);
}

/** By name: writes a bundle of all but Node's own modules, and says in which file it is. */
const BUNDLERS = {
  'esbuild esm': (project, folder) => esbuild(project, folder, 'esm', 'app.mjs'),
  'esbuild cjs': (project, folder) => esbuild(project, folder, 'cjs', 'app.cjs'),
  async rollup(project, folder) {
    const { rollup } = await import('rollup');
    const { nodeResolve } = await import('@rollup/plugin-node-resolve');
    const plugins = [nodeResolve({ preferBuiltins: true })];
    const bundle = await rollup({ input: join(project, 'app.mjs'), plugins, onwarn() {} });
    await bundle.write({ file: join(folder, 'app.mjs'), format: 'esm', inlineDynamicImports: true });
    await bundle.close();
    return 'app.mjs';
  },
  async vite(project, folder) {
    const { build } = await import('vite');
    const output = { ssr: join(project, 'app.mjs'), outDir: folder, emptyOutDir: true, minify: false };
    await build({ root: project, logLevel: 'error', configFile: false, build: output, ssr: { noExternal: true } });
    return 'app.mjs';
  },
};

async function esbuild(project, folder, format, file) {
  const { build } = require('esbuild');
  const options = { bundle: true, platform: 'node', logLevel: 'error', format };
  await build({ ...options, entryPoints: [join(project, 'app.mjs')], outfile: join(folder, file) });
  return file;
}

/** Knows no binaries: it says so, and what comes out says which packages to leave out; without them it runs. */
async function checkWebpack(project, model) {
  const webpack = require('webpack');
  const bundle = (name, externals) => {
    const path = join(project, 'bundles', name);
    const options = { mode: 'none', target: 'node20', context: project, entry: './app.mjs', externals };
    const output = { path, filename: 'app.cjs' };
    return new Promise((resolve, reject) => {
      webpack({ ...options, output }, (error, stats) =>
        error
          ? reject(error)
          : resolve({ file: join(path, 'app.cjs'), errors: stats.toJson({ all: false, errors: true }).errors }),
      );
    });
  };
  const whole = await bundle('webpack');
  const named = whole.errors.some(({ message, moduleName }) => /hip\.node/.test(`${message} ${moduleName}`));
  report('webpack: stops at the binary', named || JSON.stringify(whole.errors));
  const told = ran(process.execPath, [whole.file, model], project);
  const advice = /Leave the @x packages out of the bundle \(webpack: externals/;
  report(
    'webpack: what comes out says what to leave out',
    advice.test(told.on) || `${JSON.stringify(told)}\n${told.stderr}`,
  );
  const without = await bundle('webpack-externals', ({ request }, callback) =>
    /^@x\//.test(request) ? callback(null, `commonjs ${request}`) : callback(),
  );
  report('webpack: takes the rest', without.errors.length === 0 || JSON.stringify(without.errors));
  const result = ran(process.execPath, [without.file, model], project);
  const good = result.text === TEXT && !/plain TypeScript/.test(result.on);
  report('webpack: runs with the packages as externals', good || `${JSON.stringify(result)}\n${result.stderr}`);
}

/** What a tracer copies runs when it has the package of kernels, whose files are read by name; without it, that is named. */
async function checkTrace(project, model) {
  const { nodeFileTrace } = require('@vercel/nft');
  const { fileList } = await nodeFileTrace([join(project, 'app.mjs')], { base: project });
  const traced = join(work, 'traced');
  const copy = (file) => {
    mkdirSync(dirname(join(traced, file)), { recursive: true });
    cpSync(join(project, file), join(traced, file), { recursive: true });
  };
  for (const file of fileList) copy(file);
  const kernels = `@x/kernels-host-${process.arch}`;
  const first = ran(process.execPath, ['app.mjs', model], traced);
  report('nft: names the package of kernels', first.stderr.includes(`npm install ${kernels}`) || first.stderr);
  copy(join('node_modules', kernels));
  const then = ran(process.execPath, ['app.mjs', model], traced);
  const good = then.text === TEXT && !/plain TypeScript/.test(then.on);
  report('nft: runs with the package of kernels', good || `${JSON.stringify(then)}\n${then.stderr}`);
}

/** A program in one file with Bun inside. */
export function checkBunCompile(bun, project) {
  const model = join(project, 'model.gguf');
  const file = join(project, 'bundles', 'bun-app');
  report(
    'bun build --compile',
    spawnSync(bun, ['build', '--compile', 'app.mjs', '--outfile', file], { cwd: project, encoding: 'utf8' }),
  );
  const beside = ran(file, [model], project);
  const good = beside.text === TEXT && !/plain TypeScript/.test(beside.on);
  report('bun build --compile: runs beside the packages', good || `${JSON.stringify(beside)}\n${beside.stderr}`);
  const alone = ran(file, [model], work);
  const told = alone.text === TEXT && WITHOUT_KERNELS.test(alone.on);
  report(
    'bun build --compile: alone, computes in TypeScript and says why',
    told || `${JSON.stringify(alone)}\n${alone.stderr}`,
  );
}
