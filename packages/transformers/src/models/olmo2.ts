/** OLMo 2: norms behind attention and feed-forward layer only, and of all queries and all keys together. candle's olmo2.rs. */
import { decoderConfig } from '../config/decoder-config';
import type { Architecture } from '../registry';
import { BASE_NAMES, GATED_MLP_NAMES, POST_NORM_NAMES, QK_NORM_NAMES } from '../weights/tensor-names';
import { POST_NORMS } from './layer';
import { transformer } from './transformer';

export const olmo2: Architecture = {
  architectures: ['olmo2', 'Olmo2ForCausalLM'],
  gguf: 'olmo2',
  names: [...BASE_NAMES, ...POST_NORM_NAMES, ...QK_NORM_NAMES, ...GATED_MLP_NAMES],
  config: decoderConfig,
  ggufExtras: () => ({}),
  build: (source, config, length) =>
    transformer(source, config, {
      length,
      layer: () => ({ attention: { qkNorm: 'width' }, norms: POST_NORMS }),
    }),
};
