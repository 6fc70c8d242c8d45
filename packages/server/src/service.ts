/** What all routes share: models, slots, figures, and the requests under way. */
import type { Generation } from '@x/engine';
import { ApiError, toApiError } from './errors';
import { Job } from './job';
import { Metrics } from './metrics';
import { type Lease, ModelPool } from './model-pool';
import type { LogEntry, ResolvedOptions } from './options';
import { readJson } from './request/body';
import { FairQueue, type Ticket } from './request/fair-queue';
import { Fields } from './request/fields';
import { type SseOptions, type SseWriter, sse } from './sse';

/** A job that has its places in the queue and its model. */
export interface Work {
  job: Job;
  lease: Lease;
  tickets: readonly Ticket[];
}

/** One sequence of a job: the ticket of its index, and what the model generates piece by piece. */
export interface Choice<T> {
  readonly index: number;
  readonly generation: AsyncIterable<T> & Pick<Generation, 'stats'>;
}

export class Service {
  readonly pool: ModelPool;
  readonly queue: FairQueue;
  readonly metrics = new Metrics();
  /** Settles when the models that are to be there from the beginning are. */
  readonly ready: Promise<void>;
  private readonly jobs = new Set<Job>();
  private loading: 'loading' | 'failed' | 'ready' = 'loading';
  private draining = false;
  private closing: Promise<void> | undefined;
  private idle: (() => void) | undefined;

  constructor(readonly options: ResolvedOptions) {
    this.queue = new FairQueue(options);
    this.pool = new ModelPool(options.models, options, (error) =>
      this.log({ id: '', method: '', route: 'load', status: 500, ms: 0, error }),
    );
    this.ready = options.preload ? this.pool.preload() : Promise.resolve();
    if (!options.preload) this.loading = 'ready';
    this.ready.then(
      () => {
        this.loading = 'ready';
      },
      () => {
        this.loading = 'failed';
      },
    );
  }

  get active(): number {
    return this.jobs.size;
  }

  get isDraining(): boolean {
    return this.draining;
  }

  get isClosing(): boolean {
    return this.closing !== undefined;
  }

  /** Whether requests should come here, and why not. */
  get readiness(): 'loading' | 'failed' | 'ready' | 'draining' | 'closing' {
    if (this.isClosing) return 'closing';
    return this.draining ? 'draining' : this.loading;
  }

  /** Requests should go elsewhere from here on; those that come are still answered. */
  drain(): void {
    this.draining = true;
  }

  /** A job for a request. Whoever calls ends it, unless it `streams`. */
  begin(request: Request, client: string): Job {
    const job = new Job(request, client, this.options.requestTimeoutMs);
    this.jobs.add(job);
    job.onEnd(() => {
      this.jobs.delete(job);
      const ms = performance.now() - job.begun;
      const { id, route, status, error } = job;
      this.metrics.duration.observe(ms / 1000);
      this.metrics.requests.add(1, { route, status });
      this.log({ id, method: request.method, route, status, ms, ...(error !== undefined && { error }) });
      if (this.jobs.size === 0) this.idle?.();
    });
    return job;
  }

  /** The body's fields. @throws ApiError */
  async body(job: Job): Promise<Fields> {
    const fields = Fields.of(await readJson(job.request, this.options));
    job.signal.throwIfAborted();
    return fields;
  }

  /** The model that a body names; where there is only one, adapters aside, the body need not. @throws ApiError 400, 404 */
  modelName(fields: Fields): string {
    const [only, ...others] = this.pool.list().filter(({ adapter }) => adapter === undefined);
    const name = fields.string('model') ?? (others.length === 0 ? only.name : undefined);
    this.pool.check(fields.required('model', name));
    return name!;
  }

  /**
   * Places in the queue for so many sequences, and the model, loaded where it is not yet.
   * @throws ApiError 429 when the server is full, 404, 503
   */
  async enter(job: Job, name: string, sequences: number): Promise<Work> {
    const tickets = this.queue.enter(job.client, sequences);
    job.onEnd(() => {
      for (const ticket of tickets) ticket.release();
    });
    const lease = await this.pool.acquire(name, job.signal);
    job.onEnd(() => lease.release());
    for (const ticket of tickets) ticket.line();
    return { job, lease, tickets };
  }

  /** Runs all to their ends; when one fails, the job is aborted, and the failure thrown when all have come to an end. */
  async every<T>(job: Job, items: readonly T[], run: (item: T) => Promise<void>): Promise<void> {
    const guarded = async (item: T) => {
      try {
        await run(item);
      } catch (error) {
        job.abort(error);
        throw error;
      }
    };
    await Promise.allSettled(items.map(guarded));
    job.signal.throwIfAborted();
  }

  /** Waits for a choice's slot, generates, and gives the slot back at the end. */
  async *run<T>({ job, lease, tickets }: Work, choice: Choice<T>): AsyncGenerator<T, void, void> {
    const { generation: pieces } = choice;
    const ticket = tickets[choice.index];
    const labels = { model: lease.name };
    try {
      await ticket.ready(job.signal);
      this.metrics.waited.observe((performance.now() - job.begun) / 1000);
      this.metrics.promptTokens.add(pieces.stats.promptTokens, labels);
      let last = 0;
      for await (const piece of pieces) {
        const now = performance.now();
        if (last === 0) this.metrics.firstToken.observe((now - job.begun) / 1000);
        else this.metrics.betweenTokens.observe((now - last) / 1000);
        yield piece;
        last = performance.now();
      }
    } finally {
      const { tokens, finishReason } = pieces.stats;
      this.metrics.tokens.add(tokens, labels);
      this.metrics.finished.add(1, { reason: finishReason ?? 'left' });
      ticket.release();
    }
  }

  /**
   * A stream of events that `body` writes, once the first sequence has its slot: a full server is still told by a status.
   * The job ends with the stream.
   */
  async stream(
    { job, tickets }: Work,
    body: (writer: SseWriter) => Promise<void>,
    options: Pick<SseOptions, 'failure'> = {},
  ): Promise<Response> {
    await tickets[0].ready(job.signal);
    const { stallTimeoutMs } = this.options;
    job.streams = true;
    return sse(job, { stallTimeoutMs, onError: (error) => this.failed(job, error), ...options }, body);
  }

  /** Keeps a failure of the server's own for the log. */
  private failed(job: Job, error: unknown): void {
    if (toApiError(error, job.route).status === 500) job.error = error;
  }

  private log(entry: LogEntry): void {
    try {
      this.options.onLog(entry);
    } catch {
      // A log that fails must not fail a request.
    }
  }

  /** Refuses what comes, waits for what is under way, cuts it after a time, and unloads the models. */
  close(timeoutMs: number): Promise<void> {
    this.closing ??= this.finish(timeoutMs);
    return this.closing;
  }

  private async finish(timeoutMs: number): Promise<void> {
    if (this.jobs.size > 0) {
      const cut = () => {
        for (const job of this.jobs) job.abort(closed());
      };
      const timer = setTimeout(cut, timeoutMs);
      await new Promise<void>((resolve) => {
        this.idle = resolve;
      });
      clearTimeout(timer);
    }
    await this.pool.close();
  }
}

/** What a request is told that comes, or is still there, when the server closes. */
export function closed(): ApiError {
  return new ApiError(503, 'The server is closing; try again later.', { retryAfter: 5 });
}
