// How an installed package is used: from TypeScript in both ways of resolving, in worker threads, as ES module and CommonJS in one
// process, and with a second copy of the core.
import { spawnSync } from 'node:child_process';
import { cpSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { root } from '../../setup/steps.mjs';
import { bare, node, report, started } from './project.mjs';

const GENERATE = `const model = await loadModel('model.gguf', { device: 'cpu', maxContext: 64 });
  const text = await model.generate('Once upon a time', { maxTokens: 4, temperature: 0 }).text();
  model.dispose();`;
/** What the model of the tests writes. */
export const TEXT = ' there lived a king';

const TYPED = `import { type Device, loadModel, scope, Tensor } from '@x/candle';
import type { Piece } from '@x/engine';
import { openDevice } from '@x/hip';
import { SafetensorsFile } from '@x/core/files';
export const twice = (x: Tensor): Tensor => scope(() => x.add(x).affine(0.5, 1));
export async function pieces(device: Device): Promise<Piece[]> {
  const model = await loadModel('model.gguf', { device });
  const all: Piece[] = [];
  for await (const piece of model.generate('a', { maxTokens: 2 })) all.push(piece);
  return all;
}
export const kinds: readonly unknown[] = [openDevice, SafetensorsFile];
// @ts-expect-error a shape is no text
Tensor.zeros('2');
`;

export function checkUses(project) {
  cpSync(join(root, 'models/tiny-tales/tiny-tales-q8_0.gguf'), join(project, 'model.gguf'));
  checkTypes(project);
  const run = (label, program) => report(label, node(project, program));
  run(
    'worker threads',
    `import { Worker } from 'node:worker_threads';
    const work = \`const { parentPort } = require('node:worker_threads');
      const { loadModel } = require('@x/candle');
      (async () => { ${GENERATE} parentPort.postMessage(text); })();\`;
    const once = () => new Promise((resolve, reject) => {
      const worker = new Worker(work, { eval: true, execArgv: [] });
      worker.on('message', resolve).on('error', reject);
    });
    const texts = await Promise.all([once(), once()]);
    if (texts.some((text) => text !== ${JSON.stringify(TEXT)})) throw new Error(JSON.stringify(texts));`,
  );
  run(
    'ES module and CommonJS in one process',
    `import { createRequire } from 'node:module';
    import { memoryStats, Tensor } from '@x/core';
    import { loadModel } from '@x/candle';
    const common = createRequire(process.cwd() + '/x.js')('@x/candle');
    if (common.Tensor === Tensor) throw new Error('one and the same: this checks nothing');
    const sum = Tensor.from([1, 2]).add(common.Tensor.from([3, 4]));
    if (!(sum instanceof common.Tensor) || sum.toVecSync().join() !== '4,6') throw new Error(String(sum));
    sum.dispose();
    ${GENERATE}
    if (text !== ${JSON.stringify(TEXT)}) throw new Error(text);
    if (common.memoryStats().liveTensors !== memoryStats().liveTensors) throw new Error('they count apart');`,
  );
  const context = join(root, 'tools/test/pack/context.cjs');
  report('a context of node:vm', started(project, [context, TEXT]));
  report(
    'frozen intrinsics',
    started(project, [
      '--frozen-intrinsics',
      '-e',
      `(async () => { const { loadModel } = require('@x/candle'); ${GENERATE} if (text !== ${JSON.stringify(TEXT)}) throw new Error(text); })();`,
    ]),
  );
  checkCopies(project);
}

/** Strictly, the packages' own declarations too, with each way of resolving that they document, by TypeScript 5 and 7. */
function checkTypes(project) {
  for (const file of ['typed.mts', 'typed.cts']) writeFileSync(join(project, file), TYPED);
  const strict = ['--noEmit', '--strict', '--target', 'es2022', '--lib', 'es2022,esnext.disposable,dom'];
  const types = ['--typeRoots', join(root, 'node_modules/@types'), '--types', 'node'];
  const modes = {
    node10: ['--module', 'commonjs', '--moduleResolution', 'node10', 'typed.cts'],
    node16: [
      ...['--module', 'node16', '--moduleResolution', 'node16', '--exactOptionalPropertyTypes'],
      ...['typed.mts', 'typed.cts'],
    ],
    bundler: ['--module', 'esnext', '--moduleResolution', 'bundler', 'typed.mts'],
  };
  for (const [mode, args] of Object.entries(modes)) {
    // Of TypeScript 7 on there is no node10.
    for (const compiler of mode === 'node10' ? ['typescript'] : ['typescript', 'typescript-native']) {
      const tsc = join(root, 'node_modules', compiler, 'bin/tsc');
      const all = [tsc, ...strict, ...types, ...args];
      report(`${compiler}, ${mode}`, spawnSync(process.execPath, all, { cwd: project, encoding: 'utf8' }));
    }
  }
}

/** A copy of the same version takes part; one of another says so. */
function checkCopies(project) {
  const copy = (folder, version) => {
    const to = join(project, folder, 'node_modules/@x/core');
    cpSync(join(project, 'node_modules/@x/core'), to, { recursive: true });
    const manifest = join(to, 'package.json');
    const text = readFileSync(manifest, 'utf8');
    if (version) writeFileSync(manifest, text.replace(/"version": "[^"]*"/, `"version": "${version}"`));
    return JSON.stringify(`./${folder}/node_modules/@x/core/dist/index.js`);
  };
  const both = (path) => `import { Tensor } from '@x/core';
    import { pathToFileURL } from 'node:url';
    const other = await import(new URL(${path}, pathToFileURL(process.cwd() + '/')).href);
    if (other.Tensor === Tensor) throw new Error('one and the same: this checks nothing');
    const sum = Tensor.from([1]).add(other.Tensor.from([2])).toVecSync();
    if (sum.join() !== '3') throw new Error(sum.join());`;
  report('two copies of core', node(project, both(copy('same'))));
  const { status, stderr } = node(project, both(copy('other', '99.0.0')));
  const said = /CORE_MISMATCH[\s\S]*99\.0\.0|99\.0\.0[\s\S]*npm ls @x\/core/.test(stderr);
  report('two versions of core', (status !== 0 && said) || `expected CORE_MISMATCH, got:\n${stderr}`);
}

/** Runs a program with a runtime in a folder; its last line is JSON of the text and the device. */
export function ran(program, args, cwd) {
  const { stdout, stderr, error } = spawnSync(program, args, { cwd, encoding: 'utf8', env: bare(), timeout: 120_000 });
  try {
    return { ...JSON.parse(stdout.trim().split('\n').at(-1)), stderr };
  } catch {
    return { text: undefined, on: '', stderr: `${stdout}${stderr}${error ?? ''}` };
  }
}
