/** The requests of a file, many at once, until each has its result. */
import { setMaxListeners } from 'node:events';
import type { Answers } from './answers';
import type { Progress } from './progress';
import { type BatchRequest, requestsOf } from './requests';
import { type Results, resultOf } from './results';

export interface FileRun {
  input: string;
  models: readonly string[];
  results: Results;
  answers: Answers;
  progress: Progress;
  signal: AbortSignal;
}

/** What was under way when it fails, or is aborted, has no result then. @throws BatchError; the signal's reason */
export async function runFile({ input, models, results, answers, progress, signal }: FileRun): Promise<void> {
  const stopped = new AbortController();
  // Every request under way listens.
  setMaxListeners(0, stopped.signal);
  const stop = () => stopped.abort(signal.reason);
  if (signal.aborted) stop();
  signal.addEventListener('abort', stop, { once: true });
  const source = requestsOf(input, models, stopped.signal);
  const one = async (request: BatchRequest) => {
    if (results.has(request)) return;
    const answer = await answers.to(request, stopped.signal);
    await results.add(request, resultOf(request, answer));
    progress.add(answer.status);
  };
  const worker = async () => {
    try {
      for (let next = await source.next(); !next.done; next = await source.next()) await one(next.value);
    } catch (error) {
      stopped.abort(error);
      throw error;
    }
  };
  try {
    await Promise.allSettled(Array.from({ length: answers.concurrency }, worker));
    stopped.signal.throwIfAborted();
  } finally {
    signal.removeEventListener('abort', stop);
    await source.return(undefined);
  }
}
