/**
 * `candle run MODEL`: text from a model, streamed to stdout with nothing else, the figures to stderr; or one JSON object
 * with both.
 */
import { accessSync, constants, existsSync } from 'node:fs';
import { dirname, resolve } from 'node:path';
import { FileFormatError } from '@x/core';
import type { Generation, GenerationStats, LanguageModel, PromptFileOptions } from '@x/engine';
import { Command } from 'commander';
import { followed } from '../devices';
import { addFormFlags, type FormFlags, grammarOf } from '../form-options';
import { addGenerateFlags, type GenerateFlags, generateOptionsOf } from '../generate-options';
import { Interrupted, interruptible, isOutputClosed } from '../interrupt';
import { loadForCommand } from '../load-model';
import { someText } from '../option-values';
import { guarded, paint, printJson } from '../output';
import { acceptedText, addSpeculativeFlags, checkSpeculative, loadDrafts, type SpeculativeFlags } from '../speculative';
import { textFromStdin } from '../standard-input';

interface RunOptions extends GenerateFlags, FormFlags, SpeculativeFlags {
  prompt: string;
  promptCache?: string;
  json?: boolean;
}

export function runCommand(): Command {
  const command = new Command('run')
    .description('generate text from a GGUF file or a safetensors directory')
    .argument(
      '<model>',
      'a .gguf file, a directory with config.json, *.safetensors and tokenizer.json, or hf:org/repo:Q4_K_M',
    )
    .option(
      '-p, --prompt <text>',
      'text to continue; - reads it from standard input',
      someText(PROMPT_HINT),
      'Once upon a time',
    );
  return addSpeculativeFlags(addFormFlags(addGenerateFlags(command, { maxTokens: 128, temperature: 0.7 })))
    .option(
      '--prompt-cache <file>',
      'take from this file what it holds of the prompt, and keep the prompt in it',
      someText('Give a file name.'),
    )
    .option('--json', 'print one JSON object instead of streaming')
    .action((model: string, options: RunOptions) =>
      guarded(options.json, () => interruptible((signal) => run(model, options, signal))),
    );
}

const PROMPT_HINT = 'The prompt is empty: give some text.';

async function run(name: string, options: RunOptions, signal: AbortSignal): Promise<void> {
  if (await followed(name, options, { json: options.json, signal })) return;
  const prompt = options.prompt === '-' ? await textFromStdin(signal) : options.prompt;
  const grammar = grammarOf(options);
  checkSpeculative(options);
  const kept = options.promptCache;
  if (kept !== undefined) checkWritable(kept);
  const { path, ...loaded } = await loadForCommand(name, options, signal);
  using model = loaded.model;
  const { device } = model;
  const { speculative, draft } = await loadDrafts(options, model, { json: options.json, signal });
  using _draft = draft;
  const generateOptions = generateOptionsOf(options);
  const files = { adapter: generateOptions.adapter, signal };
  if (kept !== undefined && existsSync(kept))
    await model.loadPrompt(kept, files).catch((error: unknown) => {
      if (error instanceof FileFormatError) error.message += ' Or delete it, and the prompt is kept anew.';
      throw error;
    });
  const generation = model.generate(prompt, { ...generateOptions, grammar, speculative, signal });
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
  } finally {
    // What follows, an error too, has lines of its own.
    write('\n');
  }
  let notKept: unknown;
  if (kept !== undefined && !signal.aborted)
    await keepPrompt(model, kept, generation, files).catch((error: unknown) => {
      // The text that was generated is not lost with it.
      if (!options.json) throw error;
      notKept = error;
      process.exitCode = 1;
    });
  if (isOutputClosed()) return;
  const { stats } = generation;
  if (!options.json) return printFigures(model, stats, grammar !== undefined);
  printJson({
    device: device.toString(),
    deviceName: device.description,
    ranks: model.ranks,
    model: resolve(path),
    prompt,
    promptTokens: stats.promptTokens,
    reusedTokens: stats.reusedTokens,
    tokens: stats.tokens,
    text,
    tokenIds,
    seed: stats.seed,
    finishReason: stats.finishReason,
    loadMs: round(stats.loadMs),
    firstTokenMs: round(stats.firstTokenMs),
    decodeTokensPerSecond: round(stats.decodeTokensPerSecond),
    ...(stats.speculative && { speculative: stats.speculative }),
    ...(model.expertStats && { experts: model.expertStats }),
    ...(notKept !== undefined && { promptCacheError: errorParts(notKept) }),
  });
}

function errorParts(error: unknown): { code: unknown; message: string } {
  return {
    code: (error as { code?: unknown }).code ?? 'ERROR',
    message: error instanceof Error ? error.message : String(error),
  };
}

/** Before anything is generated. @throws FileFormatError FILE_UNWRITABLE */
function checkWritable(path: string): void {
  try {
    accessSync(existsSync(path) ? path : dirname(resolve(path)), constants.W_OK);
  } catch (cause) {
    const message = `${path}: the prompt cannot be kept there (${(cause as NodeJS.ErrnoException).code}). Give a file in a directory that can be written.`;
    throw new FileFormatError('FILE_UNWRITABLE', message, { path, cause });
  }
}

/** Tokens that are kept together. */
const BLOCK = 32;

/** Writes the prompt to its file unless that has all of it. */
async function keepPrompt(
  model: LanguageModel,
  path: string,
  { promptIds, stats }: Generation,
  options: PromptFileOptions,
): Promise<void> {
  const say = (text: string) => process.stderr.write(`${paint('dim', text, process.stderr)}\n`);
  if (promptIds.length <= BLOCK) {
    say(`the prompt's ${promptIds.length} tokens are not kept: more than ${BLOCK} are`);
    return;
  }
  // The last token is always computed, so a prompt of whole blocks takes one less from the file than that has.
  if (stats.reusedTokens >= promptIds.length - 1 - ((promptIds.length - 1) % BLOCK)) return;
  const { tokens } = await model.savePrompt(path, promptIds, options);
  say(`${tokens} tokens of the prompt are kept in ${path}`);
}

function printFigures(
  { device, ranks, maxContext, config }: LanguageModel,
  stats: GenerationStats,
  isFormed: boolean,
): void {
  const say = (text: string) => process.stderr.write(`${paint('dim', text, process.stderr)}\n`);
  const { tokens, loadMs, firstTokenMs, decodeTokensPerSecond, finishReason } = stats;
  if (finishReason === 'context') {
    const most = config.contextLength;
    const remedy = maxContext < most ? `give more with --max-context, up to ${most}` : 'the model was made for no more';
    say(`\nthe text ends because the context of ${maxContext} tokens is full; ${remedy}`);
  }
  if (finishReason === 'length' && isFormed)
    say('\nthe text was cut before its form was complete; give more with --max-tokens');
  if (finishReason === 'aborted') say('\ninterrupted');
  const first = tokens > 0 ? ` · first token after ${round(firstTokenMs)} ms` : '';
  const rate = `${tokens} tokens at ${round(decodeTokensPerSecond)} tokens/s`;
  const place = ranks === 1 ? `${device}` : `${ranks} devices, ${device} first`;
  say(`\n${place} (${device.description}) · loaded in ${round(loadMs)} ms${first} · ${rate}${acceptedText(stats)}`);
}

function round(value: number): number {
  return Math.round(value * 10) / 10;
}
