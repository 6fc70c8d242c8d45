/** Tensors as the suites make them, on one device. */
import { type Device, type DType, elemCount, type Shape, Tensor, type TensorData } from '@x/core';

export function makers(device: () => Device) {
  return {
    /** Nested values or a typed array. */
    from: (data: TensorData, dtype?: DType) => Tensor.from(data, { dtype, device: device() }),
    /** Values in row-major order. */
    shaped: (data: readonly number[], shape: Shape, dtype: DType = 'f32') =>
      Tensor.from(data, { shape, dtype, device: device() }),
    zeros: (shape: Shape, dtype: DType = 'f32') => Tensor.zeros(shape, dtype, device()),
    ones: (shape: Shape, dtype: DType = 'f32') => Tensor.ones(shape, dtype, device()),
    /** start, start + 1, ... in a shape. */
    counted: (shape: Shape, dtype: DType = 'f32', start = 0) =>
      Tensor.arange(start, start + elemCount(shape), dtype, device()).reshape(shape),
    randn: (shape: Shape, dtype: DType = 'f32') => Tensor.randn(0, 1, shape, dtype, device()),
  };
}
