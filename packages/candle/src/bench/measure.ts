/** What `candle bench` measures: reading prompts and decoding, alone and together, beside a copy in the same run. */
import { performance } from 'node:perf_hooks';
import { type Device, scope, Tensor } from '@x/core';
import type { GenerateOptions, LanguageModel, SpeculativeStats } from '@x/engine';
import { UsageError } from '../output';

/** The median of several runs, and how far apart they were. */
export interface Figure {
  median: number;
  /** (largest - smallest) / median. */
  spread: number;
}

/** Sequences that run together, each with a prompt of its own. */
export interface Workload {
  sequences: number;
  promptTokens: number;
  /** Tokens that each sequence generates, at least 2. */
  generatedTokens: number;
  /** Prompts are parts of this text, of at least `promptTokens`. Default: ids that look random. */
  text?: readonly number[];
}

export interface Measurement extends Omit<Workload, 'text'> {
  /** Milliseconds from asking for text to the first token of the last sequence. */
  firstTokenMs: Figure;
  /** Prompt tokens of all sequences a second, until each has its first token. */
  prefillTokensPerSecond: Figure;
  /** Tokens of all sequences a second while all of them decode. */
  decodeTokensPerSecond: Figure;
  /** Kernels and library calls a decode step, those of graphs among them; null on a device without kernels. */
  kernelsPerStep: number | null;
  /** What the host enqueues a decode step, a graph as one; null on a device without kernels. */
  launchesPerStep: number | null;
  /** Microseconds that the JavaScript thread works a decode step; the rest it waits. */
  hostMicrosecondsPerStep: number;
}

/** Texts with further options and without, in turn. */
export interface Comparison {
  /** Tokens of all sequences a second, without the options. */
  plainTokensPerSecond: Figure;
  /** With them. */
  decodeTokensPerSecond: Figure;
  /** The latter by the former, run by run. */
  speedUp: Figure;
  /** Drafts that were checked, as a mean of each step of a sequence, and the share of them that was accepted; 0 without drafts. */
  draftsPerStep: number;
  acceptedShare: number;
}

/** What is compared: drafts, or a form of the text that is not to end before the tokens are generated. */
export type Compared = Pick<GenerateOptions, 'speculative' | 'grammar'>;

interface Run {
  firstTokenMs: number;
  prefill: number;
  decode: number;
  kernelsPerStep: number | null;
  launchesPerStep: number | null;
  hostMicrosecondsPerStep: number;
  /** Of all sequences together. */
  drafts: SpeculativeStats;
  /** Tokens of the shortest text. */
  shortest: number;
}

/** @param signal once aborted, rejects with its reason */
export async function measure(
  model: LanguageModel,
  workload: Workload,
  repeats: number,
  signal: AbortSignal,
): Promise<Measurement> {
  const { sequences, promptTokens, generatedTokens } = workload;
  await model.warmUp({ sequences, positions: sequences * (promptTokens + generatedTokens), signal });
  await once(model, { ...workload, generatedTokens: 4 }, 0, signal);
  const runs: Run[] = [];
  for (let i = 0; i < repeats; i++) runs.push(await once(model, workload, i + 1, signal));
  const last = runs[runs.length - 1];
  const { text: _, ...sizes } = workload;
  return {
    ...sizes,
    firstTokenMs: figure(runs.map((run) => run.firstTokenMs)),
    prefillTokensPerSecond: figure(runs.map((run) => run.prefill)),
    decodeTokensPerSecond: figure(runs.map((run) => run.decode)),
    kernelsPerStep: last.kernelsPerStep,
    launchesPerStep: last.launchesPerStep,
    hostMicrosecondsPerStep: last.hostMicrosecondsPerStep,
  };
}

/** @param signal once aborted, rejects with its reason @throws UsageError for a form whose texts end too early */
export async function compare(
  model: LanguageModel,
  workload: Workload,
  options: Compared,
  repeats: number,
  signal: AbortSignal,
): Promise<Comparison> {
  const pairs: { plain: Run; other: Run }[] = [];
  // The first pair captures steps and counts for nothing.
  for (let i = 0; i <= repeats; i++) {
    const plain = await once(model, workload, i, signal);
    const other = await once(model, workload, i, signal, options);
    const { generatedTokens } = workload;
    if (other.shortest < generatedTokens)
      throw new UsageError(
        `a text of the form ended after ${other.shortest} of ${generatedTokens} tokens; give a form of longer texts, or a smaller --gen.`,
      );
    pairs.push({ plain, other });
  }
  const counted = pairs.slice(1);
  const sum = (name: keyof SpeculativeStats) => counted.reduce((total, { other }) => total + other.drafts[name], 0);
  return {
    plainTokensPerSecond: figure(counted.map(({ plain }) => plain.decode)),
    decodeTokensPerSecond: figure(counted.map(({ other }) => other.decode)),
    speedUp: figure(counted.map(({ plain, other }) => other.decode / plain.decode)),
    draftsPerStep: sum('drafted') / Math.max(1, sum('steps')),
    acceptedShare: sum('accepted') / Math.max(1, sum('drafted')),
  };
}

async function once(
  model: LanguageModel,
  workload: Workload,
  seed: number,
  signal: AbortSignal,
  compared: Compared = {},
): Promise<Run> {
  const { sequences, promptTokens, generatedTokens, text } = workload;
  const begun = performance.now();
  const times: number[][] = [];
  const drafts = { steps: 0, drafted: 0, accepted: 0 };
  let started = 0;
  let begin = () => {};
  const allStarted = new Promise<void>((resolve) => {
    begin = resolve;
  });
  const { device } = model;
  let stepsBegun = { kernels: 0, launches: 0, host: performance.eventLoopUtilization(), at: 0 };
  await Promise.all(
    Array.from({ length: sequences }, async (_, row) => {
      const number = seed * sequences + row;
      const ids = text ? partOf(text, promptTokens, number) : promptIds(promptTokens, model.config.vocabSize, number);
      const options = { temperature: 0, maxTokens: generatedTokens, ignoreEos: true, ...compared, signal };
      const mine: number[] = [];
      times.push(mine);
      const generation = model.generate(ids, options);
      try {
        for await (const _piece of generation) {
          mine.push(performance.now());
          if (mine.length > 1) continue;
          if (++started === sequences) {
            const { kernelCount: kernels, launchCount: launches } = device;
            stepsBegun = { kernels, launches, host: performance.eventLoopUtilization(), at: mine[0] };
            begin();
          }
          // Nobody decodes while others read their prompts, so that both are measured by themselves.
          await allStarted;
        }
      } finally {
        begin();
      }
      const own = generation.stats.speculative;
      if (own) for (const name of ['steps', 'drafted', 'accepted'] as const) drafts[name] += own[name];
    }),
  );
  // While all decode: from the last one's first token to the first one's last.
  const end = Math.min(...times.map((all) => all[all.length - 1]));
  const { at } = stepsBegun;
  const decoded = times.reduce((sum, all) => sum + all.filter((time) => time > at && time <= end).length, 0);
  const steps = Math.max(1, decoded / sequences);
  const active = performance.eventLoopUtilization(stepsBegun.host).active;
  const aStep = (count: number) => (device.kind === 'js' ? null : count / steps);
  return {
    firstTokenMs: at - begun,
    prefill: (sequences * promptTokens * 1000) / (at - begun),
    decode: end > at ? (decoded * 1000) / (end - at) : 0,
    kernelsPerStep: aStep(device.kernelCount - stepsBegun.kernels),
    launchesPerStep: aStep(device.launchCount - stepsBegun.launches),
    hostMicrosecondsPerStep: (active * 1000) / steps,
    drafts,
    shortest: Math.min(...times.map((all) => all.length)),
  };
}

/** Another part of a text for each number, as long as there are others. */
function partOf(text: readonly number[], count: number, number: number): readonly number[] {
  // The golden ratio spreads numbers over what there is to begin at.
  const start = Math.floor(((number * 0.6180339887) % 1) * (text.length - count + 1));
  return text.slice(start, start + count);
}

/** Ids that look random and are the same in each run of the program. */
export function promptIds(count: number, vocabSize: number, seed: number): Uint32Array {
  let state = seed + 1;
  return Uint32Array.from({ length: count }, () => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return Math.floor((state / 2 ** 32) * vocabSize);
  });
}

const COPY_MIB = { js: 16, cpu: 128, rocm: 512, cuda: 512 };

/** Bytes read and written a second by copies larger than any cache. */
export async function copyRate(device: Device): Promise<number> {
  const bytes = COPY_MIB[device.kind] * 2 ** 20;
  using from = Tensor.zeros([bytes / 4], { device });
  const rates: number[] = [];
  for (let i = 0; i < 7; i++) {
    await device.synchronize();
    const begun = performance.now();
    scope(() => void from.copy());
    await device.synchronize();
    rates.push((2 * bytes * 1000) / (performance.now() - begun));
  }
  return figure(rates.slice(1)).median;
}

function figure(values: readonly number[]): Figure {
  const sorted = values.toSorted((a, b) => a - b);
  const middle = sorted.length >> 1;
  const median = sorted.length % 2 === 1 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
  return { median, spread: median > 0 ? (sorted[sorted.length - 1] - sorted[0]) / median : 0 };
}
