/** What comes before a weight is on a device: checks of its type and shape, and how its bytes get there. */
import {
  type BackendStorage,
  Device,
  type DeviceLike,
  elemCount,
  formatShape,
  isBlockType,
  ShapeError,
  Tensor,
} from '@x/core';
import { type BlockFormat, blockFormat, byteLengthOf, type QuantType } from './blocks';
import { allocateBlocks, type Loader, loadDense, loadSame, type Pieces, placement } from './load';
import { mxfp4PartShape, mxfp4Pieces, type PartReader } from './mxfp4';
import type { Mxfp4LoadOptions, QTensorOptions } from './qtensor-options';
import { checkQuantize, knownFormat, type QuantizeOptions } from './quantize';

/** Type, shape and memory of a weight. */
type Made = [type: QuantType, shape: readonly number[], data: Tensor];

/** @throws UnsupportedError for an unknown type; ShapeError where rows are no whole blocks */
export function checkedFormat(op: string, type: QuantType, shape: readonly number[]): BlockFormat {
  const format = knownFormat(op, type);
  const k = shape.at(-1) ?? 1;
  if (k % format.blockSize === 0) return format;
  throw new ShapeError(
    'SHAPE_MISMATCH',
    `${op}: rows of ${k} values (shape ${formatShape(shape)}) are no whole number of ${type} blocks of ` +
      `${format.blockSize}. Choose a type with smaller blocks, such as q8_0 (32) or f16 (1).`,
  );
}

/** The format, and the rows and their length, of a tensor that can be quantised so. */
export function quantizable(op: string, tensor: Tensor, type: QuantType, options: QuantizeOptions) {
  const format = checkedFormat(op, type, tensor.shape);
  const k = tensor.shape.at(-1) ?? 1;
  const rows = k === 0 ? 0 : tensor.elemCount / k;
  checkQuantize(op, format, k, rows, options.importance);
  return { format, rows, k };
}

/**
 * How the bytes get to the device, and what is made of the storage that comes of it. With `allocate` they stay as they are.
 */
export function prepare(
  format: BlockFormat,
  shape: readonly number[],
  target: DeviceLike,
  pieces: Pieces,
  options: QTensorOptions,
): { loader: Loader; allocate?: () => BackendStorage; make: (storage: BackendStorage) => Made } {
  const device = Device.of(target);
  const { type } = format;
  const count = elemCount(shape);
  const wrap = (storage: BackendStorage, dims: readonly number[]): Made => [
    type,
    shape,
    Tensor.fromStorage(storage, dims, device),
  ];
  if (type === 'f32' || type === 'f16' || type === 'bf16') {
    const allocate = () => device.backend.allocUninit(count, type);
    return { loader: loadSame(device, allocate, pieces), allocate, make: (storage) => wrap(storage, shape) };
  }
  if (!isBlockType(type) || placement(device.backend, format) === 'dense') {
    const loader = loadDense(device, format, options.dense ?? 'f32', count, pieces);
    return { loader, make: (storage) => wrap(storage, shape) };
  }
  const allocate = () => allocateBlocks(device, type, count);
  const make = (storage: BackendStorage) => wrap(storage, [byteLengthOf(format, count)]);
  return { loader: loadSame(device, allocate, pieces), allocate, make };
}

export function prepareMxfp4(
  file: PartReader,
  name: string,
  device: DeviceLike,
  { part, ...options }: Mxfp4LoadOptions,
) {
  const shape = mxfp4PartShape(file, name, part);
  return prepare(blockFormat('mxfp4'), shape, device, mxfp4Pieces(file, name, part), options);
}
