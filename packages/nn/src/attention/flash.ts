/**
 * Flash attention with a batch dimension: candle-nn's `flash_attn` and its kernels `run_causal_attn_cpu`,
 * `run_flash_attn_cpu` and `causal_decode_f32_interleaved` (attention/cpu_flash).
 *
 * Different from candle: the names are kept, but everything runs on every device, in any float dtype, with any number of
 * batch entries, and through gradients (online.ts). ALiBi without a mask counts distances, as candle does for several batch
 * entries (it leaves it out for one). With one query the causal offset counts too; candle then looks at all keys.
 */
import { ShapeError, scope, Tensor } from '@x/core';
import { checkNumbers, checkObjects, checkTensors } from '../check';
import { wideDType } from '../ops';
import { AttnMask, additive, alibiSlopes, type Bias, checkHeads, positionBias } from './mask';
import { onlineAttention } from './online';

export interface FlashOptions {
  /** Default: every query sees every key. */
  mask?: AttnMask;
  /**
   * Bias by distance (ALiBi), usually 8. With a mask tensor each head's slope multiplies the mask instead, as in ggml.
   * Default 0: none.
   */
  maxBias?: number;
  /** Scores become cap · tanh(scores / cap) before masks and biases. Default 0: none. */
  softcap?: number;
}

/**
 * softmax(q · kᵀ · scale) · v, heads behind positions as projections give them.
 * @param q [b, seq, heads, d]
 * @param k [b, kv, kvHeads, d]
 * @param v [b, kv, vHeads, dv]
 * @param softmaxScale usually 1 / sqrt(d)
 * @returns [b, heads, seq, dv]
 */
export function flashAttn(q: Tensor, k: Tensor, v: Tensor, softmaxScale: number, options: FlashOptions = {}): Tensor {
  checkTensors('flashAttn', { q, k, v });
  checkNumbers('flashAttn', { softmaxScale });
  checkObjects('flashAttn', { options });
  checkShapes('flashAttn', q, k, v);
  const { mask = AttnMask.none, maxBias = 0, softcap = 0 } = options;
  const [, seq, heads] = q.shape;
  const kv = k.dim(1);
  checkHeads('flashAttn', heads, k.dim(2), v.dim(2));
  const slopes = alibiSlopes(maxBias, heads);
  const { device } = q;
  const dtype = wideDType(q.dtype);
  return scope(() => {
    const [queries, keys, values] = [q, k, v].map((part) => part.transpose(1, 2));
    if (mask.kind === 'mask') {
      return onlineAttention(queries, keys, values, {
        scale: softmaxScale,
        softcap,
        bias: maskBias(mask.mask, dtype, slopes, kv),
      });
    }
    const causal = mask.kind === 'causal';
    const offset = causal ? mask.kvOffset : kv - seq;
    const everything = Number.POSITIVE_INFINITY;
    return onlineAttention(queries, keys, values, {
      scale: softmaxScale,
      softcap,
      bias: positionBias({ seq, offset, ahead: causal ? 0 : everything, behind: everything, slopes, device, dtype }),
      to: causal ? Math.max(0, Math.min(kv, offset + seq)) : kv,
    });
  });
}

/** A block of a mask that fits [b, heads, seq, kv] or fewer trailing dimensions. */
function maskBias(mask: Tensor, dtype: Tensor['dtype'], slopes: Float32Array | undefined, kv: number): Bias {
  return (start, count) =>
    scope(() => {
      const part = mask.dim(-1) === kv ? mask.narrow(-1, start, count) : mask;
      const bias = additive(part, dtype);
      if (!slopes) return bias;
      const bySlope = Tensor.from(slopes, { shape: [slopes.length, 1, 1], device: mask.device, dtype });
      return bySlope.broadcastMul(bias);
    });
}

/** {@link flashAttn} with a causal mask. @param kvOffset keys before the first query */
export function runCausalAttnCpu(
  q: Tensor,
  k: Tensor,
  v: Tensor,
  softmaxScale: number,
  kvOffset: number,
  options: Omit<FlashOptions, 'mask'> = {},
): Tensor {
  checkTensors('runCausalAttnCpu', { q, k, v });
  checkNumbers('runCausalAttnCpu', { softmaxScale, kvOffset });
  return flashAttn(q, k, v, softmaxScale, { ...options, mask: AttnMask.causalWithOffset(kvOffset) });
}

/** {@link flashAttn} with a mask tensor or none. */
export function runFlashAttnCpu(
  q: Tensor,
  k: Tensor,
  v: Tensor,
  mask: Tensor | undefined,
  softmaxScale: number,
  options: Omit<FlashOptions, 'mask'> = {},
): Tensor {
  checkTensors('runFlashAttnCpu', { q, k, v });
  checkNumbers('runFlashAttnCpu', { softmaxScale });
  return flashAttn(q, k, v, softmaxScale, { ...options, mask: mask ? AttnMask.mask(mask) : AttnMask.none });
}

/**
 * One query against keys and values that lie side by side, as `InterleavedKvCache` keeps them.
 * @param q [heads, d] or [heads, 1, d]
 * @param kv [kv, kvHeads, 2 · d]
 * @returns [heads, 1, d]
 */
export function causalDecodeF32Interleaved(q: Tensor, kv: Tensor, scale: number): Tensor {
  checkTensors('causalDecodeF32Interleaved', { q, kv });
  checkNumbers('causalDecodeF32Interleaved', { scale });
  const d = q.rank >= 2 ? q.dim(-1) : 0;
  if (q.elemCount !== q.shape[0] * d || kv.rank !== 3 || kv.dim(2) !== 2 * d) {
    throw new ShapeError(
      'SHAPE_MISMATCH',
      `causalDecodeF32Interleaved: query [${q.shape}] and cache [${kv.shape}]; give [heads, d] and [kv, kvHeads, 2 * d].`,
    );
  }
  checkHeads('causalDecodeF32Interleaved', q.shape[0], kv.dim(1));
  return scope(() => {
    const [keys, values] = kv
      .transpose(0, 1)
      .chunk(2, 2)
      .map((part) => part.unsqueeze(0));
    return onlineAttention(q.reshape([1, q.shape[0], 1, d]), keys, values, { scale }).squeeze(0);
  });
}

function checkShapes(op: string, q: Tensor, k: Tensor, v: Tensor): void {
  const ranks = q.rank === 4 && k.rank === 4 && v.rank === 4;
  if (ranks && q.dim(0) === k.dim(0) && q.dim(0) === v.dim(0) && q.dim(3) === k.dim(3) && k.dim(1) === v.dim(1)) return;
  throw new ShapeError(
    'SHAPE_MISMATCH',
    `${op}: queries [${q.shape}], keys [${k.shape}] and values [${v.shape}]; give [b, seq, heads, d], [b, kv, kvHeads, d] and [b, kv, vHeads, dv].`,
  );
}
