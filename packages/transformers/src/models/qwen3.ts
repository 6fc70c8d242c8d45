/** Qwen 3: Llama with norms of queries and keys, a head each. candle's qwen3.rs and quantized_qwen3.rs. */
import { decoderConfig } from '../config/decoder-config';
import { unsupported } from '../config/problems';
import type { Architecture } from '../registry';
import { DECODER_NAMES, QK_NORM_NAMES } from '../weights/tensor-names';
import { transformer } from './transformer';

export const qwen3: Architecture = {
  architectures: ['qwen3', 'Qwen3ForCausalLM'],
  gguf: 'qwen3',
  names: [...DECODER_NAMES, ...QK_NORM_NAMES],
  config(source, vocabSize) {
    if (source.json('use_sliding_window') === true) throw unsupported('uses sliding windows (use_sliding_window)');
    return decoderConfig(source, vocabSize, { headDim: 128 });
  },
  ggufExtras: () => ({}),
  build: (source, config, length) =>
    transformer(source, config, { length, layer: () => ({ attention: { qkNorm: 'head' } }) }),
};
