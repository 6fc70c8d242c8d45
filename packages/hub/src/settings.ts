/**
 * Where the hub and its cache are, by options and by the variables that Hugging Face's own tools read. They are read when
 * something is asked for, never at import.
 */
import { readFileSync } from 'node:fs';
import { homedir } from 'node:os';
import { join, resolve } from 'node:path';
import { kinds } from '@x/core';
import { HubError } from './errors';

export interface HubOptions {
  /** The hub. Default: `HF_ENDPOINT`, else https://huggingface.co. */
  endpoint?: string;
  /** Sent to the endpoint and to nobody else. Default: `HF_TOKEN`, else the file that `hf auth login` writes; false for none. */
  token?: string | false;
  /** Default: `HF_HUB_CACHE`, `HF_HOME`/hub, `XDG_CACHE_HOME`/huggingface/hub, ~/.cache/huggingface/hub. */
  cacheDir?: string;
  /** Takes what is in the cache and asks for nothing. Default: whether `HF_HUB_OFFLINE` or `TRANSFORMERS_OFFLINE` is 1, on, yes or true. */
  offline?: boolean;
  /** A branch, tag or commit; a name's own `@revision` comes first. Default `main`. */
  revision?: string;
  /** Stops everything; the promise rejects with the signal's reason. What was downloaded stays for the next time. */
  signal?: AbortSignal;
  /** How long the hub may send nothing, in ms. Default: `HF_HUB_DOWNLOAD_TIMEOUT` (in seconds), else 30,000. */
  timeoutMs?: number;
  /** How often in a row a request may fail before it is given up; a byte that arrives starts the count again. Default 5. */
  retries?: number;
  /** Pause before the first retry in ms, doubled for each one after it up to 20 times this. Default 500. */
  retryDelayMs?: number;
  /** In place of the global `fetch`, as for a proxy. */
  fetch?: typeof fetch;
}

/** {@link HubOptions} with nothing left open. */
export interface HubSettings {
  /** Without a slash at the end. */
  endpoint: string;
  token?: string;
  cacheDir: string;
  offline: boolean;
  revision: string;
  signal?: AbortSignal;
  timeoutMs: number;
  retries: number;
  retryDelayMs: number;
  fetch: typeof fetch;
}

const TEXT = (remedy: string) => kinds.kind((value) => typeof value === 'string' && value !== '', remedy);

export const HUB_KINDS: Record<keyof HubOptions, kinds.Kind> = {
  // One may have a password in it.
  endpoint: kinds.secret(TEXT('give an address such as https://huggingface.co')),
  token: kinds.secret(
    kinds.kind(
      (value) => value === false || (typeof value === 'string' && value !== ''),
      'give a token, or false for none',
    ),
  ),
  cacheDir: TEXT('give the path of a directory'),
  offline: kinds.BOOLEAN,
  revision: TEXT('give a branch, tag or commit'),
  signal: kinds.SIGNAL,
  timeoutMs: kinds.kind(
    (value) => kinds.POSITIVE.test(value) && (value as number) < 2 ** 31,
    'give a whole number of milliseconds, 1 or more',
  ),
  retries: kinds.COUNT,
  retryDelayMs: kinds.COUNT,
  fetch: kinds.FUNCTION,
};

/** @throws HubError INVALID_OPTION naming the first option that is unknown or not of its kind; undefined is a default */
export function checkOptions(op: string, options: unknown, known: Readonly<Record<string, kinds.Kind>>): void {
  kinds.checkOptions(op, options, known, (message, option) => new HubError('INVALID_OPTION', message, { option }));
}

/** @throws HubError INVALID_OPTION for an endpoint, token or time limit that cannot be used */
export function hubSettings(options: HubOptions): HubSettings {
  const offline = options.offline ?? isOn(process.env.HF_HUB_OFFLINE || process.env.TRANSFORMERS_OFFLINE);
  return {
    endpoint: endpointOf(options.endpoint ?? (process.env.HF_ENDPOINT || 'https://huggingface.co')),
    // What asks for nothing needs none, and its file may be unreadable.
    token: offline ? undefined : tokenOf(options.token),
    cacheDir: options.cacheDir === undefined ? defaultCacheDir() : resolve(options.cacheDir),
    offline,
    revision: options.revision ?? 'main',
    signal: options.signal,
    timeoutMs: options.timeoutMs ?? timeoutOf(process.env.HF_HUB_DOWNLOAD_TIMEOUT),
    retries: options.retries ?? 5,
    retryDelayMs: options.retryDelayMs ?? 500,
    fetch: options.fetch ?? globalThis.fetch,
  };
}

/** The cache that Hugging Face's tools use too. */
export function defaultCacheDir(): string {
  const { HF_HUB_CACHE, HUGGINGFACE_HUB_CACHE } = process.env;
  return resolve(fromHome(HF_HUB_CACHE || HUGGINGFACE_HUB_CACHE || join(hubHome(), 'hub')));
}

function hubHome(): string {
  const { HF_HOME, XDG_CACHE_HOME } = process.env;
  return fromHome(HF_HOME || join(XDG_CACHE_HOME || join(home(), '.cache'), 'huggingface'));
}

/** `~` as a shell has it, which does not read what a program's configuration sets. */
function fromHome(path: string): string {
  return /^~(?=\/|$)/.test(path) ? home() + path.slice(1) : path;
}

/** A user of a container may have no entry in its list of users. */
function home(): string {
  try {
    return homedir();
  } catch (cause) {
    throw new HubError(
      'INVALID_OPTION',
      'this user has no home directory, in which the cache is by default. Give cacheDir, or set HF_HOME.',
      { cause },
    );
  }
}

function isOn(value: string | undefined): boolean {
  return ['1', 'ON', 'YES', 'TRUE'].includes((value ?? '').toUpperCase());
}

function endpointOf(text: string): string {
  const fail = (what: string) =>
    new HubError(
      'INVALID_OPTION',
      `the endpoint ${what}. Give an address such as https://huggingface.co (HF_ENDPOINT).`,
    );
  let url: URL;
  try {
    url = new URL(text);
  } catch {
    throw fail(`"${text}" is no address`);
  }
  if (url.protocol !== 'https:' && url.protocol !== 'http:') throw fail(`"${text}" is neither https nor http`);
  if (url.username !== '' || url.password !== '') throw fail('has a password in it; give a token instead');
  if (url.search !== '' || url.hash !== '') throw fail(`"${text}" has a query or a fragment`);
  return `${url.origin}${url.pathname}`.replace(/\/+$/, '');
}

function tokenOf(given: string | false | undefined): string | undefined {
  if (given === false) return undefined;
  const token = given ?? environmentToken() ?? storedToken();
  if (token === undefined) return undefined;
  // The value stays out of the message.
  if (/^[\x21-\x7e]+$/.test(token)) return token;
  throw new HubError(
    'INVALID_OPTION',
    'the token has spaces or other characters that no token has. Copy it again from https://huggingface.co/settings/tokens.',
  );
}

function environmentToken(): string | undefined {
  if (isOn(process.env.HF_HUB_DISABLE_IMPLICIT_TOKEN)) return undefined;
  return (process.env.HF_TOKEN || process.env.HUGGING_FACE_HUB_TOKEN)?.trim() || undefined;
}

/** What `hf auth login` wrote. A file that is there and cannot be read is said, since the hub would say "not found". */
function storedToken(): string | undefined {
  if (isOn(process.env.HF_HUB_DISABLE_IMPLICIT_TOKEN)) return undefined;
  const path = fromHome(process.env.HF_TOKEN_PATH || join(hubHome(), 'token'));
  try {
    return readFileSync(path, 'utf8').trim() || undefined;
  } catch (cause) {
    const { code, message } = cause as NodeJS.ErrnoException;
    if (code === 'ENOENT' || code === 'ENOTDIR') return undefined;
    throw new HubError('INVALID_OPTION', `the token in ${path} cannot be read (${message}). Check its permissions.`, {
      cause,
    });
  }
}

function timeoutOf(seconds: string | undefined): number {
  if (!seconds) return 30_000;
  const value = Number(seconds);
  if (value > 0 && value < 2 ** 21) return Math.ceil(value * 1000);
  throw new HubError('INVALID_OPTION', `HF_HUB_DOWNLOAD_TIMEOUT is "${seconds}". Give a number of seconds above 0.`);
}
