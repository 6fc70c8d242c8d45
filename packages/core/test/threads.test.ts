/**
 * A tensor's values in other threads. A tensor, like every JavaScript object, stays in the thread that made it: what is
 * handed over are its bytes (here transferred; shared-tensor.test.ts has them in shared memory), and each thread opens the
 * device for itself. candle's tensors are Send and Sync.
 */
import { fileURLToPath } from 'node:url';
import { Worker } from 'node:worker_threads';
import { bundled } from '@x/testing/bundle';
import { afterAll, describe, expect, test } from 'vitest';
import { Device, Tensor } from '../src';
import '../../rocm-backend/src';

const from = (path: string) => fileURLToPath(new URL(path, import.meta.url));

/** Adds each tensor that it gets to itself and sends the bytes back. */
const ADDER = `
  const { parentPort, workerData } = require('node:worker_threads');
  const opened = (async () => {
    const { Device, Tensor } = await import(workerData.core);
    await import(workerData.backend);
    return { Tensor, device: Device.parse(workerData.device) };
  })();
  parentPort.on('message', async ({ id, bytes, shape }) => {
    const { Tensor, device } = await opened;
    const t = Tensor.fromBytes(bytes, shape, 'f32', device);
    const sum = t.add(t);
    await device.synchronize();
    const result = await sum.toBytes();
    t.dispose();
    sum.dispose();
    const backend = device.backend.constructor.name;
    parentPort.postMessage({ id, backend, bytes: result }, [result.buffer]);
  });
`;

interface Answer {
  id: number;
  backend: string;
  bytes: Uint8Array;
}

const workers: Worker[] = [];
function startWorker(device: string): Worker {
  const workerData = {
    device,
    ...bundled({ core: from('../src/index.ts'), backend: from('../../rocm-backend/src/index.ts') }),
  };
  const worker = new Worker(ADDER, { eval: true, workerData });
  workers.push(worker);
  return worker;
}

/** Every answer to `count` messages; rejects when the worker fails. */
function answers(worker: Worker, count: number): Promise<Answer[]> {
  return new Promise((resolve, reject) => {
    const got: Answer[] = [];
    worker.once('error', reject);
    worker.on('message', (answer: Answer) => {
      if (got.push(answer) === count) resolve(got);
    });
  });
}

afterAll(async () => {
  await Promise.all(workers.map((worker) => worker.terminate()));
});

describe.each(['js', 'cpu'])('threads on %s', (name) => {
  test('tensor_tests::tensor_send_sync: two threads and this one, side by side', async () => {
    const device = Device.parse(name);
    const t = Tensor.from([1, 2, 3], { device });
    const [here, there] = [startWorker(name), startWorker(name)];
    const pending = [here, there].map((worker) => answers(worker, 5));
    for (let id = 0; id < 5; id++) {
      for (const worker of [here, there]) {
        const bytes = await t.add(id).toBytes();
        worker.postMessage({ id, bytes, shape: t.shape }, [bytes.buffer as ArrayBuffer]);
      }
    }
    // This thread works with the tensor meanwhile.
    expect(await t.add(t).toArray()).toEqual(Float32Array.of(2, 4, 6));
    for (const list of await Promise.all(pending)) {
      // Answers come as they are ready.
      expect(list.map(({ id }) => id).sort()).toEqual([0, 1, 2, 3, 4]);
      for (const { id, backend, bytes } of list) {
        expect(backend).toBe(device.backend.constructor.name);
        const sum = Tensor.fromBytes(bytes, [3], 'f32', device);
        expect(await sum.toArray()).toEqual(Float32Array.of(2 * (1 + id), 2 * (2 + id), 2 * (3 + id)));
      }
    }
    expect(await t.toArray()).toEqual(Float32Array.of(1, 2, 3));
  });
});
