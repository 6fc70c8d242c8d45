/**
 * What repeated operations ask of the driver: launches only. The counts are those of the addon's table
 * (`HipDevice.counters`), so that nothing between a tensor's method and the driver is left out.
 */
import { type Device, scope, Tensor } from '@x/core';
import { kernelDevices } from '@x/testing/devices';
import { describe, expect, it } from 'vitest';
import type { RocmDevice } from '../src/index';

/** Operations on views that no kernel takes as plain memory, and on numbers, which must reach the device too. */
function operations(device: Device): Record<string, () => unknown> {
  const values = new Float32Array(2 * 12 * 20).map((_, i) => Math.sin(i) + 1.5);
  const x = Tensor.from(values, { shape: [2, 12, 20], device });
  const turned = x.transpose(1, 2);
  const stepped = x.narrow(2, 3, 7);
  const row = Tensor.from(values.subarray(0, 20), { device });
  const column = Tensor.from(values.subarray(0, 12), { shape: [12, 1], device });
  const ids = Tensor.from(Uint32Array.of(5, 0, 11, 3, 2, 7), { shape: [2, 3], device }).t();
  const counts = Tensor.from(
    new Int32Array(24).map((_, i) => i),
    { shape: [4, 6], device },
  ).t();
  return {
    unary: () => turned.exp(),
    'unary of a narrowed view': () => stepped.sqr(),
    affine: () => turned.affine(2, 1),
    cast: () => turned.toDtype('f16'),
    'transposed copy': () => turned.contiguous(),
    'strided copy': () => stepped.contiguous(),
    'broadcast row': () => x.broadcastAdd(row),
    'broadcast column': () => x.broadcastMul(column),
    'binary of views': () => turned.add(turned),
    comparison: () => turned.lt(turned),
    where: () => turned.gt(1).whereCond(turned, turned),
    'sum over an outer dim': () => x.sum(0),
    'sum of a view': () => turned.sum(-1),
    'argmax of a view': () => turned.argmax(1),
    softmax: () => turned.softmaxLastDim(),
    'index select': () => x.indexSelect(ids.flattenAll(), 1),
    matmul: () => x.matmul(turned),
    cat: () => Tensor.cat([turned, turned], 1),
    sort: () => stepped.sortLastDim(true),
    topk: () => turned.topk(3),
    'integers and a number': () => counts.add(3),
    'the larger of a view and a number': () => turned.maximum(1.5),
  };
}

describe.each(kernelDevices())('steady state on %s', (device) => {
  const { hip } = device.backend as RocmDevice;

  it.each(Object.keys(scope(() => operations(device))))('%s uploads and allocates nothing when repeated', (op) => {
    scope(() => {
      const run = operations(device)[op];
      scope(() => void run());
      const before = hip.counters();
      scope(() => void run());
      const after = hip.counters();
      expect(after.launch + after.library + after.dtod).toBeGreaterThan(before.launch + before.library + before.dtod);
      expect({
        htod: after.htod - before.htod,
        malloc: after.malloc - before.malloc,
        free: after.free - before.free,
      }).toEqual({
        htod: 0,
        malloc: 0,
        free: 0,
      });
    });
  });

  it('asks the driver for no memory in 1,000 operations of many sizes', () => {
    scope(() => {
      const sizes = [1, 300, 5000, 70_000, 400_000];
      const inputs = sizes.map((size) => Tensor.ones([size], 'f32', device));
      const round = (count: number) => {
        for (let i = 0; i < count; i++) {
          const x = inputs[i % inputs.length];
          scope(() => void x.add(1).mul(x).toDtype('f16'));
        }
      };
      round(sizes.length);
      const before = hip.counters();
      round(1000 / 3);
      const after = hip.counters();
      expect(after.launch - before.launch).toBeGreaterThanOrEqual(1000);
      expect({ malloc: after.malloc - before.malloc, free: after.free - before.free }).toEqual({ malloc: 0, free: 0 });
      expect(device.memory().driverBytes).toBeGreaterThan(0);
    });
  });
});
