/**
 * One-hot and one-cold rows: candle-nn's `encoding` (encoding.rs). candle writes them on the host; here the device compares
 * ids with positions, so nothing is copied back. An id outside the depth is an error as for other picks by index
 * (tensor/indexing.ts of core); its row is all off.
 */
import { CandleError, type DType, DTypeError, isInt, scope, Tensor } from '@x/core';
import { checkNumbers, checkTensors } from './check';

/**
 * Indices of any shape [...] to [..., depth]: `onValue` at each index, `offValue` elsewhere. The index -1 of a signed
 * dtype gives a row that is all off; one-cold rows have onValue 0 and offValue 1.
 * @param dtype of the result; default f32
 * @throws DTypeError for ids that are no integers; ShapeError INDEX_OUT_OF_RANGE where `Tensor.indexSelect` does
 */
export function oneHot(indices: Tensor, depth: number, onValue = 1, offValue = 0, dtype: DType = 'f32'): Tensor {
  checkTensors('oneHot', { indices });
  checkNumbers('oneHot', { depth, onValue, offValue });
  if (!isInt(indices.dtype)) {
    throw new DTypeError(
      'DTYPE_MISMATCH',
      `oneHot: indices are ${indices.dtype}; convert them with toDtype('u32') or toDtype('i64').`,
    );
  }
  if (!Number.isInteger(depth) || depth < 0) {
    throw new CandleError('INVALID_ARGUMENT', `oneHot: depth ${depth}; give a whole number from 0.`);
  }
  const { device } = indices;
  device.backend.ops.checkIds('oneHot', indices.storageAndLayout(), { size: depth, low: -1 });
  const shape = [...indices.shape, depth];
  return scope(() => {
    // Wide enough for every position: u8 and i16 ids may be compared with a depth that they cannot hold.
    const wide = indices.dtype === 'u8' || indices.dtype === 'u32' ? 'u32' : 'i64';
    const positions = Tensor.arange(0, depth, wide, device);
    const hit = indices.toDtype(wide).unsqueeze(-1).broadcastEq(positions);
    const on = Tensor.full(onValue, [], dtype, device).broadcastAs(shape);
    const off = Tensor.full(offValue, [], dtype, device).broadcastAs(shape);
    return hit.whereCond(on, off);
  });
}
