/** `candle serve MODEL...`: models over HTTP in OpenAI's form, and a page to chat in, until Ctrl-C. */
import { existsSync, readFileSync } from 'node:fs';
import { Device } from '@x/core';
import { type LogEntry, type ModelFile, modelName, type RunningServer, ServerError, serve } from '@x/server';
import { Command } from 'commander';
import '@x/rocm-backend';
import { Interrupted, interruptible } from '../interrupt';
import { localModel } from '../model-source';
import { decimal, someText, wholeNumber } from '../option-values';
import { guarded, paint, printJson, UsageError } from '../output';

interface ServeCommandOptions {
  host: string;
  port: number;
  apiKey?: string;
  apiKeyFile?: string;
  allowOpenNetwork?: boolean;
  allowedHost?: string[];
  cors?: string[];
  device: string;
  context?: number;
  chatTemplate?: string;
  embedding?: string[];
  lora?: string[];
  maxSequences?: number;
  maxWaiting?: number;
  maxTokens?: number;
  modelMemory?: number;
  unloadAfter?: number;
  shutdownTimeout: number;
  page: boolean;
  log?: boolean;
  json?: boolean;
}

const several = (text: string, all: string[] = []) => [...all, someText('Give some text.')(text)];

export function serveCommand(): Command {
  return new Command('serve')
    .description("serve models over HTTP in OpenAI's form, with a page to chat in")
    .argument('[models...]', '.gguf files, model directories or hf:org/repo, each also as NAME=PATH')
    .option('--host <address>', 'address to listen on; others than this machine ask for a key', '127.0.0.1')
    .option('-p, --port <number>', '0 takes a free one', wholeNumber(0, 65_535), 8080)
    .option('--api-key <key>', 'ask requests for this key', someText('Give a key.'))
    .option('--api-key-file <path>', 'the same from a file with a key on each line')
    .option('--allow-open-network', 'listen on other addresses without a key: everyone there can use the models')
    .option('--allowed-host <names...>', 'names under which requests may come, or any', several)
    .option('--cors <origins...>', 'pages of these origins may ask, or *', several)
    .option('-d, --device <name>', 'auto, js, cpu, rocm:N or cuda:N', 'auto')
    .option('-c, --context <tokens>', 'of a sequence, default the model’s own, at most 4096', wholeNumber(1))
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
  const device = options.device === 'auto' ? await Device.auto() : Device.parse(options.device);
  const chatTemplate = options.chatTemplate === undefined ? undefined : templateOf(options.chatTemplate);
  const adapters = adaptersOf(options.lora, names.length);
  const models = await modelFiles(
    names,
    (path) => ({ path, options: { device, maxContext: options.context, chatTemplate, adapters } }),
    { json, signal },
  );
  const embedders = await modelFiles(embedding, (path) => ({ path, kind: 'embedding', options: { device } }), {
    json,
    signal,
  });
  for (const name of Object.keys(embedders)) if (name in models) throw twice(name);
  const server = await serve({
    models: { ...models, ...embedders },
    host,
    port,
    apiKey: keysOf(options),
    allowOpenNetwork: options.allowOpenNetwork,
    allowedHosts: options.allowedHost?.includes('any') ? 'any' : options.allowedHost,
    cors: options.cors?.includes('*') ? '*' : options.cors,
    maxSequences,
    maxWaiting,
    maxTokens,
    maxModelBytes: modelMemory === undefined ? undefined : Math.max(1, Math.floor(modelMemory * 1e9)),
    unloadAfterMs: unloadAfter === undefined ? undefined : unloadAfter * 1000,
    page: options.page,
    onLog: (entry) => log(entry, options.log === true),
  });
  tell(server, device, json);
  await new Promise<void>((resolve) => {
    if (signal.aborted) resolve();
    signal.addEventListener('abort', () => resolve(), { once: true });
  });
  const { requests } = server.stats;
  if (requests > 0 && signal.reason instanceof Interrupted)
    process.stderr.write(
      `waiting for ${requests} requests, at most ${options.shutdownTimeout} s; Ctrl-C again ends at once\n`,
    );
  await server.close({ timeoutMs: options.shutdownTimeout * 1000 });
}

async function modelFiles(
  names: readonly string[],
  describe: (path: string) => ModelFile,
  download: { json: boolean | undefined; signal: AbortSignal },
): Promise<Record<string, ModelFile>> {
  const files: Record<string, ModelFile> = {};
  for (const text of names) {
    const [, given, path] = /^([^=/\\]+)=(.+)$/.exec(text) ?? [undefined, undefined, text];
    const name = given ?? modelName(path);
    if (name in files) throw twice(name);
    files[name] = describe(await localModel(path, download));
  }
  return files;
}

/** Adapters by name, of `--lora`. */
function adaptersOf(list: readonly string[] | undefined, models: number): Record<string, string> | undefined {
  if (list === undefined) return undefined;
  if (models !== 1)
    throw new UsageError(`--lora is of one model, and there are ${models}. Serve the others elsewhere.`);
  const adapters: Record<string, string> = {};
  for (const text of list) {
    const [, name, path] = /^([^=/\\]+)=(.+)$/.exec(text) ?? [];
    if (name === undefined) throw new UsageError(`--lora: ${text} has no name. Give NAME=PATH.`);
    if (name in adapters) throw twice(name);
    if (!existsSync(path)) throw new UsageError(`--lora: there is no ${path}. Give a folder of PEFT or a .gguf file.`);
    adapters[name] = path;
  }
  return adapters;
}

function twice(name: string): UsageError {
  return new UsageError(`two models are called ${name}. Give one of them another name: NAME=PATH.`);
}

function keysOf({ apiKey, apiKeyFile }: ServeCommandOptions): string[] | undefined {
  if (apiKeyFile === undefined) return apiKey === undefined ? undefined : [apiKey];
  const keys = textOf(apiKeyFile)
    .split(/\s+/)
    .filter((key) => key !== '');
  if (keys.length === 0) throw new UsageError(`${apiKeyFile} holds no key. Give a file with a key on each line.`);
  return apiKey === undefined ? keys : [apiKey, ...keys];
}

function templateOf(option: string): string {
  return option === 'chatml' ? option : textOf(option);
}

function textOf(path: string): string {
  try {
    return readFileSync(path, 'utf8');
  } catch (cause) {
    throw new ServerError('INVALID_OPTION', `${path} cannot be read: ${(cause as Error).message}.`, { cause });
  }
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
