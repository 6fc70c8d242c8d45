#!/usr/bin/env node
// Everything a fresh clone needs before the demo or the tests: system packages, pnpm, dependencies, kernels, the native
// addon, the packages. Plain JavaScript on Node's own modules, because nothing is installed yet when it runs.
// Each step is skipped when its inputs have not changed, so a second run costs well under a second.
//
//   node tools/setup.mjs [--for demo|test] [--kernels TARGETS]
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { ensureHelm } from './setup/helm.mjs';
import { ensureNewerNode } from './setup/node.mjs';
import { root, run, say, step } from './setup/steps.mjs';
import { ensureSystemPackages } from './setup/system.mjs';

// What the tests compile for: the host, as far as they run its levels, and one target for each wave width.
const KERNEL_TARGETS = { demo: 'native', test: 'host,gfx1100,gfx942' };

const { values } = parseArgs({ options: { for: { type: 'string', default: 'demo' }, kernels: { type: 'string' } } });
const targets = values.kernels ?? KERNEL_TARGETS[values.for];
if (!targets) {
  say(`unknown purpose "${values.for}": use --for demo or --for test`);
  process.exit(2);
}

const [major, minor] = process.versions.node.split('.').map(Number);
if (major < 20 || (major === 20 && minor < 19)) {
  say(`Node ${process.versions.node} is too old: @x/candle needs Node 20.19 or newer`);
  process.exit(1);
}

const manifest = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8'));
const pnpmVersion = manifest.packageManager.split('@')[1];
const pnpm = join(root, '.cache/tools/node_modules/pnpm/bin/pnpm.cjs');

// Nothing that Node does waits for the distribution's packages, whose installation leaves a core idle.
const systemPackages = ensureSystemPackages({ purpose: values.for, targets });

await step('pnpm', { text: pnpmVersion, outputs: [pnpm] }, `pnpm ${pnpmVersion}`, () =>
  run('npm', ['install', '--prefix', '.cache/tools', '--no-save', '--no-audit', '--no-fund', `pnpm@${pnpmVersion}`]),
);

const packageFiles = [
  'package.json',
  'pnpm-lock.yaml',
  'pnpm-workspace.yaml',
  'packages/*/package.json',
  'prebuilt/*/package.json',
  'examples/*/package.json',
  'docs/package.json',
];
await step(
  'dependencies',
  { files: packageFiles, outputs: ['node_modules/.pnpm'] },
  'dependencies from the npm registry',
  () => run(process.execPath, [pnpm, 'install', '--frozen-lockfile', '--reporter=append-only']),
);

if (values.for === 'test') {
  await ensureNewerNode();
  await ensureHelm();
}

// The packages wait for one another, and leave cores to the kernels.
await Promise.all([
  systemPackages.compilers.then(() => Promise.all([kernels(), addon()])),
  systemPackages.rest,
  packages(),
]);

function kernels() {
  const options = values.for === 'test' && !values.kernels ? ['--for-tests'] : [];
  const inputs = {
    files: ['kernels/**', 'tools/kernels/**', 'packages/kernels/src/**'],
    text: [targets, ...options].join(' '),
    outputs: ['packages/kernels/objects'],
  };
  const tsx = join(root, 'node_modules/tsx/dist/cli.mjs');
  return step('kernels', inputs, `kernels for ${targets}`, () =>
    run(process.execPath, [tsx, 'tools/kernels/build.ts', '--targets', targets, ...options]),
  );
}

function addon() {
  const inputs = {
    files: ['packages/hip/native/**', 'packages/hip/scripts/**'],
    text: process.version,
    outputs: [`packages/hip/prebuilds/${process.platform}-${process.arch}/hip.node`],
  };
  return step('addon', inputs, 'the native addon', () => run(process.execPath, ['packages/hip/scripts/build.mjs']));
}

function packages() {
  const inputs = {
    files: [
      'packages/*/src/**',
      'packages/*/package.json',
      'packages/*/tsup.config.ts',
      'tsup.config.base.ts',
      'tsconfig.base.json',
    ],
    outputs: manifestNames().map((name) => `packages/${name}/dist/index.js`),
  };
  return step('packages', inputs, 'the packages (ESM, CommonJS, types)', () =>
    run(process.execPath, [pnpm, 'exec', 'turbo', 'run', 'build', '--output-logs=errors-only'], {
      TURBO_TELEMETRY_DISABLED: '1',
      DO_NOT_TRACK: '1',
    }),
  );
}

function manifestNames() {
  return readdirSync(join(root, 'packages')).filter((name) =>
    existsSync(join(root, 'packages', name, 'tsup.config.ts')),
  );
}
