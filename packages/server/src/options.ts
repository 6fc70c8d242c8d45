/** What a server is made with: each option with its type, its default and its bounds. */
import { kinds } from '@x/core';
import { checkOptions } from '@x/engine';
import type { ModelSources } from './model-pool';
import type { AllowedHosts, AllowedOrigins } from './security';

export interface ServerOptions {
  /** The models by name, or paths of their files. */
  models: ModelSources;
  /** Keys of which a request has to have one. Default: none is asked for. */
  apiKey?: string | readonly string[];
  /**
   * Host names that requests may be sent to, without ports, beside addresses and loopback's names; `'network'`: those without a dot and
   * of `.local` and `.internal`; `'any'`. Default: `localhost` and the loopback addresses, so that no page that a browser shows can
   * reach the server under another name; of {@link serve} on an address that is not loopback `'network'`, with a key `'any'`.
   */
  allowedHosts?: readonly string[] | 'network' | 'any';
  /** Origins of other pages that may ask, such as `https://app.example`, or `'*'`. Default: none. */
  cors?: readonly string[] | '*';
  /** Sequences that are computed at once, over all models. Default 32. */
  maxSequences?: number;
  /** Sequences that wait for a slot at most; more are refused with 429. Default 256. */
  maxWaiting?: number;
  /** Sequences of one client (a key and an address), running or waiting. Default: no limit of its own. */
  maxPerClient?: number;
  /** Milliseconds to wait for a slot at most, then 503. Default 60,000. */
  waitTimeoutMs?: number;
  /** Milliseconds for a request in all, then 504, or an error in its stream. Default 600,000. */
  requestTimeoutMs?: number;
  /** Milliseconds that a reader may let its stream stand still while there is something to read. Default 30,000. */
  stallTimeoutMs?: number;
  /** Milliseconds for a body to arrive. Default 30,000. */
  bodyTimeoutMs?: number;
  /** Bytes of a request's body. Default 4 MiB. */
  maxBodyBytes?: number;
  /** Bytes of a request's headers. Default 16,384. */
  maxHeaderBytes?: number;
  /** Tokens that a sequence may generate; a larger wish is cut to it. Default: what the context holds. */
  maxTokens?: number;
  /** Choices of one request (`n`, or prompts times `n`). Default 32. */
  maxChoices?: number;
  /** Bytes of the weights of all models that the server has loaded; the least recently used go. Default: no limit. */
  maxModelBytes?: number;
  /** Milliseconds after which a model that nobody asks for is unloaded. Default: never. */
  unloadAfterMs?: number;
  /**
   * Loads the models at once, in their order as far as `maxModelBytes` allows, and not with their first requests, and makes a
   * GPU ready for `maxSequences` (`LanguageModel.warmUp`); `/ready` says 503 until they are there. Default false.
   */
  preload?: boolean;
  /** The page to chat in at `/`. Default true. */
  page?: boolean;
  /**
   * Tells requests of different clients apart, for turns and limits. Default: by key and by the address that
   * {@link serve} knows.
   */
  clientOf?: (request: Request) => string;
  /** Hears of each request that ended, and of failures. Prompts and answers are no part of it. Default: nothing. */
  onLog?: (entry: LogEntry) => void;
}

/** A request that ended. */
export interface LogEntry {
  /** As the answer's `x-request-id` has it. */
  id: string;
  method: string;
  /** Of the server's own: what a client wrote is not told. */
  route: string;
  status: number;
  ms: number;
  /** What went wrong on the server; it may name files. */
  error?: unknown;
}

export type ResolvedOptions = Required<
  Omit<ServerOptions, 'apiKey' | 'allowedHosts' | 'cors' | 'clientOf' | 'onLog'>
> & {
  keys: readonly string[];
  allowedHosts: AllowedHosts;
  cors: AllowedOrigins;
  clientOf: ((request: Request) => string) | undefined;
  onLog: (entry: LogEntry) => void;
};

const isStrings = (value: unknown): boolean =>
  Array.isArray(value) && value.every((one) => typeof one === 'string' && one !== '');
const limit = kinds.kind(
  (value) => value === Number.POSITIVE_INFINITY || kinds.POSITIVE.test(value),
  'give a whole number from 1, or Infinity',
);
/** Timers know no longer time. */
const MAX_MS = 2 ** 31 - 1;
const milliseconds = kinds.kind(
  (value) => isFrom(value, 1) && (value as number) <= MAX_MS,
  `give milliseconds from 1 to ${MAX_MS}`,
);

const OPTIONS = {
  models: kinds.kind(
    (value) => Array.isArray(value) || kinds.isObject(value),
    'give an object of models by name, or a list of paths',
  ),
  apiKey: kinds.secret(
    kinds.kind(
      (value) => (typeof value === 'string' && value !== '') || (isStrings(value) && (value as []).length > 0),
      'give a string, or a list of strings, none of them empty',
    ),
  ),
  allowedHosts: kinds.kind(
    (value) => value === 'any' || value === 'network' || isStrings(value),
    'give "any", "network" or a list of host names',
  ),
  cors: kinds.kind((value) => value === '*' || isStrings(value), 'give "*" or a list of origins'),
  maxSequences: kinds.POSITIVE,
  maxWaiting: kinds.COUNT,
  maxPerClient: limit,
  waitTimeoutMs: milliseconds,
  requestTimeoutMs: milliseconds,
  stallTimeoutMs: milliseconds,
  bodyTimeoutMs: milliseconds,
  maxBodyBytes: kinds.POSITIVE,
  maxHeaderBytes: kinds.POSITIVE,
  maxTokens: limit,
  maxChoices: kinds.POSITIVE,
  maxModelBytes: limit,
  unloadAfterMs: kinds.kind(
    (value) => value === Number.POSITIVE_INFINITY || (isFrom(value, 1) && (value as number) <= MAX_MS),
    `give milliseconds from 1 to ${MAX_MS}, or Infinity`,
  ),
  preload: kinds.BOOLEAN,
  page: kinds.BOOLEAN,
  clientOf: kinds.FUNCTION,
  onLog: kinds.FUNCTION,
} satisfies Record<keyof ServerOptions, kinds.Kind>;

/** @throws TransformersError INVALID_OPTION */
export function resolveOptions(options: ServerOptions): ResolvedOptions {
  checkOptions('createServer', options, OPTIONS);
  const { apiKey, allowedHosts, cors = [], clientOf, onLog = () => {} } = options;
  return {
    models: options.models ?? [],
    keys: apiKey === undefined ? [] : typeof apiKey === 'string' ? [apiKey] : apiKey,
    allowedHosts,
    cors,
    clientOf,
    onLog,
    maxSequences: options.maxSequences ?? 32,
    maxWaiting: options.maxWaiting ?? 256,
    maxPerClient: options.maxPerClient ?? Number.POSITIVE_INFINITY,
    waitTimeoutMs: options.waitTimeoutMs ?? 60_000,
    requestTimeoutMs: options.requestTimeoutMs ?? 600_000,
    stallTimeoutMs: options.stallTimeoutMs ?? 30_000,
    bodyTimeoutMs: options.bodyTimeoutMs ?? 30_000,
    maxBodyBytes: options.maxBodyBytes ?? 4 * 2 ** 20,
    maxHeaderBytes: options.maxHeaderBytes ?? 16_384,
    maxTokens: options.maxTokens ?? Number.POSITIVE_INFINITY,
    maxChoices: options.maxChoices ?? 32,
    maxModelBytes: options.maxModelBytes ?? Number.POSITIVE_INFINITY,
    unloadAfterMs: options.unloadAfterMs ?? Number.POSITIVE_INFINITY,
    preload: options.preload ?? false,
    page: options.page ?? true,
  };
}

function isFrom(value: unknown, least: number): boolean {
  return typeof value === 'number' && value >= least;
}
