/** One shape on a device: loads it with random weights and decodes, as `candle bench` does. */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { performance } from 'node:perf_hooks';
import { fileURLToPath } from 'node:url';
import type { Device } from '@x/core';
import { defaultCacheDtype, LanguageModel } from '@x/engine';
import type { MixName } from '@x/quantized';
import { Tokenizer, Weights } from '@x/transformers';
import { measure, promptIds } from '../../../packages/candle/src/bench/measure';
import { fileBytesOf, type Outline, outlineOf, parametersOf } from './outline';
import { RandomFile } from './random-file';
import { describeShape, SHAPES, typeOf } from './shapes';

const MODELS = fileURLToPath(new URL('../../../models/', import.meta.url));

/** Of one token; ids beyond it are tokens without text. */
const TOKENIZER = { model: { type: 'BPE', vocab: { a: 0 }, merges: [] }, decoder: { type: 'ByteLevel' } };

export interface Settings {
  mix: MixName;
  /** `tiny`: the configuration of models/tiny in place of the published one. */
  scale: 'full' | 'tiny';
  /** Layers at most. */
  layers?: number;
  /** Experts of each layer on the device, the others being in the host's memory. Default: all. */
  hotExperts?: number;
  /** Tokens of a prompt, those generated behind it, and how often. */
  prompt: number;
  gen: number;
  repeat: number;
}

export interface Result {
  name: string;
  model: string;
  reduced?: string;
  mix: MixName;
  parameters: number;
  fileBytes: number;
  /** Of weights, keys and values, and states, half of what is generated being there. */
  bytesPerToken: number;
  /** Median of the runs, and (largest - smallest) / median. */
  tokensPerSecond: number;
  spread: number;
  /** Of the prompt; median of the runs. */
  promptTokensPerSecond: number;
  bytesPerSecond: number;
  /** Of a forward pass of one token; null on a device without kernels. */
  kernels: number | null;
  /** Microseconds that the JavaScript thread works a step. */
  hostMicroseconds: number;
  loadSeconds: number;
}

/** @throws Error where the logits are no finite numbers, and what loading and generating throw */
export async function measureShape(
  name: string,
  device: Device,
  settings: Settings,
  signal: AbortSignal,
): Promise<Result> {
  const { mix, scale, layers, hotExperts, prompt, gen, repeat } = settings;
  const config = scale === 'tiny' ? tinyConfig(name) : undefined;
  const { description, optional } = describeShape(name, { config, layers });
  const outline = await outlineOf(description, optional, mix);
  using model = await load(outline, { device, hotExperts, signal }, prompt + gen);
  const workload = { sequences: 1, promptTokens: prompt, generatedTokens: gen };
  const measured = await measure(model, workload, repeat, signal);
  const kernels = await checkedStep(model);
  const read = model.bytesPerStep(Math.ceil(prompt + gen / 2));
  const bytesPerToken = read.weights + read.cache;
  const { median: tokensPerSecond, spread } = measured.decodeTokensPerSecond;
  const { model: of, reduced } = SHAPES[name];
  return {
    name,
    model: of,
    ...(reduced !== undefined && { reduced }),
    mix,
    parameters: parametersOf(outline),
    fileBytes: fileBytesOf(outline),
    bytesPerToken,
    tokensPerSecond,
    spread,
    promptTokensPerSecond: measured.prefillTokensPerSecond.median,
    bytesPerSecond: bytesPerToken * tokensPerSecond,
    kernels,
    hostMicroseconds: measured.hostMicrosecondsPerStep,
    loadSeconds: model.loadMs / 1000,
  };
}

function tinyConfig(name: string): Record<string, unknown> {
  return JSON.parse(readFileSync(join(MODELS, 'tiny', typeOf(name), 'config.json'), 'utf8'));
}

/** @param length positions that a sequence may have */
async function load(
  outline: Outline,
  options: { device: Device; hotExperts?: number; signal: AbortSignal },
  length: number,
): Promise<LanguageModel> {
  const { device } = options;
  const begun = performance.now();
  const { architecture, config } = outline.description;
  const weights = new Weights(new RandomFile(outline.tensors), { ...options, layout: architecture });
  const model = await architecture.build(weights, config, length);
  weights.close();
  await device.synchronize();
  const tokenizer = Tokenizer.fromJson(TOKENIZER);
  const cache = { dtype: defaultCacheDtype(device.kind, true) };
  const weightReads = weights.reads;
  const loadMs = performance.now() - begun;
  return new LanguageModel({ model, tokenizer, maxContext: length, cache, weightReads, loadMs });
}

/** Kernels of a step of one token. @throws Error where its logits are no finite numbers, or all alike */
async function checkedStep(model: LanguageModel): Promise<number | null> {
  model.emptyCache();
  const ids = promptIds(8, model.config.vocabSize, 0);
  model.forward(ids.subarray(0, 6), 0).dispose();
  model.forward(ids.subarray(6, 7), 6).dispose();
  const { device } = model;
  const before = device.kernelCount;
  using logits = model.forward(ids.subarray(7), 7);
  const kernels = device.kind === 'js' ? null : device.kernelCount - before;
  const values = (await logits.toArray()) as Float32Array;
  const outside = values.findIndex((value) => !Number.isFinite(value));
  if (outside >= 0) throw new Error(`The logit of token ${outside} is ${values[outside]}.`);
  if (values.every((value) => value === values[0])) throw new Error(`All logits are ${values[0]}.`);
  return kernels;
}
