/** Self-attention of an encoder: projections, an optional rotation, and attention within each packed sequence. */
import type { Tensor } from '@x/core';
import type { Module } from '@x/nn';
import {
  type ActivationForm,
  type Activations,
  type LayerNorm,
  packedAttention,
  rotate,
  type Segments,
  type Slopes,
} from '@x/nn';
import type { DecoderConfig } from '../config/decoder-config';
import type { Angles } from '../models/attention';
import type { LinearGroup } from '../weights/linear-group';
import { inDtype, projectUnbiased, type Unbiased } from '../weights/q-linear';
import type { Weights } from '../weights/weights';

export interface EncoderAttentionOptions {
  /** Keys in front of a query's own and behind it that it sees at most. Default: all of its sequence. */
  window?: number;
  /** Whether queries and keys have norms of the model's width, which take the mean away. */
  qkNorm?: boolean;
}

/** What a batch gives every layer. */
export interface EncoderContext {
  segments: Segments;
  /** How queries and keys are turned; undefined where positions do not turn them. */
  angles?: Angles;
  /** ALiBi's. */
  slopes?: Slopes;
}

interface Parts {
  qkv: LinearGroup;
  o: Module;
  norms?: { q: LayerNorm; k: LayerNorm };
}

export class EncoderAttention {
  private constructor(
    private readonly config: DecoderConfig,
    private readonly dtype: Weights['activations'],
    private readonly options: EncoderAttentionOptions,
    private readonly parts: Parts,
  ) {}

  /** @param at the name of the layer, such as `blk.0` */
  static async load(
    source: Weights,
    at: string,
    config: DecoderConfig,
    options: EncoderAttentionOptions = {},
  ): Promise<EncoderAttention> {
    const { hiddenSize, numHeads, headDim, normEps } = config;
    const width = numHeads * headDim;
    const made: { dispose(): void }[] = [];
    const own = <T extends { dispose(): void }>(thing: T): T => {
      made.push(thing);
      return thing;
    };
    try {
      const fused = `${at}.attn_qkv`;
      const separate = ['q', 'k', 'v'].map((part) => ({ name: `${at}.attn_${part}`, out: width }));
      const qkv = source.has(fused)
        ? await source.fused(fused, [width, width, width], hiddenSize)
        : await source.group(separate, hiddenSize);
      own(qkv);
      const o = own(await source.linear(`${at}.attn_output`, hiddenSize, width));
      if (!options.qkNorm) return new EncoderAttention(config, source.activations, options, { qkv, o });
      const q = own(await source.layerNorm(`${at}.attn_q_norm`, width, normEps));
      const k = own(await source.layerNorm(`${at}.attn_k_norm`, width, normEps));
      return new EncoderAttention(config, source.activations, options, { qkv, o, norms: { q, k } });
    } catch (error) {
      for (const thing of made) thing.dispose();
      throw error;
    }
  }

  /** As what it is best given its input. */
  reads(rows: number): ActivationForm {
    return this.parts.qkv.reads(rows);
  }

  /**
   * x [tokens, hidden] to the same shape, f32, and a bias that is still to be added to that, [hidden], the layer's own. What it
   * makes on the way is its caller's scope's.
   */
  unbiased(x: Activations, { segments, angles, slopes }: EncoderContext): Unbiased {
    const { numHeads, headDim } = this.config;
    const { qkv, o, norms } = this.parts;
    const { window } = this.options;
    const [q, k, v] = qkv.forward(x);
    const tokens = q.dim(0);
    const heads = (rows: Tensor) => rows.reshape([tokens, numHeads, headDim]);
    const turned = (rows: Tensor, norm: LayerNorm | undefined, turn: { cos: Tensor; sin: Tensor } | undefined) => {
      const normed = heads(norm ? norm.forward(rows) : rows);
      const placed = turn ? rotate(normed.unsqueeze(0), turn.cos, turn.sin, 'thd').squeeze(0) : normed;
      return inDtype(placed, this.dtype);
    };
    const attended = packedAttention(
      turned(q, norms?.q, angles?.query),
      turned(k, norms?.k, angles?.key),
      inDtype(heads(v), this.dtype),
      segments,
      { scale: angles?.rotation.scaled ? 1 : 1 / Math.sqrt(headDim), window, slopes },
    );
    return projectUnbiased(o, attended.reshape([tokens, numHeads * headDim]), this.dtype);
  }

  dispose(): void {
    const { qkv, o, norms } = this.parts;
    for (const part of [qkv, o, norms?.q, norms?.k]) part?.dispose();
  }
}
