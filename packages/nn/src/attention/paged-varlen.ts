/**
 * Attention of parts of several sequences at once, such as prompts of different lengths, over a cache in blocks:
 * FlashAttention's `flash_attn_varlen_func` with a block table. What belongs to which sequence is said by tensors of the device,
 * tiles of queries, so a launch that was captured serves other lengths too. Not in candle, whose form of it has no blocks.
 */
import { CandleError, kinds, ShapeError, Tensor, UnsupportedError } from '@x/core';
import { checkNumbers, checkObjects, checkPositive, checkTensors } from '../check';
import { checkHeads, checkSinks, checkSoftcap } from './mask';
import type { PagedAttentionOptions } from './paged';
import { checkCache, type PagedCache, pagedPoolOf, poolDTypeOf } from './paged-cache';

/** Neighbouring rows of one sequence, or of none: those become 0. */
export interface VarlenPart {
  /** The first of its rows. */
  start: number;
  count: number;
  /** Keys in front of the first; -1: the rows are of no sequence. */
  before: number;
  /** Where the blocks of its sequence begin in {@link VarlenTables.tables}. */
  table: number;
}

/** Which rows and blocks belong to which sequence, on the cache's device. */
export interface VarlenTables {
  /** [count, 4], u32: {@link varlenTiles}. */
  tiles: Tensor;
  /** [blocks], u32: the blocks of each sequence, in order, one sequence after the other. */
  tables: Tensor;
}

/** Numbers of a tile. */
export const TILE_NUMBERS = 4;

/** Rows of a tile at most, where the cache's device has a kernel for it; undefined: {@link pagedVarlen} throws. */
export function varlenRows(cache: PagedCache): number | undefined {
  checkObjects('varlenRows', { cache });
  checkCache('varlenRows', cache);
  const { keys, values } = cache;
  const isInside = hasValuesInside(cache);
  const alike = keys.dim(2) === values.dim(2);
  if (!keys.isContiguous() || !(isInside || (alike && values.isContiguous()))) return undefined;
  return keys.device.backend.pagedAttention?.varlenRows(poolDTypeOf(cache), keys.dim(2), values.dim(2));
}

/** Whether values are the first columns of the keys. */
function hasValuesInside({ keys, values }: PagedCache): boolean {
  const [key, value] = [keys.storageAndLayout(), values.storageAndLayout()];
  return key.storage === value.storage && key.layout.startOffset === value.layout.startOffset;
}

/**
 * Tiles of up to `rows` rows, those with most keys first: {@link TILE_NUMBERS} numbers each.
 * @throws CandleError `INVALID_ARGUMENT`
 */
export function varlenTiles(parts: readonly VarlenPart[], rows: number): Uint32Array {
  kinds.check('varlenTiles', 'parts', parts, PARTS);
  checkPositive('varlenTiles', { rows });
  const tiles = parts.flatMap(({ start, count, before, table }) =>
    Array.from({ length: Math.ceil(count / rows) }, (_, i) => [
      start + i * rows,
      Math.min(rows, count - i * rows),
      before < 0 ? 0 : before + i * rows + 1,
      table,
    ]),
  );
  tiles.sort((a, b) => b[1] + b[2] - (a[1] + a[2]));
  return Uint32Array.from(tiles.flat());
}

const PARTS = kinds.kind(
  (value) => Array.isArray(value) && value.every(isPart),
  'give an array of { start, count, before, table }, whole numbers below 2^31',
);

function isPart(value: unknown): boolean {
  if (typeof value !== 'object' || value === null) return false;
  const { start, count, before, table } = value as VarlenPart;
  const isWhole = (number: number, least: number) => Number.isInteger(number) && number >= least && number < 2 ** 31;
  return isWhole(start, 0) && isWhole(count, 0) && isWhole(before, -1) && isWhole(table, 0);
}

/**
 * Each row looks at the keys of its sequence up to its own; keys and values of all rows are in the cache.
 * @param q [tokens, heads, d], of the cache's dtype, heads a multiple of kvHeads
 * @param at tiles that name each row once
 * @returns [tokens, heads, dv]
 * @throws ShapeError `SHAPE_MISMATCH`; CandleError `INVALID_ARGUMENT`; UnsupportedError where {@link varlenRows} is undefined
 */
export function pagedVarlen(
  q: Tensor,
  cache: PagedCache,
  at: VarlenTables,
  options: Omit<PagedAttentionOptions, 'rows'> = {},
): Tensor {
  const op = 'pagedVarlen';
  checkObjects(op, { at, options });
  const { tiles, tables } = at;
  checkTensors(op, { q, tiles, tables });
  const rows = varlenRows(cache);
  const { keys } = cache;
  const { device } = keys;
  const [, kvHeads, d] = keys.shape;
  const fits = q.rank === 3 && q.dim(2) === d && tiles.rank === 2 && tiles.dim(1) === TILE_NUMBERS && tables.rank === 1;
  if (!fits) {
    throw new ShapeError(
      'SHAPE_MISMATCH',
      `${op}: queries [${q.shape}], keys [${keys.shape}], tiles [${tiles.shape}], tables [${tables.shape}]; ` +
        `give [tokens, heads, d], [slots, kvHeads, d], [count, ${TILE_NUMBERS}] and [blocks].`,
    );
  }
  const [tokens, heads] = q.shape;
  checkHeads(op, heads, kvHeads);
  const { scale = 1 / Math.sqrt(d), window, softcap, sinks } = options;
  checkNumbers(op, { scale });
  if (!(scale > 0)) throw new CandleError('INVALID_ARGUMENT', `${op}: scale is ${scale}; give a positive number.`);
  if (window !== undefined) checkPositive(op, { window });
  checkSoftcap(op, softcap);
  checkSinks(op, sinks, heads);
  for (const [name, ids] of Object.entries({ tiles, tables })) {
    if (ids.dtype === 'u32' && ids.isContiguous() && ids.device === device) continue;
    throw new CandleError('INVALID_ARGUMENT', `${op}: give contiguous ${name} of u32 on the cache's device.`);
  }
  if (sinks && (sinks.dtype !== 'f32' || !sinks.isContiguous() || sinks.device !== device))
    throw new CandleError('INVALID_ARGUMENT', `${op}: give contiguous sinks of f32 on the cache's device.`);
  if (rows === undefined || q.dtype !== keys.dtype || q.device !== device) {
    throw new UnsupportedError(
      'UNSUPPORTED',
      `${op}: there is no kernel for queries of ${q.dtype} and a cache of ${keys.dtype} with heads of ${d} values on this ${device.kind} device; ` +
        'ask varlenRows, and use pagedAttention where it is undefined.',
    );
  }
  const problem = {
    ...{ tokens, heads, scale, window: window ?? 0, softcap: softcap ?? 0 },
    ...(sinks && { sinks: sinks.storagePart() }),
  };
  const out = device.backend.pagedAttention!.attendVarlen(problem, q.storageAndLayout(), pagedPoolOf(cache), {
    tiles: tiles.storagePart(),
    count: tiles.dim(0),
    tables: tables.storagePart(),
  });
  return Tensor.fromStorage(out, [tokens, heads, cache.values.dim(2)], device);
}
