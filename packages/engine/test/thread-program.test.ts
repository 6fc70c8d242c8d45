/** Threads that are ranks run a bundle in all other tests: that they also run the sources, as programs run through tsx do. */
import { MessageChannel, Worker } from 'node:worker_threads';
import { backendModules } from '@x/core';
import { expect, it } from 'vitest';
import { threadProgram } from '../src/parallel/thread-program';
import { openDevice } from './helpers';

openDevice('cpu');

it('is the sources as they are written, with the backends', async () => {
  const { program, isText, modules } = threadProgram(backendModules());
  expect([isText, modules]).toEqual([true, [expect.stringMatching(/rocm-backend\/src\/index\.ts$/)]]);
  const { port1, port2 } = new MessageChannel();
  const workerData = { port: port2, counts: new Int32Array(new SharedArrayBuffer(8)), modules };
  const worker = new Worker(program, { eval: isText, workerData, transferList: [port2] });
  try {
    const message = await new Promise((resolve, reject) => {
      port1.once('message', resolve);
      worker.once('error', reject);
    });
    expect(message).toEqual({ type: 'here' });
  } finally {
    await worker.terminate();
    port1.close();
  }
});
