/** A layer of one step, without a feed-forward layer: Mamba's. */
import type { Module } from '@x/nn';
import type { DecoderConfig } from '../config/decoder-config';
import type { Weights } from '../weights/weights';
import type { Angles } from './attention';
import type { KvLayout, StateLayout } from './causal-model';
import type { DecoderLayer, LayerMemory, Own } from './decoder';
import { normOf } from './norm-of';
import { normed, type Residual } from './residual';
import type { TokenMixer } from './token-mixer';

export class MixerLayer implements DecoderLayer {
  private constructor(
    private readonly norm: Module,
    private readonly mixer: TokenMixer,
  ) {}

  /** @param at the name of the layer, such as `blk.0` */
  static async load(
    source: Weights,
    at: string,
    config: DecoderConfig,
    own: Own,
    mix: () => Promise<TokenMixer>,
  ): Promise<MixerLayer> {
    return new MixerLayer(own(await normOf(source, 'rms', `${at}.attn_norm`, config)), own(await mix()));
  }

  get kvLayout(): KvLayout | undefined {
    return this.mixer.kvLayout;
  }

  get stateLayout(): StateLayout | undefined {
    return this.mixer.stateLayout;
  }

  attend(at: Residual, [angles]: readonly Angles[], memory: LayerMemory): Residual {
    const { x, input } = normed(at, this.norm, this.mixer.reads(at.x.dim(0)));
    return { x, delta: this.mixer.forward(input, angles, memory) };
  }

  dispose(): void {
    for (const part of [this.norm, this.mixer]) part.dispose();
  }
}
