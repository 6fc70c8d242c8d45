/** `candle batch IN.jsonl OUT.jsonl`: the requests of a file, or of a queue, computed offline; it goes on after a crash. */
import { realpathSync } from 'node:fs';
import { performance } from 'node:perf_hooks';
import { Device } from '@x/core';
import { type CacheDType, processGroup } from '@x/engine';
import type { LogEntry } from '@x/server';
import { Command, InvalidArgumentError } from 'commander';
import '@x/rocm-backend';
import { Answers } from '../batch/answers';
import { runFile } from '../batch/from-file';
import { connectQueue, type QueueConnection, runQueue } from '../batch/from-queue';
import { Progress } from '../batch/progress';
import { checkRequests } from '../batch/requests';
import { Results } from '../batch/results';
import { addDeviceFlags, type DeviceFlags, followed, placeOf } from '../devices';
import { interruptible } from '../interrupt';
import { cacheDtypeOption, decimal, someText, wholeNumber } from '../option-values';
import { guarded, paint, printJson, UsageError } from '../output';
import { checkOneModel, loadWithOthers, placeOfName, servedModels, textOf } from '../served-models';

interface BatchCommandOptions extends DeviceFlags {
  model?: string[];
  embedding?: string[];
  lora?: string[];
  errors?: string;
  retryFailed?: boolean;
  queue?: string;
  queueName?: string;
  queuePasswordFile?: string;
  queueLock?: number;
  untilEmpty?: boolean;
  context?: number;
  cacheDtype?: CacheDType;
  chatTemplate?: string;
  maxSequences?: number;
  maxTokens?: number;
  requestTimeout?: number;
  json?: boolean;
}

const QUEUE_NAME = 'candle';
const LOCK_SECONDS = 30;
const several = (text: string, all: string[] = []) => [...all, someText('Give some text.')(text)];

export function batchCommand(): Command {
  const command = new Command('batch')
    .description("answer the requests of a file, in OpenAI's batch format; the same command goes on after a crash")
    .argument('[files...]', 'requests and results: in.jsonl out.jsonl; with --queue only the results, or none')
    .option(
      '-m, --model <model>',
      'a .gguf file, a model directory or hf:org/repo, also as NAME=PATH; repeatable',
      several,
    )
    .option('--embedding <model>', 'a model that makes vectors of texts; repeatable', several)
    .option('--lora <name=path>', 'a LoRA adapter of the one model, a model of its name; repeatable', several)
    .option(
      '--errors <file>',
      'for requests that are refused or fail; default OUT.errors.jsonl',
      someText('Give a path.'),
    )
    .option('--retry-failed', 'compute what failed for no fault of its request again')
    .option('--queue <url>', 'take requests from BullMQ on Redis or Valkey: redis://host:6379', queueAddress)
    .option('--queue-name <name>', `default ${QUEUE_NAME}`, someText('Give a name.'))
    .option('--queue-password-file <path>', 'a file with the password of the queue')
    .option(
      '--queue-lock <seconds>',
      `after which others get the jobs of a process that is gone; default ${LOCK_SECONDS}`,
      decimal({ from: 1, to: 86_400 }),
    )
    .option('--until-empty', 'with --queue: end when no job waits or is under way');
  return addDeviceFlags(command)
    .option('-c, --context <tokens>', 'of a sequence, default the model’s own, at most 4096', wholeNumber(1))
    .addOption(cacheDtypeOption())
    .option('--chat-template <file>', 'chatml, or a file with the Jinja text, in place of the models’ own')
    .option('--max-sequences <count>', 'computed at once; default 32', wholeNumber(1, 4096))
    .option('--max-tokens <count>', 'that a sequence may generate', wholeNumber(1))
    .option('--request-timeout <seconds>', 'for a request; default: none', decimal({ from: 0, to: 2e6, above: true }))
    .option('--json', 'print one JSON object at the end')
    .action((files: string[], options: BatchCommandOptions) =>
      guarded(options.json, () => interruptible((signal) => batch(files, options, signal))),
    );
}

function queueAddress(text: string): string {
  const url = URL.canParse(text) ? new URL(text) : undefined;
  if (!url || !['redis:', 'rediss:'].includes(url.protocol) || url.hostname === '' || !/^(\/\d*)?$/.test(url.pathname))
    throw new InvalidArgumentError('Give an address such as redis://localhost:6379 or rediss://user@host:6379/0.');
  return text;
}

async function batch(files: readonly string[], options: BatchCommandOptions, given: AbortSignal): Promise<void> {
  const { json } = options;
  const { input, output, errors } = filesOf(files, options);
  const { model: names = [], embedding = [] } = options;
  if (names.length + embedding.length === 0)
    throw new UsageError('there is no model. Give one: --model NAME=PATH, or --embedding NAME=PATH.');
  const password =
    options.queuePasswordFile === undefined ? undefined : textOf(options.queuePasswordFile).replace(/\r?\n$/, '');
  const isGroup = processGroup() !== undefined;
  if (isGroup) {
    checkOneModel(names, embedding, 'compute');
    if (await followed(placeOfName(names[0]).path, options, { json, signal: given })) return;
  }
  const place = await placeOf(options);
  const device = Device.of(place.device ?? place.devices?.[0] ?? (await Device.auto()));
  const sources = await servedModels({ ...options, models: names, embedding, device, place }, { json, signal: given });
  // Other processes wait for it, even where nothing is left to do.
  using together = isGroup ? await loadWithOthers(sources, given) : undefined;
  const failed = new AbortController();
  together?.onFailure((error) => failed.abort(error));
  const signal = AbortSignal.any([given, failed.signal]);
  const models = [
    ...Object.keys(sources),
    ...Object.values(sources).flatMap((file) =>
      file.kind === 'embedding' ? [] : Object.keys(file.options?.adapters ?? {}),
    ),
  ];
  const begun = performance.now();
  const { retryFailed } = options;
  const requests = input === undefined ? undefined : await checkRequests(input, models, signal);
  const results = output === undefined ? undefined : await Results.open(output, errors!, { retryFailed, signal });
  let answers: Answers | undefined;
  let connection: QueueConnection | undefined;
  let progress: Progress | undefined;
  try {
    const lost = (error: Error) => progress?.say(`the queue is out of reach, trying again: ${error.message}`);
    if (options.queue !== undefined) connection = await connectQueue(options.queue, password, lost);
    const before = { answered: 0, failed: 0 };
    for (const [customId, id] of requests ?? []) {
      const state = results!.has({ customId, id });
      if (state !== undefined) before[state]++;
    }
    const total = requests?.size ?? Number.POSITIVE_INFINITY;
    const done = before.answered + before.failed;
    const shown = new Progress(total, done, json === true);
    if (done < total) {
      progress = shown;
      if (done > 0 && !json) shown.say(`${done} of ${total} requests have their results`);
      answers = await Answers.from({
        models: together ? { [Object.keys(sources)[0]]: together } : sources,
        maxSequences: options.maxSequences,
        maxTokens: options.maxTokens,
        requestTimeoutMs: options.requestTimeout === undefined ? undefined : Math.max(1, options.requestTimeout * 1000),
        onLog: (entry) => log(entry, shown),
      });
      await until(answers.ready, signal);
      const common = { models, answers, progress: shown, signal };
      try {
        if (input !== undefined) await runFile({ ...common, input, results: results! });
        else {
          if (!json) shown.say(`takes jobs of the queue ${options.queueName ?? QUEUE_NAME}; Ctrl-C ends`);
          await runQueue({
            ...common,
            results,
            connection: connection!,
            name: options.queueName ?? QUEUE_NAME,
            lockSeconds: options.queueLock ?? LOCK_SECONDS,
            untilEmpty: options.untilEmpty === true,
          });
        }
      } finally {
        shown.clear();
        if (signal.aborted && input !== undefined && !json)
          shown.say(
            `${done + shown.answered + shown.failed} of ${total} requests have their results; the same command goes on`,
          );
      }
    }
    const seconds = (performance.now() - begun) / 1000;
    const counts = { answered: before.answered + shown.answered, failed: before.failed + shown.failed };
    say({ ...counts, before: done, seconds }, { output, errors }, json);
    if (counts.failed > 0) process.exitCode = 1;
  } finally {
    connection?.redis.disconnect();
    await answers?.close();
    await results?.close();
  }
}

function filesOf(files: readonly string[], { queue, errors, ...options }: BatchCommandOptions) {
  const [wanted, usage] = queue === undefined ? [2, 'in.jsonl out.jsonl'] : [1, 'with --queue out.jsonl or nothing'];
  if (files.length > wanted || (queue === undefined && files.length < wanted))
    throw new UsageError(`there are ${files.length} files. Give ${usage}.`);
  for (const [flag, value] of Object.entries({
    'queue-name': options.queueName,
    'queue-password-file': options.queuePasswordFile,
    'queue-lock': options.queueLock,
    'until-empty': options.untilEmpty,
  }))
    if (queue === undefined && value !== undefined) throw new UsageError(`--${flag} is for --queue. Give both.`);
  const [input, output] = queue === undefined ? files : [undefined, files[0]];
  if (output === undefined) {
    if (errors !== undefined || options.retryFailed)
      throw new UsageError('--errors and --retry-failed are for results in a file. Give one.');
    return { input, output, errors };
  }
  const errorsPath = errors ?? `${output.replace(/\.jsonl$/, '')}.errors.jsonl`;
  if (input !== undefined) {
    for (const path of [output, errorsPath])
      if (realPath(path) === realPath(input))
        throw new UsageError(`${path} is the file of the requests. Give another.`);
  }
  return { input, output, errors: errorsPath };
}

function realPath(path: string): string {
  try {
    return realpathSync(path);
  } catch {
    return path;
  }
}

/** Ends with the promise, or with the signal. */
async function until(promise: Promise<void>, signal: AbortSignal): Promise<void> {
  const aborted = new Promise<never>((_, reject) => {
    if (signal.aborted) reject(signal.reason as Error);
    signal.addEventListener('abort', () => reject(signal.reason as Error), { once: true });
  });
  await Promise.race([promise, aborted]);
}

interface Counts {
  answered: number;
  failed: number;
  /** Of these, those that had their results before. */
  before: number;
  seconds: number;
}

function say(counts: Counts, paths: { output?: string; errors?: string }, json: boolean | undefined): void {
  const { answered, failed, before, seconds } = counts;
  if (json) {
    printJson({ ...counts, ...paths });
    return;
  }
  const where = failed > 0 && paths.errors !== undefined ? ` (${paths.errors})` : '';
  const earlier = before > 0 ? `, ${before} of them before` : '';
  const text = `${answered} requests answered, ${failed} failed${where}${earlier}, in ${seconds.toFixed(1)} s`;
  process.stderr.write(`${paint(failed > 0 ? 'yellow' : 'dim', text, process.stderr)}\n`);
}

/** Failures of the server's own; what is wrong with a request is in its result. */
function log({ id, route, error }: LogEntry, progress: Progress): void {
  if (error === undefined || route === 'load') return;
  progress.say(`${id} ${route}: ${error instanceof Error ? `${error.name}: ${error.message}` : String(error)}`);
}
