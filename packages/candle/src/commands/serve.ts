/** `candle serve MODEL...`: models over HTTP in OpenAI's form, and a page to chat in, until Ctrl-C. */
import { Device } from '@x/core';
import { type CacheDType, devicesOf, type LanguageModel, processGroup } from '@x/engine';
import type { LogEntry, RunningServer, ServeOptions } from '@x/server';
import { Command } from 'commander';
import '@x/rocm-backend';
import { addDeviceFlags, type DeviceFlags, followed, placeOf } from '../devices';
import { Interrupted, interruptible } from '../interrupt';
import { cacheDtypeOption, decimal, someText, wholeNumber } from '../option-values';
import { guarded, paint, printJson, UsageError } from '../output';
import { checkOneModel, loadWithOthers, placeOfName, servedModels, textOf } from '../served-models';

interface ServeCommandOptions extends DeviceFlags {
  host: string;
  port: number;
  apiKey?: string;
  apiKeyFile?: string;
  allowOpenNetwork?: boolean;
  allowedHost?: string[];
  cors?: string[];
  context?: number;
  cacheDtype?: CacheDType;
  chatTemplate?: string;
  embedding?: string[];
  lora?: string[];
  maxSequences?: number;
  maxWaiting?: number;
  maxTokens?: number;
  modelMemory?: number;
  unloadAfter?: number;
  preload?: boolean;
  drain: number;
  shutdownTimeout: number;
  page: boolean;
  log?: boolean;
  json?: boolean;
}

const several = (text: string, all: string[] = []) => [...all, someText('Give some text.')(text)];

export function serveCommand(): Command {
  const command = new Command('serve')
    .description("serve models over HTTP in OpenAI's form, with a page to chat in")
    .argument('[models...]', '.gguf files, model directories or hf:org/repo, each also as NAME=PATH')
    .option('--host <address>', 'address to listen on; others than this machine ask for a key', '127.0.0.1')
    .option('-p, --port <number>', '0 takes a free one', wholeNumber(0, 65_535), 8080)
    .option('--api-key <key>', 'ask requests for this key', someText('Give a key.'))
    .option('--api-key-file <path>', 'the same from a file with a key on each line')
    .option('--allow-open-network', 'listen on other addresses without a key: everyone there can use the models')
    .option('--allowed-host <names...>', 'names under which requests may come, or network, or any', several)
    .option('--cors <origins...>', 'pages of these origins may ask, or *', several);
  return addDeviceFlags(command)
    .option('-c, --context <tokens>', 'of a sequence, default the model’s own, at most 4096', wholeNumber(1))
    .addOption(cacheDtypeOption())
    .option('--chat-template <file>', 'chatml, or a file with the Jinja text, in place of the models’ own')
    .option('--embedding <models...>', 'models that make vectors of texts', several)
    .option('--lora <name=path...>', 'LoRA adapters of the one model, each a model of its name', several)
    .option('--max-sequences <count>', 'computed at once; default 32', wholeNumber(1))
    .option('--max-waiting <count>', 'waiting at most; more are told to come again; default 256', wholeNumber(0))
    .option('--max-tokens <count>', 'that a sequence may generate', wholeNumber(1))
    .option(
      '--model-memory <gigabytes>',
      'for weights: the least recently used model goes',
      decimal({ from: 0, to: 1e6, above: true }),
    )
    .option('--unload-after <seconds>', 'without a request, a model goes', decimal({ from: 0, to: 2e6, above: true }))
    .option('--preload', 'load the models at once and make the GPU ready; /ready says 503 until then')
    .option(
      '--drain <seconds>',
      'after Ctrl-C: /ready says 503 and requests are still taken',
      decimal({ from: 0, to: 1e6 }),
      0,
    )
    .option('--shutdown-timeout <seconds>', 'for requests under way after Ctrl-C', decimal({ from: 0, to: 1e6 }), 30)
    .option('--no-page', 'leave out the page to chat in')
    .option('--log', 'a line for each request on standard error')
    .option('--json', 'print one JSON object when the server listens')
    .action((models: string[], options: ServeCommandOptions) =>
      guarded(options.json, () => interruptible((signal) => run(models, options, signal))),
    );
}

async function run(names: readonly string[], options: ServeCommandOptions, signal: AbortSignal): Promise<void> {
  const { embedding = [], json, host, port, maxSequences, maxWaiting, maxTokens, modelMemory, unloadAfter } = options;
  if (names.length + embedding.length === 0)
    throw new UsageError('there is no model to serve. Give a .gguf file, a model directory or hf:org/repo.');
  const isGroup = processGroup() !== undefined;
  if (isGroup) {
    checkOneModel(names, embedding, 'serve');
    checkGroup(options);
    if (await followed(placeOfName(names[0]).path, options, { json, signal })) return;
  }
  const place = await placeOf(options);
  const device = Device.of(place.device ?? place.devices?.[0] ?? (await Device.auto()));
  // Models are loaded when they are asked for, and wrong devices are known now.
  if (!isGroup) devicesOf(place.devices ? undefined : device, place);
  const models = await servedModels({ ...options, models: names, embedding, device, place }, { json, signal });
  // Other processes wait for it, so it is loaded before anyone asks.
  using together = isGroup ? await loadWithOthers(models, signal) : undefined;
  const { serve } = await import('@x/server');
  const server = await serve({
    models: together ? { [Object.keys(models)[0]]: together } : models,
    host,
    port,
    apiKey: keysOf(options),
    allowOpenNetwork: options.allowOpenNetwork,
    allowedHosts: hostsOf(options),
    cors: options.cors?.includes('*') ? '*' : options.cors,
    maxSequences,
    maxWaiting,
    maxTokens,
    maxModelBytes: modelMemory === undefined ? undefined : Math.max(1, Math.floor(modelMemory * 1e9)),
    unloadAfterMs: unloadAfter === undefined ? undefined : unloadAfter * 1000,
    preload: options.preload,
    page: options.page,
    onLog: (entry) => log(entry, options.log === true),
  });
  tell(server, together?.device ?? device, json);
  try {
    await Promise.race([server.ready.then(() => never), ended(signal, together)]);
  } catch (error) {
    await server.close({ timeoutMs: 0 });
    throw error;
  }
  const { requests } = server.stats;
  if (requests > 0 && signal.reason instanceof Interrupted)
    process.stderr.write(
      `waiting for ${requests} requests, at most ${options.shutdownTimeout} s; Ctrl-C again ends at once\n`,
    );
  await server.close({ timeoutMs: options.shutdownTimeout * 1000, drainMs: options.drain * 1000 });
  if (together?.failure) throw together.failure;
}

const never = new Promise<never>(() => {});

/** Until the command is to end, or a rank of its model has failed: who started the processes starts all of them again. */
function ended(signal: AbortSignal, together: LanguageModel | undefined): Promise<void> {
  return new Promise((resolve) => {
    if (signal.aborted) resolve();
    signal.addEventListener('abort', () => resolve(), { once: true });
    together?.onFailure(() => resolve());
  });
}

/** @throws UsageError for what processes that compute together cannot do */
function checkGroup({ modelMemory, unloadAfter }: ServeCommandOptions): void {
  if (modelMemory !== undefined || unloadAfter !== undefined)
    throw new UsageError(
      'processes that compute together (WORLD_SIZE) keep their model. Leave --model-memory and --unload-after out.',
    );
}

function hostsOf({ allowedHost }: ServeCommandOptions): ServeOptions['allowedHosts'] {
  return (['any', 'network'] as const).find((all) => allowedHost?.includes(all)) ?? allowedHost;
}

function keysOf({ apiKey, apiKeyFile }: ServeCommandOptions): string[] | undefined {
  if (apiKeyFile === undefined) return apiKey === undefined ? undefined : [apiKey];
  const keys = textOf(apiKeyFile)
    .split(/\s+/)
    .filter((key) => key !== '');
  if (keys.length === 0) throw new UsageError(`${apiKeyFile} holds no key. Give a file with a key on each line.`);
  return apiKey === undefined ? keys : [apiKey, ...keys];
}

function tell(server: RunningServer, device: Device, json: boolean | undefined): void {
  const models = server.stats.models.map(({ name }) => name);
  if (json) {
    printJson({ url: server.url, host: server.host, port: server.port, device: device.toString(), models });
    return;
  }
  process.stderr.write(
    `${paint('bold', server.url, process.stderr)} serves ${models.join(', ')} on ${device} (${device.description}); Ctrl-C ends\n`,
  );
}

/** Failures of the server always, other requests where they are asked for. */
function log({ id, method, route, status, ms, error }: LogEntry, all: boolean): void {
  const cause = error instanceof Error ? `${error.name}: ${error.message}` : error === undefined ? '' : String(error);
  if (!all && cause === '') return;
  const line = [status, method, route, `${Math.round(ms)} ms`, id, cause].filter((part) => part !== '').join(' ');
  process.stderr.write(`${cause === '' ? paint('dim', line, process.stderr) : line}\n`);
}
