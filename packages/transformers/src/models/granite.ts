/** Granite: Llama with factors for embeddings, scores, what is added up, and logits. candle's granite.rs. */
import type { ConfigKey, ConfigSource } from '../config/config-source';
import { type DecoderConfig, decoderConfig } from '../config/decoder-config';
import type { Architecture } from '../registry';
import { DECODER_NAMES } from '../weights/tensor-names';
import { type TransformerOptions, transformer } from './transformer';

export interface GraniteConfig extends DecoderConfig {
  /** Multiply embeddings, scores of attention, and what layers add. */
  multipliers: { embedding: number; attention: number; residual: number };
  /** Divides the logits. */
  logitsScaling: number;
}

export function graniteConfig(source: ConfigSource, vocabSize?: number): GraniteConfig {
  const base = decoderConfig(source, vocabSize);
  return {
    ...base,
    multipliers: {
      embedding: source.number('embedding_multiplier', 1),
      attention: source.number('attention_multiplier', source.format === 'json' ? 1 : 1 / Math.sqrt(base.headDim)),
      residual: source.number('residual_multiplier', 1),
    },
    logitsScaling: source.positive('logits_scaling', 1),
  };
}

/** The factors in a GGUF file. */
export function graniteMetadata({ multipliers, logitsScaling }: GraniteConfig): Partial<Record<ConfigKey, number>> {
  return {
    embedding_multiplier: multipliers.embedding,
    attention_multiplier: multipliers.attention,
    residual_multiplier: multipliers.residual,
    logits_scaling: logitsScaling,
  };
}

/** What the factors come to. */
export function graniteOptions({ multipliers, logitsScaling }: GraniteConfig, length: number): TransformerOptions {
  return {
    length,
    embeddingScale: multipliers.embedding,
    attentionScale: multipliers.attention,
    logitScale: 1 / logitsScaling,
    layer: () => ({ residualScale: multipliers.residual }),
  };
}

export const granite: Architecture<GraniteConfig> = {
  architectures: ['granite', 'GraniteForCausalLM'],
  gguf: 'granite',
  names: DECODER_NAMES,
  pairs: 'reordered',
  config: graniteConfig,
  ggufExtras: (config) => ({ real: graniteMetadata(config) }),
  build: (source, config, length) => transformer(source, config, graniteOptions(config, length)),
};
