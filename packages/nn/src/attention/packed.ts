/**
 * Attention of sequences that are packed one after the other, each within itself: what an encoder's batch needs, without
 * padding. Not in candle, whose `flash_attn_varlen` it resembles; lengths are numbers of the host, so that work is laid out
 * there. Devices without a kernel for it go through the sequences one by one ({@link flashAttnVarlenUnfused}).
 */
import {
  type DeviceLike,
  isGradEnabled,
  keep,
  kinds,
  type PackedProblem,
  type PackedTiles,
  ShapeError,
  Tensor,
} from '@x/core';
import { checkNumbers, checkObjects, checkTensors } from '../check';
import { checkHeads } from './mask';
import { flashAttnVarlenUnfused } from './varlen';

const LENGTHS = kinds.kind(
  (value) =>
    (Array.isArray(value) || ArrayBuffer.isView(value)) &&
    Array.from(value as ArrayLike<unknown>).every((n) => Number.isSafeInteger(n) && (n as number) >= 1),
  'give an array of whole numbers from 1',
);

const NUMBERS = kinds.kind(
  (value) => Array.isArray(value) && value.length > 0 && value.every((n) => Number.isFinite(n)),
  'give an array of numbers',
);

/** Where sequences begin in a batch that holds them one after the other. */
export class Segments {
  /** Tokens of each. */
  readonly lengths: readonly number[];
  /** First token of each. */
  readonly starts: readonly number[];
  /** Of all together. */
  readonly tokens: number;
  private readonly tables = new Map<number, Tensor>();

  /** @param lengths of each sequence, at least 1 @throws CandleError `INVALID_ARGUMENT` */
  constructor(
    lengths: ArrayLike<number>,
    readonly device: DeviceLike,
  ) {
    kinds.check('Segments', 'lengths', lengths, LENGTHS);
    kinds.check('Segments', 'device', device, kinds.DEVICE);
    this.lengths = Array.from(lengths);
    let tokens = 0;
    this.starts = this.lengths.map((length) => {
      tokens += length;
      return tokens - length;
    });
    this.tokens = tokens;
  }

  /** Tiles of `rows` queries, longest sequences first, so that the last ones to be done are short. */
  tiles(rows: number): PackedTiles {
    let table = this.tables.get(rows);
    if (!table) {
      const order = this.lengths.map((_, i) => i).sort((a, b) => this.lengths[b] - this.lengths[a]);
      const items = order.flatMap((i) =>
        Array.from({ length: Math.ceil(this.lengths[i] / rows) }, (_, t) => [
          this.starts[i],
          this.lengths[i],
          t * rows,
        ]),
      );
      table = keep(Tensor.from(Uint32Array.from(items.flat()), { shape: [items.length, 3], device: this.device }));
      this.tables.set(rows, table);
    }
    return { table: table.storagePart(), count: table.dim(0) };
  }

  /** Gives the tables back. */
  dispose(): void {
    for (const table of this.tables.values()) table.dispose();
    this.tables.clear();
  }

  [Symbol.dispose](): void {
    this.dispose();
  }
}

export interface PackedAttentionOptions {
  /** Multiplies the scores. Default 1 / sqrt(d). */
  scale?: number;
  /** A query sees no key behind its own. Default false. */
  causal?: boolean;
  /** Keys in front of a query's own that it sees at most, and behind it if not `causal`. Default: all. */
  window?: number;
  /** Slope times distance is taken from the scores of each head (ALiBi): [heads], f32. Default: nothing is. */
  slopes?: Slopes;
}

/** A number for each head, on the host and on the device. */
export class Slopes {
  readonly tensor: Tensor;

  /** @throws CandleError `INVALID_ARGUMENT` */
  constructor(
    readonly values: readonly number[],
    device: DeviceLike,
  ) {
    kinds.check('Slopes', 'values', values, NUMBERS);
    kinds.check('Slopes', 'device', device, kinds.DEVICE);
    this.tensor = keep(Tensor.from(Float32Array.from(values), { device }));
  }

  /** Gives the tensor back. */
  dispose(): void {
    this.tensor.dispose();
  }
}

/**
 * softmax(q · kᵀ · scale) · v within each sequence.
 * @param q [tokens, heads, d]
 * @param k [tokens, kvHeads, d], heads a multiple of kvHeads
 * @param v [tokens, kvHeads, d]
 * @returns [tokens, heads, d]
 * @throws ShapeError `SHAPE_MISMATCH`; CandleError `INVALID_ARGUMENT`
 */
export function packedAttention(
  q: Tensor,
  k: Tensor,
  v: Tensor,
  segments: Segments,
  options: PackedAttentionOptions = {},
): Tensor {
  checkTensors('packedAttention', { q, k, v });
  checkObjects('packedAttention', { segments, options });
  const { tokens, lengths } = segments;
  if ([q, k, v].some((x) => x.rank !== 3 || x.dim(0) !== tokens) || q.dim(2) !== k.dim(2)) {
    throw new ShapeError(
      'SHAPE_MISMATCH',
      `packedAttention: queries [${q.shape}], keys [${k.shape}] and values [${v.shape}] of ${tokens} tokens; give [tokens, heads, d] each.`,
    );
  }
  const [, heads, d] = q.shape;
  const kvHeads = k.dim(1);
  const { scale = 1 / Math.sqrt(d), causal = false, window = Number.POSITIVE_INFINITY, slopes } = options;
  checkNumbers('packedAttention', { scale });
  if (window !== Number.POSITIVE_INFINITY) kinds.check('packedAttention', 'window', window, kinds.COUNT);
  checkHeads('packedAttention', heads, kvHeads, v.dim(1));
  if (slopes && slopes.values.length !== heads) {
    throw new ShapeError(
      'SHAPE_MISMATCH',
      `packedAttention: ${slopes.values.length} slopes for ${heads} heads; give as many.`,
    );
  }
  const problem = { tokens, heads, kvHeads, d, scale, before: window, after: causal ? 0 : window };
  const fused = inOneKernel(problem, q, k, v, segments, slopes);
  if (fused) return fused;
  const finite = window !== Number.POSITIVE_INFINITY;
  return flashAttnVarlenUnfused(q, k, v, lengths, lengths, scale, {
    causal,
    ...(finite && { windowLeft: window, ...(!causal && { windowRight: window }) }),
    ...(slopes && { alibiSlopes: slopes.values }),
  });
}

/** The device's kernel, where it has one for this problem and nothing is recorded for gradients. */
function inOneKernel(
  problem: PackedProblem,
  q: Tensor,
  k: Tensor,
  v: Tensor,
  segments: Segments,
  slopes?: Slopes,
): Tensor | undefined {
  const { packedAttention: kernels } = q.device.backend;
  const recorded = isGradEnabled() && [q, k, v].some((x) => x.trackOp);
  const alike = [k, v].every((x) => x.dtype === q.dtype && x.device === q.device && x.dim(1) === problem.kvHeads);
  if (!kernels || recorded || !alike || v.dim(2) !== problem.d) return undefined;
  const rows = kernels.tileRows(q.dtype, problem);
  if (rows === undefined) return undefined;
  const [from, keys, values] = [q, k, v].map((x) => x.storageAndLayout());
  const out = kernels.forward(problem, from, keys, values, segments.tiles(rows), slopes?.tensor.storagePart());
  return Tensor.fromStorage(out, q.shape, q.device);
}
