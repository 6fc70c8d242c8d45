/**
 * Attention over a cache in blocks: the keys and values of a sequence lie in blocks of a pool that its row of a table names
 * in order, so that sequences grow, share what they have in common, and are computed together whatever their lengths. Not
 * in candle; after vLLM's paged attention. Lengths and tables are tensors of the device and no launch depends on what they
 * hold, so a step that was captured serves every length that its tables have room for.
 *
 * Devices without kernels for it gather the blocks and compute {@link sdpa} with a mask. No gradients.
 */
import {
  CandleError,
  fusedKernels,
  type HeadsProblem,
  kinds,
  type PagedAttentionOps,
  type PagedProblem,
  type PagedTables,
  QuantizedActivations,
  ShapeError,
  scope,
  Tensor,
} from '@x/core';
import { checkNumbers, checkPositive, checkTensors } from '../check';
import { checkHeads, checkSinks, checkSoftcap } from './mask';
import { checkCache, type PagedCache, pagedPoolOf, poolDTypeOf } from './paged-cache';
import { groupsOf, pagedUnpack } from './paged-groups';
import { sdpa } from './sdpa';

export interface PagedAttentionOptions {
  /** Row of the tables for each token: [tokens], u32. Default: token i has row i, as when each sequence has one. */
  rows?: Tensor;
  /** Multiplies the scores. Default 1 / sqrt(d). */
  scale?: number;
  /** A query sees this many keys at most, its own included. Default: all. */
  window?: number;
  /** Scores become cap · tanh(scores / cap). Default: they stay. */
  softcap?: number;
  /** A score of each head that takes its share of the softmax and has no value (attention sinks): [heads]. Default: none. */
  sinks?: Tensor;
}

/**
 * Each token looks at the keys of its sequence up to its own.
 * @param q [tokens, heads, d], heads a multiple of kvHeads; f32, f16 or bf16
 * @param tables [sequences, maxBlocks], u32: the blocks of a sequence in order; what lies behind its length is not read
 * @param lengths [tokens], u32: keys that the token sees, its own included; 0 gives zeros
 * @returns [tokens, heads, dv] in q's dtype
 * @throws ShapeError `SHAPE_MISMATCH` for shapes that do not fit; CandleError `INVALID_ARGUMENT` for a size of a block that is no power of two, other ids than u32, or bad options
 */
export function pagedAttention(
  q: Tensor,
  cache: PagedCache,
  tables: Tensor,
  lengths: Tensor,
  options: PagedAttentionOptions = {},
): Tensor {
  checkTensors('pagedAttention', { q });
  const problem = check('pagedAttention', q.shape, cache, tables, lengths, options);
  const [tokens, heads] = q.shape;
  const { values } = cache;
  const kernels = kernelsFor(q, cache, [tables, lengths], options);
  if (!kernels?.supports(q.dtype, poolDTypeOf(cache), q.dim(2), values.dim(2)))
    return composed(q, cache, tables, lengths, { ...options, scale: problem.scale });
  const out = kernels.attend(problem, q.storageAndLayout(), pagedPoolOf(cache), tablesOf(tables, lengths, options));
  return Tensor.fromStorage(out, [tokens, heads, values.dim(2)], q.device);
}

/**
 * {@link pagedAttention} as the product behind it reads it, [tokens, heads · dv]: in the blocks of its device where kernels make
 * these, else as numbers.
 */
export function pagedActivations(
  q: Tensor,
  cache: PagedCache,
  tables: Tensor,
  lengths: Tensor,
  options: PagedAttentionOptions = {},
): Tensor | QuantizedActivations {
  checkTensors('pagedActivations', { q });
  const problem = check('pagedActivations', q.shape, cache, tables, lengths, options);
  const [tokens, heads] = q.shape;
  const { values } = cache;
  const width = heads * values.dim(2);
  const kernels = fusedKernels(q.device, 'pagedAttention') && kernelsFor(q, cache, [tables, lengths], options);
  if (!kernels?.supportsBlocks(q.dtype, poolDTypeOf(cache), q.dim(2), values.dim(2))) {
    return scope(() => pagedAttention(q, cache, tables, lengths, options).reshape([tokens, width]));
  }
  const at = tablesOf(tables, lengths, options);
  const blocks = kernels.attendInBlocks(problem, q.storageAndLayout(), pagedPoolOf(cache), at);
  return new QuantizedActivations(Tensor.fromStorage(blocks, [blocks.elemCount], q.device), tokens, width);
}

/** Places of single tokens in a cache, no two of one sequence. Of u32. */
export interface PagedStep {
  /** [tokens]: that of each sequence's last position */
  slots: Tensor;
  /** [tokens, maxBlocks] and [tokens], as {@link pagedAttention} has them */
  tables: Tensor;
  lengths: Tensor;
}

/** {@link pagedActivations} of queries that `heads` makes, which also fills `slots`; undefined where no kernel does both. */
export function pagedStep(
  heads: HeadsProblem,
  cache: PagedCache,
  { tables, lengths }: PagedStep,
  options: Omit<PagedAttentionOptions, 'rows' | 'scale'>,
): QuantizedActivations | undefined {
  const { keys, values } = cache;
  const [d, dv] = [keys.dim(2), values.dim(2)];
  const problem = check('headsAttend', [heads.tokens, heads.heads, d], cache, tables, lengths, options);
  const { device } = keys;
  const kernels = device.backend.pagedAttention;
  const { sinks } = options;
  const operands = [values, tables, lengths, ...(sinks ? [sinks] : [])];
  const whole = operands.every((tensor) => tensor.device === device && tensor.isContiguous());
  if (!whole || (sinks && sinks.dtype !== 'f32') || !kernels?.supportsStep(poolDTypeOf(cache), d, dv)) return undefined;
  const blocks = kernels.step(heads, problem, pagedPoolOf(cache), tablesOf(tables, lengths, {}));
  return new QuantizedActivations(
    Tensor.fromStorage(blocks, [blocks.elemCount], device),
    heads.tokens,
    heads.heads * dv,
  );
}

/** Whether {@link pagedPrompt} is one kernel, and that the faster way. */
export function fusesPrompt(q: Tensor, cache: PagedCache): boolean {
  kinds.check('fusesPrompt', 'cache', cache, kinds.OBJECT);
  const { keys, values } = cache;
  checkTensors('fusesPrompt', { q, keys, values });
  // On the host two products of matrices are faster.
  const { device, dtype } = q;
  if (device.kind === 'cpu' || dtype !== 'f32') return false;
  return device.backend.pagedAttention?.supportsPrompt(poolDTypeOf(cache), keys.dim(2), values.dim(2)) ?? false;
}

/**
 * Attention of many tokens of one sequence, whose keys and values are in the cache with those in front of them: each looks at
 * the keys up to its own.
 * @param q [heads, tokens, d], heads a multiple of kvHeads; f32, f16 or bf16
 * @param table [blocks], u32: the blocks of the sequence in order, as many as before + tokens positions have or more
 * @param before keys in front of the first token
 * @returns [tokens, heads, dv] in q's dtype
 * @throws as {@link pagedAttention}
 */
export function pagedPrompt(
  q: Tensor,
  cache: PagedCache,
  table: Tensor,
  before: number,
  options: Omit<PagedAttentionOptions, 'rows'> = {},
): Tensor {
  const op = 'pagedPrompt';
  checkTensors(op, { q, table });
  kinds.check(op, 'cache', cache, kinds.OBJECT);
  kinds.check(op, 'before', before, kinds.COUNT);
  const [heads, tokens] = q.shape;
  const { device } = q;
  const room = table.dim(0) * cache.blockSize;
  if (q.rank !== 3 || table.rank !== 1 || before + tokens > room) {
    throw new ShapeError(
      'SHAPE_MISMATCH',
      `${op}: queries [${q.shape}] behind ${before} keys, and a table [${table.shape}] of blocks of ${cache.blockSize}; ` +
        'give [heads, tokens, d] and a block for every position.',
    );
  }
  return scope(() => {
    const queries = q.transpose(0, 1);
    const problem = problemOf(op, queries.shape, cache, options);
    checkIds(op, 'table', table);
    const kernels = kernelsFor(queries, cache, [table], options);
    const { keys, values } = cache;
    if (q.dtype !== 'f32' || !kernels?.supportsPrompt(poolDTypeOf(cache), keys.dim(2), values.dim(2))) {
      const rows = Tensor.zeros([tokens], 'u32', device);
      const lengths = Tensor.arange(before + 1, before + tokens + 1, 'u32', device);
      return pagedAttention(queries, cache, table.unsqueeze(0), lengths, { ...options, rows });
    }
    const at = { ...problem, before };
    const out = kernels.attendPrompt(at, q.storageAndLayout(), pagedPoolOf(cache), table.storagePart());
    return Tensor.fromStorage(out, [tokens, heads, values.dim(2)], device);
  });
}

/** The device's kernels, where operands are as these want them. */
function kernelsFor(
  q: Tensor,
  { keys, values, scales }: PagedCache,
  ids: readonly Tensor[],
  { rows, sinks }: PagedAttentionOptions,
): PagedAttentionOps | undefined {
  const { device } = q;
  const groups = scales ? [scales.keys, scales.values] : [];
  const operands = [q, keys, values, ...groups, ...ids, ...(rows ? [rows] : []), ...(sinks ? [sinks] : [])];
  const whole = operands.every(
    (tensor) => tensor.device === device && (tensor === q || tensor === values || tensor.isContiguous()),
  );
  const fits = hasValueRows(values) && (!sinks || sinks.dtype === 'f32');
  return whole && fits && q.dim(0) > 0 ? device.backend.pagedAttention : undefined;
}

function tablesOf(tables: Tensor, lengths: Tensor, { rows }: PagedAttentionOptions): PagedTables {
  return {
    tables: tables.storagePart(),
    sequences: tables.dim(0),
    maxBlocks: tables.dim(1),
    lengths: lengths.storagePart(),
    ...(rows && { rows: rows.storagePart() }),
  };
}

/** @param shape of the queries */
function check(
  op: string,
  shape: readonly number[],
  cache: PagedCache,
  tables: Tensor,
  lengths: Tensor,
  options: PagedAttentionOptions,
): PagedProblem {
  kinds.check(op, 'options', options, kinds.OBJECT);
  const { rows } = options;
  checkTensors(op, { tables, lengths, ...(rows && { rows }) });
  checkCache(op, cache);
  const { keys } = cache;
  const fits = shape.length === 3 && tables.rank === 2 && tables.dim(0) > 0 && tables.dim(1) > 0;
  const [tokens] = shape;
  const each = (ids: Tensor | undefined) => ids === undefined || (ids.rank === 1 && ids.dim(0) === tokens);
  if (!fits || !each(lengths) || !each(rows) || (!rows && tables.dim(0) !== tokens)) {
    throw new ShapeError(
      'SHAPE_MISMATCH',
      `${op}: queries [${shape}], keys [${keys.shape}], tables [${tables.shape}], lengths [${lengths.shape}]${rows ? `, rows [${rows.shape}]` : ''}; ` +
        'give [tokens, heads, d], [slots, kvHeads, d], [sequences, maxBlocks], [tokens] and, unless each sequence has one token, rows [tokens].',
    );
  }
  for (const [name, ids] of Object.entries({ tables, lengths, rows })) checkIds(op, name, ids);
  return problemOf(op, shape, cache, options);
}

/** @param shape of the queries, [tokens, heads, d] */
function problemOf(
  op: string,
  shape: readonly number[],
  cache: PagedCache,
  options: PagedAttentionOptions,
): PagedProblem {
  kinds.check(op, 'options', options, kinds.OBJECT);
  checkCache(op, cache);
  const { keys } = cache;
  const [tokens, heads, d] = shape;
  if (d !== keys.dim(2)) {
    throw new ShapeError(
      'SHAPE_MISMATCH',
      `${op}: queries [${shape}] for keys [${keys.shape}]; give heads of ${keys.dim(2)} values.`,
    );
  }
  checkHeads(op, heads, keys.dim(1));
  const { scale = 1 / Math.sqrt(d), window, softcap, sinks } = options;
  checkSinks(op, sinks, heads);
  checkNumbers(op, { scale });
  if (window !== undefined) checkPositive(op, { window });
  checkSoftcap(op, softcap);
  const numbers = { scale, window: window ?? 0, softcap: softcap ?? 0 };
  return { tokens, heads, ...numbers, ...(sinks && { sinks: sinks.storagePart() }) };
}

/**
 * Writes keys [kvHeads, tokens, d] and values [kvHeads, tokens, dv] into the slots [tokens], u32, of a cache, in its dtype;
 * slot b · blockSize + i is position i of block b. Of tokens with the same slot any one may win.
 * @param v undefined where the cache's values are a view of its keys
 * @throws ShapeError `SHAPE_MISMATCH` for shapes that do not fit; CandleError `INVALID_ARGUMENT` as {@link pagedAttention}
 */
export function pagedAppend(cache: PagedCache, k: Tensor, v: Tensor | undefined, slots: Tensor): void {
  const op = 'pagedAppend';
  checkTensors(op, { k, ...(v && { v }), slots });
  checkCache(op, cache);
  const { keys, values } = cache;
  const [, kvHeads, d] = keys.shape;
  const fits = (rows: Tensor, width: number) =>
    rows.rank === 3 && rows.dim(0) === kvHeads && rows.dim(1) === slots.dim(0) && rows.dim(2) === width;
  if (slots.rank !== 1 || !fits(k, d) || (v && !fits(v, values.dim(2)))) {
    throw new ShapeError(
      'SHAPE_MISMATCH',
      `${op}: keys [${k.shape}], values [${v?.shape}], slots [${slots.shape}] for a cache of [${keys.shape}] and [${values.shape}]; ` +
        'give [kvHeads, tokens, d], [kvHeads, tokens, dv] and [tokens].',
    );
  }
  checkIds(op, 'slots', slots);
  if (slots.dim(0) === 0) return;
  const { device, dtype } = k;
  const kernels = device.backend.pagedAttention;
  const { scales } = cache;
  const pools = [keys, ...(v ? [values] : []), ...(scales ? [scales.keys, scales.values] : [])];
  const same = [v ?? k, slots, ...pools].every((tensor) => tensor.device === device) && (v ?? k).dtype === dtype;
  const whole = [slots, ...pools].every((tensor) => tensor.isContiguous());
  if (same && whole && kernels?.supports(dtype, poolDTypeOf(cache), d, values.dim(2))) {
    kernels.append(k.storageAndLayout(), v?.storageAndLayout(), slots.storagePart(), pagedPoolOf(cache));
    return;
  }
  scope(() => {
    const put = (pool: Tensor, rows: Tensor) => {
      const source = rows.toDtype(pool.dtype).contiguous();
      pool.scatterSet(slots.reshape([slots.dim(0), 1, 1]).broadcastAs(source.shape), source, 0);
    };
    const write = (pool: Tensor, groups: Tensor | undefined, rows: Tensor) => {
      const positions = rows.transpose(0, 1);
      if (!groups) return put(pool, positions);
      const made = groupsOf(positions);
      put(pool, made.codes);
      put(groups, made.scales);
    };
    write(keys, scales?.keys, k);
    if (v) write(values, scales?.values, v);
  });
}

/** The same of operations that every device has: the blocks of each token's table are gathered. */
function composed(
  q: Tensor,
  cache: PagedCache,
  tables: Tensor,
  lengths: Tensor,
  { rows, scale, window, softcap, sinks }: PagedAttentionOptions,
): Tensor {
  return scope(() => {
    const { device } = q;
    const { blockSize } = cache;
    const [tokens, heads] = q.shape;
    const [, kvHeads, d] = cache.keys.shape;
    const dv = cache.values.dim(2);
    if (tokens === 0) return Tensor.zeros([0, heads, dv], q.dtype, device);
    const own = rows ? tables.indexSelect(rows, 0) : tables;
    const kv = own.dim(1) * blockSize;
    const { keys, values } = pagedUnpack(cache, own.flattenAll(), q.dtype);
    const gathered = (rows: Tensor) => rows.reshape([tokens, kv, kvHeads, rows.dim(2)]).transpose(1, 2);
    const positions = Tensor.arange(0, kv, 'f32', device).unsqueeze(0);
    const ends = lengths.toDtype('f32').unsqueeze(1);
    let visible = positions.broadcastLt(ends);
    if (window !== undefined) visible = visible.mul(positions.broadcastGe(ends.sub(window)));
    // A token that sees nothing looks at the first key instead, so that there is no NaN, and its row becomes 0.
    const any = ends.gt(0);
    visible = visible.maximum(positions.eq(0).broadcastMul(any.eq(0)));
    const mask = visible.reshape([tokens, 1, 1, kv]);
    const options = { mask, scale, sinks, ...(softcap !== undefined && { softcapping: softcap }) };
    const mixed = sdpa(q.reshape([tokens, heads, 1, d]), gathered(keys), gathered(values), options);
    const seen = any.unsqueeze(2).broadcastAs([tokens, heads, dv]);
    return seen.whereCond(mixed.reshape([tokens, heads, dv]), Tensor.zeros([tokens, heads, dv], q.dtype, device));
  });
}

function checkIds(op: string, name: string, ids: Tensor | undefined): void {
  if (ids === undefined || ids.dtype === 'u32') return;
  throw new CandleError('INVALID_ARGUMENT', `${op}: ${name} are ${ids.dtype}; convert them with toDtype('u32').`);
}

/** Whether values lie at equal distances: contiguous, or in the keys. */
function hasValueRows(values: Tensor): boolean {
  const { strides } = values.storageAndLayout().layout;
  return strides[2] === 1 && strides[0] === values.dim(1) * strides[1];
}
