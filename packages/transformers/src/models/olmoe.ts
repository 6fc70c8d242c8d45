/** OLMoE: Llama with mixtures of experts and norms of all queries and all keys together. */
import { decoderConfig } from '../config/decoder-config';
import type { Architecture } from '../registry';
import { BASE_NAMES, EXPERT_NAMES, PRE_NORM_NAMES, QK_NORM_NAMES } from '../weights/tensor-names';
import { MixtureOfExperts, type MoeDecoderConfig, moeMetadata, moeSizes } from './moe';
import { transformer } from './transformer';

export interface OlmoeConfig extends MoeDecoderConfig {
  /** Queries, keys and values are kept within plus and minus this; undefined where they are not. GGUF files do not hold it. */
  clip: number | undefined;
}

export const olmoe: Architecture<OlmoeConfig> = {
  architectures: ['olmoe', 'OlmoeForCausalLM'],
  gguf: 'olmoe',
  names: [...BASE_NAMES, ...PRE_NORM_NAMES, ...QK_NORM_NAMES, ...EXPERT_NAMES],
  config(source, vocabSize) {
    const base = decoderConfig(source, vocabSize);
    const renormalise = source.jsonFlag('norm_topk_prob', false);
    const clip = source.json('clip_qkv') == null ? undefined : source.jsonNumber('clip_qkv', 0);
    return { ...base, clip, moe: { ...moeSizes(source, base.intermediateSize), scores: 'softmax', renormalise } };
  },
  // Files of this architecture mean weights that are not divided by their sum.
  ggufExtras: ({ moe, clip }) => (moe.renormalise || clip !== undefined ? undefined : { whole: moeMetadata(moe) }),
  build: (source, config, length) =>
    transformer(source, config, {
      length,
      layer: (i) => ({
        attention: { qkNorm: 'width', clip: config.clip },
        feed: () => MixtureOfExperts.load(source, `blk.${i}`, config),
      }),
    }),
};
