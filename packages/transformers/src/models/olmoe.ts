/** OLMoE: Llama with mixtures of experts and norms of all queries and all keys together. */
import { decoderConfig } from '../config/decoder-config';
import { unsupported } from '../config/problems';
import type { Architecture } from '../registry';
import { BASE_NAMES, EXPERT_NAMES, PRE_NORM_NAMES, QK_NORM_NAMES } from '../weights/tensor-names';
import { MixtureOfExperts, type MoeDecoderConfig, moeMetadata, moeSizes } from './moe';
import { transformer } from './transformer';

export const olmoe: Architecture<MoeDecoderConfig> = {
  architectures: ['olmoe', 'OlmoeForCausalLM'],
  gguf: 'olmoe',
  names: [...BASE_NAMES, ...PRE_NORM_NAMES, ...QK_NORM_NAMES, ...EXPERT_NAMES],
  config(source, vocabSize) {
    if (source.json('clip_qkv') != null) throw unsupported('clips queries, keys and values (clip_qkv)');
    const base = decoderConfig(source, vocabSize);
    const renormalise = source.json('norm_topk_prob') === true;
    return { ...base, moe: { ...moeSizes(source, base.intermediateSize), scores: 'softmax', renormalise } };
  },
  // Files of this architecture mean weights that are not divided by their sum.
  ggufExtras: ({ moe }) => (moe.renormalise ? undefined : { whole: moeMetadata(moe) }),
  build: (source, config, length) =>
    transformer(source, config, {
      length,
      layer: (i) => ({
        attention: { qkNorm: 'width' },
        feed: () => MixtureOfExperts.load(source, `blk.${i}`, config),
      }),
    }),
};
