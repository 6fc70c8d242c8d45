/** What devices with kernels do about ids when they were opened with X_DEBUG=1: GPUs report them too. */
import { Layout } from '@x/core';
import { tensorIdsSuite } from '@x/testing/core/tensor-ids';
import { kernelDevices } from '@x/testing/devices';
import { at } from '@x/testing/operands';
import { afterAll, afterEach, beforeAll, describe, expect, test, vi } from 'vitest';
import { RocmDevice } from '../src';

// Devices are opened by their first use, in a test.
beforeAll(() => {
  vi.stubEnv('X_DEBUG', '1');
});
afterAll(() => {
  vi.unstubAllEnvs();
});

for (const device of kernelDevices()) tensorIdsSuite(`${device} with X_DEBUG=1`, () => device);

const kinds = [...new Set(kernelDevices().map(({ kind }) => kind))].filter((kind) => kind !== 'js');

describe.each(kinds)('reports of ids on a %s device of its own', (kind) => {
  const three = Layout.contiguous([3]);
  let device: RocmDevice;
  const open = (level: string) => {
    vi.stubEnv('X_DEBUG', level);
    device = RocmDevice.open(kind, 0);
    return device.fromHost(Uint32Array.of(0, 5, 9), 'u32');
  };
  afterEach(() => {
    device.dispose();
    vi.stubEnv('X_LAUNCH_BLOCKING', undefined);
  });
  const error = expect.objectContaining({ code: 'INDEX_OUT_OF_RANGE' });

  test('with X_LAUNCH_BLOCKING=1 the operation raises the error', () => {
    vi.stubEnv('X_LAUNCH_BLOCKING', '1');
    const ids = open('1');
    expect(() => ids.device.ops.checkIds('pick', at(ids, three), { size: 9, dim: 1 })).toThrow(
      /^pick: id 9 at position 2 is outside 0\.\.8 of dimension 1, whose size is 9; correct the ids\.$/,
    );
    ids.device.ops.checkIds('pick', at(ids, three), { size: 10 });
    device.synchronizeSync();
  });

  // The stand-in for libamdhip64 has no graphs: it runs what is captured at once.
  test.skipIf(kind === 'rocm')('each run of a captured graph is looked at', () => {
    const ids = open('1');
    const { hip } = device;
    // What a launch loads is not loaded during a capture.
    ids.device.ops.checkIds('pick', at(ids, three), { size: 10 });
    device.synchronizeSync();
    hip.defaultStream.beginCapture();
    ids.device.ops.checkIds('pick', at(ids, three), { size: 6 });
    const graph = hip.defaultStream.endCapture();
    const exec = graph.instantiate();
    for (let run = 0; run < 2; run++) {
      device.synchronizeSync();
      exec.launch(hip.defaultStream);
      expect(() => ids.toHostSync()).toThrow(error);
    }
    exec.dispose();
    graph.dispose();
  });

  test('a device graph is looked at once behind each replay', () => {
    const ids = open('1');
    const { hip } = device;
    const graph = device.capture((divide) => {
      ids.device.ops.checkIds('pick', at(ids, three), { size: 6 });
      divide(() => expect(() => ids.toHostSync()).toThrow(error));
    });
    if (!graph) return;
    for (let run = 0; run < 2; run++) {
      graph.replay();
      const before = hip.counters().dtoh;
      ids.toHostSync();
      expect(hip.counters().dtoh - before).toBe(1);
    }
    graph.dispose();
  });

  test('a GPU opened without X_DEBUG launches nothing for ids', () => {
    const ids = open('0');
    const before = device.hip.counters().launch;
    ids.device.ops.checkIds('pick', at(ids, three), { size: 2 });
    expect(device.hip.counters().launch - before).toBe(kind === 'cpu' ? 1 : 0);
    if (kind !== 'cpu') device.synchronizeSync();
  });

  test('a device that nobody waits for again is closed without an error', () => {
    const ids = open('1');
    ids.device.ops.checkIds('pick', at(ids, three), { size: 2 });
    device.emptyCache();
  });
});
