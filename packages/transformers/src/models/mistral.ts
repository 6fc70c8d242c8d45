/**
 * Mistral: Llama with a window of positions in every layer, where config.json names one. candle's mistral.rs. GGUF files
 * are of the architecture `llama`.
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

/** As config.json says; in GGUF files a key of ours, which others do not know and compute without. */
export function windowOf(source: ConfigSource): WindowedConfig {
  const key = source.format === 'json' ? 'sliding_window' : 'every_layer_window';
  return { slidingWindow: source.has(key) ? source.count(key) : undefined };
}

/** The other way: what a GGUF file says of it. */
export function windowExtras({ slidingWindow }: WindowedConfig): { every_layer_window?: number } {
  return slidingWindow === undefined ? {} : { every_layer_window: slidingWindow };
}

export const mistral: Architecture<DecoderConfig & WindowedConfig> = {
  ...llama,
  architectures: ['mistral', 'MistralForCausalLM'],
  config: (source, vocabSize) => ({ ...decoderConfig(source, vocabSize), ...windowOf(source) }),
  isInGguf: (source) => source.has('every_layer_window'),
  ggufExtras: (config) => ({ whole: windowExtras(config) }),
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
