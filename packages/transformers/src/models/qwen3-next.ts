/** Qwen 3 Next: as Qwen 3.5, with mixtures of experts and an expert that all tokens take, times a gate of its own. */
import type { ConfigSource } from '../config/config-source';
import type { Architecture } from '../registry';
import { EXPERT_NAMES, GATED_MLP_NAMES } from '../weights/tensor-names';
import { GatedMlp } from './gated-mlp';
import { MixtureOfExperts, type MoeDecoderConfig, moeSizes, sparseLayers } from './moe';
import { DELTA_HYBRID_NAMES, type DeltaHybridConfig, deltaHybridConfig, deltaHybridLayer } from './qwen3-5';
import { transformer } from './transformer';

export interface Qwen3NextConfig extends DeltaHybridConfig, MoeDecoderConfig {
  /** Whether each layer has experts; the others have one feed-forward layer. */
  sparse: readonly boolean[];
}

function qwen3NextConfig(source: ConfigSource, vocabSize?: number): Qwen3NextConfig {
  const base = deltaHybridConfig(source, vocabSize, 'grouped');
  return {
    ...base,
    sparse: sparseLayers(source, base.numLayers),
    moe: {
      ...moeSizes(source, source.count('moe_intermediate_size')),
      scores: 'softmax',
      // llama.cpp divides always.
      renormalise: source.format === 'gguf' || source.jsonFlag('norm_topk_prob', true),
      shared: source.count('shared_expert_intermediate_size'),
    },
  };
}

export const qwen3Next: Architecture<Qwen3NextConfig> = {
  architectures: ['qwen3_next', 'Qwen3NextForCausalLM'],
  gguf: 'qwen3next',
  names: [
    ...DELTA_HYBRID_NAMES,
    ...GATED_MLP_NAMES,
    ...EXPERT_NAMES,
    ['model.layers.{i}.linear_attn.in_proj_qkvz', 'blk.{i}.ssm_in'],
    ['model.layers.{i}.linear_attn.in_proj_ba', 'blk.{i}.ssm_ba'],
    ['model.layers.{i}.mlp.shared_expert.gate_proj', 'blk.{i}.ffn_gate_shexp'],
    ['model.layers.{i}.mlp.shared_expert.up_proj', 'blk.{i}.ffn_up_shexp'],
    ['model.layers.{i}.mlp.shared_expert.down_proj', 'blk.{i}.ffn_down_shexp'],
    ['model.layers.{i}.mlp.shared_expert_gate', 'blk.{i}.ffn_gate_inp_shexp'],
  ],
  normOffset: 1,
  config: qwen3NextConfig,
  build: (source, config, length) =>
    transformer(source, config, {
      length,
      layer: (i) => ({
        ...deltaHybridLayer(source, i, config),
        feed: () => (config.sparse[i] ? MixtureOfExperts : GatedMlp).load(source, `blk.${i}`, config),
      }),
    }),
};
