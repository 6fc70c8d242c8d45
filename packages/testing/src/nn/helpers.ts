import { Device, Tensor } from '@x/core';
import { expect } from 'vitest';
import { testDevices } from '../devices';
import { random } from '../random';

/** Names, for devices may be closed between the files that share a process. */
export const deviceNames = testDevices().map(String);
export const openDevice = (name: string) => Device.parse(name);

export function expectClose(
  actual: Tensor,
  shape: readonly number[],
  expected: ArrayLike<number>,
  tolerance = 1e-5,
): void {
  expect(actual.shape).toEqual(shape);
  const values = actual.toArraySync<Float32Array>();
  for (let i = 0; i < expected.length; i++) {
    const message = `element ${i} is ${values[i]}, expected ${expected[i]}`;
    expect(Math.abs(values[i] - expected[i]), message).toBeLessThanOrEqual(
      tolerance * Math.max(1, Math.abs(expected[i])),
    );
  }
}

/** Values that look random and are the same each time, in [-1, 1). */
export function values(count: number, seed = 1): Float32Array {
  const next = random(seed);
  return new Float32Array(count).map(() => 2 * next() - 1);
}

export function tensor(data: ArrayLike<number>, shape: readonly number[], device: Device): Tensor {
  return Tensor.from(Float32Array.from(data), { shape, device });
}

/** Makes f32 tensors on a device that is opened later: from data, and with {@link values} of a seed. */
export function tensorMakers(device: () => Device) {
  const from = (data: Parameters<typeof Tensor.from>[0], shape?: number[]) =>
    Tensor.from(data, { shape, device: device(), dtype: 'f32' });
  const rand = (shape: number[], seed: number) =>
    from(
      values(
        shape.reduce((a, b) => a * b, 1),
        seed,
      ),
      shape,
    );
  return { from, rand };
}
