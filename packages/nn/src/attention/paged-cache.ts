/** The blocks of a key-value cache: what they are, and whether tensors are such. */
import { CandleError, kinds, type PagedPool, type PoolDType, ShapeError, type Tensor } from '@x/core';
import { checkTensors } from '../check';

/** The blocks of one layer's cache. */
export interface PagedCache {
  /** [blocks · blockSize, kvHeads, d], contiguous */
  keys: Tensor;
  /** [blocks · blockSize, kvHeads, dv], contiguous, of the same dtype; or a view of the keys, their first dv elements. */
  values: Tensor;
  /** Positions of a block: a power of two. */
  blockSize: number;
  /**
   * Of a cache in 8 bits (`q8_0`), whose keys and values are u8: each is the value over its scale, and 128. A scale of each 32 values
   * of a head, [blocks · blockSize, kvHeads, d / 32] and [.., dv / 32], f16, contiguous; the same tensor twice where values are a view of the keys.
   */
  scales?: { keys: Tensor; values: Tensor };
}

/** Values that share a scale in a cache in 8 bits. */
export const CACHE_GROUP = 32;

export function checkCache(op: string, { keys, values, blockSize, scales }: PagedCache): void {
  checkTensors(op, { keys, values });
  if (scales !== undefined) checkScales(op, keys, values, scales);
  const power = Number.isInteger(blockSize) && blockSize >= 1 && Number.isInteger(Math.log2(blockSize));
  if (!power) throw new CandleError('INVALID_ARGUMENT', `${op}: blockSize is ${blockSize}; give a power of two.`);
  const alike = keys.rank === 3 && values.rank === 3 && keys.dim(0) === values.dim(0) && keys.dim(1) === values.dim(1);
  if (alike && keys.dtype === values.dtype && keys.dim(0) > 0 && keys.dim(0) % blockSize === 0) return;
  throw new ShapeError(
    'SHAPE_MISMATCH',
    `${op}: a cache of keys [${keys.shape}] (${keys.dtype}) and values [${values.shape}] (${values.dtype}) in blocks of ${blockSize}; ` +
      'give [blocks * blockSize, kvHeads, d] and [blocks * blockSize, kvHeads, dv] of one dtype.',
  );
}

const SCALES = kinds.kind(
  (value) => typeof value === 'object' && value !== null,
  'give { keys, values }, the scales of a cache in 8 bits',
);

function checkScales(op: string, keys: Tensor, values: Tensor, scales: NonNullable<PagedCache['scales']>): void {
  kinds.check(op, 'scales', scales, SCALES);
  checkTensors(op, { 'scales.keys': scales.keys, 'scales.values': scales.values });
  const fits = (rows: Tensor, own: Tensor) => {
    const width = Math.floor(rows.dim(2) / CACHE_GROUP);
    const isView = own === scales.keys && rows === values && rows.dim(2) <= keys.dim(2);
    const shape = [rows.dim(0), rows.dim(1), isView ? keys.dim(2) / CACHE_GROUP : width];
    return (
      rows.rank === 3 && rows.dim(2) % CACHE_GROUP === 0 && rows.dtype === 'u8' && own.shape.join() === shape.join()
    );
  };
  const right = [scales.keys, scales.values].every((own) => own.dtype === 'f16');
  if (right && keys.rank === 3 && fits(keys, scales.keys) && fits(values, scales.values)) return;
  throw new ShapeError(
    'SHAPE_MISMATCH',
    `${op}: scales [${scales.keys.shape}] and [${scales.values.shape}] (${scales.keys.dtype}, ${scales.values.dtype}) for keys ` +
      `[${keys.shape}] (${keys.dtype}) and values [${values.shape}] (${values.dtype}); give u8 of heads of a multiple of ` +
      `${CACHE_GROUP} values, and f16 [slots, kvHeads, d / ${CACHE_GROUP}].`,
  );
}

/** What a cache is of, as kernels' names have it. */
export function poolDTypeOf({ keys, scales }: PagedCache): PoolDType {
  return scales ? 'q8_0' : keys.dtype;
}

/** A cache as kernels see it. */
export function pagedPoolOf({ keys, values, blockSize, scales }: PagedCache): PagedPool {
  const [slots, kvHeads, d] = keys.shape;
  return {
    keys: keys.storagePart(),
    values: values.storagePart(),
    ...(scales && { scales: { keys: scales.keys.storagePart(), values: scales.values.storagePart() } }),
    valueRow: values.storageAndLayout().layout.strides[1],
    blocks: slots / blockSize,
    blockSize,
    kvHeads,
    d,
    dv: values.dim(2),
  };
}
