#!/usr/bin/env node
// Runs what a reader would run: the README's program, every example, and the commands with their JSON output.
import { spawnSync } from 'node:child_process';
import { mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import ts from 'typescript';
import { root } from '../setup/steps.mjs';

const tsx = join(root, 'node_modules/tsx/dist/cli.mjs');
const cli = join(root, 'packages/candle/dist/cli.js');
const model = 'models/tiny-tales/tiny-tales-q8_0.gguf';
let failures = 0;

readme();
examples();
json(['run', model, '--json', '--temperature', '0', '--max-tokens', '24', '--device', 'cpu'], (result) => {
  const golden = JSON.parse(readFileSync(join(root, 'models/tiny-tales/golden-q8_0.json'), 'utf8'));
  return (
    result.tokens === 24 &&
    result.promptTokens === golden.prompts[0].ids.length &&
    result.device === 'cpu' &&
    typeof result.text === 'string' &&
    ['loadMs', 'firstTokenMs', 'decodeTokensPerSecond'].every((key) => result[key] > 0) &&
    result.model.endsWith('.gguf')
  );
});
json(['devices', '--json'], (result) => result.devices.some(({ name, available }) => name === 'cpu' && available));
json(
  ['doctor', '--json'],
  (result) =>
    result.platforms.length === 3 &&
    result.libraries.length === 8 &&
    result.platforms.every((entry) => entry.available || entry.reason.message) &&
    result.libraries.every((entry) => (entry.available ? entry.library : entry.searched.length && entry.reason.remedy)),
);
json(
  ['inspect', model, '--json'],
  (result) => result.tensors.length > 0 && result.metadata['general.architecture'] === 'llama',
);
mkdirSync(join(root, '.cache/test'), { recursive: true });
const smaller = '.cache/test/tiny-tales-q4_k_m.gguf';
json(
  ['quantize', model, smaller, '--type', 'q4_k_m', '--allow-requantize', '--json'],
  (result) => result.quantized === 57 && result.types.q6_K === 9 && result.outputBytes < 5e6,
);
json(
  ['run', smaller, '--json', '--temperature', '0', '--max-tokens', '8', '--device', 'cpu'],
  (result) => result.tokens === 8,
);
json(['inspect', 'no-such-file.gguf', '--json'], (result) => result.error.code === 'FILE_NOT_FOUND', 1);
json(['run', model, '--json', '--top-k', '0'], (result) => result.error.code === 'USAGE', 2);
json(['run', model, '--json', '--device', 'rocm:9'], (result) => /^DEVICE_/.test(result.error.code), 1);
process.exit(failures === 0 ? 0 : 1);

// The README's first TypeScript block, run by node alone: types are stripped and nothing is lowered for older versions.
function readme() {
  const block = /```ts\n([\s\S]*?)```/.exec(readFileSync(join(root, 'README.md'), 'utf8'));
  const directory = join(root, 'packages/candle/.readme');
  mkdirSync(directory, { recursive: true });
  const compilerOptions = { target: ts.ScriptTarget.ESNext, module: ts.ModuleKind.ESNext };
  const { outputText } = ts.transpileModule(block[1], { compilerOptions });
  writeFileSync(
    join(directory, 'readme.mjs'),
    outputText.replaceAll("'@x/candle'", JSON.stringify(join(root, 'packages/candle/dist/index.js'))),
  );
  report(
    'README program',
    spawn([join(directory, 'readme.mjs')]),
    (out) => /Once|there/.test(out) && out.includes('26'),
  );
  rmSync(directory, { recursive: true, force: true });
}

// Every example ends well; those with --json also give the right figures.
function examples() {
  const figures = {
    'custom-kernel': [['--json'], ({ maxError }) => maxError < 1e-6],
    'linear-regression': [
      ['--json'],
      ({ fitted, truth, apart }) => apart < 1e-5 && Math.abs(fitted.slope - truth.slope) < 0.05,
    ],
    mandelbrot: [
      ['--json'],
      ({ area, out }) => area > 1.5066 && area < 1.54 && readFileSync(out).toString('latin1', 1, 4) === 'PNG',
    ],
    // With all of its 900 steps, which take a minute and a half on two cores, about 4.0. The bound is stated in the example's README.
    'train-char-lm': [
      ['--device', 'cpu', '--steps', '600', '--max-perplexity', '4.4', '--json'],
      ({ perplexity, baseline }) => perplexity < baseline.bigram / 2,
    ],
    'worker-threads': [['--json'], ({ threads, difference }) => threads === 2 && difference < 1e-3],
  };
  for (const entry of readdirSync(join(root, 'examples'), { withFileTypes: true })) {
    if (!entry.isDirectory() || entry.name.startsWith('.')) continue;
    const { name } = entry;
    for (const [flag, status] of [
      ['--help', 0],
      ['--no-such-flag', 2],
    ])
      report(`examples/${name} ${flag}`, spawn([tsx, `examples/${name}/main.ts`, flag]), () => true, status);
    const [args, check] = figures[name] ?? [['--device', 'cpu'], undefined];
    const result = spawn([tsx, `examples/${name}/main.ts`, ...args]);
    report(`examples/${name}`, result, (out) => (check ? check(JSON.parse(out)) : out.trim().length > 0));
  }
  // On two devices the same as on one, but for rounding.
  const folder = join(root, '.cache/test/together');
  const short = [tsx, 'examples/train-char-lm/main.ts', '--steps', '25', '--json', '--out', folder];
  const alone = spawn([...short, '--device', 'cpu']);
  const together = spawn([...short, '--devices', 'cpu,cpu']);
  report('examples/train-char-lm on two devices', together, (out) => {
    const [one, two] = [alone.stdout, out].map((text) => JSON.parse(text).perplexity);
    return one > 1 && Math.abs(two / one - 1) < 1e-3;
  });
  rmSync(folder, { recursive: true, force: true });
}

function json(args, check, status = 0) {
  const result = spawn([cli, ...args]);
  report(
    `candle ${args.join(' ')}`,
    result,
    (out) => out.trim().split('\n').length === 1 && check(JSON.parse(out)),
    status,
  );
}

function spawn(args) {
  return spawnSync(process.execPath, args, { cwd: root, encoding: 'utf8', timeout: 600_000 });
}

function report(label, result, check, status = 0) {
  let good = false;
  try {
    good = result.status === status && check(result.stdout);
  } catch (error) {
    console.error(error);
  }
  if (!good) failures++;
  console.log(
    `${good ? 'ok  ' : 'FAIL'} ${label}${good ? '' : `\nstatus ${result.status}\n${result.stdout}\n${result.stderr}`}`,
  );
}
