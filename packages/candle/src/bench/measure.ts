/** What `candle bench` measures: reading prompts and decoding, alone and together, beside a copy in the same run. */
import { performance } from 'node:perf_hooks';
import { type Device, scope, Tensor } from '@x/core';
import type { LanguageModel } from '@x/engine';

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
}

export interface Measurement extends Workload {
  /** Milliseconds from asking for text to the first token of the last sequence. */
  firstTokenMs: Figure;
  /** Prompt tokens of all sequences a second, until each has its first token. */
  prefillTokensPerSecond: Figure;
  /** Tokens of all sequences a second while all of them decode. */
  decodeTokensPerSecond: Figure;
  /** Launches a decode step, graphs included as one; null on a device without kernels. */
  launchesPerStep: number | null;
  /** Microseconds that the JavaScript thread works a decode step; the rest it waits. */
  hostMicrosecondsPerStep: number;
}

interface Run {
  firstTokenMs: number;
  prefill: number;
  decode: number;
  launchesPerStep: number | null;
  hostMicrosecondsPerStep: number;
}

/** @param signal once aborted, rejects with its reason */
export async function measure(
  model: LanguageModel,
  workload: Workload,
  repeats: number,
  signal: AbortSignal,
): Promise<Measurement> {
  // The second step of a kind is captured.
  await once(model, { ...workload, generatedTokens: 4 }, 0, signal);
  const runs: Run[] = [];
  for (let i = 0; i < repeats; i++) runs.push(await once(model, workload, i + 1, signal));
  const last = runs[runs.length - 1];
  return {
    ...workload,
    firstTokenMs: figure(runs.map((run) => run.firstTokenMs)),
    prefillTokensPerSecond: figure(runs.map((run) => run.prefill)),
    decodeTokensPerSecond: figure(runs.map((run) => run.decode)),
    launchesPerStep: last.launchesPerStep,
    hostMicrosecondsPerStep: last.hostMicrosecondsPerStep,
  };
}

async function once(model: LanguageModel, workload: Workload, seed: number, signal: AbortSignal): Promise<Run> {
  const { sequences, promptTokens, generatedTokens } = workload;
  const begun = performance.now();
  const times: number[][] = [];
  let started = 0;
  let stepsBegun = { launches: 0, host: performance.eventLoopUtilization(), at: 0 };
  await Promise.all(
    Array.from({ length: sequences }, async (_, row) => {
      const ids = promptIds(promptTokens, model.config.vocabSize, seed * sequences + row);
      const options = { temperature: 0, maxTokens: generatedTokens, ignoreEos: true, signal };
      const mine: number[] = [];
      times.push(mine);
      for await (const _piece of model.generate(ids, options)) {
        mine.push(performance.now());
        if (mine.length > 1 || ++started < sequences) continue;
        stepsBegun = { launches: model.device.launchCount, host: performance.eventLoopUtilization(), at: mine[0] };
      }
    }),
  );
  // While all decode: from the last one's first token to the first one's last.
  const end = Math.min(...times.map((all) => all[all.length - 1]));
  const { at } = stepsBegun;
  const decoded = times.reduce((sum, all) => sum + all.filter((time) => time > at && time <= end).length, 0);
  const steps = Math.max(1, decoded / sequences);
  const active = performance.eventLoopUtilization(stepsBegun.host).active;
  const launched = model.device.launchCount - stepsBegun.launches;
  return {
    firstTokenMs: at - begun,
    prefill: (sequences * promptTokens * 1000) / (at - begun),
    decode: end > at ? (decoded * 1000) / (end - at) : 0,
    launchesPerStep: model.device.kind === 'js' ? null : launched / steps,
    hostMicrosecondsPerStep: (active * 1000) / steps,
  };
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

export function figure(values: readonly number[]): Figure {
  const sorted = values.toSorted((a, b) => a - b);
  const middle = sorted.length >> 1;
  const median = sorted.length % 2 === 1 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
  return { median, spread: median > 0 ? (sorted[sorted.length - 1] - sorted[0]) / median : 0 };
}
