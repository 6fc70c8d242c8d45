/** What a layer's cache keeps of each position: tensors of rows, one or two for keys and as many for values. */
import { type Device, type DType, keep, scope, sizeInBytes, Tensor } from '@x/core';
import { CACHE_GROUP, type PagedCache } from '@x/nn';
import { type KvLayout, TransformersError } from '@x/transformers';

/** Positions of a block. */
export const BLOCK_SIZE = 32;

/** `q8_0`: 8 bits, and a scale of each 32 values of a head; half of f16. */
export type CacheDType = Extract<DType, 'f32' | 'f16' | 'bf16'> | 'q8_0';
/** All that a cache may be of. */
export const CACHE_DTYPES: readonly CacheDType[] = ['f32', 'f16', 'bf16', 'q8_0'];

export type RowName = 'keys' | 'values' | 'keyScales' | 'valueScales';

/** Of a position and head. */
export interface RowKind {
  width: number;
  dtype: DType;
}

/** The tensors of a layer, [positions, kvHeads, width]; values that are the first elements of keys are none. */
export function rowKinds(layout: KvLayout, dtype: CacheDType): [name: RowName, kind: RowKind][] {
  const { keyDim, valueDim, valuesInKeys } = layout;
  const of = (name: 'key' | 'value', width: number): [RowName, RowKind][] =>
    dtype === 'q8_0'
      ? [
          [`${name}s`, { width, dtype: 'u8' }],
          [`${name}Scales`, { width: width / CACHE_GROUP, dtype: 'f16' }],
        ]
      : [[`${name}s`, { width, dtype }]];
  return [...of('key', keyDim), ...(valuesInKeys ? [] : of('value', valueDim))];
}

/** Bytes of a key's or value's element, its share of a scale included. */
export function cacheElementBytes(dtype: CacheDType): number {
  return dtype === 'q8_0' ? sizeInBytes('u8') + sizeInBytes('f16') / CACHE_GROUP : sizeInBytes(dtype);
}

/** Bytes of keys and values of a position, all layers together; 0 of models without attention. */
export function positionBytesOf(layouts: readonly (KvLayout | undefined)[], dtype: CacheDType): number {
  const elements = layouts.map((layout) =>
    layout ? layout.kvHeads * (layout.keyDim + (layout.valuesInKeys ? 0 : layout.valueDim)) : 0,
  );
  return elements.reduce((sum, count) => sum + count, 0) * cacheElementBytes(dtype);
}

/** @throws TransformersError INVALID_OPTION for heads that a cache of this dtype cannot hold */
export function checkCacheDtype(layouts: readonly (KvLayout | undefined)[], dtype: CacheDType): void {
  const sizes = layouts.flatMap((layout) => (layout ? [layout.keyDim, layout.valueDim] : []));
  const odd = dtype === 'q8_0' ? sizes.find((size) => size % CACHE_GROUP !== 0) : undefined;
  if (odd === undefined) return;
  throw new TransformersError(
    'INVALID_OPTION',
    `cacheDtype is q8_0, which is for heads of a multiple of ${CACHE_GROUP} values; this model's have ${odd}. Give f16 instead.`,
  );
}

/** The cache of a layer as its tensors, those that keep something of their own. */
export function rowsOf(layout: KvLayout, { keys, values, scales }: PagedCache): [name: RowName, rows: Tensor][] {
  const own: [RowName, Tensor][] = [['keys', keys]];
  if (scales) own.push(['keyScales', scales.keys]);
  if (!layout.valuesInKeys) own.push(['values', values]);
  if (scales && !layout.valuesInKeys) own.push(['valueScales', scales.values]);
  return own;
}

/** Zeros for so many blocks, and in front what `from` holds. The caller disposes it. @throws OutOfMemoryError */
export function makeRows(
  layout: KvLayout,
  dtype: CacheDType,
  device: Device,
  blocks: number,
  from: PagedCache | undefined,
): PagedCache {
  const old = new Map(from ? rowsOf(layout, from) : []);
  const made = new Map<RowName, Tensor>();
  try {
    for (const [name, kind] of rowKinds(layout, dtype)) {
      const rows = scope(() => {
        const zeros = Tensor.zeros([blocks * BLOCK_SIZE, layout.kvHeads, kind.width], { dtype: kind.dtype, device });
        const before = old.get(name);
        if (before) zeros.narrow(0, 0, before.dim(0)).copyFrom(before);
        return keep(zeros);
      });
      made.set(name, rows);
    }
    const keys = made.get('keys')!;
    const values = made.get('values') ?? scope(() => keep(keys.narrow(2, 0, layout.valueDim)));
    const keyScales = made.get('keyScales');
    const scales = keyScales && { keys: keyScales, values: made.get('valueScales') ?? keyScales };
    return { keys, values, blockSize: BLOCK_SIZE, ...(scales && { scales }) };
  } catch (error) {
    for (const rows of made.values()) rows.dispose();
    throw error;
  }
}

export function disposeRows({ keys, values, scales }: PagedCache): void {
  for (const rows of [keys, values, scales?.keys, scales?.values]) rows?.dispose();
}
