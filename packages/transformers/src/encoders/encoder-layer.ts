/** An encoder's layer: attention and a feed-forward layer, each added to what it was given, with norms in front or behind. */
import { QuantizedActivations, type Tensor } from '@x/core';
import type { ActivationForm, Activations, Module } from '@x/nn';
import type { DecoderConfig } from '../config/decoder-config';
import type { Own } from '../models/decoder';
import type { FeedForward } from '../models/feed-forward';
import { normed } from '../models/residual';
import type { Unbiased } from '../weights/q-linear';
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

  /** As what the layer is best given its input: `both` where products read blocks of it. */
  reads(rows: number): ActivationForm {
    return this.places === 'post' ? besideNumbers(this.parts.attention.reads(rows)) : 'f32';
  }

  /** x is numbers, [tokens, hidden] in f32, or has them beside its blocks; so is what it gives. */
  attend(x: Activations, context: EncoderContext): Activations {
    const { attention, feed, norms, again } = this.parts;
    const rows = numbersOf(x).dim(0);
    const next = this.places === 'post' && !again ? besideNumbers(feed.reads(rows)) : 'f32';
    const attended = this.half(x, norms[0], attention.reads(rows), next, (input) => attention.unbiased(input, context));
    return again ? again.forward(numbersOf(x).add(numbersOf(attended))) : attended;
  }

  /** @param next as what the next layer is best given it */
  feed(x: Activations, next: ActivationForm = 'f32'): Activations {
    const { feed, norms } = this.parts;
    return this.half(
      x,
      norms[1],
      feed.reads(numbersOf(x).dim(0)),
      next,
      (input) => feed.unbiased?.(input) ?? { product: feed.forward(input) },
    );
  }

  private half(
    x: Activations,
    norm: Module | undefined,
    reads: ActivationForm,
    next: ActivationForm,
    inner: (x: Activations) => Unbiased,
  ): Activations {
    const numbers = numbersOf(x);
    if (this.places === 'pre') {
      const { product, bias } = inner(normed({ x: numbers }, norm, reads).input);
      return numbers.add(bias ? product.broadcastAdd(bias) : product);
    }
    const { product: delta, bias: deltaBias } = inner(x);
    return normed({ x: numbers, delta, ...(deltaBias && { deltaBias }) }, norm, next).input;
  }

  dispose(): void {
    const { attention, feed, norms, again } = this.parts;
    for (const part of [attention, feed, ...norms, again]) part?.dispose();
  }
}

/** A form with numbers in f32 beside blocks. */
function besideNumbers(form: ActivationForm): ActivationForm {
  return form === 'blocks' ? 'both' : 'f32';
}

/** The numbers of a layer's input. */
export function numbersOf(x: Activations): Tensor {
  return x instanceof QuantizedActivations ? x.numbers! : x;
}
