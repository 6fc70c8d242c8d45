/** Qwen 3 with mixtures of experts. candle's qwen3_moe.rs and quantized_qwen3_moe.rs. */
import type { ConfigSource } from '../config/config-source';
import { decoderConfig } from '../config/decoder-config';
import { askedWindow } from '../config/layer-types';
import type { Architecture } from '../registry';
import { BASE_NAMES, EXPERT_NAMES, GATED_MLP_NAMES, PRE_NORM_NAMES, QK_NORM_NAMES } from '../weights/tensor-names';
import { GatedMlp } from './gated-mlp';
import { checkWeighing, MixtureOfExperts, type MoeDecoderConfig, moeMetadata, moeSizes, sparseLayers } from './moe';
import type { QwenConfig } from './qwen2';
import { transformer } from './transformer';

interface Qwen3MoeConfig extends MoeDecoderConfig, QwenConfig {
  /** Whether each layer has experts; the others have one feed-forward layer. */
  sparse: readonly boolean[];
}

function qwen3MoeConfig(source: ConfigSource, vocabSize?: number): Qwen3MoeConfig {
  checkWeighing(source, 'softmax', false);
  const sizes = moeSizes(source, source.count('moe_intermediate_size'));
  // llama.cpp divides always; transformers leaves it out unless told.
  const renormalise = source.format === 'gguf' || source.jsonFlag('norm_topk_prob', false);
  const base = decoderConfig(source, vocabSize);
  return {
    ...base,
    // Of all layers, whatever layer_types and max_window_layers say: transformers.
    windows: Array(base.numLayers).fill(askedWindow(source)),
    sparse: sparseLayers(source, base.numLayers),
    moe: { ...sizes, scores: 'softmax', renormalise },
  };
}

const STACKED = 'model.layers.{i}.mlp.experts';

export const qwen3Moe: Architecture<Qwen3MoeConfig> = {
  architectures: ['qwen3_moe', 'Qwen3MoeForCausalLM'],
  gguf: 'qwen3moe',
  names: [...BASE_NAMES, ...PRE_NORM_NAMES, ...QK_NORM_NAMES, ...GATED_MLP_NAMES, ...EXPERT_NAMES],
  config: qwen3MoeConfig,
  ggufExtras: ({ moe, windows, sparse }) =>
    moe.renormalise && sparse.every((flag, i) => flag && windows[i] === undefined)
      ? { whole: moeMetadata(moe) }
      : undefined,
  build: (source, config, length) =>
    transformer(source, config, {
      length,
      layer: (i) => ({
        attention: { qkNorm: 'head', window: config.windows[i] },
        feed: () => (config.sparse[i] ? MixtureOfExperts : GatedMlp).load(source, `blk.${i}`, config),
      }),
    }),
};

/** The text part of Qwen 3 VL with experts, whose checkpoints have these in one tensor, [experts, in, out]; weights are always divided. */
export const qwen3VlMoe: Architecture<Qwen3MoeConfig> = {
  ...qwen3Moe,
  architectures: ['qwen3_vl_moe_text'],
  gguf: 'qwen3vlmoe',
  names: [
    ...qwen3Moe.names.filter(([name]) => !name.includes('{e}')),
    [`${STACKED}.gate_up_proj`, 'blk.{i}.ffn_gate_exps.weight', { part: [0, 2], transposed: true }],
    [`${STACKED}.gate_up_proj`, 'blk.{i}.ffn_up_exps.weight', { part: [1, 2], transposed: true }],
    [`${STACKED}.down_proj`, 'blk.{i}.ffn_down_exps.weight', { transposed: true }],
  ],
  config(source, vocabSize) {
    const config = qwen3MoeConfig(source, vocabSize);
    return { ...config, moe: { ...config.moe, renormalise: true } };
  },
};
