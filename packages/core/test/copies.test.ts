/** Several copies of the package in one process, built as it is published and installed into a folder of their own. */
import { spawnSync } from 'node:child_process';
import { cpSync, mkdirSync, mkdtempSync, readFileSync, realpathSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import * as esbuild from 'esbuild';
import { afterAll, beforeAll, expect, test } from 'vitest';

const root = fileURLToPath(new URL('..', import.meta.url));
// A folder with a space: places are read from stacks.
const directory = realpathSync(mkdtempSync(join(tmpdir(), 'two copies-')));
const installed = join(directory, 'node_modules/@x/core');

beforeAll(async () => {
  const entryPoints = { index: join(root, 'src/index.ts'), files: join(root, 'src/files/index.ts') };
  const options = { entryPoints, outdir: join(installed, 'dist'), bundle: true, target: 'node20', write: true };
  await esbuild.build({ ...options, format: 'esm', splitting: true });
  // Not split: each entry is a copy of the core.
  await esbuild.build({ ...options, format: 'cjs', outExtension: { '.js': '.cjs' } });
  cpSync(join(root, 'package.json'), join(installed, 'package.json'));
});
afterAll(() => rmSync(directory, { recursive: true, force: true }));

/** Another installation of the package, with another version where one is given. */
function install(folder: string, version?: string): string {
  const path = join(directory, folder, 'node_modules/@x/core');
  mkdirSync(path, { recursive: true });
  cpSync(installed, path, { recursive: true });
  const manifest = JSON.parse(readFileSync(join(path, 'package.json'), 'utf8'));
  writeFileSync(join(path, 'package.json'), JSON.stringify({ ...manifest, version: version ?? manifest.version }));
  return path;
}

/** What a program prints, as JSON. */
function run(body: string, args: readonly string[] = []): Record<string, unknown> {
  const program = join(directory, 'program.mjs');
  writeFileSync(
    program,
    `import { createRequire } from 'node:module';
    import * as a from '@x/core';
    const require = createRequire(import.meta.url);
    const failure = (body) => { try { return { value: String(body()) }; } catch ({ name, code, message }) { return { name, code, message }; } };
    const out = {};
    ${body}
    console.log(JSON.stringify(out));`,
  );
  const { stdout, stderr } = spawnSync(process.execPath, [...args, program], { encoding: 'utf8' });
  expect(stderr).toBe('');
  return JSON.parse(stdout);
}

const TOGETHER = `
  out.apart = a.Tensor !== b.Tensor;
  const x = a.Tensor.from([1, 2], { device: 'js' });
  const y = b.Tensor.from([3, 4], { device: 'js' });
  out.device = [x.device === y.device, x.device instanceof b.Device, b.Device.of(x.device) === x.device];
  out.sums = [x.add(y).toVecSync(), y.add(x).toVecSync(), b.cat([x, y], 0).toVecSync(), b.operators.mul(x, y).toVecSync()];
  out.instances = [x instanceof b.Tensor, y instanceof a.Tensor, {} instanceof b.Tensor, null instanceof a.Tensor, x instanceof b.Var];
  out.ids = x.id !== y.id;
  const v = a.Var.fromTensor(x);
  const w = b.Var.fromTensor(y);
  out.variables = [v instanceof b.Var, b.Var.fromTensor(v) === v];
  const grads = b.Tensor.prototype.backward.call(v.mul(w).add(w.sqr()).sumAll());
  out.grads = [grads.get(v).toVecSync(), grads.get(w).toVecSync()];
  grads.extend(v.sqr().sumAll().backward());
  out.extended = grads.get(v).toVecSync();
  out.noGrad = a.noGrad(() => b.isGradEnabled());
  const before = b.memoryStats().liveTensors;
  a.scope(() => { b.Tensor.ones([4], 'f32', 'js'); b.scope(() => a.Tensor.ones([4], 'f32', 'js')); });
  out.left = a.memoryStats().liveTensors - before;
  out.counts = JSON.stringify(a.memoryStats()) === JSON.stringify(b.memoryStats());
  out.scoped = a.Device.scoped('js', () => b.Device.current().toString());
  a.registerBackend({ kind: 'rocm', list: () => ({ devices: [{ ordinal: 3, description: 'test' }] }), open: () => { throw new Error('none'); } });
  out.backends = [b.registeredBackends(), b.Device.list().some(({ name }) => name === 'rocm:3')];
  a.setPrintOptions({ precision: 1 });
  out.printing = b.printOptions().precision;
  const error = (() => { try { x.reshape([3]); } catch (error) { return error; } })();
  out.errors = [error instanceof b.ShapeError, error instanceof b.CandleError, error instanceof b.DTypeError];
`;

const WHOLE = {
  apart: true,
  device: [true, true, true],
  sums: [
    [4, 6],
    [4, 6],
    [1, 2, 3, 4],
    [3, 8],
  ],
  instances: [true, true, false, false, false],
  ids: true,
  variables: [true, true],
  grads: [
    [3, 4],
    [7, 10],
  ],
  extended: [5, 8],
  noGrad: false,
  left: 0,
  counts: true,
  scoped: 'js',
  backends: [['rocm'], true],
  printing: 1,
  errors: [true, true, false],
};

test('the ES module and the CommonJS one are one core', () => {
  expect(run(`const b = require('@x/core'); ${TOGETHER}`)).toEqual(WHOLE);
});

test('a process whose intrinsics are frozen loads it', () => {
  const frozen = ['--frozen-intrinsics', '--no-warnings'];
  expect(run(`const b = require('@x/core'); ${TOGETHER}`, frozen)).toEqual(WHOLE);
});

test('so are two installations of a version, and of two patches of one', () => {
  const same = install('same');
  expect(run(`const b = require(${JSON.stringify(same)}); ${TOGETHER}`)).toEqual(WHOLE);
  const patch = install('patch', '0.1.99');
  expect(run(`const b = await import(${JSON.stringify(`${patch}/dist/index.js`)}); ${TOGETHER}`)).toEqual(WHOLE);
});

test('files are read and written by any copy', () => {
  const out = run(`
    const files = require('@x/core/files');
    const path = ${JSON.stringify(join(directory, 'x.safetensors'))};
    await files.saveSafetensors(path, { x: a.Tensor.from([1, 2], { device: 'js' }) });
    const x = await files.SafetensorsFile.open(path).load('x', a.Device.js());
    out.x = [x instanceof a.Tensor, x.add(x).toVecSync()];
    out.missing = (() => { try { files.readNpySync('no-such.npy'); } catch (error) { return error instanceof a.FileFormatError && error.code; } })();
  `);
  expect(out).toEqual({ x: [true, [2, 4]], missing: 'FILE_NOT_FOUND' });
});

test('two minor versions are one error, whichever way they meet', () => {
  const other = install('other', '0.7.3');
  const out = run(`
    const b = require(${JSON.stringify(other)});
    const x = a.Tensor.from([1, 2], { device: 'js' });
    out.make = failure(() => b.Tensor.ones([2], 'f32', 'js'));
    out.current = failure(() => b.Tensor.ones([2]));
    out.device = failure(() => b.Tensor.ones([2], 'f32', x.device));
    out.option = failure(() => b.Tensor.ones([2], { device: x.device }));
    out.tensor = failure(() => b.cat([x], 0));
    out.operand = failure(() => b.operators.add(x, 1));
    out.variable = failure(() => b.Var.fromTensor(x));
    out.still = x.add(x).toVecSync();
    out.instance = x instanceof b.Tensor;
  `);
  const { still, instance, ...failures } = out;
  expect(still).toEqual([2, 4]);
  expect(instance).toBe(false);
  const { version } = JSON.parse(readFileSync(join(installed, 'package.json'), 'utf8'));
  for (const [name, failure] of Object.entries(failures)) {
    expect(failure, name).toMatchObject({ name: 'CandleError', code: 'CORE_MISMATCH' });
    const { message } = failure as { message: string };
    for (const part of [`${version} from ${installed}`, `0.7.3 from ${other}`, 'npm dedupe'])
      expect(message, name).toContain(part);
  }
});
