/** Mixtral: Mistral with a mixture of experts. candle's mixtral.rs. GGUF files are of the architecture `llama`. */
import { type DecoderConfig, decoderConfig } from '../config/decoder-config';
import type { Architecture } from '../registry';
import { BASE_NAMES, PRE_NORM_NAMES } from '../weights/tensor-names';
import { type WindowedConfig, windowExtras, windowOf } from './mistral';
import { MixtureOfExperts, type MoeDecoderConfig, moeMetadata, moeSizes } from './moe';
import { transformer } from './transformer';

export const mixtral: Architecture<DecoderConfig & MoeDecoderConfig & WindowedConfig> = {
  architectures: ['mixtral', 'MixtralForCausalLM'],
  gguf: 'llama',
  isInGguf: (source) => source.number('num_experts', 0) > 0,
  names: [
    ...BASE_NAMES,
    ...PRE_NORM_NAMES,
    ['model.layers.{i}.block_sparse_moe.gate', 'blk.{i}.ffn_gate_inp'],
    ['model.layers.{i}.block_sparse_moe.experts.{e}.w1', 'blk.{i}.ffn_gate_exps'],
    ['model.layers.{i}.block_sparse_moe.experts.{e}.w3', 'blk.{i}.ffn_up_exps'],
    ['model.layers.{i}.block_sparse_moe.experts.{e}.w2', 'blk.{i}.ffn_down_exps'],
  ],
  pairs: 'reordered',
  config(source, vocabSize) {
    const base = decoderConfig(source, vocabSize);
    const moe = { ...moeSizes(source, base.intermediateSize), scores: 'softmax', renormalise: true } as const;
    return { ...base, ...windowOf(source), moe };
  },
  ggufExtras: (config) => ({ whole: { ...moeMetadata(config.moe), ...windowExtras(config) } }),
  build: (source, config, length) =>
    transformer(source, config, {
      length,
      layer: (i) => ({
        attention: { window: config.slidingWindow },
        feed: () => MixtureOfExperts.load(source, `blk.${i}`, config),
      }),
    }),
};
