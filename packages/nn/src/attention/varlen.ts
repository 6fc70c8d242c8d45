/**
 * Attention of several sequences packed one after the other, without padding: candle-nn's `flash_attn_varlen_cpu`
 * (attention/cpu_flash/varlen.rs) and `flash_attn_varlen_unfused` (attention/varlen.rs). The first goes block by block
 * (online.ts), the second makes all scores of a sequence at once; both run on every device, in any float dtype.
 *
 * Different from candle: lengths and slopes are numbers on the host, where the work is laid out, so nothing is copied back;
 * a query that may look at nothing gives 0 in both (NaN in candle's unfused one, which also leaves out sequences that have
 * no keys).
 */
import { CandleError, ShapeError, scope, Tensor } from '@x/core';
import { checkNumbers, checkTensors } from '../check';
import { wideDType } from '../ops';
import { checkHeads, positionBias } from './mask';
import { onlineAttention } from './online';
import { scoresOf, weighted } from './scores';

export interface VarlenOptions {
  /** The last query of a sequence sees all its keys, the one before it all but one, and so on. Default false. */
  causal?: boolean;
  /** Keys at most so far behind a query; without `windowRight` none ahead. Default: any. */
  windowLeft?: number;
  /** Keys at most so far ahead, together with `windowLeft`. */
  windowRight?: number;
  /** A slope a head: minus slope times distance is added to the scores (ALiBi). */
  alibiSlopes?: ArrayLike<number>;
}

/** One sequence of the packed ones. */
interface Piece {
  q: { start: number; length: number };
  k: { start: number; length: number };
}

/**
 * Attention within each sequence, a block of keys at a time.
 * @param q [total queries, heads, d]
 * @param k [total keys, kvHeads, d]
 * @param v [total keys, vHeads, dv]
 * @param seqlensQ queries of each sequence
 * @param seqlensK keys of each sequence
 * @returns [total queries, heads, dv]
 */
export function flashAttnVarlenCpu(
  q: Tensor,
  k: Tensor,
  v: Tensor,
  seqlensQ: ArrayLike<number>,
  seqlensK: ArrayLike<number>,
  softmaxScale: number,
  options: VarlenOptions = {},
): Tensor {
  checkTensors('flashAttnVarlenCpu', { q, k, v });
  checkNumbers('flashAttnVarlenCpu', { softmaxScale });
  return byPiece('flashAttnVarlenCpu', [q, k, v], seqlensQ, seqlensK, options, (queries, keys, values, range, offset) =>
    onlineAttention(queries, keys, values, {
      scale: softmaxScale,
      bias: positionBias({
        seq: queries.dim(2),
        offset,
        ...range,
        slopes: options.alibiSlopes,
        device: q.device,
        dtype: wideDType(q.dtype),
      }),
      from: Math.max(0, Math.min(keys.dim(2), offset - range.behind)),
      to: Math.max(0, Math.min(keys.dim(2), offset + queries.dim(2) + range.ahead)),
    }),
  );
}

/** As {@link flashAttnVarlenCpu} by plain products and a softmax: the reference. */
export function flashAttnVarlenUnfused(
  q: Tensor,
  k: Tensor,
  v: Tensor,
  seqlensQ: ArrayLike<number>,
  seqlensK: ArrayLike<number>,
  softmaxScale: number,
  options: VarlenOptions = {},
): Tensor {
  checkTensors('flashAttnVarlenUnfused', { q, k, v });
  checkNumbers('flashAttnVarlenUnfused', { softmaxScale });
  const { device, dtype } = q;
  return byPiece(
    'flashAttnVarlenUnfused',
    [q, k, v],
    seqlensQ,
    seqlensK,
    options,
    (queries, keys, values, range, offset) => {
      const [seq, kv] = [queries.dim(2), keys.dim(2)];
      const bias = positionBias({ seq, offset, ...range, slopes: options.alibiSlopes, device, dtype });
      const scores = scoresOf(queries, keys).affine(softmaxScale, 0);
      const added = bias?.(0, kv);
      const out = weighted((added ? scores.broadcastAdd(added) : scores).softmaxLastDim(), values);
      return withoutBlind(out, seq, kv, range, offset);
    },
  );
}

/** Rows of queries that see no key become 0: their softmax is 0 / 0. */
function withoutBlind(out: Tensor, seq: number, kv: number, range: Range, offset: number): Tensor {
  const sees = Uint8Array.from({ length: seq }, (_, i) => {
    const first = Math.max(0, offset + i - range.behind);
    const last = Math.min(kv - 1, offset + i + range.ahead);
    return first <= last ? 1 : 0;
  });
  if (!sees.includes(0)) return out;
  const mask = Tensor.from(sees, { shape: [seq, 1], device: out.device }).broadcastAs(out.shape);
  return mask.whereCond(out, out.zerosLike());
}

interface Range {
  ahead: number;
  behind: number;
}

type Attention = (q: Tensor, k: Tensor, v: Tensor, range: Range, offset: number) => Tensor;

/** Runs `attention` on [1, heads, length, d] of each sequence and packs the results again. */
function byPiece(
  op: string,
  [q, k, v]: [Tensor, Tensor, Tensor],
  seqlensQ: ArrayLike<number>,
  seqlensK: ArrayLike<number>,
  options: VarlenOptions,
  attention: Attention,
): Tensor {
  const pieces = layOut(op, [q, k, v], seqlensQ, seqlensK, options);
  const range = rangeOf(op, options);
  const [, heads] = q.shape;
  const dv = v.dim(2);
  return scope(() => {
    const outputs = pieces
      .filter((piece) => piece.q.length > 0)
      .map((piece) => {
        if (piece.k.length === 0) return Tensor.zeros([piece.q.length, heads, dv], q.dtype, q.device);
        return scope(() => {
          const part = (tensor: Tensor, { start, length }: Piece['q']) =>
            tensor.narrow(0, start, length).transpose(0, 1).unsqueeze(0);
          const parts = [part(q, piece.q), part(k, piece.k), part(v, piece.k)] as const;
          return attention(...parts, range, piece.k.length - piece.q.length)
            .squeeze(0)
            .transpose(0, 1);
        });
      });
    return outputs.length > 0 ? Tensor.cat(outputs, 0) : Tensor.zeros([0, heads, dv], q.dtype, q.device);
  });
}

function rangeOf(op: string, { causal = false, windowLeft, windowRight }: VarlenOptions): Range {
  for (const size of [windowLeft, windowRight]) {
    if (size === undefined || size >= 0) continue;
    throw new CandleError('INVALID_ARGUMENT', `${op}: a window of ${size}; give a number from 0.`);
  }
  if (windowRight !== undefined && windowLeft === undefined) {
    throw new CandleError('INVALID_ARGUMENT', `${op}: windowRight ${windowRight} is alone; give windowLeft too.`);
  }
  const everything = Number.POSITIVE_INFINITY;
  const ahead = windowLeft === undefined ? everything : (windowRight ?? 0);
  return { ahead: causal ? Math.min(0, ahead) : ahead, behind: windowLeft ?? everything };
}

function layOut(
  op: string,
  [q, k, v]: [Tensor, Tensor, Tensor],
  seqlensQ: ArrayLike<number>,
  seqlensK: ArrayLike<number>,
  { causal, alibiSlopes }: VarlenOptions,
): Piece[] {
  if (q.rank !== 3 || k.rank !== 3 || v.rank !== 3 || q.dim(2) !== k.dim(2) || k.dim(0) !== v.dim(0)) {
    throw new ShapeError(
      'SHAPE_MISMATCH',
      `${op}: queries [${q.shape}], keys [${k.shape}] and values [${v.shape}]; give [queries, heads, d], [keys, kvHeads, d] and [keys, vHeads, dv].`,
    );
  }
  checkHeads(op, q.dim(1), k.dim(1), v.dim(1));
  if (alibiSlopes && alibiSlopes.length !== q.dim(1)) {
    throw new ShapeError('SHAPE_MISMATCH', `${op}: ${alibiSlopes.length} slopes for ${q.dim(1)} heads; give as many.`);
  }
  let [startQ, startK] = [0, 0];
  const pieces = Array.from(seqlensQ, (lengthQ, i): Piece => {
    const lengthK = seqlensK[i] ?? 0;
    if (causal && lengthK < lengthQ) {
      throw new ShapeError(
        'SHAPE_MISMATCH',
        `${op}: sequence ${i} has ${lengthQ} queries and ${lengthK} keys; causal attention needs as many keys at least.`,
      );
    }
    const piece = { q: { start: startQ, length: lengthQ }, k: { start: startK, length: lengthK } };
    startQ += lengthQ;
    startK += lengthK;
    return piece;
  });
  if (seqlensQ.length !== seqlensK.length || startQ !== q.dim(0) || startK !== k.dim(0)) {
    throw new ShapeError(
      'SHAPE_MISMATCH',
      `${op}: ${seqlensQ.length} and ${seqlensK.length} lengths of ${startQ} queries and ${startK} keys in all for ${q.dim(0)} and ${k.dim(0)}; they must agree.`,
    );
  }
  return pieces;
}
