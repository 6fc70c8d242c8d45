/**
 * Gemma 2: candle's gemma2.rs. Differences from Llama: embeddings times sqrt(hidden), norms
 * behind attention and feed-forward layer too, scores and logits that are capped, and a window in every second layer.
 */
import type { ConfigSource } from '../config/config-source';
import { type DecoderConfig, decoderConfig } from '../config/decoder-config';
import { isPattern, windowedLayers } from '../config/layer-types';
import { unsupported } from '../config/problems';
import type { Architecture } from '../registry';
import { BASE_NAMES, FOUR_NORM_NAMES, GATED_MLP_NAMES } from '../weights/tensor-names';
import { GatedMlp } from './gated-mlp';
import { FOUR_NORMS } from './layer';
import { transformer } from './transformer';

export interface Gemma2Config extends DecoderConfig {
  /** Positions that a local layer sees, the token's own included. */
  slidingWindow: number;
  /** Whether each layer is local. */
  local: readonly boolean[];
  /** Multiplies the scores of attention. */
  attentionScale: number;
  /** What scores and logits are capped at; undefined where they are not. */
  softcap: { scores?: number; logits?: number };
}

function gemma2Config(source: ConfigSource, vocabSize?: number): Gemma2Config {
  if (source.jsonFlag('use_bidirectional_attention', false)) throw unsupported('looks at tokens that follow');
  const base = decoderConfig(source, vocabSize, { headDim: 256, activations: ['gelu_pytorch_tanh'] });
  const scalar = source.jsonNumber('query_pre_attn_scalar', ggufScalar(base));
  const cap = (key: 'attn_logit_softcapping' | 'final_logit_softcapping', inGguf: number) => {
    if (source.has(key)) return source.positive(key);
    return source.format === 'gguf' ? inGguf : undefined;
  };
  return {
    ...base,
    slidingWindow: source.has('sliding_window') ? source.count('sliding_window') : 4096,
    local: windowedLayers(source, base.numLayers, PATTERN),
    attentionScale: 1 / Math.sqrt(scalar),
    softcap: { scores: cap('attn_logit_softcapping', 50), logits: cap('final_logit_softcapping', 30) },
  };
}

/** Each of so many layers sees everything; GGUF files do not say it. */
const PATTERN = 2;

/** GGUF files do not hold it; llama.cpp knows that the 27B model (46 layers) is the exception. */
function ggufScalar({ numLayers, hiddenSize, numHeads, headDim }: DecoderConfig): number {
  return numLayers === 46 ? hiddenSize / numHeads : headDim;
}

export const gemma2: Architecture<Gemma2Config> = {
  architectures: ['gemma2', 'Gemma2ForCausalLM'],
  gguf: 'gemma2',
  names: [...BASE_NAMES, ...FOUR_NORM_NAMES, ...GATED_MLP_NAMES],
  normOffset: 1,
  config: gemma2Config,
  // Without caps, or with other layers or scores, a file would be read with those of the released models.
  ggufExtras: ({ slidingWindow, local, attentionScale, softcap: { scores, logits }, ...config }) =>
    scores && logits && isPattern(local, PATTERN) && attentionScale === 1 / Math.sqrt(ggufScalar(config))
      ? {
          whole: { sliding_window: slidingWindow },
          real: { attn_logit_softcapping: scores, final_logit_softcapping: logits },
        }
      : undefined,
  build(source, config, length) {
    const { hiddenSize, attentionScale, softcap, local, slidingWindow } = config;
    return transformer(source, config, {
      length,
      attentionScale,
      embeddingScale: Math.sqrt(hiddenSize),
      logitSoftcap: softcap.logits,
      layer: (i) => ({
        attention: { window: local[i] ? slidingWindow : undefined, softcap: softcap.scores },
        norms: FOUR_NORMS,
        feed: () => GatedMlp.load(source, `blk.${i}`, { ...config, activation: 'gelu_pytorch_tanh' }),
      }),
    });
  },
};
