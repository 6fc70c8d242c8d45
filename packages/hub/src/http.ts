/**
 * Requests to the hub: redirects one by one, the token to the endpoint alone, a limit on silence, and another try after what
 * passes (429, 5xx, a connection that broke).
 */
import { setTimeout as pause } from 'node:timers/promises';
import { checkRedirect } from './addresses';
import { HubError } from './errors';
import type { HubSettings } from './settings';

const REDIRECTS = [301, 302, 303, 307, 308];
const MOST_REDIRECTS = 10;
/** Of a listing or a small file; a page of 1000 files is some 300 kB. */
const MOST_TEXT_BYTES = 64 * 2 ** 20;
const LONGEST_PAUSE_MS = 60_000;

const UNREACHABLE = ['ENOTFOUND', 'EAI_AGAIN', 'ECONNREFUSED', 'EHOSTUNREACH', 'ENETUNREACH'];

/** A try that failed in a way that may pass. */
export class PassingError extends Error {
  constructor(
    message: string,
    /** What the server asked to wait, in ms. */
    readonly retryAfterMs = 0,
    /** Whether there is nobody to ask, which rarely passes within seconds. */
    readonly isUnreachable = false,
  ) {
    super(message);
  }
}

/** The answer to one request; `close` must be called whatever happens to the body. */
export interface Answer {
  readonly status: number;
  readonly headers: Headers;
  /** Headers of all answers on the way here, redirects included, the first first. */
  readonly trail: readonly Headers[];
  /** Pieces of the body; a pause longer than the limit is a {@link PassingError}. */
  chunks(): AsyncGenerator<Uint8Array, void, void>;
  close(): Promise<void>;
}

export class HubClient {
  readonly #endpoint: URL;

  constructor(readonly settings: HubSettings) {
    this.#endpoint = new URL(settings.endpoint);
  }

  /** One GET, with its redirects. What can be tried again is a {@link PassingError}. */
  async get(address: string, headers: Readonly<Record<string, string>> = {}): Promise<Answer> {
    const { signal } = this.settings;
    signal?.throwIfAborted();
    const controller = new AbortController();
    const stop = () => controller.abort(signal?.reason);
    signal?.addEventListener('abort', stop);
    const watch = new SilenceWatch(this.settings.timeoutMs, controller);
    const finish = () => {
      watch.end();
      signal?.removeEventListener('abort', stop);
    };
    try {
      const trail: Headers[] = [];
      const response = await this.#follow(new URL(address), headers, controller.signal, trail, watch);
      return this.#answer(response, trail, controller, watch, finish);
    } catch (error) {
      finish();
      // Whatever is left of a body that nobody reads.
      controller.abort();
      throw this.#failure(address, error, watch);
    }
  }

  async #follow(
    start: URL,
    headers: Readonly<Record<string, string>>,
    signal: AbortSignal,
    trail: Headers[],
    watch: SilenceWatch,
  ) {
    let url = start;
    for (let hops = 0; hops <= MOST_REDIRECTS; hops++) {
      const own = { 'accept-encoding': 'identity', 'user-agent': 'x-candle-hub', ...headers } as Record<string, string>;
      const { token } = this.settings;
      watch.start();
      if (token !== undefined && url.origin === this.#endpoint.origin) own.authorization = `Bearer ${token}`;
      const response = await unlessAborted(
        this.settings.fetch(url, { redirect: 'manual', headers: own, signal }),
        signal,
      );
      trail.push(response.headers);
      if (!REDIRECTS.includes(response.status)) return response;
      if (response.body) await unlessAborted(response.body.cancel(), signal);
      const location = response.headers.get('location');
      const next = location === null || !URL.canParse(location, url.href) ? undefined : new URL(location, url);
      if (next === undefined) {
        throw new HubError(
          'DOWNLOAD_FAILED',
          `${url.host} answers ${response.status} without saying where to look. Try again later.`,
        );
      }
      await checkRedirect(url, next);
      url = next;
    }
    throw new HubError(
      'UNSAFE_REDIRECT',
      `${start.host} redirects more than ${MOST_REDIRECTS} times. Check HF_ENDPOINT.`,
    );
  }

  #answer(
    response: Response,
    trail: Headers[],
    controller: AbortController,
    watch: SilenceWatch,
    finish: () => void,
  ): Answer {
    const failure = (error: unknown) => this.#failure(response.url, error, watch);
    return {
      status: response.status,
      headers: response.headers,
      trail,
      async *chunks() {
        if (response.body === null) return;
        const reader = response.body.getReader();
        for (;;) {
          // Only waiting counts: what a reader does with a piece, as waiting for a disk, is no silence.
          watch.start();
          const { done, value } = await unlessAborted(reader.read(), controller.signal).catch((error) => {
            throw failure(error);
          });
          watch.end();
          if (done) return;
          yield value;
        }
      },
      async close() {
        finish();
        controller.abort();
      },
    };
  }

  /** What became of a request: the caller's abort, a refusal of ours, silence, or a broken connection. */
  #failure(address: string, error: unknown, watch: SilenceWatch): unknown {
    const { signal, timeoutMs } = this.settings;
    if (signal?.aborted) return signal.reason;
    if (error instanceof HubError || error instanceof PassingError) return error;
    const host = URL.canParse(address) ? new URL(address).host : this.#endpoint.host;
    if (watch.wasSilent) return new PassingError(`${host} sent nothing for ${timeoutMs} ms`);
    const { code, message } = rootOf(error);
    if (code !== undefined && /CERT|SELF_SIGNED|ERR_TLS|ERR_SSL|UNABLE_TO_VERIFY/.test(code)) {
      return new HubError(
        'DOWNLOAD_FAILED',
        `${host} has a certificate that is not trusted (${code}). Check the network and NODE_EXTRA_CA_CERTS.`,
        { cause: error },
      );
    }
    // Without its cause, which may hold megabytes of what was received.
    const what = code === undefined || message.includes(code) ? message : `${message} (${code})`;
    const isUnreachable = code !== undefined && UNREACHABLE.includes(code);
    return new PassingError(`the connection to ${host} failed: ${what}`, 0, isUnreachable);
  }

  /**
   * Runs `attempt` until it succeeds, with pauses that double, or until it failed `retries` times in a row.
   * @param advanced a number that grows with every byte that arrives, which starts the count again
   * @throws HubError DOWNLOAD_FAILED with the last failure; other errors as they come
   */
  async retrying<T>(what: string, attempt: () => Promise<T>, advanced: () => number = () => 0): Promise<T> {
    const { retries, retryDelayMs, signal } = this.settings;
    let failures = 0;
    let before = advanced();
    for (;;) {
      try {
        return await attempt();
      } catch (error) {
        if (!(error instanceof PassingError)) throw error;
        const now = advanced();
        failures = now > before ? 1 : failures + 1;
        before = now;
        // A download that was under way may have lost its network for a moment.
        const most = error.isUnreachable && now === 0 ? Math.min(retries, 1) : retries;
        if (failures > most) {
          const times = failures === 1 ? '' : ` It was tried ${failures} times.`;
          const remedy = 'Check the network and try again: what is here is kept.';
          throw new HubError('DOWNLOAD_FAILED', `${what}: ${error.message}.${times} ${remedy}`, { cause: error });
        }
        // Spread, so that many clients of a busy server do not come back together.
        const own = retryDelayMs * Math.min(20, 2 ** (failures - 1)) * (0.75 + Math.random() / 2);
        try {
          await pause(Math.max(own, Math.min(error.retryAfterMs, LONGEST_PAUSE_MS)), undefined, { signal });
        } catch (aborted) {
          throw signal?.aborted ? signal.reason : aborted;
        }
      }
    }
  }

  /** A text of bounded size and its headers; with retries. */
  async text(
    address: string,
    headers: Readonly<Record<string, string>> = {},
  ): Promise<{ text: string; headers: Headers }> {
    return this.retrying('its files cannot be listed', async () => {
      const answer = await this.get(address, headers);
      try {
        if (answer.status !== 200) throw refusal(answer, this.settings);
        const parts: Uint8Array[] = [];
        let bytes = 0;
        for await (const part of answer.chunks()) {
          bytes += part.byteLength;
          if (bytes > MOST_TEXT_BYTES) {
            throw new HubError(
              'DOWNLOAD_FAILED',
              `${this.#endpoint.host} sends a listing of more than ${MOST_TEXT_BYTES} bytes. Check HF_ENDPOINT.`,
            );
          }
          parts.push(part);
        }
        return { text: Buffer.concat(parts).toString('utf8'), headers: answer.headers };
      } finally {
        await answer.close();
      }
    });
  }
}

/**
 * A promise of fetch or of a body, unless the signal is aborted first. Their own answer to it may never come: a body whose
 * request is aborted while its headers arrive is neither read nor refused.
 */
function unlessAborted<T>(promise: Promise<T>, signal: AbortSignal): Promise<T> {
  return new Promise((resolve, reject) => {
    const stop = () => reject(signal.reason);
    if (signal.aborted) stop();
    signal.addEventListener('abort', stop, { once: true });
    promise.then(resolve, reject).finally(() => signal.removeEventListener('abort', stop));
  });
}

/** Ends a request when nothing comes for too long. */
class SilenceWatch {
  wasSilent = false;
  #timer: NodeJS.Timeout | undefined;

  constructor(
    readonly limitMs: number,
    readonly controller: AbortController,
  ) {
    this.start();
  }

  start(): void {
    this.end();
    this.#timer = setTimeout(() => {
      this.wasSilent = true;
      this.controller.abort();
    }, this.limitMs);
  }

  end(): void {
    clearTimeout(this.#timer);
  }
}

/** What an answer that is no success means. */
export function refusal(
  { status, headers }: Pick<Answer, 'status' | 'headers'>,
  { endpoint, token }: HubSettings,
): Error {
  const { host } = new URL(endpoint);
  if (status === 408 || status === 429 || status >= 500) {
    return new PassingError(
      `${host} answers ${status}${status === 429 ? ', too many requests' : ''}`,
      retryAfter(headers),
    );
  }
  // Told by the server, so bounded and without control characters.
  const said = (headers.get('x-error-message') ?? '').replace(/[^\x20-\x7e]/g, ' ').slice(0, 200);
  const code = headers.get('x-error-code');
  const because = said === '' ? '' : ` (${said})`;
  if (code === 'GatedRepo') {
    return new HubError(
      'UNAUTHORIZED',
      `the repository is gated${because}: ask for access on its page at ${endpoint}, then give a token in HF_TOKEN.`,
    );
  }
  if (code === 'RevisionNotFound')
    return new HubError(
      'NOT_FOUND',
      `there is no such revision${because}. Give a branch, tag or commit of the repository.`,
    );
  if (code === 'EntryNotFound') return new HubError('NOT_FOUND', `there is no such file${because}.`);
  if (status === 401 && token !== undefined && code !== 'RepoNotFound') {
    return new HubError(
      'UNAUTHORIZED',
      `${host} does not accept the token${because}. Make another at ${endpoint}/settings/tokens.`,
    );
  }
  if (status === 403) {
    return new HubError(
      'UNAUTHORIZED',
      `${host} refuses access${because}. Check what the token may read, and whether the repository is gated.`,
    );
  }
  // The hub answers 401 for what is not there, so as not to tell what is private.
  if (status === 401 || status === 404) {
    const remedy =
      token === undefined
        ? 'If it is private, give a token in HF_TOKEN'
        : 'If it is private, check what the token may read';
    return new HubError('NOT_FOUND', `there is no such repository${because}. Check its name. ${remedy}.`);
  }
  return new HubError('DOWNLOAD_FAILED', `${host} answers ${status}${because}. Check HF_ENDPOINT.`);
}

/** `Retry-After` in ms: seconds or a date. */
function retryAfter(headers: Headers): number {
  const value = headers.get('retry-after');
  if (value === null) return 0;
  const ms = /^\d+(\.\d+)?$/.test(value) ? Number(value) * 1000 : Date.parse(value) - Date.now();
  return Number.isFinite(ms) && ms > 0 ? ms : 0;
}

/** What is at the bottom of an error of fetch, which only says that it failed. */
function rootOf(error: unknown): { code?: string; message: string } {
  let at = error as { cause?: unknown; code?: string; message?: string; errors?: unknown[] };
  for (let depth = 0; depth < 8; depth++) {
    const next = at?.cause ?? at?.errors?.[0];
    if (next === undefined || next === null) break;
    at = next as typeof at;
  }
  return { code: typeof at?.code === 'string' ? at.code : undefined, message: String(at?.message ?? at) };
}
