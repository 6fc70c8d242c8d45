/** A model of layers that are alike: what most architectures are, as options. */
import type { DecoderConfig } from '../config/decoder-config';
import type { RopeConfig } from '../config/rope';
import type { Weights } from '../weights/weights';
import { Rotation } from './attention';
import { Decoder, type DecoderLayer, type EndsOptions, type Own } from './decoder';
import { type LayerOptions, ResidualLayer } from './layer';

export interface TransformerOptions extends EndsOptions {
  /** Positions that a sequence may have. */
  length: number;
  /** Multiplies the scores of attention. Default 1 / sqrt(headDim). */
  attentionScale?: number;
  /** Rotations that layers name by index. Default: that of the configuration. */
  rotations?: readonly RopeConfig[];
  /** What is special about a layer. */
  layer?: (index: number) => LayerOptions;
  /** Makes layers of another kind. Default: {@link ResidualLayer} with the options of `layer`. */
  makeLayer?: (index: number, own: Own) => Promise<DecoderLayer>;
}

export function transformer(source: Weights, config: DecoderConfig, options: TransformerOptions): Promise<Decoder> {
  const { headDim } = config;
  const { length, attentionScale: scale = 1 / Math.sqrt(headDim), rotations = [config], layer, makeLayer } = options;
  const residual = (i: number, own: Own) => {
    const special = layer?.(i) ?? {};
    const common = { norm: options.norm, ...special, attention: { scale, ...special.attention } };
    return ResidualLayer.load(source, `blk.${i}`, config, own, common);
  };
  return Decoder.load(source, config, {
    ...options,
    rotations: async (own) => {
      const made: Rotation[] = [];
      for (const rope of rotations) made.push(own(await Rotation.load(source, rope, { length, headDim, scale })));
      return made;
    },
    layer: makeLayer ?? residual,
  });
}
