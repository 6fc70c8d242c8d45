/**
 * Server-sent events, written no faster than they are read: {@link SseWriter.write} waits while the reader has not taken what
 * was written before, so a slow reader slows its own sequence and takes no memory.
 */
import { ApiError, toApiError } from './errors';
import type { Job } from './job';

/** Bytes that are written ahead of the reader. */
const AHEAD_BYTES = 16_384;
/** A comment tells proxies, and connections that are gone, that something is still coming. */
const KEEP_ALIVE_MS = 15_000;

const encoder = new TextEncoder();

export class SseWriter {
  private controller!: ReadableStreamDefaultController<Uint8Array>;
  private isOpen = true;
  private taken = Promise.resolve();
  private onTaken: (() => void) | undefined;
  readonly stream: ReadableStream<Uint8Array>;

  constructor(
    private readonly job: Job,
    private readonly stallTimeoutMs: number,
  ) {
    this.stream = new ReadableStream<Uint8Array>(
      {
        start: (controller) => {
          this.controller = controller;
        },
        pull: () => this.onTaken?.(),
        cancel: () => {
          this.isOpen = false;
          this.job.leave();
        },
      },
      new ByteLengthQueuingStrategy({ highWaterMark: AHEAD_BYTES }),
    );
  }

  /** Sends an object. @param event its name, where the protocol has names @throws the signal's reason */
  async write(data: unknown, event?: string): Promise<void> {
    const name = event === undefined ? '' : `event: ${event}\n`;
    await this.send(`${name}data: ${JSON.stringify(data)}\n\n`);
  }

  /** Ends the stream in OpenAI's way. */
  async done(): Promise<void> {
    await this.send('data: [DONE]\n\n');
  }

  /** Sends a comment if the reader keeps up. */
  ping(): void {
    if (this.isOpen && this.controller.desiredSize! > 0) this.controller.enqueue(encoder.encode(': keep-alive\n\n'));
  }

  /** The last thing in a stream that fails: not waited for, and lost where nobody reads. */
  fail(data: unknown, event?: string): void {
    if (!this.isOpen) return;
    const name = event === undefined ? '' : `event: ${event}\n`;
    this.controller.enqueue(encoder.encode(`${name}data: ${JSON.stringify(data)}\n\n`));
  }

  close(): void {
    if (this.isOpen) this.controller.close();
    this.isOpen = false;
  }

  private async send(text: string): Promise<void> {
    const { signal } = this.job;
    signal.throwIfAborted();
    this.controller.enqueue(encoder.encode(text));
    if (this.controller.desiredSize! > 0) return;
    if (!this.onTaken) {
      this.taken = new Promise((resolve) => {
        this.onTaken = resolve;
      });
      const late = () =>
        this.job.abort(
          new ApiError(408, `The stream was not read for ${this.stallTimeoutMs} ms.`, { code: 'reader_stalled' }),
        );
      const timer = setTimeout(late, this.stallTimeoutMs);
      const { onTaken } = this;
      signal.addEventListener('abort', onTaken!, { once: true });
      void this.taken.then(() => {
        clearTimeout(timer);
        signal.removeEventListener('abort', onTaken!);
        this.onTaken = undefined;
      });
    }
    await this.taken;
    signal.throwIfAborted();
  }
}

export interface SseOptions {
  stallTimeoutMs: number;
  headers?: Record<string, string>;
  /** What an error becomes in the stream. Default: OpenAI's `{ error }`. */
  failure?: (error: ApiError) => { data: unknown; event?: string };
  /** Hears of errors. */
  onError: (error: unknown) => void;
}

/** A response whose events `body` writes. The job ends with it, however that comes. */
export function sse(
  job: Job,
  { stallTimeoutMs, headers, onError, failure = (error) => ({ data: error.body() }) }: SseOptions,
  body: (writer: SseWriter) => Promise<void>,
): Response {
  const writer = new SseWriter(job, stallTimeoutMs);
  const keepAlive = setInterval(() => writer.ping(), KEEP_ALIVE_MS);
  const run = async () => {
    try {
      await body(writer);
    } catch (error) {
      const told = toApiError(job.signal.aborted ? job.signal.reason : error, job.route);
      onError(job.signal.aborted ? job.signal.reason : error);
      job.abort(told);
      const { data, event } = failure(told);
      writer.fail(data, event);
    } finally {
      clearInterval(keepAlive);
      writer.close();
      job.end();
    }
  };
  void run();
  return new Response(writer.stream, {
    headers: {
      'content-type': 'text/event-stream; charset=utf-8',
      'cache-control': 'no-cache, no-transform',
      'x-accel-buffering': 'no',
      ...headers,
    },
  });
}
