/**
 * Jobs of a BullMQ queue, each a request of a batch. A job is acknowledged when its result is stored: on the disk, where there
 * is a file, and in the queue as what the job returns. One that nobody acknowledges, because the process that had it is gone,
 * is given out again when its lock ends; if its result is in the file by then, it is not computed again.
 */
import { setMaxListeners } from 'node:events';
import { setTimeout as sleep } from 'node:timers/promises';
import { kinds } from '@x/core';
import type { Job, Worker } from 'bullmq';
import type { Answers } from './answers';
import { BatchError } from './errors';
import type { Progress } from './progress';
import { type BatchRequest, readRequest } from './requests';
import { type Result, type Results, resultOf } from './results';

/** The packages and a connection that comes back by itself. */
export interface QueueConnection {
  bullmq: typeof import('bullmq');
  redis: import('ioredis').Redis;
}

export interface QueueRun {
  connection: QueueConnection;
  /** Of the queue. */
  name: string;
  /** Seconds after which the jobs of a process that is gone are given out again. */
  lockSeconds: number;
  /** Ends when nothing waits or is under way. */
  untilEmpty: boolean;
  models: readonly string[];
  results: Results | undefined;
  answers: Answers;
  progress: Progress;
  signal: AbortSignal;
}

/** Crashes that a job may have been part of; one that ends each process that takes it must not go on for ever. */
const MOST_CRASHES = 10;
const CONNECT_MS = 10_000;
const CLOSE_MS = 5000;
/** Its timer keeps the process from ending. */
const DISCONNECT_MS = 100;
const POLL_MS = 500;

/** @throws BatchError STOPPED, FILE_UNUSABLE; the signal's reason */
export async function runQueue(run: QueueRun): Promise<void> {
  const { name, lockSeconds, untilEmpty, answers, progress, signal } = run;
  const { bullmq, redis } = run.connection;
  const { Queue, Worker, WaitingError, UnrecoverableError } = bullmq;
  const stopped = new AbortController();
  // Every request under way listens.
  setMaxListeners(0, stopped.signal);
  const stop = () => stopped.abort(signal.reason);
  if (signal.aborted) stop();
  signal.addEventListener('abort', stop, { once: true });
  const refused = (error: BatchError) => new UnrecoverableError(error.message);

  const work = async (job: Job, token?: string): Promise<Result> => {
    let request: BatchRequest;
    try {
      request = readRequest(job.data, `job ${job.id}`, run.models);
    } catch (error) {
      throw error instanceof BatchError ? refused(error) : error;
    }
    try {
      const result = await once(request);
      const { status_code: status, body } = result.response;
      // A job that fails may be tried again, as its `attempts` say; a request that is wrong stays wrong.
      if (status >= 500) throw new Error(messageOf(status, body));
      if (status >= 300) throw new UnrecoverableError(messageOf(status, body));
      return result;
    } catch (error) {
      if (error instanceof BatchError && error.code === 'BAD_RESULTS') throw refused(error);
      if (error instanceof BatchError) stopped.abort(error);
      if (!stopped.signal.aborted || error instanceof UnrecoverableError) throw error;
      // Not computed: the next one gets it, at once and with all its attempts.
      await job.moveToWait(token);
      throw new WaitingError();
    }
  };
  const once = oncePerRequest(run, stopped.signal);

  const worker: Worker = new Worker(name, work, {
    connection: redis,
    concurrency: answers.concurrency,
    lockDuration: lockSeconds * 1000,
    stalledInterval: lockSeconds * 1000,
    maxStalledCount: MOST_CRASHES,
  });
  // The connection's errors have been told by then.
  worker.on('error', (error) => {
    if (redis.status === 'ready') progress.say(`queue ${name}: ${error.message}`);
  });
  const queue = new Queue(name, { connection: redis });
  queue.on('error', () => {});
  try {
    while (!stopped.signal.aborted) {
      await sleep(POLL_MS, undefined, { signal: stopped.signal }).catch(() => {});
      if (!untilEmpty || stopped.signal.aborted || redis.status !== 'ready') continue;
      const counts = await queue.getJobCounts('wait', 'active', 'delayed', 'prioritized', 'waiting-children');
      if (Object.values(counts).every((count) => count === 0)) break;
    }
  } finally {
    signal.removeEventListener('abort', stop);
    // A queue that is out of reach is not waited for.
    await Promise.race([
      Promise.allSettled([worker.close(), queue.close()]),
      sleep(CLOSE_MS, undefined, { ref: false }),
    ]);
  }
  stopped.signal.throwIfAborted();
}

/** Results by request, each computed and stored once, also where two jobs ask for the same. */
function oncePerRequest({ results, answers, progress }: QueueRun, signal: AbortSignal) {
  const running = new Map<string, { id: string; result: Promise<Result> }>();
  const compute = async (request: BatchRequest): Promise<Result> => {
    if (results?.has(request)) return results.read(request);
    const answer = await answers.to(request, signal);
    const result = resultOf(request, answer);
    // What failed for no fault of the request is kept by the queue alone, which tries again.
    if (answer.status < 500) await results?.add(request, result);
    progress.add(answer.status);
    return result;
  };
  return async (request: BatchRequest): Promise<Result> => {
    const { customId, id } = request;
    // Without a file the queue alone tells requests apart.
    if (!results) return compute(request);
    const found = running.get(customId);
    if (found && found.id !== id)
      throw new BatchError(
        'BAD_RESULTS',
        `Another request with the custom_id ${kinds.showField(customId)} is under way. Give each its own.`,
      );
    if (found) return found.result;
    const result = compute(request).finally(() => running.delete(customId));
    running.set(customId, { id, result });
    return result;
  };
}

async function load() {
  try {
    const [bullmq, { Redis }] = await Promise.all([import('bullmq'), import('ioredis')]);
    return { bullmq, Redis };
  } catch (cause) {
    throw new BatchError(
      'NO_QUEUE',
      '--queue needs the packages bullmq and ioredis, which are not installed. Run: npm install bullmq ioredis',
      { cause },
    );
  }
}

/**
 * @param url `redis://` or, encrypted, `rediss://` @param onLost hears of a connection that is gone, once until it is back
 * @throws BatchError NO_QUEUE
 */
export async function connectQueue(
  url: string,
  password: string | undefined,
  onLost: (error: Error) => void,
): Promise<QueueConnection> {
  const { bullmq, Redis } = await load();
  let connected = false;
  let failure: Error | undefined;
  const redis = new Redis(url, {
    ...(password !== undefined && { password }),
    lazyConnect: true,
    connectTimeout: CONNECT_MS,
    disconnectTimeout: DISCONNECT_MS,
    maxRetriesPerRequest: null,
    retryStrategy: (times) => (connected ? Math.min(200 * times, 5000) : null),
  });
  redis.on('error', (error: Error) => {
    if (connected && !failure) onLost(error);
    failure ??= error;
  });
  redis.on('ready', () => {
    failure = undefined;
  });
  try {
    await redis.connect();
    await redis.ping();
    connected = true;
    return { bullmq, redis };
  } catch (cause) {
    redis.disconnect();
    const { host, protocol } = new URL(url);
    const why = failure?.message || (cause as Error).message;
    throw new BatchError('NO_QUEUE', `${protocol}//${host} cannot be used: ${why}. Give the address of a queue.`, {
      cause,
    });
  }
}

function messageOf(status: number, body: unknown): string {
  const { error } = body as { error?: { code?: string; message?: string } };
  return `${status} ${error?.code ?? ''}: ${error?.message ?? ''}`;
}
