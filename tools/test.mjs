#!/usr/bin/env node
// Every check that CI makes, in order, then what failed again, and last `N passed, N failed`. A check that is one command
// counts as one test; test runners are counted by their own reports. Name checks to run only those: node tools/test.mjs lint unit
import { spawnSync } from 'node:child_process';
import { mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { basename, delimiter, join, relative } from 'node:path';
import { root } from './setup/steps.mjs';

const bin = (name) => join(root, 'node_modules/.bin', name);
const scratch = join(root, '.cache/test');
const report = join(scratch, 'vitest.json');
const CHECKS = {
  lint: () => command(bin('biome'), ['check', '--error-on-warnings', '.']),
  layers: () => command(process.execPath, ['tools/lint/layers.mjs']),
  switches: () => command(process.execPath, ['tools/lint/switches.mjs']),
  types: () => command(bin('tsc'), ['-p', 'tsconfig.json']),
  driver: hostDriver,
  unit: () => vitest(report, bin('vitest'), ['run'], besideOldClang()),
  emulated,
  fuzz: () =>
    command(bin('vitest'), ['run', 'packages/quantized/test/fuzz.test.ts'], {
      env: { ...process.env, X_FUZZ_SECONDS: process.env.X_FUZZ_SECONDS ?? '60' },
    }),
  // Named, the checks fail where they cannot be made.
  quality: () => program('tools/kernels/quality.ts', ['--quiet', '--checks', 'resources,accesses,roundings']),
  // Judges candle's tests by the report of `unit`.
  parity: () => program('tools/parity/main.ts', ['--strict', '--quiet', '--tests', report]),
  packages: () => script('tools/test/packages.mjs'),
  release: () => program('tools/release/main.ts', ['--dry-run']),
  programs: () => script('tools/test/programs.mjs'),
  site: () => program('docs/build.ts', []),
};

const chosen = process.argv.slice(2);
const unknown = chosen.filter((name) => !(name in CHECKS));
if (unknown.length > 0) {
  console.error(`unknown check ${unknown.join(', ')}: choose from ${Object.keys(CHECKS).join(', ')}`);
  process.exit(2);
}
mkdirSync(scratch, { recursive: true });
const total = { passed: 0, failed: 0 };
const failures = [];
for (const [name, check] of Object.entries(CHECKS)) {
  if (chosen.length > 0 && !chosen.includes(name)) continue;
  console.log(`\n== ${name}`);
  const started = Date.now();
  const known = failures.length;
  const { passed, failed } = check();
  total.passed += passed;
  total.failed += failed;
  if (failed > 0 && failures.length === known) failures.push(`${name}, see above`);
  console.log(`== ${name}: ${passed} passed, ${failed} failed in ${((Date.now() - started) / 1000).toFixed(1)} s`);
}
if (failures.length > 0) console.log(`\nfailed:\n${failures.join('\n')}`);
process.exitCode = total.failed === 0 ? 0 : 1;
console.log(`\n${total.passed} passed, ${total.failed} failed`);

// One command: one test.
function command(program, args, options = {}) {
  const result = spawnSync(program, args, { cwd: root, stdio: 'inherit', ...options });
  if (result.error) console.error(result.error.message);
  return result.status === 0 ? { passed: 1, failed: 0 } : { passed: 0, failed: 1 };
}

// A TypeScript program: one test.
function program(path, args) {
  return command(bin('tsx'), [path, ...args]);
}

// A program that prints a line a test, beginning with `ok` or `FAIL`.
function counted(program, args, options = {}) {
  const result = spawnSync(program, args, {
    cwd: root,
    encoding: 'utf8',
    stdio: ['ignore', 'pipe', 'inherit'],
    ...options,
  });
  process.stdout.write(result.stdout ?? '');
  const lines = (result.stdout ?? '').split('\n');
  const failed = lines.filter((line) => line.startsWith('FAIL'));
  const passed = lines.filter((line) => line.startsWith('ok ')).length;
  failures.push(...failed);
  return { passed, failed: failed.length === 0 && result.status !== 0 ? 1 : failed.length };
}

function script(path) {
  return counted(process.execPath, [path]);
}

// The host platform's C++ tests compile their kernels beside their sources.
function hostDriver() {
  const cwd = join(root, 'packages/hip/native/test');
  const program = join(scratch, 'host_test');
  const compile = `exec g++ -std=c++17 -O1 -pthread *.cc ../host/*.cc -ldl -o ${JSON.stringify(program)}`;
  const compiled = command('sh', ['-c', compile], { cwd });
  return compiled.failed > 0 ? compiled : counted(program, [], { cwd, timeout: 300_000 });
}

// Wherever code depends on the GPU: on a chip with waves of 32 lanes, one with 64, and what differs between matrix units.
function emulated() {
  const folder = 'packages/rocm-backend/test';
  const named = (list) => list.split(' ').map((name) => `${folder}/${name}.test.ts`);
  const products = named('gemm-kernels attention decode experts linear quantized-products');
  const all = [
    'packages/engine/test/architectures.test.ts',
    'packages/engine/test/halves.test.ts',
    'packages/engine/test/sampling.test.ts',
    'packages/nn/test/recurrent.test.ts',
    'packages/nn/test/packed-attention.test.ts',
    ...products,
    ...named('core-suites candle-defects determinism dtypes id-report nan random steady-state'),
    ...named('elementwise.property indexing.property rows.property sort.property topk.property'),
    ...named('every-kernel every-reduction every-block-type every-paged-attention'),
  ];
  const total = { passed: 0, failed: 0 };
  for (const [chip, files] of Object.entries({
    gfx1100: all,
    gfx942: all,
    gfx90a: products,
    gfx908: products,
    gfx1201: products,
  })) {
    console.log(`\n-- ${chip}`);
    const tests = [bin('vitest'), 'run', '--testTimeout=300000', ...files];
    const launches = join(scratch, `${chip}.launches`);
    rmSync(launches, { force: true });
    const env = {
      ...besideOldClang(),
      X_TEST_SCALE: process.env.X_TEST_SCALE ?? '0.2',
      FAKE_HIP_LAUNCHES: launches,
    };
    const chipReport = join(scratch, `${chip}.json`);
    const results = [vitest(chipReport, bin('tsx'), ['tools/emulator/main.ts', chip, '--', ...tests], env)];
    if (files === all) results.push(everyKernelLaunched(chip, launches));
    for (const { passed, failed } of results) {
      total.passed += passed;
      total.failed += failed;
    }
  }
  return total;
}

// One test: that the chip ran every kernel of its manifest, by the names that the stand-in for libamdhip64 wrote down.
function everyKernelLaunched(chip, launches) {
  const manifest = join(root, '.cache/emulator', chip, 'objects', chip, 'manifest.json');
  let never;
  try {
    const launched = new Set(readFileSync(launches, 'utf8').split('\n'));
    const kernels = Object.values(JSON.parse(readFileSync(manifest, 'utf8')).modules).flatMap(({ kernels }) => kernels);
    never = kernels.map(({ name }) => name).filter((name) => !launched.has(name));
    console.log(`${chip}: ${kernels.length - never.length} of ${kernels.length} kernels launched`);
  } catch (error) {
    never = [error.message];
  }
  if (never.length === 0) return { passed: 1, failed: 0 };
  console.log(
    `FAIL never launched on ${chip}: ${never.join(' ')}\nAdd them to the every-*.test.ts of packages/rocm-backend/test.`,
  );
  failures.push(`kernels never launched on ${chip}: ${never.join(' ')}`);
  return { passed: 0, failed: 1 };
}

// An environment in which the first `clang++` on the path is one that compiles nothing: distributions have an old clang
// under that name beside a newer one, and no program may take what it finds first.
function besideOldClang() {
  const directory = join(scratch, 'old-clang');
  mkdirSync(directory, { recursive: true });
  const script = `#!/bin/sh
case "$*" in *--version*) echo "Debian clang version 14.0.6"; exit 0 ;; esac
echo "clang++ 14 of tools/test.mjs was told to compile: $*" >&2
exit 1
`;
  writeFileSync(join(directory, 'clang++'), script, { mode: 0o755 });
  return { ...process.env, PATH: `${directory}${delimiter}${process.env.PATH}` };
}

// A program that runs vitest, which takes the options for its report.
function vitest(report, program, args, env = process.env) {
  rmSync(report, { force: true });
  const reporters = ['--reporter=default', '--reporter=json', `--outputFile.json=${report}`];
  const result = spawnSync(program, [...args, ...reporters], { cwd: root, stdio: 'inherit', env });
  try {
    const { numPassedTests, numFailedTests, numFailedTestSuites, testResults } = JSON.parse(
      readFileSync(report, 'utf8'),
    );
    for (const { name, status, message, assertionResults } of testResults) {
      const tests = assertionResults.filter((test) => test.status === 'failed');
      const file = `${basename(report, '.json')}: ${relative(root, name)}`;
      for (const test of tests) failures.push(`${file}: ${test.fullName}: ${firstLine(test.failureMessages[0])}`);
      if (status === 'failed' && tests.length === 0) failures.push(`${file}: ${firstLine(message)}`);
    }
    // A file that fails to load has no failed test of its own.
    const failed = Math.max(numFailedTests, numFailedTestSuites > 0 || result.status !== 0 ? 1 : 0);
    return { passed: numPassedTests, failed };
  } catch {
    return { passed: 0, failed: 1 };
  }
}

function firstLine(text = '') {
  return text.trim().split('\n')[0];
}
