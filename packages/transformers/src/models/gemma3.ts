/**
 * Gemma 3, text: candle's gemma3.rs and quantized_gemma3.rs. Differences from Llama: embeddings times sqrt(hidden), norms
 * behind attention and feed-forward layer too, norms of queries and keys, and layers that see a window of positions only,
 * five of six in released models, which rotate by a base of their own.
 */
import type { ConfigSource } from '../config/config-source';
import { type DecoderConfig, decoderConfig } from '../config/decoder-config';
import { isPattern, windowedLayers, windowedRope, windowOfSome } from '../config/layer-types';
import { unsupported } from '../config/problems';
import type { RopeConfig } from '../config/rope';
import type { Architecture } from '../registry';
import { BASE_NAMES, FOUR_NORM_NAMES, GATED_MLP_NAMES, QK_NORM_NAMES } from '../weights/tensor-names';
import { GatedMlp } from './gated-mlp';
import { FOUR_NORMS } from './layer';
import { transformer } from './transformer';

export interface Gemma3Config extends DecoderConfig {
  /** Positions that a local layer sees, the token's own included; undefined where no layer is local. */
  slidingWindow: number | undefined;
  /** Whether each layer is local. */
  local: readonly boolean[];
  /** How local layers rotate. */
  localRope: RopeConfig;
  /** Multiplies the scores of attention. */
  attentionScale: number;
  /** What logits are capped at; undefined where they are not. */
  logitSoftcap: number | undefined;
}

/** Released models have a layer that sees everything after five that do not. */
const PATTERN = 6;

/** @param embedding whether tokens see those that follow, in GGUF files, where the architecture's name says it */
function gemma3Config(source: ConfigSource, vocabSize?: number, embedding = false): Gemma3Config {
  if (source.json('attn_logit_softcapping')) throw unsupported('caps its scores (attn_logit_softcapping)');
  const bidirectional = embedding || source.jsonFlag('use_bidirectional_attention', false);
  const activations = ['gelu_pytorch_tanh'];
  const base = decoderConfig(source, vocabSize, { headDim: 256, ropeTheta: 1e6, activations });
  const scalar = source.jsonNumber('query_pre_attn_scalar', ggufScalar(base));
  const window = windowOfSome(source);
  return {
    ...base,
    // To either side it is half of the number in the file, the token's own place aside.
    slidingWindow: bidirectional && window ? Math.floor(window / 2) + 1 : window,
    bidirectional,
    local: window ? windowedLayers(source, base.numLayers, PATTERN) : Array(base.numLayers).fill(false),
    localRope: windowedRope(source, base, 10000),
    attentionScale: 1 / Math.sqrt(scalar),
    logitSoftcap:
      source.number('final_logit_softcapping', 0) === 0 ? undefined : source.positive('final_logit_softcapping'),
  };
}

/** GGUF files do not hold it; llama.cpp knows that of the 27B model (62 layers) is hidden / heads, of the others headDim. */
function ggufScalar({ numLayers, hiddenSize, numHeads, headDim }: DecoderConfig): number {
  return numLayers === 62 ? hiddenSize / numHeads : headDim;
}

export const gemma3: Architecture<Gemma3Config> = {
  architectures: ['gemma3_text', 'Gemma3ForCausalLM'],
  gguf: 'gemma3',
  names: [...BASE_NAMES, ...FOUR_NORM_NAMES, ...QK_NORM_NAMES, ...GATED_MLP_NAMES],
  normOffset: 1,
  config: (source, vocabSize) => gemma3Config(source, vocabSize),
  // Files do not say which layers have windows, how scores are scaled, or that local layers scale positions; divisors are of all.
  ggufExtras: (config) =>
    config.ropeScaling?.type === 'llama3' ||
    config.bidirectional ||
    config.slidingWindow === undefined ||
    !isPattern(config.local, PATTERN) ||
    config.attentionScale !== 1 / Math.sqrt(ggufScalar(config)) ||
    config.localRope.ropeScaling !== undefined
      ? undefined
      : {
          whole: { sliding_window: config.slidingWindow },
          real: {
            rope_local_base_freq: config.localRope.ropeTheta,
            ...(config.logitSoftcap && { final_logit_softcapping: config.logitSoftcap }),
          },
        },
  build(source, config, length) {
    const { localRope, attentionScale, local, slidingWindow, hiddenSize, logitSoftcap } = config;
    return transformer(source, config, {
      length,
      attentionScale,
      logitSoftcap,
      embeddingScale: Math.sqrt(hiddenSize),
      rotations: [config, localRope],
      layer: (i) => ({
        attention: { qkNorm: 'head', window: local[i] ? slidingWindow : undefined },
        rotation: local[i] ? 1 : 0,
        norms: FOUR_NORMS,
        feed: () => GatedMlp.load(source, `blk.${i}`, { ...config, activation: 'gelu_pytorch_tanh' }),
      }),
    });
  },
};

/** EmbeddingGemma in GGUF files; its config.json is that of Gemma 3 with `use_bidirectional_attention`. */
export const gemmaEmbedding: Architecture<Gemma3Config> = {
  ...gemma3,
  architectures: ['gemma_embedding'],
  gguf: 'gemma-embedding',
  config: (source, vocabSize) => gemma3Config(source, vocabSize, true),
  ggufExtras: undefined,
};
