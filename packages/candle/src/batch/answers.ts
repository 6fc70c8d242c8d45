/** Answers of the server's own code, without HTTP: many requests at once, through the one engine. */
import { setTimeout as sleep } from 'node:timers/promises';
import type { LogEntry, ModelSources, Server } from '@x/server';
import { BatchError } from './errors';
import type { BatchRequest } from './requests';
import type { Answer } from './results';

export interface AnswersOptions {
  models: ModelSources;
  maxSequences?: number;
  maxTokens?: number;
  requestTimeoutMs?: number;
  onLog: (entry: LogEntry) => void;
}

/** What `createServer` computes at once where nothing is said. */
const MAX_SEQUENCES = 32;
/** The longest that a timer can wait: nobody is there to lose patience. */
const NEVER_MS = 2 ** 31 - 1;
/** A request and its texts. */
const MAX_BODY_BYTES = 2 ** 28;
/** Of a server that is full or out of memory for a while. */
const TRIES = 5;
/** Failures of the server, with no answer between them, after which it is the server that has to be mended. */
const FAILURES_IN_A_ROW = 10;

export class Answers {
  private failures = 0;
  private last = '';

  /** @param concurrency requests to have under way: those that compute, and some that take their places at once */
  private constructor(
    private readonly server: Server,
    readonly concurrency: number,
  ) {}

  static async from(options: AnswersOptions): Promise<Answers> {
    const { models, maxSequences = MAX_SEQUENCES, maxTokens, requestTimeoutMs = NEVER_MS, onLog } = options;
    const { createServer } = await import('@x/server');
    const server = createServer({
      models,
      maxSequences,
      maxTokens,
      requestTimeoutMs,
      waitTimeoutMs: NEVER_MS,
      maxWaiting: 2 ** 20,
      maxBodyBytes: MAX_BODY_BYTES,
      preload: true,
      page: false,
      onLog,
    });
    return new Answers(server, maxSequences + Math.ceil(maxSequences / 4));
  }

  /** Ends when the models are loaded. @throws why one could not be */
  get ready(): Promise<void> {
    return this.server.ready;
  }

  /**
   * The answer to a request, also one that says what is wrong with it.
   * @throws BatchError STOPPED when one request after the other fails for no fault of its own; the signal's reason
   */
  async to({ url, body }: BatchRequest, signal: AbortSignal): Promise<Answer> {
    for (let i = 1; ; i++) {
      const { status, headers, text } = await this.ask(url, body, signal);
      signal.throwIfAborted();
      const seconds = Number(headers.get('retry-after') ?? Number.NaN);
      if (i < TRIES && (status === 429 || status === 503) && seconds > 0) {
        await sleep(seconds * 1000, undefined, { signal }).catch(() => signal.throwIfAborted());
        continue;
      }
      if (status >= 500) this.count(text);
      else this.failures = 0;
      return { status, requestId: headers.get('x-request-id') ?? '', body: JSON.parse(text) };
    }
  }

  async close(): Promise<void> {
    await this.server.close({ timeoutMs: 0 });
  }

  private async ask(url: string, body: string, signal: AbortSignal) {
    signal.throwIfAborted();
    // A signal of its own: thousands of requests would leave their listeners on the one of the batch.
    const own = new AbortController();
    const stop = () => own.abort(signal.reason);
    signal.addEventListener('abort', stop, { once: true });
    try {
      const request = new Request(`http://localhost${url}`, {
        method: 'POST',
        headers: { 'content-type': 'application/json' },
        body,
        signal: own.signal,
      });
      const response = await this.server.fetch(request);
      return { status: response.status, headers: response.headers, text: await response.text() };
    } finally {
      signal.removeEventListener('abort', stop);
    }
  }

  private count(text: string): void {
    this.failures++;
    this.last = text;
    if (this.failures < FAILURES_IN_A_ROW) return;
    const { error } = JSON.parse(this.last) as { error?: { message?: string } };
    throw new BatchError(
      'STOPPED',
      `${this.failures} requests after one another failed for no fault of theirs, at last: ${error?.message ?? this.last} Mend that and go on with the same command and --retry-failed.`,
    );
  }
}
