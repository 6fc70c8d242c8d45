/**
 * gpt-oss: mixtures of experts with biases, attention with sinks, a window in every second layer, positions scaled by yarn.
 */
import type { ConfigSource } from '../config/config-source';
import { decoderConfig } from '../config/decoder-config';
import { windowedLayers } from '../config/layer-types';
import type { Architecture } from '../registry';
import { BASE_NAMES, type TensorForm, type TensorNamePair } from '../weights/tensor-names';
import { MixtureOfExperts, type MoeDecoderConfig, moeSizes } from './moe';
import { transformer } from './transformer';

export interface GptOssConfig extends MoeDecoderConfig {
  /** Positions that a local layer sees, the token's own included. */
  slidingWindow: number;
  /** Whether each layer is local. */
  local: readonly boolean[];
  /** Gates are at most this, ups within plus and minus this. */
  limit: number;
}

/** Rows of gates and ups take turns in one weight, which is stored [experts, in, out]. */
const experts = (index: number, gguf: string): TensorNamePair[] => {
  const form: TensorForm = { part: [index, 2], interleaved: true };
  return [
    ['model.layers.{i}.mlp.experts.gate_up_proj', `blk.{i}.${gguf}.weight`, { ...form, transposed: true }],
    ['model.layers.{i}.mlp.experts.gate_up_proj_bias', `blk.{i}.${gguf}.bias`, form],
  ];
};

function gptOssConfig(source: ConfigSource, vocabSize?: number): GptOssConfig {
  const base = decoderConfig(source, vocabSize, { headDim: 64, packings: ['mxfp4'] });
  const width = source.format === 'gguf' ? source.count('moe_intermediate_size') : base.intermediateSize;
  return {
    ...base,
    slidingWindow: source.has('sliding_window') ? source.count('sliding_window') : 128,
    local: windowedLayers(source, base.numLayers, 2),
    limit: source.jsonNumber('swiglu_limit', 7),
    moe: { ...moeSizes(source, width), scores: 'softmax', renormalise: true },
  };
}

export const gptOss: Architecture<GptOssConfig> = {
  architectures: ['gpt_oss', 'GptOssForCausalLM'],
  gguf: 'gpt-oss',
  names: [
    ...BASE_NAMES,
    ['model.layers.{i}.input_layernorm', 'blk.{i}.attn_norm'],
    ['model.layers.{i}.post_attention_layernorm', 'blk.{i}.post_attention_norm'],
    ['model.layers.{i}.self_attn.sinks', 'blk.{i}.attn_sinks.weight'],
    ['model.layers.{i}.mlp.router', 'blk.{i}.ffn_gate_inp'],
    ...experts(0, 'ffn_gate_exps'),
    ...experts(1, 'ffn_up_exps'),
    ['model.layers.{i}.mlp.experts.down_proj', 'blk.{i}.ffn_down_exps.weight', { transposed: true }],
    ['model.layers.{i}.mlp.experts.down_proj_bias', 'blk.{i}.ffn_down_exps.bias'],
  ],
  config: gptOssConfig,
  build(source, config, length) {
    const { local, slidingWindow, limit } = config;
    return transformer(source, config, {
      length,
      layer: (i) => ({
        attention: { sinks: true, window: local[i] ? slidingWindow : undefined },
        norms: { attention: 'attn_norm', feed: 'post_attention_norm' },
        feed: () => MixtureOfExperts.load(source, `blk.${i}`, config, { limit }),
      }),
    });
  },
};
