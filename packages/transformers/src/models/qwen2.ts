/** Qwen 2 and 2.5: Llama with biases of query, key and value. candle's qwen2.rs and quantized_qwen2.rs. */
import { decoderConfig } from '../config/decoder-config';
import { unsupported } from '../config/problems';
import type { Architecture } from '../registry';
import { DECODER_NAMES } from '../weights/tensor-names';
import { transformer } from './transformer';

export const qwen2: Architecture = {
  architectures: ['qwen2', 'Qwen2ForCausalLM'],
  gguf: 'qwen2',
  names: DECODER_NAMES,
  config(source, vocabSize) {
    // Which layers have the window differs between versions of transformers; no released model uses it.
    if (source.json('use_sliding_window') === true) throw unsupported('uses sliding windows (use_sliding_window)');
    return decoderConfig(source, vocabSize);
  },
  ggufExtras: () => ({}),
  build: (source, config, length) => transformer(source, config, { length }),
};
