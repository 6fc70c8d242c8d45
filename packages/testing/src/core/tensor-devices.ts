/**
 * Tensors between the device, the host and other devices: candle's tensor_tests::tensor_send_sync, transfers and
 * metal_concurrent_tests::concurrent_readback, with reading and printing.
 *
 * A tensor belongs to one JavaScript thread, so where candle has threads here are reads under way at the same time;
 * packages/core/test/threads.test.ts has two real threads, which hand over bytes.
 */
import { inspect } from 'node:util';
import { Device, type Tensor } from '@x/core';
import { describe, expect, test } from 'vitest';
import { expectFlat, expectSame, numbers } from './close';
import { makers } from './makers';

export function tensorDevicesSuite(name: string, device: () => Device): void {
  const { from, counted } = makers(device);
  /** 262144 whole numbers, each once, in an order without pattern. */
  const shuffled = () => from(new Uint32Array(512 * 512).map((_, i) => (i * 7919 + 13) % 262144)).reshape([512, 512]);

  describe(`reading on ${name}`, () => {
    test('toArray gives typed arrays, async and sync', async () => {
      const t = counted([2, 2]);
      expect(await t.toArray()).toEqual(Float32Array.of(0, 1, 2, 3));
      expect(await t.t().toVec()).toEqual([
        [0, 2],
        [1, 3],
      ]);
      expect(await t.i(1, 1).toScalar()).toBe(3);
      expect(t.toDtype('i64').toArraySync()).toEqual(BigInt64Array.of(0n, 1n, 2n, 3n));
      expect(t.toDtype('bf16').toArraySync()).toEqual(Float32Array.of(0, 1, 2, 3));
      expect(t.toDtype('f16').i(0).toBytesSync()).toEqual(Uint8Array.of(0, 0, 0, 0x3c));
      expect(t.narrow(0, 1, 1).toArraySync()).toEqual(Float32Array.of(2, 3));
    });

    test('inspect is short and never fails', () => {
      expect(inspect(counted([2, 2]))).toBe(`[[0., 1.],\n [2., 3.]]\nTensor[[2, 2], f32, ${device()}]`);
      const large = inspect(counted([1000, 1000]).toDtype('u32'));
      expect(large).toContain('[     0,      1,      2, ...,    997,    998,    999]');
      expect(large.split('\n').length).toBeLessThan(10);
      const gone = counted([2]);
      gone.dispose();
      expect(inspect(gone)).toContain('disposed');
    });

    test('tensor_tests::tensor_send_sync: many users of one tensor at once', async () => {
      const t = from([1, 2, 3]);
      const users = Array.from({ length: 10 }, async () => {
        const shared = t.contiguous();
        const sum = shared.add(shared);
        shared.dispose();
        const values = await sum.toArray();
        sum.dispose();
        return values;
      });
      expect(await t.toArray()).toEqual(Float32Array.of(1, 2, 3));
      // The original goes while its users still read.
      t.dispose();
      for (const values of await Promise.all(users)) expect(values).toEqual(Float32Array.of(2, 4, 6));

      const other = from([1, 2, 3]);
      await other.device.synchronize();
      const sum = other.add(other);
      await sum.device.synchronize();
      expect(await sum.toArray()).toEqual(Float32Array.of(2, 4, 6));
    });

    test('metal_concurrent_tests::concurrent_readback: each read gets the values of its own moment', async () => {
      const reader = async (lane: number) => {
        for (let round = 0; round < 100; round++) {
          const value = lane * 1000 + round;
          const a = counted([64, 64]).affine(0, value);
          const b = a.affine(2, 1);
          const reading = b.flattenAll().toArray<Float32Array>();
          // Written again after the read was asked for, and given back to the allocator.
          b.constSet(-1);
          a.dispose();
          b.dispose();
          const wrong = (await reading).findIndex((x) => x !== 2 * value + 1);
          expect({ lane, round, wrong }).toEqual({ lane, round, wrong: -1 });
        }
      };
      await Promise.all([0, 1, 2, 3, 4, 5, 6, 7].map(reader));
    });
  });

  describe(`moving between devices on ${name}`, () => {
    test('tensor_tests::transfers_cuda_to_device: to every other device that is here, and back', async () => {
      const t = shuffled();
      const others = Device.list()
        .filter((info) => info.available)
        .map((info) => Device.parse(info.name))
        .filter((other) => !other.equals(device()));
      // js and cpu are everywhere.
      expect(others.length).toBeGreaterThan(0);
      for (const other of others) {
        const moved = await t.toDevice(other);
        expect(moved.device).toBe(other);
        expect(moved.storageAndLayout().storage).not.toBe(t.storageAndLayout().storage);
        expectSame(moved, t);
        // A view arrives as its elements; what is written there is not seen here.
        const turned = moved.t().narrow(0, 1, 3).toDeviceSync(device());
        expect(turned.isContiguous()).toBe(true);
        expectSame(turned, t.t().narrow(0, 1, 3));
        moved.zeroSet();
        expect(numbers(t.i(0, [0, 3]))).toEqual([13, 7932, 15851]);
      }
    });

    test('tensor_tests::allocates_twice_when_transferring_to_same_device: here a view, and copy() allocates', async () => {
      const t = shuffled();
      const before = device().memory().liveBytes;
      const same = t.toDeviceSync(Device.parse(name));
      expect(device().memory().liveBytes).toBe(before);
      const copy = t.copy();
      expect(device().memory().liveBytes - before).toBe(512 * 512 * 4);
      const storageOf = (tensor: Tensor) => tensor.storageAndLayout().storage;
      expect(storageOf(same)).toBe(storageOf(t));
      expect(storageOf(await t.toDevice(device()))).toBe(storageOf(t));
      expect(storageOf(copy)).not.toBe(storageOf(t));
      t.i(0).zeroSet();
      expectFlat(same.i(0), [512], Array(512).fill(0));
      expect(numbers(copy.i(0, [0, 3]))).toEqual([13, 7932, 15851]);
      // The view keeps the memory when the tensor that it was made from goes.
      t.dispose();
      expect(numbers(same.i(1, [0, 2]))).toEqual([(512 * 7919 + 13) % 262144, (513 * 7919 + 13) % 262144]);
    });
  });
}
