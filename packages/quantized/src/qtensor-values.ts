/** Values of a weight as numbers: all, and rows at ids. On the device where it has kernels, else on the host. */
import { DeviceError, DTypeError, formatShape, isInt, Layout, ShapeError, Tensor } from '@x/core';
import { eachRow, gatherRows } from './host-ops';
import { type DenseDType, pack } from './load';
import type { QTensor } from './qtensor';
import { idsInside } from './tensors';

/** How many rows, and values of each. */
function rowsOf(weight: QTensor): [number, number] {
  const k = weight.shape.at(-1) ?? 1;
  return [k === 0 ? 0 : weight.elemCount / k, k];
}

/** What {@link QTensor.dequantize} gives. */
export function dequantized(weight: QTensor, dtype: DenseDType): Tensor {
  const { data } = weight;
  if (weight.kind === 'dense') return data.toDtype(dtype);
  const { backend } = weight.device;
  const { storage } = data.storageAndLayout();
  if (backend.quantized !== undefined) {
    const made = backend.quantized.dequantize(
      storage,
      weight.blockType,
      weight.elemCount,
      dtype === 'f16' ? 'f16' : 'f32',
    );
    const tensor = Tensor.fromStorage(made, weight.shape, weight.device);
    if (dtype !== 'bf16') return tensor;
    try {
      return tensor.toDtype('bf16');
    } finally {
      tensor.dispose();
    }
  }
  const [rows, k] = rowsOf(weight);
  const values = new Float32Array(weight.elemCount);
  eachRow(storage, weight.format, rows, k, (row, numbers) => values.set(numbers, row * k));
  return Tensor.fromStorage(backend.fromHost(pack(values, dtype), dtype), weight.shape, weight.device);
}

/** What {@link QTensor.embedding} gives. */
export function rowsAt(table: QTensor, ids: Tensor): Tensor {
  const { data, device } = table;
  if (table.rank !== 2) {
    throw new ShapeError(
      'SHAPE_MISMATCH',
      `QTensor.embedding: the table is ${formatShape(table.shape)}; it must be [rows, values]. Reshape the weight.`,
    );
  }
  if (!ids.device.equals(device)) {
    throw new DeviceError(
      'DEVICE_MISMATCH',
      `QTensor.embedding: the ids are on ${ids.device} and the table on ${device}. Move the ids with toDevice.`,
    );
  }
  if (table.kind === 'dense') {
    using picked = data.embedding(ids);
    return picked.toDtype('f32');
  }
  if (!isInt(ids.dtype)) {
    throw new DTypeError(
      'DTYPE_MISMATCH',
      `QTensor.embedding: the ids are ${ids.dtype}; convert them with toDtype('u32').`,
    );
  }
  const [rows, k] = rowsOf(table);
  const shape = [...ids.shape, k];
  const { backend } = device;
  const weight = data.storageAndLayout().storage;
  if (ids.elemCount * k === 0) return Tensor.fromStorage(backend.zeros(0, 'f32'), shape, device);
  using inside = idsInside('QTensor.embedding', ids, rows);
  const { storage, layout } = inside.storageAndLayout();
  if (backend.quantized !== undefined) {
    const list = { storage, layout: Layout.contiguous([ids.elemCount], layout.startOffset) };
    return Tensor.fromStorage(backend.quantized.embedding(weight, table.blockType, k, list), shape, device);
  }
  const numbers = new Uint32Array(storage.toHostSync(layout.startOffset, layout.elemCount));
  const values = gatherRows(weight, table.format, k, numbers);
  return Tensor.fromStorage(backend.fromHost(values, 'f32'), shape, device);
}
