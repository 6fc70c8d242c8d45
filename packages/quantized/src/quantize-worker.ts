/** The script of a quantising thread: answers each job with its blocks, or with the error that says why there are none. See quantize.ts. */
import { parentPort } from 'node:worker_threads';
import { CandleError } from '@x/core';
import { type QuantizeJob, quantizeJob, type RefusedJob } from './quantize';

parentPort?.on('message', (job: QuantizeJob) => {
  try {
    const bytes = quantizeJob(job);
    parentPort?.postMessage(bytes, [bytes.buffer]);
  } catch (error) {
    if (!(error instanceof CandleError)) throw error;
    const { code, message } = error;
    parentPort?.postMessage({ code, message } satisfies RefusedJob);
  }
});
