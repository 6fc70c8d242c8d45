/** The script of a quantising thread: answers each job with its blocks. See quantize.ts. */
import { parentPort } from 'node:worker_threads';
import { type QuantizeJob, quantizeJob } from './quantize';

parentPort?.on('message', (job: QuantizeJob) => {
  const bytes = quantizeJob(job);
  parentPort?.postMessage(bytes, [bytes.buffer]);
});
