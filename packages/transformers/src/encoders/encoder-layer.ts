/** An encoder's layer: attention and a feed-forward layer, each added to what it was given, with norms in front or behind. */
import type { Tensor } from '@x/core';
import type { Module } from '@x/nn';
import type { DecoderConfig } from '../config/decoder-config';
import type { Own } from '../models/decoder';
import type { FeedForward } from '../models/feed-forward';
import type { Weights } from '../weights/weights';
import { EncoderAttention, type EncoderAttentionOptions, type EncoderContext } from './encoder-attention';

export interface EncoderLayerOptions {
  attention?: EncoderAttentionOptions;
  /** Which of the model's rotations turns queries and keys. Default 0, the first. */
  rotation?: number;
  /** `post`: norms of sums, BERT's; `pre`: of what each half is given, where the file has them. */
  norms: 'post' | 'pre';
  /** Whether the layer's input is added to what attention's norm gives, too, and the sum has a norm of its own. Default false. */
  again?: boolean;
  feed: () => Promise<FeedForward>;
}

interface Parts {
  attention: EncoderAttention;
  feed: FeedForward;
  /** Of attention, and of the feed-forward layer. */
  norms: readonly [Module | undefined, Module | undefined];
  again?: Module;
}

/** Names of norms in GGUF files. */
const NORMS = { post: ['attn_output_norm', 'layer_output_norm'], pre: ['attn_norm', 'ffn_norm'] } as const;

export class EncoderLayer {
  private constructor(
    /** Index of the rotation. */
    readonly rotation: number,
    private readonly places: 'post' | 'pre',
    private readonly parts: Parts,
  ) {}

  /** @param at the name of the layer, such as `blk.0` */
  static async load(
    source: Weights,
    at: string,
    config: DecoderConfig,
    own: Own,
    { attention, rotation = 0, norms: places, again, feed }: EncoderLayerOptions,
  ): Promise<EncoderLayer> {
    const { hiddenSize, normEps } = config;
    const norms: (Module | undefined)[] = [];
    for (const name of NORMS[places]) {
      // ModernBERT's first layer is given what has been normed.
      const without = places === 'pre' && !source.has(`${at}.${name}`);
      norms.push(without ? undefined : own(await source.layerNorm(`${at}.${name}`, hiddenSize, normEps)));
    }
    return new EncoderLayer(rotation, places, {
      attention: own(await EncoderAttention.load(source, at, config, attention)),
      feed: own(await feed()),
      norms: [norms[0], norms[1]],
      ...(again && { again: own(await source.layerNorm(`${at}.attn_norm_2`, hiddenSize, normEps)) }),
    });
  }

  attend(x: Tensor, context: EncoderContext): Tensor {
    const { attention, norms, again } = this.parts;
    const attended = this.half(x, norms[0], (input) => attention.forward(input, context));
    return again ? again.forward(x.add(attended)) : attended;
  }

  feed(x: Tensor): Tensor {
    return this.half(x, this.parts.norms[1], (input) => this.parts.feed.forward(input));
  }

  private half(x: Tensor, norm: Module | undefined, inner: (x: Tensor) => Tensor): Tensor {
    if (this.places === 'pre') return x.add(inner(norm ? norm.forward(x) : x));
    const sum = x.add(inner(x));
    return norm ? norm.forward(sum) : sum;
  }

  dispose(): void {
    const { attention, feed, norms, again } = this.parts;
    for (const part of [attention, feed, ...norms, again]) part?.dispose();
  }
}
