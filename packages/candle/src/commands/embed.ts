/**
 * `candle embed MODEL [FILES...]`: a line of text each from files or standard input, a JSON line of its vector each to stdout;
 * with `--query`, the lines by how well they answer it.
 */
import { performance } from 'node:perf_hooks';
import { type Device, FileFormatError } from '@x/core';
import { type EmbeddingModel, loadEmbeddingModel } from '@x/engine';
import type { PoolingMode } from '@x/transformers';
import { Command, Option } from 'commander';
import '@x/rocm-backend';
import { addOneDeviceFlag, type DeviceFlags, oneDeviceOf } from '../devices';
import { interruptible, isOutputClosed } from '../interrupt';
import { fileText, linesOf, standardInput, type TextErrors, textOf } from '../lines';
import { localModel } from '../model-source';
import { someText, wholeNumber } from '../option-values';
import { formatBytes, guarded, paint, printJson, UsageError } from '../output';

interface EmbedCommandOptions extends DeviceFlags {
  query?: string;
  top?: number;
  promptName?: string;
  prompt?: string;
  dimensions?: number;
  normalize: boolean;
  maxTokens?: number;
  pooling?: PoolingMode;
  truncate: boolean;
  quantize?: 'q8_0';
  whole?: boolean;
  json?: boolean;
}

/** One text and where it is from. */
interface Text {
  /** `-` is standard input. */
  file: string;
  /** From 1. */
  line: number;
  text: string;
}

/** What is printed of a text. */
interface Result {
  file: string;
  line: number;
  tokens: number;
  dropped: number;
  embedding?: number[];
  score?: number;
  text?: string;
}

/** Texts whose vectors are made together, and written before more is read. */
const AT_ONCE = 1024;

export function embedCommand(): Command {
  const command = new Command('embed')
    .description('vectors of texts, or scores of texts against a query, as JSON lines')
    .argument('<model>', 'a .gguf file, a directory with config.json, *.safetensors and tokenizer.json, or hf:org/repo')
    .argument('[files...]', 'texts, one a line; - or none reads standard input');
  return addOneDeviceFlag(command)
    .option(
      '-q, --query <text>',
      'rank the texts by how well they answer this, with a reranker',
      someText('Give some text.'),
    )
    .option('--top <count>', 'with --query: print so many of the best texts', wholeNumber(1))
    .option('--prompt-name <name>', "the model's prompt to put in front of each text: query, document, ...")
    .option('--prompt <text>', 'text to put in front of each text')
    .option('--dimensions <count>', 'keep so many first numbers of each vector', wholeNumber(1))
    .option('--no-normalize', 'keep the length of vectors; default: all have length 1')
    .option('--max-tokens <count>', 'tokens of a text at most', wholeNumber(1))
    .addOption(
      new Option('--pooling <mode>', 'how a text becomes a vector, where the files do not say it').choices([
        'cls',
        'last',
        'mean',
        'max',
        'mean_sqrt_len',
        'weighted_mean',
      ]),
    )
    .addOption(new Option('--quantize <type>', 'blocks to make of the weights while loading').choices(['q8_0']))
    .option('--no-truncate', 'fail for a text that is too long, instead of leaving its end out')
    .option('--whole', 'each file is one text, with its line ends')
    .option('--json', 'print one JSON object instead of lines')
    .action((model: string, files: string[], options: EmbedCommandOptions) =>
      guarded(options.json, () => interruptible((signal) => embed(model, files, options, signal))),
    );
}

async function embed(
  name: string,
  files: readonly string[],
  options: EmbedCommandOptions,
  signal: AbortSignal,
): Promise<void> {
  const { query, top, json } = options;
  if (top !== undefined && query === undefined) throw new UsageError('--top is for --query. Give both, or neither.');
  for (const name of ['promptName', 'prompt', 'dimensions'] as const) {
    if (query === undefined || options[name] === undefined) continue;
    const flag = name.replace('promptName', 'prompt-name');
    throw new UsageError(`--${flag} is for vectors, not for --query. Leave one of them out.`);
  }
  const device = await oneDeviceOf(options);
  const path = await localModel(name, { json, signal });
  using model = await load(path, device, options, signal);
  const results: unknown[] = [];
  const counts = { texts: 0, tokens: 0, dropped: 0 };
  const write = async (result: Result) => {
    counts.texts++;
    counts.tokens += result.tokens;
    if (result.dropped > 0) counts.dropped++;
    if (json) results.push(result);
    else if (!isOutputClosed() && !process.stdout.write(`${JSON.stringify(result)}\n`)) await drained(signal);
  };
  const start = performance.now();
  const texts = textsOf(files.length > 0 ? files : ['-'], options.whole === true, signal);
  if (query === undefined) {
    for await (const lines of groups(texts, AT_ONCE)) {
      for (const [i, { vector, tokens, dropped }] of (await vectorsOf(model, lines, options, signal)).entries()) {
        const { file, line } = lines[i];
        await write({ file, line, tokens, dropped, embedding: Array.from(vector, shortest) });
      }
    }
  } else {
    const lines: Text[] = [];
    for await (const one of texts) lines.push(one);
    const { maxTokens, truncate } = options;
    const documents = lines.map(({ text }) => text);
    const ranked = await model.rerank(query, documents, { maxTokens, truncate, topN: top, signal });
    for (const { index, score, tokens, dropped } of ranked) {
      const { file, line, text } = lines[index];
      await write({ file, line, score, tokens, dropped, text });
    }
  }
  if (json) printJson({ device: device.toString(), dimensions: model.dimensions, ...counts, results });
  say(model, counts, performance.now() - start, options);
}

function vectorsOf(
  model: EmbeddingModel,
  lines: readonly Text[],
  { promptName, prompt, dimensions, normalize, maxTokens, truncate }: EmbedCommandOptions,
  signal: AbortSignal,
) {
  const texts = lines.map(({ text }) => text);
  return model.embed(texts, { promptName, prompt, dimensions, normalize, maxTokens, truncate, signal });
}

function say(
  { device, maxTokens }: EmbeddingModel,
  { texts, tokens, dropped }: { texts: number; tokens: number; dropped: number },
  ms: number,
  options: EmbedCommandOptions,
): void {
  const note = (text: string) => process.stderr.write(`${paint('dim', text, process.stderr)}\n`);
  if (dropped > 0) {
    const most = options.maxTokens ?? maxTokens;
    note(`${dropped} of ${texts} texts are longer than ${most} tokens; their ends are left out ("dropped")`);
  }
  const rate = ms > 0 ? `, ${(texts / (ms / 1000)).toFixed(1)} a second` : '';
  note(`${device} (${device.description}) · ${texts} texts of ${tokens} tokens${rate}`);
}

async function load(
  path: string,
  device: Device,
  { json, pooling, quantize }: EmbedCommandOptions,
  signal: AbortSignal,
): Promise<EmbeddingModel> {
  const shown = !json && process.stderr.isTTY;
  const show = (text: string) => process.stderr.write(`\r${text}\x1b[K`);
  try {
    const onProgress = (loaded: number, total: number) =>
      show(`loading ${formatBytes(loaded)} of ${formatBytes(total)}`);
    return await loadEmbeddingModel(path, { device, signal, pooling, quantize, ...(shown && { onProgress }) });
  } finally {
    if (shown) show('');
  }
}

/** Texts that are not blank, of files one after the other: each line, or each file with `--whole`. */
async function* textsOf(files: readonly string[], whole: boolean, signal: AbortSignal): AsyncGenerator<Text> {
  for (const file of files) {
    const source = file === '-' ? standardInput : fileText(file);
    const errors = errorsOf(file);
    if (whole) {
      const text = await textOf(source, errors, signal);
      if (text.trim() !== '') yield { file, line: 1, text };
      continue;
    }
    for await (const { number, text } of linesOf(source, errors, signal))
      if (text.trim() !== '') yield { file, line: number, text };
  }
}

function errorsOf(file: string): TextErrors {
  const name = file === '-' ? 'standard input' : file;
  const invalid = (what: string, line: number | undefined, cause?: unknown) =>
    new FileFormatError('FILE_INVALID', `${name}${line === undefined ? '' : `, line ${line}`} ${what}`, {
      path: file,
      cause,
    });
  return {
    unreadable: (cause) => {
      const isMissing = cause.code === 'ENOENT';
      return new FileFormatError(
        isMissing ? 'FILE_NOT_FOUND' : 'FILE_UNREADABLE',
        `${name}: ${isMissing ? 'there is no such file' : cause.message}. Give a file of texts, one a line.`,
        { path: file, cause },
      );
    },
    tooLong: (mostBytes, line) => invalid(`has more than ${mostBytes} bytes. Give shorter texts.`, line),
    notUtf8: (cause, line) => invalid('is not UTF-8. Give text in UTF-8.', line, cause),
  };
}

async function* groups<T>(items: AsyncIterable<T>, size: number): AsyncGenerator<T[]> {
  let group: T[] = [];
  for await (const item of items) {
    group.push(item);
    if (group.length < size) continue;
    yield group;
    group = [];
  }
  if (group.length > 0) yield group;
}

/** Until more can be written, or nobody reads any more. */
function drained(signal: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    const done = () => {
      signal.removeEventListener('abort', stop);
      resolve();
    };
    const stop = () => {
      process.stdout.removeListener('drain', done);
      reject(signal.reason as Error);
    };
    if (signal.aborted) return stop();
    process.stdout.once('drain', done);
    signal.addEventListener('abort', stop, { once: true });
  });
}

/** An f32 in as few digits as say it. */
function shortest(value: number): number {
  return Number(value.toPrecision(9));
}
