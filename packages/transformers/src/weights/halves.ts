/** Matrices in f16 and bf16: which devices have a model's as they are in its file, where nobody asks for a dtype. */
import { Device, type DeviceLike, elemCount, type Shape, sizeInBytes } from '@x/core';
import type { TensorReader } from '@x/core/files';

/** Whether a device multiplies such matrices by activations of f32; elsewhere they become f32. */
export function keepsHalves(device: DeviceLike): boolean {
  return Device.of(device).backend.linear !== undefined;
}

/** Whether a file has such matrices: two bytes an element. */
export function holdsHalves(file: TensorReader): boolean {
  return file.names.some((name) => {
    const { shape, byteLength } = file.info(name);
    return shape.length > 1 && byteLength > 0 && byteLength === 2 * elemCount(shape);
  });
}

/** Bytes that numbers of a file take as a weight on a device; those that are no matrix become f32. @param type as in the file */
export function numberBytes(type: string, shape: Shape, device: DeviceLike): number {
  const isHalf = shape.length > 1 && ['f16', 'bf16'].includes(type.toLowerCase());
  return elemCount(shape) * sizeInBytes(isHalf && keepsHalves(device) ? 'f16' : 'f32');
}
