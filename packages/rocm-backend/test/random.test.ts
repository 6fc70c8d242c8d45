/** Random numbers of every device: the stream that core's philox.ts defines, made by kernels. */
import { Device, type DType, UnsupportedError } from '@x/core';
import { kernelDevices } from '@x/testing/devices';
import { FLOAT_DTYPES } from '@x/testing/operands';
import { describe, expect, it } from 'vitest';
import type { RocmDevice } from '../src/index';

const COUNTS = [1, 2, 3, 5, 1023, 20001];

describe.each(kernelDevices())('random numbers on %s', (device) => {
  const sides = [Device.js().backend, device.backend];
  const both = (make: (side: (typeof sides)[number]) => ReturnType<(typeof sides)[number]['zeros']>, dtype: DType) => {
    const [expected, actual] = sides.map((side) => {
      const storage = make(side);
      const bytes = storage.toHostSync();
      storage.dispose();
      return bytes;
    });
    return { expected, actual, dtype };
  };

  it.each(FLOAT_DTYPES)('uniform %s equals the reference bit for bit, call after call', (dtype) => {
    for (const seed of [0, 299792458, 2 ** 53 - 1]) {
      for (const side of sides) side.random!.setSeed(seed);
      for (const count of COUNTS) {
        const { expected, actual } = both((side) => side.random!.uniform(count, dtype, -1.5, 3), dtype);
        expect(Buffer.from(actual).equals(Buffer.from(expected)), `${count} of seed ${seed}`).toBe(true);
      }
    }
  });

  it.each(FLOAT_DTYPES)('normal %s equals the reference bit for bit, call after call', (dtype) => {
    for (const seed of [7, 299792458, 2 ** 53 - 1]) {
      for (const side of sides) side.random!.setSeed(seed);
      for (const count of [...COUNTS, 200_000]) {
        const { expected, actual } = both((side) => side.random!.normal(count, dtype, 0.5, 2), dtype);
        expect(Buffer.from(actual).equals(Buffer.from(expected)), `${count} of seed ${seed}`).toBe(true);
      }
    }
  });

  it('a call of any kind counts, and integers are refused without one', () => {
    for (const side of sides) side.random!.setSeed(3);
    const first = both((side) => side.random!.uniform(4, 'f32', 0, 1), 'f32');
    expect(() => device.backend.random!.uniform(4, 'i32', 0, 1)).toThrow(UnsupportedError);
    both((side) => side.random!.normal(4, 'f16', 0, 1), 'f16');
    const third = both((side) => side.random!.uniform(4, 'f32', 0, 1), 'f32');
    expect(new Float32Array(third.actual)).toEqual(new Float32Array(third.expected));
    expect(new Float32Array(third.actual)).not.toEqual(new Float32Array(first.actual));
  });

  it('uploads nothing', () => {
    const rocm = device.backend as RocmDevice;
    const before = rocm.hip.counters().htod;
    rocm.random.uniform(5000, 'bf16', 0, 1).dispose();
    rocm.random.normal(5000, 'f64', 0, 1).dispose();
    expect(rocm.hip.counters().htod).toBe(before);
  });
});
