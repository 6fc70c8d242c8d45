#!/usr/bin/env node
// Every check that CI makes, then what failed again, and last `N passed, N failed`. A check that is one command counts as one
// test; test runners are counted by their own reports. Name checks to run only those: node tools/test.mjs lint unit
import { spawn } from 'node:child_process';
import { mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { availableParallelism } from 'node:os';
import { basename, delimiter, join, relative } from 'node:path';
import { nativeTarget } from '../packages/hip/scripts/targets.mjs';
import { newerPath } from './setup/node.mjs';
import { root } from './setup/steps.mjs';

const bin = (name) => join(root, 'node_modules/.bin', name);
const scratch = join(root, '.cache/test');
const report = join(scratch, 'vitest.json');
/**
 * What runs in the newer Node. In the one that this runs in are the packages as users have them, the examples, and a chip
 * (`emulatedChip`).
 */
const newer = { ...process.env, PATH: newerPath() };
/** In order. Checks of one round run two at a time, for each leaves a core idle; those that keep every core busy are alone. */
const ROUNDS = [
  {
    driver: hostDriver,
    // TypeScript as machine code, which takes a quarter of the time; what needs its API takes the package of that name.
    types: (out) => command(out, process.execPath, ['node_modules/typescript-native/bin/tsc', '-p', 'tsconfig.json']),
    lint: (out) => command(out, bin('biome'), ['check', '--error-on-warnings', '.']),
    layers: (out) => command(out, process.execPath, ['tools/lint/layers.mjs']),
    switches: (out) => command(out, process.execPath, ['tools/lint/switches.mjs']),
    exports: (out) => command(out, process.execPath, ['tools/lint/exports.mjs']),
  },
  { unit: (out) => vitest(out, report, bin('vitest'), ['run'], testEnvironment(newer)) },
  { emulated },
  // The longest first, and a release after the packages, whose compressed kernels it takes.
  {
    packages: (out) => script(out, 'tools/test/packages.mjs'),
    programs: (out) => script(out, 'tools/test/programs.mjs'),
    // Named, the checks fail where they cannot be made.
    quality: (out) => program(out, 'tools/kernels/quality.ts', ['--quiet', '--checks', 'resources,accesses,roundings']),
    site: (out) => program(out, 'docs/build.ts', []),
    fuzz: (out) =>
      command(out, bin('vitest'), ['run', 'packages/quantized/test/fuzz.test.ts'], {
        env: { ...newer, X_FUZZ_SECONDS: process.env.X_FUZZ_SECONDS ?? '60' },
      }),
    release: (out) => program(out, 'tools/release/main.ts', ['--dry-run']),
    // Judges candle's tests by the report of `unit`.
    parity: (out) => program(out, 'tools/parity/main.ts', ['--strict', '--quiet', '--tests', report]),
  },
];

const chosen = process.argv.slice(2);
const names = ROUNDS.flatMap((round) => Object.keys(round));
const unknown = chosen.filter((name) => !names.includes(name));
if (unknown.length > 0) {
  console.error(`unknown check ${unknown.join(', ')}: choose from ${names.join(', ')}`);
  process.exit(2);
}
mkdirSync(scratch, { recursive: true });
// Of earlier tests, whose processes do not see their end (packages/testing/src/bundle.ts).
if (chosen.length === 0) rmSync(join(scratch, 'bundles'), { recursive: true, force: true });
const total = { passed: 0, failed: 0 };
const failures = [];
for (const round of ROUNDS) {
  const checks = Object.entries(round).filter(([name]) => chosen.length === 0 || chosen.includes(name));
  const lanes = Math.min(2, availableParallelism(), checks.length);
  if (lanes > 1) console.log(`\n== ${checks.map(([name]) => name).join(' ')}, ${lanes} at a time`);
  const lane = async () => {
    for (let next = checks.shift(); next; next = checks.shift()) await run(next[0], next[1], lanes > 1);
  };
  await Promise.all(Array.from({ length: lanes }, lane));
}
if (failures.length > 0) console.log(`\nfailed:\n${failures.join('\n')}`);
process.exitCode = total.failed === 0 ? 0 : 1;
console.log(`\n${total.passed} passed, ${total.failed} failed`);

// One check. What it prints beside another is kept together, and comes when it has ended.
async function run(name, check, beside) {
  const out = output(beside);
  out.write(`\n== ${name}\n`);
  const started = Date.now();
  const known = failures.length;
  const { passed, failed } = await check(out);
  total.passed += passed;
  total.failed += failed;
  if (failed > 0 && failures.length === known) failures.push(`${name}, see above`);
  out.write(`== ${name}: ${passed} passed, ${failed} failed in ${((Date.now() - started) / 1000).toFixed(1)} s\n`);
  process.stdout.write(out.kept.join(''));
}

// Where a check writes: beside another into `kept`, otherwise to the terminal.
function output(beside) {
  const kept = [];
  return { kept, live: !beside, write: (text) => (beside ? kept.push(text) : process.stdout.write(text)) };
}

// Runs a program to its end; gives what it wrote to standard output, unless that went to the terminal.
function exited(out, program, args, { keep = false, ...options } = {}) {
  const piped = keep || !out.live;
  const stdio = ['ignore', piped ? 'pipe' : 'inherit', out.live ? 'inherit' : 'pipe'];
  return new Promise((resolve) => {
    const child = spawn(program, args, { cwd: root, stdio, ...options });
    let stdout = '';
    const take = (stream, keep) =>
      stream?.setEncoding('utf8').on('data', (text) => {
        if (keep) stdout += text;
        out.write(text);
      });
    take(child.stdout, keep);
    take(child.stderr, false);
    child.on('error', (error) => {
      out.write(`${error.message}\n`);
      resolve({ status: 1, stdout });
    });
    child.on('close', (status, signal) => {
      if (signal) failures.push(`${basename(program)} was ended by ${signal}`);
      resolve({ status: status ?? 1, stdout });
    });
  });
}

// One command: one test.
async function command(out, program, args, options) {
  const { status } = await exited(out, program, args, options);
  return status === 0 ? { passed: 1, failed: 0 } : { passed: 0, failed: 1 };
}

// A TypeScript program: one test.
function program(out, path, args) {
  return command(out, bin('tsx'), [path, ...args], { env: newer });
}

// A program that prints a line a test, beginning with `ok` or `FAIL`.
async function counted(out, program, args, options) {
  const { status, stdout } = await exited(out, program, args, { keep: true, ...options });
  const lines = stdout.split('\n');
  const failed = lines.filter((line) => line.startsWith('FAIL'));
  const passed = lines.filter((line) => line.startsWith('ok ')).length;
  failures.push(...failed);
  return { passed, failed: failed.length === 0 && status !== 0 ? 1 : failed.length };
}

function script(out, path) {
  return counted(out, process.execPath, [path]);
}

// The host platform's C++ tests, with the objects of the addon that is shipped. They compile their kernels beside their sources.
async function hostDriver(out) {
  const cwd = join(root, 'packages/hip/native/test');
  const program = join(scratch, 'host_test');
  const built = await command(out, process.execPath, [join(root, 'packages/hip/scripts/build.mjs')]);
  if (built.failed > 0) return built;
  const objects = `../build/${nativeTarget()}/host-*.o`;
  const compile = `exec g++ -std=c++17 -O1 -pthread *.cc ${objects} -ldl -o ${JSON.stringify(program)}`;
  const compiled = await command(out, 'sh', ['-c', compile], { cwd });
  return compiled.failed > 0 ? compiled : counted(out, program, [], { cwd, timeout: 300_000 });
}

// Wherever code depends on the GPU: on a chip with waves of 32 lanes, one with 64, and what differs between matrix units.
async function emulated() {
  const folder = 'packages/rocm-backend/test';
  const named = (list) => list.split(' ').map((name) => `${folder}/${name}.test.ts`);
  const products = named('gemm-kernels attention decode experts linear quantized-products');
  const all = [
    'packages/engine/test/architectures.test.ts',
    'packages/engine/test/halves.test.ts',
    'packages/engine/test/mixed-attention.test.ts',
    'packages/engine/test/sampling.test.ts',
    'packages/nn/test/between.test.ts',
    'packages/nn/test/latent.test.ts',
    'packages/nn/test/lstm-gradient.test.ts',
    'packages/nn/test/optim-kernels.test.ts',
    'packages/nn/test/recurrent.test.ts',
    'packages/nn/test/packed-attention.test.ts',
    'packages/nn/test/paged-varlen.test.ts',
    ...products,
    ...named(
      'quantized-experts core-suites candle-defects determinism dtypes id-report gradient-kernels nan random recurrent steady-state',
    ),
    ...named('elementwise.property indexing.property rows.property sort.property topk.property'),
    ...named(
      'every-kernel every-collective every-reduction every-block-type every-paged-attention attention-parts decode-attention decode-biased',
    ),
  ];
  // What is the same on every chip.
  const once = ['host-experts', 'prompt-graphs', 'step-ahead', 'switched-off', 'warm-up'].map(
    (name) => `packages/engine/test/${name}.test.ts`,
  );
  // What several devices do together.
  const together = [...named('peers peer-all-reduce peer-norm'), 'packages/engine/test/parallel-gpus.test.ts'];
  // Two chips at a time with a worker each, the longest first: compilations and a chip's longest file would leave a core idle.
  // Runs of one row follow each other, for they write to the same directory.
  const rows = [
    [
      ['gfx1100', [...all, ...once]],
      ['gfx1100', together, 3],
    ],
    [['gfx942', all]],
    ...['gfx950', 'gfx90a', 'gfx908', 'gfx1201'].map((chip) => [[chip, products]]),
  ];
  const lanes = Math.min(2, availableParallelism());
  const total = { passed: 0, failed: 0 };
  const lane = async () => {
    for (let row = rows.shift(); row; row = rows.shift()) {
      for (const [chip, files, devices = 1] of row) {
        const out = output(lanes > 1);
        out.write(`\n-- ${chip}${devices > 1 ? `, ${devices} devices` : ''}\n`);
        const results = [await emulatedChip(out, chip, files, devices)];
        if (files.includes(all[0])) results.push(everyKernelLaunched(out, chip));
        for (const { passed, failed } of results) {
          total.passed += passed;
          total.failed += failed;
        }
        process.stdout.write(out.kept.join(''));
      }
    }
  };
  await Promise.all(Array.from({ length: lanes }, lane));
  return total;
}

// Test files on one emulated chip, by one worker where another chip is beside it.
function emulatedChip(out, chip, files, devices) {
  // A cache of results would be written by both.
  const alone = out.live ? [] : ['--no-file-parallelism', '--no-cache'];
  const tests = [bin('vitest'), 'run', '--testTimeout=300000', ...alone, ...files];
  rmSync(launchesOf(chip), { force: true });
  const env = {
    // One chip in the Node at hand, which where CI runs is the oldest that packages take, and which takes a quarter longer.
    ...testEnvironment(chip === 'gfx1201' ? process.env : newer),
    X_TEST_SCALE: process.env.X_TEST_SCALE ?? '0.2',
    FAKE_HIP_LAUNCHES: launchesOf(chip),
  };
  const args = ['tools/emulator/main.ts', chip, '--devices', `${devices}`, '--', ...tests];
  return vitest(out, join(scratch, `${chip}.json`), bin('tsx'), args, env);
}

// Where the stand-in for libamdhip64 writes down the names of kernels.
function launchesOf(chip) {
  return join(scratch, `${chip}.launches`);
}

// One test: that the chip ran every kernel of its manifest.
function everyKernelLaunched(out, chip) {
  const manifest = join(root, '.cache/emulator', chip, 'objects', chip, 'manifest.json');
  let never;
  try {
    const launched = new Set(readFileSync(launchesOf(chip), 'utf8').split('\n'));
    const kernels = Object.values(JSON.parse(readFileSync(manifest, 'utf8')).modules).flatMap(({ kernels }) => kernels);
    never = kernels.map(({ name }) => name).filter((name) => !launched.has(name));
    out.write(`${chip}: ${kernels.length - never.length} of ${kernels.length} kernels launched\n`);
  } catch (error) {
    never = [error.message];
  }
  if (never.length === 0) return { passed: 1, failed: 0 };
  out.write(
    `FAIL never launched on ${chip}: ${never.join(' ')}\nAdd them to the every-*.test.ts of packages/rocm-backend/test.\n`,
  );
  failures.push(`kernels never launched on ${chip}: ${never.join(' ')}`);
  return { passed: 0, failed: 1 };
}

// What tests run in. Idle threads of `cpu` sleep, for another test has use of the core that they wait on. And the first `clang++` on
// the path is one that compiles nothing: distributions have an old clang under that name beside a newer one, and no program may take
// what it finds first.
function testEnvironment(environment) {
  const directory = join(scratch, 'old-clang');
  mkdirSync(directory, { recursive: true });
  const script = `#!/bin/sh
case "$*" in *--version*) echo "Debian clang version 14.0.6"; exit 0 ;; esac
echo "clang++ 14 of tools/test.mjs was told to compile: $*" >&2
exit 1
`;
  writeFileSync(join(directory, 'clang++'), script, { mode: 0o755 });
  return {
    ...environment,
    X_HOST_SPIN: environment.X_HOST_SPIN ?? '0',
    PATH: `${directory}${delimiter}${environment.PATH}`,
  };
}

// A program that runs vitest, which takes the options for its report.
async function vitest(out, report, program, args, env) {
  rmSync(report, { force: true });
  const reporters = ['--reporter=default', '--reporter=json', `--outputFile.json=${report}`];
  const { status: exit } = await exited(out, program, [...args, ...reporters], { env });
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
    const failed = Math.max(numFailedTests, numFailedTestSuites > 0 || exit !== 0 ? 1 : 0);
    return { passed: numPassedTests, failed };
  } catch {
    return { passed: 0, failed: 1 };
  }
}

function firstLine(text = '') {
  return text.trim().split('\n')[0];
}
