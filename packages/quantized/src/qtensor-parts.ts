/** Weights put one below the other, and parts of a weight: in blocks as they are, nothing is quantised again. */
import { elemCount, formatShape, ShapeError, scope, Tensor } from '@x/core';
import { byteLengthOf } from './blocks';
import { allocateBlocks } from './load';
import { partShape, type TensorPart } from './part';
import type { QTensor } from './qtensor';

/** What {@link QTensor.stack} gives. */
export function stacked(parts: readonly QTensor[]): QTensor {
  const [first] = parts;
  const alike = ({ type, data, rank, shape }: QTensor) =>
    rank === 2 && type === first.type && data.dtype === first.data.dtype && shape[1] === first.shape[1];
  if (first === undefined || !parts.every(alike)) {
    const found = parts.map(({ type, shape }) => `${type} ${formatShape(shape)}`).join(', ');
    throw new ShapeError(
      'SHAPE_MISMATCH',
      `QTensor.stack: ${found || 'nothing'} does not stack. Give matrices of one type and width.`,
    );
  }
  const shape = [parts.reduce((sum, part) => sum + part.shape[0], 0), first.shape[1]];
  const datas = parts.map(({ data }) => data);
  if (first.kind === 'dense') return first.withData(shape, Tensor.cat(datas, 0));
  const { device, blockType } = first;
  const bytes = datas.reduce((sum, data) => sum + data.elemCount, 0);
  const stacked = Tensor.fromStorage(allocateBlocks(device, blockType, elemCount(shape)), [bytes], device);
  try {
    let at = 0;
    for (const data of datas) {
      // Rows are whole blocks, so stacking is appending.
      stacked.sliceSet(data, 0, at);
      at += data.elemCount;
    }
    return first.withData(shape, stacked);
  } catch (error) {
    stacked.dispose();
    throw error;
  }
}

/** What {@link QTensor.part} gives. */
export function partOf(weight: QTensor, part: TensorPart): QTensor {
  const { format, shape, data, device } = weight;
  const dims = partShape(format, shape, part);
  const outer = elemCount(shape.slice(0, part.dim));
  const inner = weight.kind === 'dense' ? elemCount(shape.slice(part.dim + 1)) : undefined;
  // Of blocks, an index of the dimension is bytes; of the last dimension, which is blocks, each block is one.
  const isLast = part.dim === shape.length - 1;
  const unit = inner === undefined && isLast ? format.blockSize : 1;
  const width = inner ?? byteLengthOf(format, isLast ? format.blockSize : elemCount(shape.slice(part.dim + 1)));
  const used = outer * (shape[part.dim] / unit) * width;
  using flat = scope(() => {
    const all = data
      .flattenAll()
      .narrow(0, 0, used)
      .reshape([outer, shape[part.dim] / unit, width]);
    const taken = part.ranges.map(({ start, count }) => all.narrow(1, start / unit, count / unit));
    return Tensor.cat(taken, 1).flattenAll();
  });
  if (weight.kind === 'dense') return weight.withData(dims, flat.reshape(dims));
  const made = Tensor.fromStorage(allocateBlocks(device, weight.blockType, elemCount(dims)), [flat.elemCount], device);
  try {
    made.sliceSet(flat, 0, 0);
    return weight.withData(dims, made);
  } catch (error) {
    made.dispose();
    throw error;
  }
}
