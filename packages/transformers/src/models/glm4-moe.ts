/**
 * GLM 4.5: mixtures of experts behind some dense layers, routed by sigmoids with a correction, and an expert that all tokens
 * take. Half of each head is rotated.
 */
import type { ConfigSource } from '../config/config-source';
import { decoderConfig } from '../config/decoder-config';
import type { Architecture } from '../registry';
import { BASE_NAMES, EXPERT_NAMES, GATED_MLP_NAMES, QK_NORM_NAMES } from '../weights/tensor-names';
import { GatedMlp } from './gated-mlp';
import { checkWeighing, expertGroups, MixtureOfExperts, type MoeDecoderConfig, moeSizes } from './moe';
import { transformer } from './transformer';

export interface Glm4MoeConfig extends MoeDecoderConfig {
  /** Layers without experts, the first ones. */
  denseLayers: number;
}

function glm4MoeConfig(source: ConfigSource, vocabSize?: number): Glm4MoeConfig {
  checkWeighing(source, 'sigmoid', true);
  const base = decoderConfig(source, vocabSize, { partialRotary: 0.5 });
  const sizes = moeSizes(source, source.count('moe_intermediate_size'));
  // GGUF files count the layers that predict further tokens, which are not used here.
  const further = source.format === 'gguf' ? source.number('num_nextn_predict_layers', 0) : 0;
  return {
    ...base,
    numLayers: base.numLayers - further,
    denseLayers: source.number('first_k_dense_replace', source.format === 'json' ? 1 : 0),
    moe: {
      ...sizes,
      scores: 'sigmoid',
      renormalise: source.flag('norm_topk_prob', true),
      scale: source.number('routed_scaling_factor', 1),
      shared: source.number('n_shared_experts', 1) * sizes.width,
      groups: expertGroups(source, sizes, 2),
    },
  };
}

export const glm4Moe: Architecture<Glm4MoeConfig> = {
  architectures: ['glm4_moe', 'Glm4MoeForCausalLM'],
  gguf: 'glm4moe',
  names: [
    ...BASE_NAMES,
    ['model.layers.{i}.input_layernorm', 'blk.{i}.attn_norm'],
    ['model.layers.{i}.post_attention_layernorm', 'blk.{i}.post_attention_norm'],
    ...QK_NORM_NAMES,
    ...GATED_MLP_NAMES,
    ...EXPERT_NAMES,
    ['model.layers.{i}.mlp.gate.e_score_correction_bias', 'blk.{i}.exp_probs_b.bias'],
    ['model.layers.{i}.mlp.shared_experts.gate_proj', 'blk.{i}.ffn_gate_shexp'],
    ['model.layers.{i}.mlp.shared_experts.up_proj', 'blk.{i}.ffn_up_shexp'],
    ['model.layers.{i}.mlp.shared_experts.down_proj', 'blk.{i}.ffn_down_shexp'],
  ],
  config: glm4MoeConfig,
  build: (source, config, length) =>
    transformer(source, config, {
      length,
      layer: (i) => ({
        // Some sizes of the model have these norms, some have not.
        attention: source.has(`blk.${i}.attn_q_norm`) ? { qkNorm: 'head' } : {},
        norms: { attention: 'attn_norm', feed: 'post_attention_norm' },
        feed: () =>
          i < config.denseLayers
            ? GatedMlp.load(source, `blk.${i}`, config)
            : MixtureOfExperts.load(source, `blk.${i}`, config),
      }),
    }),
};
