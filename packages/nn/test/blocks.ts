/** What tests of kernels between products share: made-up numbers, and what blocks of activations hold. */
import { type QuantizedActivations, Tensor } from '@x/core';

/** Numbers up to 1.3 in absolute value, on `js`. */
export function noise(shape: readonly number[], seed: number): Tensor {
  const count = shape.reduce((product, size) => product * size, 1);
  return Tensor.from(
    new Float32Array(count).map((_, i) => Math.sin(i * 12.9898 + seed * 78.233) * 1.3),
    { shape, device: 'js' },
  );
}

/** [rows, width], f32, on `js`. Blocks are q8_1 with rows of a multiple of 512 values; a device may have numbers instead. */
export function valuesOf({ blocks, rows, width }: QuantizedActivations): Tensor {
  const stored = blocks.toDeviceSync('js');
  if (stored.dtype !== 'u8') return stored.toDtype('f32').reshape([rows, width]);
  const bytes = stored.flattenAll().toVecSync() as Uint8Array;
  const view = new DataView(Uint8Array.from(bytes).buffer);
  const rowBytes = ((Math.ceil(width / 512) * 512) / 32) * 36;
  const values = new Float32Array(rows * width).map((_, i) => {
    const at = Math.floor(i / width) * rowBytes + Math.floor((i % width) / 32) * 36;
    return halfOf(view.getUint16(at, true)) * view.getInt8(at + 4 + (i % 32));
  });
  return Tensor.from(values, { shape: [rows, width], device: 'js' });
}

function halfOf(bits: number): number {
  const [exponent, fraction] = [(bits >> 10) & 31, bits & 1023];
  return exponent === 0 ? fraction * 2 ** -24 : (1 + fraction / 1024) * 2 ** (exponent - 15);
}
