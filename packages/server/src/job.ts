/** One request under way: when it is to end, and what it gives back then. */
import { randomUUID } from 'node:crypto';
import { setMaxListeners } from 'node:events';
import { ApiError } from './errors';

/** Ids that a client may choose: they come back in a header and in the log. */
const CLIENT_ID = /^[\w.-]{1,64}$/;

export class Job {
  readonly id: string;
  readonly begun = performance.now();
  private readonly controller = new AbortController();
  private readonly endings: (() => void)[] = [];
  private ended = false;
  /** What the log and the figures say of it. */
  route = 'other';
  status = 0;
  /** Why the server failed. */
  error: unknown;
  /** Whether it goes on after its response: as a stream, which ends it. */
  streams = false;

  /** @param timeoutMs after which it is aborted with a 504 */
  constructor(
    readonly request: Request,
    public client: string,
    timeoutMs: number,
  ) {
    // Every sequence of the request listens.
    setMaxListeners(0, this.signal);
    const given = request.headers.get('x-request-id');
    this.id = given !== null && CLIENT_ID.test(given) ? given : `req_${randomUUID()}`;
    const left = () => this.leave();
    if (request.signal.aborted) left();
    request.signal.addEventListener('abort', left, { once: true });
    this.onEnd(() => request.signal.removeEventListener('abort', left));
    const late = () => this.abort(new ApiError(504, `The request took longer than ${timeoutMs} ms.`));
    const timer = setTimeout(late, timeoutMs);
    this.onEnd(() => clearTimeout(timer));
  }

  /** Aborted when the client is gone, time is over, or the server closes; its reason is an {@link ApiError}. */
  get signal(): AbortSignal {
    return this.controller.signal;
  }

  abort(reason: unknown): void {
    this.controller.abort(reason);
  }

  /** The client is gone. */
  leave(): void {
    this.abort(new ApiError(499, 'The client closed the connection.', { code: 'client_closed_request' }));
  }

  /** What is done when the request ends, the last one first; at once if it has ended. */
  onEnd(ending: () => void): void {
    if (this.ended) ending();
    else this.endings.push(ending);
  }

  /** Gives everything back. Harmless when repeated. */
  end(): void {
    if (this.ended) return;
    this.ended = true;
    for (const ending of this.endings.reverse()) ending();
  }
}
