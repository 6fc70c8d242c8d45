/** Operands and expectations of the tests of what lies between products. */
import { type BackendStorage, type Device, type DType, Layout, type StoragePart } from '@x/core';
import { at } from '@x/testing/operands';
import { expect } from 'vitest';

/** Values that rows in blocks are padded to a multiple of. */
const PADDING = 512;
export const EPS = 1e-5;

/** Operands on a device, and what is in its storages. */
export function memory(device: Device) {
  const { backend } = device;
  const made: BackendStorage[] = [];
  return {
    /** Values from an element on, with as many before them. */
    part(values: Float32Array | Uint32Array, offset = 0): StoragePart {
      const padded =
        values instanceof Float32Array ? new Float32Array(values.length + offset) : new Uint32Array(values.length);
      padded.set(values, offset);
      const storage = backend.fromHost(padded, values instanceof Float32Array ? 'f32' : 'u32');
      made.push(storage);
      return [storage, offset];
    },
    numbers(storage: BackendStorage): Float32Array {
      const wide = storage.device.ops.toDtype(
        at(storage, Layout.contiguous([storage.elemCount])),
        'f32' satisfies DType,
      );
      const values = new Float32Array(wide.toHostSync());
      wide.dispose();
      return values;
    },
    disposeAll() {
      for (const storage of made.splice(0)) storage.dispose();
    },
  };
}

export function noise(count: number, seed: number, range = 1.5): Float32Array {
  return new Float32Array(count).map((_, i) => Math.sin(i * 12.9898 + seed * 78.233) * range);
}

export function rmsNorm(x: ArrayLike<number>, alpha: ArrayLike<number>, n: number): Float64Array {
  const out = new Float64Array(x.length);
  for (let row = 0; row < x.length; row += n) {
    let squares = 0;
    for (let i = 0; i < n; i++) squares += x[row + i] ** 2;
    for (let i = 0; i < n; i++) out[row + i] = (x[row + i] / Math.sqrt(squares / n + EPS)) * alpha[i];
  }
  return out;
}

export const silu = (x: number) => x / (1 + Math.exp(-x));
export const gelu = (x: number) => 0.5 * x * (1 + Math.tanh(Math.sqrt(2 / Math.PI) * x * (1 + 0.044715 * x * x)));

/** Every value within `tolerance`, relative where it is larger than 1. */
export function expectNear(
  actual: ArrayLike<number>,
  expected: ArrayLike<number>,
  tolerance: number,
  label: string,
): void {
  expect(actual.length, label).toBe(expected.length);
  let worst = 0;
  for (let i = 0; i < actual.length; i++) {
    const error = Math.abs(actual[i] - expected[i]) / Math.max(1, Math.abs(expected[i]));
    if (!(error <= worst)) worst = error;
  }
  expect(worst, label).toBeLessThan(tolerance);
}

/** q8_1 blocks of rows padded with zeros: f16 scale, f16 sum of the values, 32 int8. */
export function expectBlocks(
  storage: BackendStorage,
  rows: number,
  n: number,
  expected: Float64Array,
  label: string,
): void {
  const padded = Math.ceil(n / PADDING) * PADDING;
  const bytes = new DataView(storage.toHostSync());
  const half = (at: number) => f16(bytes.getUint16(at, true));
  for (let row = 0; row < rows; row++) {
    for (let g = 0; g < padded / 32; g++) {
      const at = ((row * padded) / 32 + g) * 36;
      const values = Array.from({ length: 32 }, (_, i) => (g * 32 < n ? expected[row * n + g * 32 + i] : 0));
      const largest = Math.max(...values.map(Math.abs));
      const [scale, sum] = [half(at), half(at + 2)];
      const where = `${label}, row ${row}, block ${g}`;
      expect(Math.abs(scale - largest / 127), where).toBeLessThanOrEqual(largest * 1e-5 + 1e-7);
      const total = values.reduce((a, b) => a + b, 0);
      expect(Math.abs(sum - total), where).toBeLessThanOrEqual(largest * 0.02);
      let worst = 0;
      values.forEach((value, i) => {
        worst = Math.max(worst, Math.abs(bytes.getInt8(at + 4 + i) * scale - value));
      });
      expect(worst, where).toBeLessThanOrEqual(largest / 220);
    }
  }
}

function f16(bits: number): number {
  const [exponent, fraction] = [(bits >> 10) & 31, bits & 1023];
  const magnitude = exponent === 0 ? fraction * 2 ** -24 : (1 + fraction / 1024) * 2 ** (exponent - 15);
  return bits & 0x8000 ? -magnitude : magnitude;
}

/** Blocks of 32 values with the scale 1/64, which f16 holds. */
export function q8_0(values: Float32Array): Uint8Array {
  const blocks = new Uint8Array((values.length / 32) * 34);
  const view = new DataView(blocks.buffer);
  for (let g = 0; g < values.length / 32; g++) {
    view.setUint16(g * 34, 0x2400, true);
    for (let i = 0; i < 32; i++) view.setInt8(g * 34 + 2 + i, Math.round(values[g * 32 + i] * 64));
  }
  return blocks;
}
