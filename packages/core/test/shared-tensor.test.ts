/** Tensors handed from thread to thread through shared memory, and the default device of a scope. */
import { fileURLToPath } from 'node:url';
import { Worker } from 'node:worker_threads';
import { bundled } from '@x/testing/bundle';
import { afterAll, describe, expect, test } from 'vitest';
import '../../rocm-backend/src';
import { type CandleError, Device, memoryStats, type SharedTensor, scope, Tensor } from '../src';

const from = (path: string) => fileURLToPath(new URL(path, import.meta.url));

/** Doubles each tensor it gets and posts the result. */
const DOUBLER = `
  const { parentPort, workerData } = require('node:worker_threads');
  const opened = (async () => {
    const { Device, Tensor } = await import(workerData.core);
    await import(workerData.backend);
    return { Tensor, device: Device.parse(workerData.device) };
  })();
  parentPort.on('message', async ({ shared, id }) => {
    const { Tensor, device } = await opened;
    using t = Tensor.fromShared(shared, device);
    using twice = t.add(t);
    const result = await twice.toShared();
    // What is written here is seen by the thread that posted it: the memory is one.
    new Uint8Array(shared.bytes)[0] = 99;
    parentPort.postMessage({ id, result });
  });
`.replaceAll('using ', 'const ');

const workers: Worker[] = [];
afterAll(async () => {
  await Promise.all(workers.map((worker) => worker.terminate()));
});

describe.each(['js', 'cpu'])('shared memory on %s', (name) => {
  const device = () => Device.parse(name);

  test('two threads double tensors of every dtype', async () => {
    const pending = new Map<number, (result: SharedTensor) => void>();
    const threads = [0, 1].map(() => {
      const worker = new Worker(DOUBLER, {
        eval: true,
        workerData: {
          device: name,
          ...bundled({ core: from('../src/index.ts'), backend: from('../../rocm-backend/src/index.ts') }),
        },
      });
      workers.push(worker);
      worker.on('message', ({ id, result }) => pending.get(id)?.(result));
      worker.on('error', (error) => {
        throw error;
      });
      return worker;
    });
    const dtypes = ['u8', 'u32', 'i32', 'i64', 'f16', 'bf16', 'f32', 'f64'] as const;
    const results = dtypes.map(async (dtype, id) => {
      using t = Tensor.arange(0, 6, dtype, device()).reshape([2, 3]).t();
      const shared = id % 2 === 0 ? await t.toShared() : t.toSharedSync();
      const answer = new Promise<SharedTensor>((resolve) => pending.set(id, resolve));
      threads[id % 2].postMessage({ id, shared });
      const result = await answer;
      expect(new Uint8Array(shared.bytes)[0]).toBe(99);
      expect(Number(t.i(0, 0).toScalarSync()), 'the tensor itself is not shared').toBe(0);
      using back = Tensor.fromShared(result, device());
      expect([back.dtype, back.shape]).toEqual([dtype, [3, 2]]);
      expect(Array.from(back.toArraySync(), Number)).toEqual([0, 6, 2, 8, 4, 10]);
    });
    await Promise.all(results);
  });

  test('empty, scalar and large tensors, and what is none', async () => {
    const round = async (t: Tensor) => Tensor.fromShared(structuredClone(await t.toShared()), device());
    expect((await round(Tensor.zeros([0, 3], 'f32', device()))).shape).toEqual([0, 3]);
    expect((await round(Tensor.from(2.5, { device: device() }))).toScalarSync()).toBe(2.5);
    const large = Tensor.arange(0, 3_000_000, 'i32', device());
    expect((await round(large)).eq(large).toDtype('u32').sumAll().toScalarSync()).toBe(3_000_000);
    const shared = large.narrow(0, 0, 4).toSharedSync();
    const wrong: unknown[] = [
      { ...shared, shape: [5] },
      { ...shared, dtype: 'f7' },
      { ...shared, bytes: new ArrayBuffer(16) },
    ];
    for (const value of wrong)
      expect(() => Tensor.fromShared(value as SharedTensor)).toThrow(/fromShared: .*post what toShared gave/);
    const before = memoryStats().liveTensors;
    const gone = Tensor.ones([1]);
    gone.dispose();
    await expect(gone.toShared()).rejects.toMatchObject({ code: 'DISPOSED' });
    expect(memoryStats().liveTensors).toBeLessThanOrEqual(before);
  });
});

describe('Device.scoped', () => {
  test('tensors are made on its device, and disposed', async () => {
    const before = memoryStats().liveTensors;
    const kept = Device.scoped('js', (device) => {
      expect([Device.current(), device]).toEqual([Device.js(), Device.js()]);
      Tensor.zeros([1000]);
      return Tensor.ones([2]).add(Tensor.from([1, 2]));
    });
    expect([String(kept.device), kept.toVecSync()]).toEqual(['js', [2, 3]]);
    expect(memoryStats().liveTensors).toBeLessThanOrEqual(before + 1);
    expect(Device.current()).toBe(Device.cpu());
    kept.dispose();
  });

  test('async, nested, beside other work, and by errors', async () => {
    const seen: string[] = [];
    const slow = Device.scoped(Device.js(), async () => {
      await new Promise((resolve) => setTimeout(resolve, 5));
      seen.push(`slow ${Tensor.ones([1]).device}`);
      Device.scoped(Device.cpu(), () => seen.push(`inner ${Tensor.ones([1]).device}`));
      seen.push(`slow ${Tensor.ones([1], { device: Device.cpu() }).device}`);
      return scope(() => Tensor.ones([2]));
    });
    seen.push(`beside ${Tensor.ones([1]).device}`);
    const made = await slow;
    expect([made.isDisposed, String(made.device)]).toEqual([false, 'js']);
    expect(seen).toEqual(['beside cpu', 'slow js', 'inner cpu', 'slow cpu']);
    let inside: Tensor | undefined;
    const fail = () =>
      Device.scoped('js', () => {
        inside = Tensor.ones([1]);
        throw new Error('on purpose');
      });
    expect(fail).toThrow('on purpose');
    expect(inside?.isDisposed).toBe(true);
    expect(() => Device.scoped('gpu', () => 0)).toThrow(/"gpu" is no device/);
    expect((thrownBy(() => Device.scoped('rocm:99', () => 0)) as CandleError).code).toBe('DEVICE_UNAVAILABLE');
  });
});

function thrownBy(body: () => unknown): unknown {
  try {
    body();
  } catch (error) {
    return error;
  }
  return undefined;
}
