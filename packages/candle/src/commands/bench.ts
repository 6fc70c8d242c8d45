/** `candle bench MODEL`: how fast a model loads, reads prompts and writes, and how much of the memory's rate that is. */
import { accessSync, constants, readFileSync, writeFileSync } from 'node:fs';
import { cpus } from 'node:os';
import { dirname, resolve } from 'node:path';
import type { Device } from '@x/core';
import { type CacheDType, loadModel } from '@x/engine';
import { platforms } from '@x/hip';
import { Command, InvalidArgumentError } from 'commander';
import '@x/rocm-backend';
import { version } from '../../package.json';
import {
  type Comparison,
  compare,
  copyRate,
  type Figure,
  type Measurement,
  measure,
  type Workload,
} from '../bench/measure';
import { contextLengthOf, sizesFor } from '../bench/sizes';
import { addDeviceFlags, type DeviceFlags, followed, placeOf } from '../devices';
import { addFormFlags, type FormFlags, grammarOf } from '../form-options';
import { interruptible } from '../interrupt';
import { localModel } from '../model-source';
import { cacheDtypeOption, someText, wholeNumber } from '../option-values';
import { formatBytes, guarded, printJson, table, UsageError } from '../output';
import { addSpeculativeFlags, checkSpeculative, loadDrafts, type SpeculativeFlags } from '../speculative';

interface BenchOptions extends SpeculativeFlags, FormFlags, DeviceFlags {
  prompt?: number;
  gen?: number;
  batch: number[];
  context: number[];
  cacheDtype?: CacheDType;
  text?: string;
  repeat: number;
  json?: boolean;
  report?: string;
}

/** Everything that a run gives: no names of files, directories or people. */
interface Report {
  program: string;
  node: string;
  system: string;
  processor: string;
  device: string;
  deviceName: string;
  /** Devices that compute together. */
  ranks: number;
  driver: string | null;
  model: { layers: number; hiddenSize: number; vocabSize: number; heads: number; kvHeads: number; headDim: number };
  loadSeconds: number;
  /** All that are on the device. */
  weightBytes: number;
  copyBytesPerSecond: number;
  runs: (Measurement & {
    /** Of weights that a decode step reads, and of keys, values and states, half of what is generated being there. */
    weightBytesPerStep: number;
    cacheBytesPerStep: number;
    bytesPerSecond: number;
    shareOfCopy: number;
    /** With `--speculative`. */
    speculative?: Comparison;
    /** With a form of the text, such as `--schema`. */
    structured?: Comparison;
  })[];
  peakDeviceBytes: number;
  peakHostBytes: number;
}

export function benchCommand(): Command {
  const command = new Command('bench')
    .description('measure loading, reading of prompts and decoding')
    .argument(
      '<model>',
      'a .gguf file, a directory with config.json, *.safetensors and tokenizer.json, or hf:org/repo:Q4_K_M',
    )
    .option(
      '--prompt <tokens>',
      "tokens of a prompt, default 512 or what the model's context has room for",
      wholeNumber(1),
    )
    .option('--gen <tokens>', 'tokens that are generated, default 128', wholeNumber(2))
    .option('--batch <counts>', 'sequences together, such as 1,8,64', wholeNumbers, [1])
    .option(
      '--context <tokens>',
      'also with prompts of these lengths, one sequence, such as 512,32768',
      wholeNumbers,
      [],
    )
    .option(
      '--text <file>',
      'take prompts from this text; without, they are random tokens',
      someText('Give a file name.'),
    )
    .addOption(cacheDtypeOption())
    .option('--repeat <count>', 'runs of each, of which the median counts', wholeNumber(1), 3);
  return addFormFlags(addSpeculativeFlags(addDeviceFlags(command)))
    .option('--report <file>', 'write all figures to a file that can go with an issue', someText('Give a file name.'))
    .option('--json', 'print one JSON object')
    .action((model: string, options: BenchOptions) =>
      guarded(options.json, () => interruptible((signal) => bench(model, options, signal))),
    );
}

/** 1,8,64 */
function wholeNumbers(text: string): number[] {
  const parse = wholeNumber(1);
  const values = text.split(',').map((part) => parse(part.trim()));
  if (values.length > 16) throw new InvalidArgumentError('Give at most 16 numbers.');
  return values;
}

async function bench(name: string, options: BenchOptions, signal: AbortSignal): Promise<void> {
  const { batch, context, repeat } = options;
  if (options.report !== undefined) checkPlace(options.report);
  checkSpeculative(options);
  const grammar = grammarOf(options);
  const written = options.text === undefined ? undefined : textOf(options.text);
  if (await followed(name, options, { json: options.json, signal })) return;
  const place = await placeOf(options);
  const path = await localModel(name, { json: options.json, signal });
  const { prompt, gen } = sizesFor(options, contextLengthOf(path));
  const longest = Math.max(prompt, ...context);
  const maxContext = longest + gen;
  using model = await loadModel(path, { ...place, signal, maxContext, cacheDtype: options.cacheDtype });
  const { device } = model;
  // Nothing else is there yet. Of this rank, as all that is measured of devices.
  const weightBytes = device.memory().liveBytes;
  const { speculative, draft } = await loadDrafts(options, model, { json: options.json, signal });
  using _draft = draft;
  const copyBytesPerSecond = await copyRate(device);
  const text = written === undefined ? undefined : model.tokenizer.encode(written, { addSpecialTokens: false });
  if (text && text.length < longest) {
    throw new UsageError(
      `the text has ${text.length} tokens and a prompt ${longest}; give a longer --text, or a smaller --prompt.`,
    );
  }
  const workloads: Workload[] = [
    ...batch.map((sequences) => ({ sequences, promptTokens: prompt, generatedTokens: gen, text })),
    ...context.map((promptTokens) => ({ sequences: 1, promptTokens, generatedTokens: gen, text })),
  ];
  const runs: Report['runs'] = [];
  for (const workload of workloads) {
    const measured = await measure(model, workload, repeat, signal);
    const { sequences, promptTokens, generatedTokens } = workload;
    const read = model.bytesPerStep(Math.ceil(promptTokens + generatedTokens / 2), sequences);
    const bytesPerSecond = ((read.weights + read.cache) * measured.decodeTokensPerSecond.median) / sequences;
    const drafting = speculative && (await compare(model, workload, { speculative }, repeat, signal));
    const structured = grammar && (await compare(model, workload, { grammar }, repeat, signal));
    runs.push({
      ...measured,
      weightBytesPerStep: read.weights,
      cacheBytesPerStep: read.cache,
      bytesPerSecond,
      shareOfCopy: bytesPerSecond / copyBytesPerSecond,
      ...(drafting && { speculative: drafting }),
      ...(structured && { structured }),
    });
  }
  const { numLayers, hiddenSize, vocabSize, numHeads, numKvHeads, headDim } = model.config;
  const report: Report = {
    program: `candle ${version}`,
    node: process.versions.node,
    system: `${process.platform}-${process.arch}`,
    processor: cpus()[0]?.model ?? 'unknown',
    device: device.toString(),
    deviceName: device.description,
    ranks: model.ranks,
    driver: driverOf(device),
    model: { layers: numLayers, hiddenSize, vocabSize, heads: numHeads, kvHeads: numKvHeads, headDim },
    loadSeconds: model.loadMs / 1000,
    weightBytes,
    copyBytesPerSecond,
    runs,
    peakDeviceBytes: device.memory().peakBytes,
    peakHostBytes: process.resourceUsage().maxRSS * 1024,
  };
  if (options.report !== undefined) writeFileSync(options.report, `${JSON.stringify(report, null, 2)}\n`);
  if (options.json) printJson(report);
  else process.stdout.write(`${describe(report)}\n`);
}

function driverOf(device: Device): string | null {
  const platform = device.kind === 'rocm' || device.kind === 'cuda' ? device.kind : undefined;
  return platforms().find((report) => report.platform === platform)?.version ?? null;
}

function textOf(path: string): string {
  try {
    return readFileSync(path, 'utf8');
  } catch (cause) {
    throw new UsageError(`the text cannot be read: ${(cause as Error).message}. Give another --text.`);
  }
}

/** Before minutes are spent on figures. */
function checkPlace(path: string): void {
  try {
    accessSync(dirname(resolve(path)), constants.W_OK);
  } catch (cause) {
    throw new UsageError(`the report cannot be written: ${(cause as Error).message}. Give another --report.`);
  }
}

function describe(report: Report): string {
  const { device, deviceName, driver, loadSeconds, weightBytes, copyBytesPerSecond } = report;
  const gigabytes = (bytes: number) => `${(bytes / 1e9).toFixed(bytes < 1e10 ? 2 : 0)} GB/s`;
  const rows = [
    [
      'sequences',
      'prompt',
      'first token',
      'prefill',
      'decode',
      'bytes a step',
      'memory',
      'of a copy',
      'kernels',
      'host',
    ],
    ...report.runs.map((run) => [
      String(run.sequences),
      String(run.promptTokens),
      `${round(run.firstTokenMs.median)} ms`,
      rate(run.prefillTokensPerSecond),
      rate(run.decodeTokensPerSecond),
      `${formatBytes(run.weightBytesPerStep)} + ${formatBytes(run.cacheBytesPerStep)}`,
      gigabytes(run.bytesPerSecond),
      `${Math.round(100 * run.shareOfCopy)} %`,
      kernelsText(run),
      `${Math.round(run.hostMicrosecondsPerStep)} us a step`,
    ]),
  ];
  return [
    `${report.ranks > 1 ? `${report.ranks} devices, ` : ''}${device} (${deviceName})${driver ? `, driver ${driver}` : ''}`,
    `loaded in ${loadSeconds.toFixed(2)} s, ${formatBytes(weightBytes)} of weights, a copy reaches ${gigabytes(copyBytesPerSecond)}`,
    '',
    table(rows),
    '',
    ...comparedTo(report, 'speculative', 'drafts'),
    ...comparedTo(report, 'structured', 'the form'),
    `peak memory: ${formatBytes(report.peakDeviceBytes)} on the device, ${formatBytes(report.peakHostBytes)} in this process`,
  ].join('\n');
}

/** Kernels a step, and the calls that they take where these are fewer: graphs. */
function kernelsText({ kernelsPerStep, launchesPerStep }: Measurement): string {
  if (kernelsPerStep === null || launchesPerStep === null) return '';
  const [kernels, launches] = [Math.round(kernelsPerStep), Math.round(launchesPerStep)];
  return `${kernels} a step${launches < kernels ? ` in ${launches}` : ''}`;
}

/** What further options gave or cost, where there were some. */
function comparedTo({ runs }: Report, name: 'speculative' | 'structured', what: string): string[] {
  const drafts = name === 'speculative';
  const rows = runs.flatMap(({ sequences, promptTokens, [name]: compared }) =>
    compared
      ? [
          [
            String(sequences),
            String(promptTokens),
            rate(compared.plainTokensPerSecond),
            rate(compared.decodeTokensPerSecond),
            `${compared.speedUp.median.toFixed(2)}x ±${Math.round(50 * compared.speedUp.spread)} %`,
            ...(drafts ? [`${round(compared.draftsPerStep)}`, `${Math.round(100 * compared.acceptedShare)} %`] : []),
          ],
        ]
      : [],
  );
  const head = ['sequences', 'prompt', `without ${what}`, `with ${what}`, 'ratio'];
  return rows.length === 0 ? [] : [table([[...head, ...(drafts ? ['drafts a step', 'accepted'] : [])], ...rows]), ''];
}

function rate({ median, spread }: Figure): string {
  return `${round(median)} tok/s ±${Math.round(50 * spread)} %`;
}

function round(value: number): number {
  return value < 100 ? Math.round(value * 10) / 10 : Math.round(value);
}
