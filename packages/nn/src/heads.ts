/**
 * What lies between the products of queries, keys and values and attention: norms and rotation of heads, and the cache; one
 * kernel where a device has it (`BackendDevice.decode`) and nothing is recorded for gradients, else composed. Not in candle.
 */
import {
  type DecodeOps,
  fusedKernels,
  type HeadsProblem,
  type RopeKind,
  ShapeError,
  scope,
  Tensor,
  UnsupportedError,
} from '@x/core';
import { type PagedAttentionOptions, type PagedCache, pagedActivations, pagedAppend } from './attention';
import { type PagedStep, pagedStep } from './attention/paged';
import { pagedPoolOf, poolDTypeOf } from './attention/paged-cache';
import { type Activations, isPlain } from './between';
import { checkObjects, checkTensors } from './check';
import type { RmsNorm } from './layer-norm';
import { hasRows } from './recurrent/spans';

/** Queries, keys and values as products give them: f32, views too, heads one after the other. */
export interface HeadParts {
  /** [tokens, heads · d] */
  q: Tensor;
  /** [tokens, kvHeads · d] */
  k: Tensor;
  /** [tokens, kvHeads · dv] */
  v: Tensor;
}

/** How the first elements of each head are rotated. */
export interface HeadRotation {
  /** Rows of a table, one a position: [length, rotated / 2], f32; views of a wider table too. */
  cos: Tensor;
  sin: Tensor;
  /** [tokens], u32 */
  positions: Tensor;
  kind: Exclude<RopeKind, 'thd'>;
}

export interface HeadOptions {
  /** Multiplies the queries. Default 1. */
  scale?: number;
  /** Norms of each head before its rotation, of one eps. */
  norms?: { q: RmsNorm; k: RmsNorm };
}

export type HeadAttentionOptions = HeadOptions & Omit<PagedAttentionOptions, 'rows' | 'scale'>;

/** Whether {@link headsAppend} is one kernel for a cache of f32 products. */
export function fusesHeads(cache: PagedCache): boolean {
  checkObjects('fusesHeads', { cache });
  const { keys, values } = cache;
  checkTensors('fusesHeads', { keys, values });
  const decode = fusedKernels(keys.device, 'decode');
  return (values.isContiguous() && decode?.supportsHeads(poolDTypeOf(cache), keys.dim(2), values.dim(2))) ?? false;
}

/**
 * Normalises and rotates queries and keys, and puts keys and values into the slots [tokens], u32, of a cache.
 * @returns queries [tokens, heads, d], f32
 * @throws ShapeError `SHAPE_MISMATCH` for rows that are no heads of the cache
 */
export function headsAppend(
  parts: HeadParts,
  rotation: HeadRotation,
  options: HeadOptions,
  cache: PagedCache,
  slots: Tensor,
): Tensor {
  const { problem, kernels, sizes } = checkedHeads('headsAppend', parts, rotation, options, cache, slots);
  const { tokens, heads, d } = sizes;
  if (problem && kernels)
    return Tensor.fromStorage(kernels.heads(problem, pagedPoolOf(cache)), [tokens, heads, d], parts.q.device);
  return scope(() => composed(parts, rotation, options, cache, slots, sizes));
}

/** The same in steps. */
function composed(
  { q, k, v }: HeadParts,
  rotation: HeadRotation,
  { norms, scale = 1 }: HeadOptions,
  cache: PagedCache,
  slots: Tensor,
  { tokens, heads, kvHeads, d, dv }: HeadSizes,
): Tensor {
  const rotated = (x: Tensor, count: number, norm: RmsNorm | undefined) => {
    const split = x.reshape([tokens, count, d]);
    return rotate(norm ? norm.forward(split) : split, rotation);
  };
  const keys = rotated(k, kvHeads, norms?.k);
  const values = v.reshape([tokens, kvHeads, dv]);
  pagedAppend(cache, keys.transpose(0, 1), values.transpose(0, 1), slots);
  return rotated(q, heads, norms?.q).mul(scale);
}

/** What {@link promptHeads} gives. */
export interface PromptHeadParts {
  /** Queries of the first tokens, [wide, heads, d], f32. */
  wide: Tensor;
  /** Of the others, [tokens - wide, heads, d], in the cache's dtype. */
  q: Tensor;
}

/**
 * {@link headsAppend} where tokens from `wide` on are those of prompts, whose attention multiplies what the cache rounds to: a
 * cache of f16 or bf16.
 * @throws as {@link headsAppend}; UnsupportedError for a cache of another dtype
 */
export function promptHeads(
  parts: HeadParts,
  rotation: HeadRotation,
  options: HeadOptions,
  cache: PagedCache,
  slots: Tensor,
  wide: number,
): PromptHeadParts {
  const { problem, kernels, sizes } = checkedHeads('promptHeads', parts, rotation, options, cache, slots);
  const { tokens, heads, d } = sizes;
  const { device, dtype } = cache.keys;
  if (!Number.isInteger(wide) || wide < 0 || wide > tokens)
    throw new ShapeError('SHAPE_MISMATCH', `promptHeads: wide is ${wide}; give a number of the ${tokens} tokens.`);
  if (dtype !== 'f16' && dtype !== 'bf16')
    throw new UnsupportedError('UNSUPPORTED', `promptHeads: the cache is of ${dtype}; give one of f16 or bf16.`);
  const later = tokens - wide;
  if (problem && kernels) {
    const made = kernels.promptHeads(problem, wide, pagedPoolOf(cache));
    return {
      wide: Tensor.fromStorage(made.wide, [wide, heads, d], device),
      q: Tensor.fromStorage(made.q, [later, heads, d], device),
    };
  }
  return scope(() => {
    const q = composed(parts, rotation, options, cache, slots, sizes);
    return { wide: q.narrow(0, 0, wide).copy(), q: q.narrow(0, wide, later).toDtype(dtype) };
  });
}

/**
 * {@link headsAppend} and then attention over the cache, as `pagedActivations` gives it, of tokens of which no two are of one
 * sequence: where the device can, one kernel.
 * @throws as both
 */
export function headsAttend(
  parts: HeadParts,
  rotation: HeadRotation,
  options: HeadAttentionOptions,
  cache: PagedCache,
  places: PagedStep,
): Activations {
  checkObjects('headsAttend', { options, places });
  const { window, softcap, sinks } = options;
  const attention = { window, softcap, sinks };
  const { problem } = checkedHeads('headsAttend', parts, rotation, options, cache, places.slots);
  const made = problem && pagedStep(problem, cache, places, attention);
  if (made) return made;
  using q = headsAppend(parts, rotation, options, cache, places.slots);
  return pagedActivations(q, cache, places.tables, places.lengths, { ...attention, scale: 1 });
}

interface HeadSizes {
  tokens: number;
  heads: number;
  kvHeads: number;
  d: number;
  dv: number;
}

/** What {@link headsAppend} is asked for: sizes; for a kernel, where operands are as one wants them; kernels of it for such a cache. */
function checkedHeads(
  op: string,
  parts: HeadParts,
  rotation: HeadRotation,
  options: HeadOptions,
  cache: PagedCache,
  slots: Tensor,
): { problem?: HeadsProblem; kernels?: DecodeOps | undefined; sizes: HeadSizes } {
  checkObjects(op, { parts, rotation, options, cache });
  const { q, k, v } = parts;
  const { cos, sin, positions, kind } = rotation;
  const { scale = 1, norms } = options;
  if (norms) checkObjects(op, { norms, 'norms.q': norms.q, 'norms.k': norms.k });
  checkTensors(op, { q, k, v, cos, sin, positions, slots, keys: cache.keys, values: cache.values });
  const { keys, values } = cache;
  const [, kvHeads, d] = keys.shape;
  const dv = values.dim(2);
  const [tokens] = q.shape;
  const heads = q.dim(-1) / d;
  const rows = [q, k, v].every((x) => x.rank === 2 && x.dim(0) === tokens);
  if (
    !rows ||
    !Number.isInteger(heads) ||
    k.dim(1) !== kvHeads * d ||
    v.dim(1) !== kvHeads * dv ||
    2 * cos.dim(1) > d
  ) {
    throw new ShapeError(
      'SHAPE_MISMATCH',
      `${op}: queries [${q.shape}], keys [${k.shape}] and values [${v.shape}] with tables of [${cos.shape}] for a cache of ` +
        `[${keys.shape}] and [${values.shape}]; give [tokens, heads * d], [tokens, kvHeads * d], [tokens, kvHeads * dv] and at most d / 2 columns.`,
    );
  }
  const { device } = q;
  const decode = fusedKernels(device, 'decode');
  const operands = [q, k, v, cos, sin, ...(norms ? [norms.q.weight, norms.k.weight] : [])];
  const others = [positions, slots, keys, values];
  const stride = (x: Tensor) => x.storageAndLayout().layout.strides[0];
  const placed = operands.slice(0, 5).every(hasRows) && stride(cos) === stride(sin);
  const whole = [...others, ...operands.slice(5)].every((x) => x.device === device && x.isContiguous());
  const ids = [positions, slots].every((x) => x.dtype === 'u32' && x.dim(0) === tokens);
  const one = !norms || norms.q.eps === norms.k.eps;
  const sizes = { tokens, heads, kvHeads, d, dv };
  const fits = tokens > 0 && placed && whole && ids && one && isPlain(operands);
  if (!fits || !decode) return { sizes };
  const problem = {
    tokens,
    heads,
    q: q.storagePart(),
    qRow: stride(q),
    k: k.storagePart(),
    kRow: stride(k),
    v: v.storagePart(),
    vRow: stride(v),
    ...(norms && { qNorm: norms.q.weight.storagePart(), kNorm: norms.k.weight.storagePart() }),
    eps: norms?.q.eps ?? 0,
    rotated: 2 * cos.dim(1),
    interleaved: kind === 'interleaved',
    cos: cos.storagePart(),
    sin: sin.storagePart(),
    tableRow: stride(cos),
    tableLength: cos.dim(0),
    positions: positions.storagePart(),
    slots: slots.storagePart(),
    scale,
  };
  const kernels = decode.supportsHeads(poolDTypeOf(cache), d, dv) ? decode : undefined;
  return { problem, kernels, sizes };
}

/** x [tokens, heads, d], whose first elements are rotated. */
function rotate(x: Tensor, { cos, sin, positions, kind }: HeadRotation): Tensor {
  const [tokens, , d] = x.shape;
  const width = 2 * cos.dim(1);
  if (width === 0 || tokens === 0) return x;
  // As kernels do, a position beyond the table takes its last row.
  const at = positions.minimum(cos.dim(0) - 1);
  const [c, s] = [cos, sin].map((table) => table.contiguous().indexSelect(at, 0));
  const turned = x.narrow(2, 0, width).transpose(0, 1).unsqueeze(0).rope(c, s, kind).squeeze(0).transpose(0, 1);
  return width === d ? turned : Tensor.cat([turned, x.narrow(2, width, d - width)], 2);
}
