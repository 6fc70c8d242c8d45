/**
 * Decode speed of every decoder architecture, each in the shape of a published model with random weights:
 *
 *   tsx tools/bench/architectures.ts [--device cuda:0] [--only REGEX] [--mix q4_k_m] [--prompt 128] [--gen 64] [--repeat 3]
 *     [--hot-experts N] [--limit 60] [--json FILE]
 *   tsx tools/bench/architectures.ts --device cpu --scale tiny     # the models of models/tiny: whether all work
 *   tsx tools/bench/architectures.ts --device cpu --layers 4       # layers of full width, four of each
 *
 * `share` is the rate at which a model reads what a token needs (weights, of a mixture the experts that it takes, keys, values and
 * states) over that of the 8B Llama quantized in the same way, in the same run: 1 means that it decodes as fast as its bytes allow,
 * and 0.85 is the aim. The Llama is measured once more at the end, so its last row says how much the machine changed meanwhile.
 * tok/s is the median of `--repeat` runs, `prompt` that of reading `--prompt` tokens, `kernels` those of a forward pass of one token.
 *
 * Each shape has a process of its own and `--limit` seconds; one that fails is a row with its error.
 */
import { spawn } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { parseArgs } from 'node:util';
import { Device } from '@x/core';
import { isMixName, type MixName } from '@x/quantized';
import '@x/rocm-backend';
import { measureShape, type Result, type Settings } from './architectures/measured';
import { SHAPES } from './architectures/shapes';

/** Of a shape that could not be measured. */
interface Failure {
  name: string;
  model: string;
  mix: MixName;
  error: string;
}

type Row = (Result | Failure) & { share?: number };

const REFERENCE = 'llama';
const AIM = 0.85;

const { values: given } = parseArgs({
  options: {
    device: { type: 'string', default: 'auto' },
    only: { type: 'string', default: '' },
    mix: { type: 'string', default: 'q4_k_m' },
    scale: { type: 'string', default: 'full' },
    layers: { type: 'string' },
    'hot-experts': { type: 'string' },
    prompt: { type: 'string', default: '128' },
    gen: { type: 'string', default: '64' },
    repeat: { type: 'string', default: '3' },
    limit: { type: 'string', default: '60' },
    json: { type: 'string' },
    /** This process measures that shape and ends. */
    one: { type: 'string' },
  },
});

function count(name: 'prompt' | 'gen' | 'repeat' | 'limit' | 'layers' | 'hot-experts', least: number): number {
  const value = Number(given[name]);
  if (Number.isInteger(value) && value >= least) return value;
  throw new Error(`--${name} is ${given[name]}; give a whole number of ${least} or more.`);
}

function settingsOf(): Settings {
  const { mix, scale } = given;
  if (!isMixName(mix)) throw new Error(`--mix is ${mix}; give one such as q4_k_m, q8_0 or mxfp4.`);
  if (scale !== 'full' && scale !== 'tiny') throw new Error(`--scale is ${scale}; give full or tiny.`);
  const layers = given.layers === undefined ? {} : { layers: count('layers', 1) };
  const hot = given['hot-experts'] === undefined ? {} : { hotExperts: count('hot-experts', 1) };
  return {
    mix,
    scale,
    ...layers,
    ...hot,
    prompt: count('prompt', 1),
    gen: count('gen', 2),
    repeat: count('repeat', 1),
  };
}

/** Prints the result of a shape, or `{ error }`. */
async function one(name: string, settings: Settings): Promise<void> {
  try {
    const device = given.device === 'auto' ? await Device.auto() : Device.parse(given.device);
    const result = await measureShape(name, device, settings, AbortSignal.timeout(count('limit', 1) * 1000));
    console.log(JSON.stringify(result));
  } catch (error) {
    console.log(JSON.stringify({ error: error instanceof Error ? error.message : String(error) }));
  }
}

/** What the process of a shape prints last. */
function measured(name: string, mix: MixName): Promise<Row> {
  const options = process.argv.slice(2).filter((_, i, all) => !isOf(['--only', '--json', '--mix'], all, i));
  const script = process.argv[1];
  const args = [...process.execArgv, script, ...options, '--mix', mix, '--one', name];
  const failure = (error: string) => ({ name, model: SHAPES[name].model, mix, error });
  return new Promise((resolve) => {
    const child = spawn(process.execPath, args, { stdio: ['ignore', 'pipe', 'pipe'] });
    let [printed, said] = ['', ''];
    child.stdout.on('data', (part) => {
      printed += part;
    });
    child.stderr.on('data', (part) => {
      said += part;
    });
    // What hangs on a device hears no signal.
    const timer = setTimeout(() => child.kill('SIGKILL'), (count('limit', 1) + 5) * 1000);
    child.on('error', ({ message }) => resolve(failure(message)));
    child.on('close', (code, signal) => {
      clearTimeout(timer);
      const last = printed.trim().split('\n').at(-1);
      if (last?.startsWith('{')) {
        const result = JSON.parse(last) as Result | { error: string };
        return resolve('error' in result ? failure(result.error) : result);
      }
      const line = said.trim().split('\n').at(-1);
      resolve(failure(`ended by ${signal ?? `exit status ${code}`}${line ? `: ${line}` : ''}`));
    });
  });
}

/** Whether an argument is one of these options, or its value. */
function isOf(names: readonly string[], all: readonly string[], i: number): boolean {
  return names.some((name) => all[i].startsWith(`${name}=`) || all[i] === name || all[i - 1] === name);
}

async function main(settings: Settings): Promise<void> {
  const chosen = Object.keys(SHAPES).filter((name) => new RegExp(given.only).test(name));
  if (chosen.length === 0) throw new Error(`--only ${given.only} names none of ${Object.keys(SHAPES).join(', ')}.`);
  const mixOf = (name: string) => SHAPES[name].mix ?? settings.mix;
  const mixes = [...new Set(chosen.map(mixOf))];
  const work = [
    ...mixes.map((mix) => ({ name: REFERENCE, mix })),
    ...chosen.filter((name) => name !== REFERENCE).map((name) => ({ name, mix: mixOf(name) })),
    { name: REFERENCE, mix: mixes[0] },
  ];
  const rows: Row[] = [];
  for (const { name, mix } of work) {
    const row = await measured(name, mix);
    const reference = rows.find((other) => other.name === REFERENCE && other.mix === mix);
    const rate = reference ?? row;
    if (!('error' in row) && !('error' in rate)) row.share = row.bytesPerSecond / rate.bytesPerSecond;
    rows.push(row);
    process.stderr.write(`${cells(row).join('  ')}\n`);
  }
  if (given.json !== undefined) writeFileSync(given.json, `${JSON.stringify(rows, null, 2)}\n`);
  console.log(table(rows));
  const counted = rows.slice(mixes.length, -1);
  const reach = counted.filter(({ share }) => share !== undefined && share >= AIM).length;
  const failed = counted.filter((row) => 'error' in row).length;
  console.log(`\n${reach} of ${counted.length} read at ${AIM} of Llama's rate or more; ${failed} failed.`);
  if (rows.some((row) => 'error' in row)) process.exitCode = 1;
}

const HEAD = [
  'model',
  'type',
  'parameters',
  'MB a token',
  'tok/s',
  'GB/s',
  'share',
  'kernels',
  'prompt',
  'host µs',
  'loaded',
];

function cells(row: Row): string[] {
  if ('error' in row) return [`${row.name}: ${row.model}`, row.mix, `failed: ${row.error}`];
  const { name, model, reduced, mix, parameters, bytesPerToken, tokensPerSecond, bytesPerSecond, spread } = row;
  return [
    `${name}: ${model}${reduced === undefined ? '' : ` (${reduced})`}`,
    mix,
    `${(parameters / 1e9).toFixed(parameters < 1e8 ? 4 : 2)} B`,
    (bytesPerToken / 1e6).toFixed(bytesPerToken < 1e7 ? 2 : 0),
    `${tokensPerSecond.toFixed(1)} ±${Math.round(50 * spread)} %`,
    (bytesPerSecond / 1e9).toFixed(bytesPerSecond < 1e11 ? 2 : 0),
    row.share === undefined ? '' : row.share.toFixed(2),
    row.kernels === null ? '' : String(row.kernels),
    row.promptTokensPerSecond.toFixed(0),
    String(Math.round(row.hostMicroseconds)),
    `${row.loadSeconds.toFixed(1)} s`,
  ];
}

/** A table of Markdown. */
function table(rows: readonly Row[]): string {
  const lines = [HEAD, HEAD.map((_, i) => (i < 2 ? '---' : '--:')), ...rows.map(cells)];
  return lines
    .map((line) => `| ${HEAD.map((_, i) => (line[i] ?? '').replaceAll('|', '\\|')).join(' | ')} |`)
    .join('\n');
}

const settings = settingsOf();
await (given.one === undefined ? main(settings) : one(given.one, settings));
