/** Granite with mixtures of experts, whose gates and ups are one weight in checkpoints. */
import type { Architecture } from '../registry';
import { BASE_NAMES, PRE_NORM_NAMES } from '../weights/tensor-names';
import { type GraniteConfig, graniteConfig, graniteMetadata, graniteOptions } from './granite';
import { MixtureOfExperts, type MoeDecoderConfig, moeMetadata, moeSizes } from './moe';
import { transformer } from './transformer';

export const graniteMoe: Architecture<GraniteConfig & MoeDecoderConfig> = {
  architectures: ['granitemoe', 'GraniteMoeForCausalLM'],
  gguf: 'granitemoe',
  names: [
    ...BASE_NAMES,
    ...PRE_NORM_NAMES,
    ['model.layers.{i}.block_sparse_moe.router.layer', 'blk.{i}.ffn_gate_inp'],
    ['model.layers.{i}.block_sparse_moe.input_linear', 'blk.{i}.ffn_gate_exps', { part: [0, 2] }],
    ['model.layers.{i}.block_sparse_moe.input_linear', 'blk.{i}.ffn_up_exps', { part: [1, 2] }],
    ['model.layers.{i}.block_sparse_moe.output_linear', 'blk.{i}.ffn_down_exps'],
  ],
  pairs: 'reordered',
  config(source, vocabSize) {
    const base = graniteConfig(source, vocabSize);
    return { ...base, moe: { ...moeSizes(source, base.intermediateSize), scores: 'softmax', renormalise: true } };
  },
  ggufExtras: (config) => ({ whole: moeMetadata(config.moe), real: graniteMetadata(config) }),
  build(source, config, length) {
    const options = graniteOptions(config, length);
    const layer = (i: number) => ({
      ...options.layer?.(i),
      feed: () => MixtureOfExperts.load(source, `blk.${i}`, config),
    });
    return transformer(source, config, { ...options, layer });
  },
};
