/**
 * `candle run MODEL`: text from a model, streamed to stdout with nothing else, the figures to stderr; or one JSON object
 * with both.
 */
import { resolve } from 'node:path';
import { Device } from '@x/core';
import { type GenerationStats, type LanguageModel, loadModel } from '@x/engine';
import { Command } from 'commander';
import '@x/rocm-backend';
import { Interrupted, interruptible, isOutputClosed } from '../interrupt';
import { decimal, someText, wholeNumber } from '../option-values';
import { formatBytes, guarded, paint, printJson, UsageError } from '../output';

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
    .option(
      '-p, --prompt <text>',
      'text to continue; - reads it from standard input',
      someText(PROMPT_HINT),
      'Once upon a time',
    )
    .option('-d, --device <name>', 'auto, js, cpu, rocm:N or cuda:N', 'auto')
    .option('-n, --max-tokens <count>', 'tokens to generate at most', wholeNumber(1), 128)
    .option('-t, --temperature <value>', '0 takes the likeliest token each time', decimal({ from: 0, to: 100 }), 0.7)
    .option('--top-k <count>', 'keep the k likeliest tokens', wholeNumber(1))
    .option(
      '--top-p <value>',
      'keep the likeliest tokens that make up this probability',
      decimal({ from: 0, to: 1, above: true }),
    )
    .option('--min-p <value>', 'keep tokens of at least this share of the likeliest one', decimal({ from: 0, to: 1 }))
    .option('--seed <number>', 'seed of the sampler', wholeNumber(0))
    .option('--repetition-penalty <value>', 'above 1 avoids recent tokens', decimal({ from: 0, to: 100, above: true }))
    .option('--stop <text...>', 'end at any of these texts', (text: string, all: string[] = []) => [
      ...all,
      someText('Give some text.')(text),
    ])
    .option('--max-context <tokens>', 'size of the KV cache, default the model’s own, at most 4096', wholeNumber(1))
    .option('--json', 'print one JSON object instead of streaming')
    .action((model: string, options: RunOptions) =>
      guarded(options.json, () => interruptible((signal) => run(model, options, signal))),
    );
}

const PROMPT_HINT = 'The prompt is empty: give some text.';

async function run(path: string, options: RunOptions, signal: AbortSignal): Promise<void> {
  const prompt = options.prompt === '-' ? await promptFromStdin(signal) : options.prompt;
  const device = options.device === 'auto' ? await Device.auto() : Device.parse(options.device);
  using model = await load(path, device, options, signal);
  const { maxTokens, temperature, topK, topP, minP, seed, repetitionPenalty, stop } = options;
  const sampling = { temperature, topK, topP, minP, seed, repetitionPenalty };
  const generation = model.generate(prompt, { ...sampling, maxTokens, stop, signal });
  let text = '';
  const tokenIds: number[] = [];
  const write = (part: string) => {
    if (!options.json && !isOutputClosed()) process.stdout.write(part);
  };
  write(paint('bold', prompt));
  try {
    for await (const piece of generation) {
      text += piece.text;
      tokenIds.push(piece.id);
      write(piece.text);
    }
  } catch (error) {
    if (!(error instanceof Interrupted)) throw error;
  }
  write('\n');
  if (isOutputClosed()) return;
  const { stats } = generation;
  if (!options.json) return printFigures(model, stats);
  printJson({
    device: device.toString(),
    deviceName: device.description,
    model: resolve(path),
    prompt,
    promptTokens: stats.promptTokens,
    tokens: stats.tokens,
    text,
    tokenIds,
    seed: stats.seed,
    finishReason: stats.finishReason,
    loadMs: round(stats.loadMs),
    firstTokenMs: round(stats.firstTokenMs),
    decodeTokensPerSecond: round(stats.decodeTokensPerSecond),
  });
}

/** Standard input as a prompt, less the newline at its end. */
async function promptFromStdin(signal: AbortSignal): Promise<string> {
  const stop = () => process.stdin.destroy(signal.reason as Error);
  signal.addEventListener('abort', stop);
  const chunks: Buffer[] = [];
  try {
    signal.throwIfAborted();
    for await (const chunk of process.stdin) chunks.push(chunk as Buffer);
  } finally {
    signal.removeEventListener('abort', stop);
  }
  let text: string;
  try {
    text = new TextDecoder('utf-8', { fatal: true }).decode(Buffer.concat(chunks));
  } catch {
    throw new UsageError('the prompt on standard input is not UTF-8. Give text in UTF-8.');
  }
  const prompt = text.replace(/\r?\n$/, '');
  if (prompt === '') throw new UsageError('the prompt on standard input is empty. Give some text, or --prompt.');
  return prompt;
}

async function load(
  path: string,
  device: Device,
  { json, maxContext }: RunOptions,
  signal: AbortSignal,
): Promise<LanguageModel> {
  const shown = !json && process.stderr.isTTY;
  const show = (text: string) => process.stderr.write(`\r${text}\x1b[K`);
  try {
    return await loadModel(path, {
      device,
      signal,
      maxContext,
      onProgress: shown
        ? (loaded, total) => show(`loading ${formatBytes(loaded)} of ${formatBytes(total)}`)
        : undefined,
    });
  } finally {
    if (shown) show('');
  }
}

function printFigures({ device, maxContext, config }: LanguageModel, stats: GenerationStats): void {
  const say = (text: string) => process.stderr.write(`${paint('dim', text, process.stderr)}\n`);
  const { tokens, loadMs, firstTokenMs, decodeTokensPerSecond, finishReason } = stats;
  if (finishReason === 'context') {
    const most = config.contextLength;
    const remedy = maxContext < most ? `give more with --max-context, up to ${most}` : 'the model was made for no more';
    say(`\nthe text ends because the context of ${maxContext} tokens is full; ${remedy}`);
  }
  if (finishReason === 'aborted') say('\ninterrupted');
  const first = tokens > 0 ? ` · first token after ${round(firstTokenMs)} ms` : '';
  const rate = `${tokens} tokens at ${round(decodeTokensPerSecond)} tokens/s`;
  say(`\n${device} (${device.description}) · loaded in ${round(loadMs)} ms${first} · ${rate}`);
}

function round(value: number): number {
  return Math.round(value * 10) / 10;
}
