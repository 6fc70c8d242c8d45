/** What is added to scores of keys that a query may not see: small ones are written on the host, larger ones made on the device. */
import { scope } from '@x/core';
import { testDevices } from '@x/testing/devices';
import { describe, expect, it } from 'vitest';
import { attention } from '../src';

describe.each(testDevices())('causal biases on %s', (device) => {
  it.each([
    [1, 4, 2],
    [3, 3, undefined],
    [4, 9, 1],
    [5, 7, 3],
    [6, 2, undefined],
    [150, 170, 20],
  ])('%i queries of %i keys, a window of %s', (seq, kv, window) => {
    for (const dtype of ['f32', 'f16'] as const)
      scope(() => {
        const made = attention.causalBias(seq, kv, { window, device, dtype });
        const sees = (query: number, key: number) => {
          const position = kv - seq + query;
          return key <= position && (window === undefined || key > position - window);
        };
        const expected = Array.from({ length: seq * kv }, (_, i) =>
          sees(Math.floor(i / kv), i % kv) ? 0 : Number.NEGATIVE_INFINITY,
        );
        expect(made?.dtype).toBe(dtype);
        expect(Array.from(made!.toDtype('f32').toArraySync<Float32Array>())).toEqual(expected);
      });
  });
});
