/** `candle run MODEL`: text from a model, streamed, or one JSON object with the figures. */
import { resolve } from 'node:path';
import { Device } from '@x/core';
import { loadModel } from '@x/engine';
import { Command, InvalidArgumentError } from 'commander';
import '@x/rocm-backend';
import { formatBytes, guarded, paint, printJson } from '../output';

interface RunOptions {
  prompt: string;
  device: string;
  maxTokens: number;
  temperature: number;
  topK?: number;
  topP?: number;
  minP?: number;
  seed?: number;
  repetitionPenalty?: number;
  stop?: string[];
  maxContext?: number;
  json?: boolean;
}

export function runCommand(): Command {
  return new Command('run')
    .description('generate text from a GGUF file or a safetensors directory')
    .argument('<model>', 'a .gguf file, or a directory with config.json, *.safetensors and tokenizer.json')
    .option('-p, --prompt <text>', 'text to continue', 'Once upon a time')
    .option('-d, --device <name>', 'auto, js, cpu, rocm:N or cuda:N', 'auto')
    .option('-n, --max-tokens <count>', 'tokens to generate at most', positiveInteger, 128)
    .option('-t, --temperature <value>', '0 takes the likeliest token each time', nonNegative, 0.7)
    .option('--top-k <count>', 'keep the k likeliest tokens', positiveInteger)
    .option('--top-p <value>', 'keep the likeliest tokens that make up this probability', nonNegative)
    .option('--min-p <value>', 'keep tokens of at least this share of the likeliest one', nonNegative)
    .option('--seed <number>', 'seed of the sampler', nonNegative)
    .option('--repetition-penalty <value>', 'above 1 avoids recent tokens', nonNegative)
    .option('--stop <text...>', 'end at any of these texts')
    .option('--max-context <tokens>', 'size of the KV cache, default the model’s own', positiveInteger)
    .option('--json', 'print one JSON object instead of streaming')
    .action((model: string, options: RunOptions) => guarded(options.json, () => run(model, options)));
}

async function run(path: string, options: RunOptions): Promise<void> {
  const device = options.device === 'auto' ? await Device.auto() : Device.parse(options.device);
  const interrupt = new AbortController();
  const onSignal = () => interrupt.abort();
  process.once('SIGINT', onSignal);
  const { signal } = interrupt;
  const showProgress = !options.json && process.stderr.isTTY;
  using model = await loadModel(path, {
    device,
    signal,
    maxContext: options.maxContext,
    onProgress: showProgress
      ? (loaded, total) => process.stderr.write(`\rloading ${formatBytes(loaded)} of ${formatBytes(total)}\x1b[K`)
      : undefined,
  });
  if (showProgress) process.stderr.write('\r\x1b[K');

  const generation = model.generate(options.prompt, { ...options, signal });
  let text = '';
  const tokenIds: number[] = [];
  if (!options.json) process.stdout.write(paint('bold', options.prompt));
  try {
    for await (const piece of generation) {
      text += piece.text;
      if (piece.id !== undefined) tokenIds.push(piece.id);
      if (!options.json) process.stdout.write(piece.text);
    }
  } catch (error) {
    if (!signal.aborted) throw error;
  } finally {
    process.removeListener('SIGINT', onSignal);
  }
  const { stats } = generation;
  if (options.json) {
    printJson({
      device: device.toString(),
      deviceName: device.description,
      model: resolve(path),
      prompt: options.prompt,
      promptTokens: stats.promptTokens,
      tokens: stats.tokens,
      text,
      tokenIds,
      finishReason: signal.aborted ? 'aborted' : stats.finishReason,
      loadMs: round(stats.loadMs),
      firstTokenMs: round(stats.firstTokenMs),
      decodeTokensPerSecond: round(stats.decodeTokensPerSecond),
    });
    return;
  }
  const figures = `${device} (${device.description}) · loaded in ${round(stats.loadMs)} ms · first token after ${round(stats.firstTokenMs)} ms · ${stats.tokens} tokens at ${round(stats.decodeTokensPerSecond)} tokens/s`;
  process.stdout.write(`\n\n${paint('dim', figures)}\n`);
}

function round(value: number): number {
  return Math.round(value * 10) / 10;
}

function positiveInteger(text: string): number {
  const value = Number(text);
  if (!Number.isInteger(value) || value < 1) throw new InvalidArgumentError('give a whole number of at least 1');
  return value;
}

function nonNegative(text: string): number {
  const value = Number(text);
  if (text.trim() === '' || !Number.isFinite(value) || value < 0)
    throw new InvalidArgumentError('give a number of at least 0');
  return value;
}
