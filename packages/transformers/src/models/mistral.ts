/**
 * Mistral: Llama with a window of positions in every layer, where config.json names one. candle's mistral.rs. GGUF files
 * are of the architecture `llama` and hold no window.
 */
import type { ConfigSource } from '../config/config-source';
import { type DecoderConfig, decoderConfig } from '../config/decoder-config';
import type { Architecture } from '../registry';
import { llama } from './llama';
import { transformer } from './transformer';

export interface WindowedConfig {
  /** Positions that a token sees, its own included; undefined for all. */
  slidingWindow: number | undefined;
}

export function windowOf(source: ConfigSource): WindowedConfig {
  return { slidingWindow: source.has('sliding_window') ? source.count('sliding_window') : undefined };
}

export const mistral: Architecture<DecoderConfig & WindowedConfig> = {
  ...llama,
  architectures: ['mistral', 'MistralForCausalLM'],
  config: (source, vocabSize) => ({ ...decoderConfig(source, vocabSize), ...windowOf(source) }),
  build: (source, config, length) =>
    transformer(source, config, { length, layer: () => ({ attention: { window: config.slidingWindow } }) }),
};
