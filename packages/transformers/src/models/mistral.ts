/**
 * Mistral: Llama with a window of positions in every layer, where config.json names one. candle's mistral.rs. GGUF files
 * are of the architecture `llama` and hold no window.
 */
import { type DecoderConfig, decoderConfig } from '../config/decoder-config';
import type { Architecture } from '../registry';
import { llama, llamaModel } from './llama';

export interface MistralConfig extends DecoderConfig {
  /** Positions that a token sees, its own included; undefined for all. */
  slidingWindow: number | undefined;
}

export const mistral: Architecture<MistralConfig> = {
  ...llama,
  architectures: ['mistral', 'MistralForCausalLM'],
  config: (source, vocabSize) => ({
    ...decoderConfig(source, vocabSize),
    slidingWindow: source.has('sliding_window') ? source.count('sliding_window') : undefined,
  }),
  build: (source, config, length) => llamaModel(source, config, length, () => ({ window: config.slidingWindow })),
};
