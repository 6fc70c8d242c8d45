/**
 * A decoder layer of two steps, attention (or what is in its place) and a feed-forward layer, each added to what it was given.
 * What architectures differ in is where the norms are, and what they say of attention.
 */
import type { Tensor } from '@x/core';
import { type Module, RmsNorm } from '@x/nn';
import type { DecoderConfig } from '../config/decoder-config';
import type { Weights } from '../weights/weights';
import { type Angles, Attention, type AttentionOptions } from './attention';
import type { KvLayout, StateLayout } from './causal-model';
import type { DecoderLayer, LayerMemory, Own } from './decoder';
import type { FeedForward } from './feed-forward';
import { GatedMlp } from './gated-mlp';
import { normOf } from './norm-of';
import { normed, type Residual } from './residual';
import type { TokenMixer } from './token-mixer';

/** Names of norms, without the layer's; undefined where there is none. */
export interface NormPlaces {
  /** Of what attention is given. */
  attention?: string;
  /** Of what attention gives. */
  attended?: string;
  /** Of what the feed-forward layer is given. */
  feed?: string;
  /** Of what the feed-forward layer gives. */
  fed?: string;
}

/** In front of both: Llama. */
const PRE_NORMS: NormPlaces = { attention: 'attn_norm', feed: 'ffn_norm' };
/** Behind both: OLMo 2. */
export const POST_NORMS: NormPlaces = { attended: 'post_attention_norm', fed: 'post_ffw_norm' };
/** In front of both and behind both: Gemma 2. */
export const FOUR_NORMS: NormPlaces = { ...PRE_NORMS, ...POST_NORMS };

export interface LayerOptions {
  attention?: AttentionOptions;
  /** Default: {@link Attention} with the options of `attention`. */
  mix?: () => Promise<TokenMixer>;
  /** Which of the model's rotations turns queries and keys. Default 0, the first. */
  rotation?: number | 'none';
  /** Default {@link PRE_NORMS}. */
  norms?: NormPlaces;
  /** Whether norms take the mean away. Default `rms`: they do not. */
  norm?: 'rms' | 'layer';
  /** Multiplies what is added. Default 1. */
  residualScale?: number;
  /** Default: {@link GatedMlp} with silu. */
  feed?: () => Promise<FeedForward>;
}

export class ResidualLayer implements DecoderLayer {
  private constructor(
    private readonly mixer: TokenMixer,
    private readonly mlp: FeedForward,
    private readonly norms: { [place in keyof NormPlaces]: Module },
    private readonly rotation: number | 'none',
    private readonly residualScale: number,
  ) {}

  /** @param at the name of the layer, such as `blk.0` */
  static async load(
    source: Weights,
    at: string,
    config: DecoderConfig,
    own: Own,
    options: LayerOptions = {},
  ): Promise<ResidualLayer> {
    const { norms: places = PRE_NORMS, norm = 'rms', rotation = 0, residualScale = 1 } = options;
    const norms: { [place in keyof NormPlaces]: Module } = {};
    for (const [place, name] of Object.entries(places))
      norms[place as keyof NormPlaces] = own(await normOf(source, norm, `${at}.${name}`, config));
    const mix = options.mix ?? (() => Attention.load(source, at, config, options.attention ?? {}));
    const mixer = own(await mix());
    const mlp = own(await (options.feed?.() ?? GatedMlp.load(source, at, config)));
    return new ResidualLayer(mixer, mlp, norms, rotation, residualScale);
  }

  get kvLayout(): KvLayout | undefined {
    return this.mixer.kvLayout;
  }

  get stateLayout(): StateLayout | undefined {
    return this.mixer.stateLayout;
  }

  attend(at: Residual, angles: readonly Angles[], memory: LayerMemory): Residual {
    const { x, input } = normed(at, this.norms.attention, this.mixer.reads(at.x.dim(0)));
    const turn = this.rotation === 'none' ? undefined : angles[this.rotation];
    return this.add(x, this.mixer.forward(input, turn, memory), this.norms.attended);
  }

  feed(at: Residual): Residual {
    const { x, input } = normed(at, this.norms.feed, this.mlp.reads(at.x.dim(0)));
    return this.add(x, this.mlp.forward(input), this.norms.fed);
  }

  private add(x: Tensor, part: Tensor, norm: Module | undefined): Residual {
    const deltaScale = this.residualScale;
    if (norm instanceof RmsNorm) return { x, delta: part, deltaNorm: norm, deltaScale };
    return { x, delta: norm ? norm.forward(part) : part, deltaScale };
  }

  dispose(): void {
    for (const part of [this.mixer, this.mlp, ...Object.values(this.norms)]) part?.dispose();
  }
}
