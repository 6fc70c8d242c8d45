/**
 * Mistral: Llama with a window of positions in every layer, where config.json names one. candle's mistral.rs. GGUF files
 * are of the architecture `llama` and hold no window.
 */
import type { ConfigSource } from '../config/config-source';
import { type DecoderConfig, decoderConfig } from '../config/decoder-config';
import { unsupported } from '../config/problems';
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

/**
 * What a GGUF file says where it cannot hold the window: that the model is for as many positions as see one another all, so that
 * longer texts are refused instead of being computed without it.
 */
export function contextInWindow({ contextLength, slidingWindow }: DecoderConfig & WindowedConfig) {
  return { max_position_embeddings: Math.min(contextLength, slidingWindow ?? contextLength) };
}

export const mistral: Architecture<DecoderConfig & WindowedConfig> = {
  ...llama,
  architectures: ['mistral', 'MistralForCausalLM'],
  config: (source, vocabSize) => ({ ...decoderConfig(source, vocabSize), ...windowOf(source) }),
  ggufExtras: (config) => ({ whole: contextInWindow(config) }),
  build: (source, config, length) =>
    transformer(source, config, { length, layer: () => ({ attention: { window: config.slidingWindow } }) }),
};

/**
 * The text part of Mistral Small 3.1 and later in GGUF files, which is Llama; its checkpoints are read as `mistral`. Files of the same
 * name hold Ministral 3, whose queries grow with the position.
 */
export const mistral3: Architecture = {
  ...llama,
  architectures: ['mistral3_text'],
  gguf: 'mistral3',
  config(source, vocabSize) {
    const config = decoderConfig(source, vocabSize);
    if (config.ropeScaling || source.has('attention_temperature_scale'))
      throw unsupported('scales queries by position (attention.temperature_scale), as Ministral 3 does');
    return config;
  },
};
