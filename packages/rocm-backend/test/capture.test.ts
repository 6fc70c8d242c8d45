/** Captured graphs where kernels run: what they are made of, what they hold on the device, and what a replay costs. */
import { type Device, scope, Tensor } from '@x/core';
import { kernelDevices } from '@x/testing/devices';
import { describe, expect, it } from 'vitest';
import type { RocmDevice } from '../src/index';

delete process.env.X_GRAPHS;

describe.each(kernelDevices())('captured graphs on %s', (device) => {
  const backend = device.backend as RocmDevice;
  const floats = (shape: number[], on: Device = device) =>
    Tensor.from(
      new Float32Array(shape.reduce((a, b) => a * b, 1)).map((_, i) => Math.sin(i)),
      { shape, device: on },
    );

  it('names its launches in order, and a replay is one call of the driver', () => {
    scope(() => {
      const x = floats([3, 5]);
      using graph = device.capture(() => x.exp().add(x).softmaxLastDim().t().contiguous());
      expect(graph.isCaptured).toBe(true);
      expect(graph.launchNames).toEqual(expect.arrayContaining(['uexp_f32', 'badd_f32', 'softmax_f32']));
      expect(graph.launches).toBe(graph.launchNames.length);
      const [before, launches, kernels] = [backend.hip.counters(), device.launchCount, device.kernelCount];
      for (let i = 0; i < 10; i++) graph.replay();
      const after = backend.hip.counters();
      expect(after.graphLaunch - before.graphLaunch).toBe(10);
      expect({ ...after, graphLaunch: 0 }).toEqual({ ...before, graphLaunch: 0 });
      expect(device.launchCount - launches).toBe(10);
      expect(device.kernelCount - kernels).toBe(10 * graph.launches);
      // What is recorded does not run.
      x.exp().dispose();
      expect(device.kernelCount - kernels).toBe(10 * graph.launches + 1);
      using _other = device.capture(() => x.exp());
      expect(device.kernelCount - kernels).toBe(10 * graph.launches + 2);
    });
  });

  it('reuses the memory of temporaries within the graph', () => {
    scope(() => {
      const x = floats([256, 1024]);
      const bytes = 256 * 1024 * 4;
      const { graphBytes, liveBytes } = device.memory();
      using graph = device.capture(() => {
        let y = x.add(1);
        for (let i = 0; i < 20; i++) y = y.mul(0.5);
        return y;
      });
      const held = device.memory();
      // Temporaries end with the function: 21 tensors, one of them the output.
      expect(held.liveBytes - liveBytes).toBe(bytes);
      expect(held.graphBytes - graphBytes).toBe(20 * bytes);
      using lean = device.capture(() => {
        let y = x.add(1);
        for (let i = 0; i < 20; i++) {
          const next = y.mul(0.5);
          y.dispose();
          y = next;
        }
        return y;
      });
      expect(device.memory().graphBytes - held.graphBytes).toBe(bytes);
      expect(lean.replay().sub(graph.replay()).abs().maxAll().toScalarSync()).toBe(0);
    });
  });

  it('holds what views have on the device, however many others are used afterwards', () => {
    scope(() => {
      const x = floats([12, 40]);
      const fn = () =>
        x
          .t()
          .exp()
          .add(x.narrow(1, 3, 12).t().contiguous().sumAll());
      using graph = device.capture(fn);
      const expected = fn().toArraySync();
      const big = floats([64, 64]);
      // More layouts than the cache of uploads keeps.
      for (let i = 0; i < 2100; i++)
        scope(
          () =>
            void big
              .narrow(1, i % 60, 1 + (i % 3))
              .narrow(0, 0, 1 + (i % 63))
              .sqr(),
        );
      for (let i = 1; i < 64; i++) scope(() => void big.narrow(0, 0, i).t().exp());
      device.emptyCache();
      const others = Array.from({ length: 300 }, (_, i) => Tensor.full(i, [64], 'f32', device));
      expect(graph.replay().toArraySync()).toEqual(expected);
      expect(others[299].toArraySync()[63]).toBe(299);
    });
  });

  it('loads, uploads and allocates nothing that the first call has not', () => {
    scope(() => {
      const x = floats([7, 9]);
      const between: Record<string, number>[] = [];
      using graph = device.capture(() => {
        between.push({ ...backend.hip.counters() });
        return x.t().sqr().matmul(x.affine(3, 1)).sum(0);
      });
      const [, second] = between;
      const now = backend.hip.counters();
      for (const counter of ['moduleLoad', 'getFunction', 'malloc', 'htod'] as const) {
        expect(`${counter} ${now[counter]}`).toBe(`${counter} ${second[counter]}`);
      }
      expect(graph.isCaptured).toBe(true);
    });
  });

  it('uploads values of the host and info that were not there at the first call', () => {
    scope(() => {
      const x = floats([6, 8]);
      let calls = 0;
      using graph = device.capture(() => {
        calls++;
        // A view that only the second call takes, and values that the graph then writes over.
        if (calls === 2) x.narrow(1, 1, 5).t().exp().dispose();
        const shift = Tensor.from([calls, 10 * calls], { device });
        const doubled = shift.mul(2);
        shift.zeroSet();
        return [shift, doubled];
      });
      for (let i = 0; i < 3; i++) {
        const [shift, doubled] = graph.replay();
        expect([shift.toVecSync(), doubled.toVecSync()]).toEqual([
          [0, 0],
          [4, 40],
        ]);
      }
    });
  });

  it('reports ids out of range of a replay when the device is next waited for', () => {
    if (!backend.idReport) return;
    scope(() => {
      const x = floats([4, 2]);
      const ids = Tensor.from(Uint32Array.of(0, 3), { device });
      using graph = device.capture(() => x.indexSelect(ids, 0));
      ids.write([1, 2]);
      graph.replay();
      device.synchronizeSync();
      ids.write([1, 9]);
      graph.replay();
      expect(() => device.synchronizeSync()).toThrow(expect.objectContaining({ code: 'INDEX_OUT_OF_RANGE' }));
      ids.write([3, 3]);
      expect(graph.replay().toArraySync()).toHaveLength(4);
    });
  });

  it('a graph that is collected gives its memory back', async () => {
    const collect = (globalThis as { gc?: () => void }).gc;
    if (!collect) return;
    const x = floats([64, 64]);
    const before = device.memory();
    for (let i = 0; i < 4; i++) device.capture(() => x.add(i).mul(2));
    for (let i = 0; i < 50 && device.memory().graphBytes > before.graphBytes; i++) {
      collect();
      await new Promise((resolve) => setTimeout(resolve, 5));
    }
    expect(device.memory().graphBytes).toBe(before.graphBytes);
    expect(device.memory().liveBytes).toBe(before.liveBytes);
    x.dispose();
  });

  it('a read that is under way when a capture begins arrives, and the graph is made', async () => {
    const x = floats([1 << 16]);
    const sums: Promise<Float32Array>[] = [];
    const graphs = Array.from({ length: 10 }, (_, i) => {
      for (let n = 0; n < 5; n++) sums.push(scope(() => x.add(i).toArray('f32')));
      return device.capture(() => x.mul(i));
    });
    (await Promise.all(sums)).forEach((sum, n) => {
      expect(sum[1]).toBeCloseTo(Math.sin(1) + Math.floor(n / 5), 5);
    });
    for (const [i, graph] of graphs.entries()) {
      expect(graph.replay().get(1).toScalarSync()).toBeCloseTo(Math.sin(1) * i, 5);
      graph.dispose();
    }
    x.dispose();
  });

  it('compiled kernels are part of a graph', () => {
    // The stand-in for an AMD GPU runs only kernels that were compiled for it.
    if (device.kind === 'rocm' && process.env.FAKE_HIP_KERNELS) return;
    scope(() => {
      const source = `#include "x.h"
        KERNEL(twice, (u64 n, const float* x, float* y)) { X_FOR_EACH(i, n) y[i] = 2 * x[i]; }`;
      const kernel = device.compile(source).kernel('twice');
      const [x, y] = [floats([4]), floats([4])];
      const args = [4, x.storageAndLayout().storage, y.storageAndLayout().storage];
      using graph = device.capture(() => kernel.launch(4, args));
      expect(graph.launchNames).toEqual(['twice']);
      x.write([1, 2, 3, 4]);
      graph.replay();
      expect(y.toVecSync()).toEqual([2, 4, 6, 8]);
    });
  });
});
