/** Qwen 3 with mixtures of experts. candle's qwen3_moe.rs and quantized_qwen3_moe.rs. */
import type { ConfigSource } from '../config/config-source';
import { decoderConfig } from '../config/decoder-config';
import { unsupported } from '../config/problems';
import type { Architecture } from '../registry';
import { BASE_NAMES, EXPERT_NAMES, PRE_NORM_NAMES, QK_NORM_NAMES } from '../weights/tensor-names';
import { MixtureOfExperts, type MoeDecoderConfig, moeMetadata, moeSizes } from './moe';
import { transformer } from './transformer';

function qwen3MoeConfig(source: ConfigSource, vocabSize?: number): MoeDecoderConfig {
  const dense = source.json('mlp_only_layers');
  if ((Array.isArray(dense) && dense.length > 0) || source.jsonWhole('decoder_sparse_step', 1) !== 1)
    throw unsupported('has layers without experts (mlp_only_layers, decoder_sparse_step)');
  if (source.json('use_sliding_window') === true) throw unsupported('uses sliding windows (use_sliding_window)');
  const sizes = moeSizes(source, source.count('moe_intermediate_size'));
  // llama.cpp divides always; transformers leaves it out unless told.
  const renormalise = source.format === 'gguf' || source.json('norm_topk_prob') === true;
  return {
    ...decoderConfig(source, vocabSize, { headDim: 128 }),
    moe: { ...sizes, scores: 'softmax', renormalise },
  };
}

export const qwen3Moe: Architecture<MoeDecoderConfig> = {
  architectures: ['qwen3_moe', 'Qwen3MoeForCausalLM'],
  gguf: 'qwen3moe',
  names: [...BASE_NAMES, ...PRE_NORM_NAMES, ...QK_NORM_NAMES, ...EXPERT_NAMES],
  config: qwen3MoeConfig,
  ggufExtras: ({ moe }) => ({ whole: moeMetadata(moe) }),
  build: (source, config, length) =>
    transformer(source, config, {
      length,
      layer: (i) => ({
        attention: { qkNorm: 'head' },
        feed: () => MixtureOfExperts.load(source, `blk.${i}`, config),
      }),
    }),
};
