/**
 * Keys and values of a decoder's pass that nobody needs afterwards: packed sequences, each seen within itself. With it a
 * decoder is an encoder, of which only the hidden states are wanted.
 */
import { scope, Tensor } from '@x/core';
import { packedAttention, type Segments, sdpa } from '@x/nn';
import type { AttendOptions, KvView, LayerKv } from '../models/causal-model';

/** A {@link KvView} for one pass that keeps nothing: packed sequences, each seen within itself. */
export class PackedKv implements KvView {
  /** @param causal whether a token sees those in front of it only */
  constructor(
    private readonly segments: Segments,
    private readonly causal: boolean,
  ) {}

  layer(): LayerKv {
    const { segments, causal } = this;
    let kept: { k: Tensor; v: Tensor } | undefined;
    return {
      append(k, v) {
        kept = { k, v };
      },
      attend(q, options) {
        if (!kept) throw new Error('internal: attention over keys that were not appended');
        const { k, v } = kept;
        const [heads, tokens] = q.shape;
        const special = options.sinks !== undefined || options.softcap !== undefined || k.dim(2) !== v.dim(2);
        if (special) return bySequence(q, k, v, segments, causal, options);
        const { scale = 1, window } = options;
        const [queries, keys, values] = [q, k, v].map((x) => x.transpose(0, 1));
        const reach = window === undefined ? {} : { window: window - 1 };
        return packedAttention(queries, keys, values, segments, { scale, causal, ...reach }).reshape([
          tokens,
          heads * v.dim(2),
        ]);
      },
    };
  }
}

/** What {@link packedAttention} has not: soft caps, sinks and values narrower than keys, of causal models. */
function bySequence(
  q: Tensor,
  k: Tensor,
  v: Tensor,
  { starts, lengths }: Segments,
  causal: boolean,
  { scale = 1, window, softcap, sinks }: AttendOptions,
): Tensor {
  const parts = starts.map((start, i) =>
    scope(() => {
      const [queries, keys, values] = [q, k, v].map((x) => x.narrow(1, start, lengths[i]).unsqueeze(0));
      const options = { scale, causal, sinks, ...(window !== undefined && { window }) };
      const out = sdpa(queries, keys, values, { ...options, ...(softcap !== undefined && { softcapping: softcap }) });
      return out.squeeze(0).transpose(0, 1);
    }),
  );
  const [heads, tokens] = q.shape;
  return Tensor.cat(parts, 0).reshape([tokens, heads * v.dim(2)]);
}
