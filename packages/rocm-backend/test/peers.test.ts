/**
 * Copies between two devices of one kind, where there are two: the emulator with `--devices 2`, or two GPUs. That
 * `FAKE_HIP_PEER` makes them fail is tested in packages/hip/test/rocm-driver.test.ts.
 */
import { type Device, scope, Tensor, Var } from '@x/core';
import { kernelDevices } from '@x/testing/devices';
import { afterEach, describe, expect, it } from 'vitest';
import type { RocmDevice } from '../src/index';

const pairs = kernelDevices().flatMap((a) =>
  kernelDevices()
    .filter((b) => b.kind === a.kind && b !== a)
    .map((b): [Device, Device] => [a, b]),
);

if (pairs.length === 0) it.skip('there are no two devices of one kind', () => {});

describe.each(pairs)('from %s to %s', (a, b) => {
  const backend = b.backend as RocmDevice;
  const hostCopies = () => (a.backend as RocmDevice).hip.counters().dtoh;

  afterEach(() => {
    delete process.env.X_PEER;
  });

  it('values arrive without the host, of any dtype and layout', async () => {
    const x = Tensor.arange(0, 5000, 'f32', a).reshape([50, 100]);
    (await x.toDevice(b)).dispose();
    const direct = process.env.FAKE_HIP_PEER === undefined;
    const before = hostCopies();
    for (const dtype of ['f32', 'f16', 'u8', 'i64'] as const) {
      for (const view of [x.toDtype(dtype), x.toDtype(dtype).t(), x.toDtype(dtype).narrow(1, 3, 20)]) {
        const copies = [await view.toDevice(b), view.toDeviceSync(b)];
        if (direct) expect(hostCopies()).toBe(before);
        for (const copy of copies) {
          expect(copy.device).toBe(b);
          expect(copy.isContiguous()).toBe(true);
        }
      }
    }
    const copies = [await x.t().toDevice(b), x.t().toDeviceSync(b)];
    const expected = x.t().toArraySync();
    for (const copy of copies) expect(copy.toArraySync()).toEqual(expected);
  });

  it('a source may be disposed and written at once', () => {
    scope(() => {
      const made: Tensor[] = [];
      for (let i = 0; i < 50; i++) {
        const x = Tensor.full(i, [1 << 16], 'f32', a);
        made.push(x.toDeviceSync(b));
        x.zeroSet();
        x.dispose();
      }
      made.forEach((copy, i) => {
        expect([copy.minAll().toScalarSync(), copy.maxAll().toScalarSync()]).toEqual([i, i]);
      });
    });
  });

  it('there and back is the same, also with X_PEER=0', () => {
    scope(() => {
      const x = Tensor.arange(0, 1000, 'f32', a);
      for (const switched of ['1', '0']) {
        process.env.X_PEER = switched;
        const before = hostCopies();
        const back = x.toDeviceSync(b).mul(2).toDeviceSync(a);
        if (switched === '0') expect(hostCopies()).toBe(before + 1);
        expect(back.sub(x).sub(x).abs().maxAll().toScalarSync()).toBe(0);
      }
    });
  });

  it('gradients flow back', () => {
    scope(() => {
      const v = Var.from([1, 2, 3], { device: a });
      const gradient = v.toDeviceSync(b).sqr().sumAll().backward().get(v)!;
      expect(gradient.device).toBe(a);
      expect(gradient.toVecSync()).toEqual([2, 4, 6]);
    });
  });

  it('is refused in a capture, and nothing is left behind', () => {
    const x = Tensor.ones([4], 'f32', a);
    const before = backend.memory().liveBytes;
    for (const device of [a, b]) {
      expect(() => device.capture(() => x.toDeviceSync(b))).toThrow(
        expect.objectContaining({ code: 'CAPTURE_UNSUPPORTED' }),
      );
    }
    expect(backend.memory().liveBytes).toBe(before);
    x.dispose();
  });
});
