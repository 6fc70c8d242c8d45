/** Qwen 3.5, text: Gated DeltaNet in most layers, attention with a gate in the others, dense feed-forward layers. */
import type { ConfigSource } from '../config/config-source';
import { type DecoderConfig, decoderConfig } from '../config/decoder-config';
import type { Architecture } from '../registry';
import { BASE_NAMES, GATED_MLP_NAMES, QK_NORM_NAMES, type TensorNamePair } from '../weights/tensor-names';
import type { Weights } from '../weights/weights';
import { deltaSizes, GatedDeltaNet, type GatedDeltaNetConfig, linearLayers } from './gated-delta-net';
import type { LayerOptions } from './layer';
import { transformer } from './transformer';

export interface DeltaHybridConfig extends DecoderConfig, GatedDeltaNetConfig {
  /** Whether each layer is a Gated DeltaNet. */
  linear: readonly boolean[];
}

/** @param sharing of the heads in GGUF files */
export function deltaHybridConfig(
  source: ConfigSource,
  vocabSize: number | undefined,
  sharing: 'grouped' | 'tiled',
): DeltaHybridConfig {
  const base = decoderConfig(source, vocabSize, { headDim: 256, partialRotary: 0.25 });
  // GGUF files count the layers that predict further tokens, which are not used here.
  const further = source.format === 'gguf' ? source.number('num_nextn_predict_layers', 0) : 0;
  const numLayers = base.numLayers - further;
  return {
    ...base,
    numLayers,
    linear: linearLayers(source, numLayers),
    delta: deltaSizes(source, source.format === 'gguf' ? sharing : 'grouped'),
  };
}

/** Norms, attention and what both kinds of Gated DeltaNet have. */
export const DELTA_HYBRID_NAMES: readonly TensorNamePair[] = [
  ...BASE_NAMES,
  ...QK_NORM_NAMES,
  ['model.layers.{i}.input_layernorm', 'blk.{i}.attn_norm'],
  ['model.layers.{i}.post_attention_layernorm', 'blk.{i}.post_attention_norm'],
  ['model.layers.{i}.linear_attn.conv1d', 'blk.{i}.ssm_conv1d'],
  ['model.layers.{i}.linear_attn.dt_bias', 'blk.{i}.ssm_dt.bias'],
  ['model.layers.{i}.linear_attn.A_log', 'blk.{i}.ssm_a', { bare: true, negativeExp: true }],
  ['model.layers.{i}.linear_attn.norm', 'blk.{i}.ssm_norm'],
  ['model.layers.{i}.linear_attn.out_proj', 'blk.{i}.ssm_out'],
];

/** What is in the place of attention in a layer, and its norms. */
export function deltaHybridLayer(source: Weights, i: number, config: DeltaHybridConfig): LayerOptions {
  return {
    norms: { attention: 'attn_norm', feed: 'post_attention_norm' },
    ...(config.linear[i]
      ? { mix: () => GatedDeltaNet.load(source, `blk.${i}`, config) }
      : { attention: { qkNorm: 'head', gate: true } }),
  };
}

export const qwen3_5: Architecture<DeltaHybridConfig> = {
  architectures: ['qwen3_5_text', 'Qwen3_5ForCausalLM'],
  gguf: 'qwen35',
  names: [
    ...DELTA_HYBRID_NAMES,
    ...GATED_MLP_NAMES,
    ['model.layers.{i}.linear_attn.in_proj_qkv', 'blk.{i}.attn_qkv'],
    ['model.layers.{i}.linear_attn.in_proj_z', 'blk.{i}.attn_gate'],
    ['model.layers.{i}.linear_attn.in_proj_b', 'blk.{i}.ssm_beta'],
    ['model.layers.{i}.linear_attn.in_proj_a', 'blk.{i}.ssm_alpha'],
  ],
  normOffset: 1,
  config: (source, vocabSize) => deltaHybridConfig(source, vocabSize, 'tiled'),
  build: (source, config, length) =>
    transformer(source, config, { length, layer: (i) => deltaHybridLayer(source, i, config) }),
};
