/**
 * What lies between the products of multi-head latent attention (DeepSeek-V2, arXiv 2405.04434), as one kernel where a device
 * has it (`BackendDevice.decode`). Not in candle.
 */
import { formatShape, fusedKernels, QuantizedActivations, ShapeError, Tensor } from '@x/core';
import type { PagedCache } from './attention';
import { pagedPoolOf, poolDTypeOf } from './attention/paged-cache';
import { isPlain } from './between';
import { checkObjects, checkPositive, checkTensors } from './check';
import type { HeadRotation } from './heads';
import type { RmsNorm } from './layer-norm';
import { hasRows } from './recurrent/spans';

/** Queries and latent vectors as products give them: f32, views too. */
export interface LatentParts {
  /** [tokens, heads · (plain + rotated)] */
  q: Tensor;
  heads: number;
  /** [tokens, rank + rotated]: the latent vector, and the key that heads share. */
  latent: Tensor;
}

/** What {@link latentAppend} gives. */
export interface LatentQueries {
  /** [tokens · heads, rank + rotated], f32: the first `rank` elements are whoever's who multiplies the plain parts. */
  queries: Tensor;
  /** The plain parts, a row a head. */
  plain: QuantizedActivations;
}

/**
 * Normalises latent vectors and rotates shared keys into the slots [tokens], u32, of a cache of one head whose values are the
 * first elements of its keys, and rotates queries; undefined where the device has no kernel for these, or gradients are recorded.
 * @param norm of the latent vector, [rank]
 * @throws ShapeError `SHAPE_MISMATCH` for rows that are no queries and keys of the cache
 */
export function latentAppend(
  parts: LatentParts,
  rotation: HeadRotation,
  norm: RmsNorm,
  cache: PagedCache,
  slots: Tensor,
): LatentQueries | undefined {
  checkObjects('latentAppend', { parts, rotation, norm, cache });
  const { q, heads, latent } = parts;
  const { cos, sin, positions, kind } = rotation;
  const { keys } = cache;
  const alpha = norm.weight;
  checkPositive('latentAppend', { heads });
  checkTensors('latentAppend', { q, latent, cos, sin, positions, slots, keys, alpha });
  const [tokens, rank, rotated] = [q.dim(0), alpha.dim(0), 2 * cos.dim(-1)];
  const plain = plainOf(parts, rank, rotated, keys);
  const { device } = q;
  const decode = fusedKernels(device, 'decode');
  const stride = (x: Tensor) => x.storageAndLayout().layout.strides[0];
  const rows = [q, latent, cos, sin];
  const placed = rows.every(hasRows) && stride(cos) === stride(sin) && isPlain([...rows, alpha]);
  const ids = [positions, slots].every((x) => x.dtype === 'u32' && x.dim(0) === tokens);
  const whole = [alpha, positions, slots, keys].every((x) => x.device === device && x.isContiguous());
  if (!placed || !ids || !whole || !decode?.supportsLatent(poolDTypeOf(cache), tokens, plain)) return undefined;
  const made = decode.latent(
    {
      ...{ tokens, heads, plain, rotated, rank, interleaved: kind === 'interleaved', eps: norm.eps },
      q: q.storagePart(),
      qRow: stride(q),
      latent: latent.storagePart(),
      latentRow: stride(latent),
      alpha: alpha.storagePart(),
      cos: cos.storagePart(),
      sin: sin.storagePart(),
      tableRow: stride(cos),
      tableLength: cos.dim(0),
      positions: positions.storagePart(),
      slots: slots.storagePart(),
    },
    pagedPoolOf(cache),
  );
  const blocks = Tensor.fromStorage(made.plain, [made.plain.elemCount], device);
  return {
    queries: Tensor.fromStorage(made.queries, [tokens * heads, rank + rotated], device),
    plain: new QuantizedActivations(blocks, tokens * heads, plain),
  };
}

/** Elements of a head that are not rotated. */
function plainOf({ q, heads, latent }: LatentParts, rank: number, rotated: number, keys: Tensor): number {
  const [, kvHeads, width] = keys.shape;
  const plain = q.dim(-1) / heads - rotated;
  const rows = [q, latent].every((x) => x.rank === 2 && x.dim(0) === q.dim(0));
  if (
    rows &&
    Number.isInteger(plain) &&
    plain >= 0 &&
    latent.dim(1) === width &&
    width === rank + rotated &&
    kvHeads === 1
  )
    return plain;
  throw new ShapeError(
    'SHAPE_MISMATCH',
    `latentAppend: queries ${formatShape(q.shape)} of ${heads} heads and latent vectors ${formatShape(latent.shape)} of which ` +
      `${rank} are normalised and ${rotated} rotated, for a cache of ${formatShape(keys.shape)}; give ` +
      '[tokens, heads * (plain + rotated)], [tokens, rank + rotated] and one head of rank + rotated.',
  );
}
