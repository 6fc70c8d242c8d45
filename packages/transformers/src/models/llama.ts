/**
 * Llama and the models built like it (Llama 1 to 3.3, TinyLlama, SmolLM, ...): candle's llama.rs and quantized_llama.rs in
 * one file, because the weights decide what a linear layer is.
 */
import { decoderConfig } from '../config/decoder-config';
import type { Architecture } from '../registry';
import { DECODER_NAMES } from '../weights/tensor-names';
import { transformer } from './transformer';

export const llama: Architecture = {
  architectures: ['llama', 'LlamaForCausalLM'],
  gguf: 'llama',
  names: DECODER_NAMES,
  pairs: 'reordered',
  config: decoderConfig,
  ggufExtras: () => ({}),
  build: (source, config, length) => transformer(source, config, { length }),
};
