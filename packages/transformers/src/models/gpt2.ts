/** GPT-2: learnt positions, norms that take the mean away, gelu without a gate; checkpoints hold weights as [in, out]. */
import type { ActivationName } from '@x/nn';
import type { ConfigSource } from '../config/config-source';
import { type DecoderConfig, decoderConfig } from '../config/decoder-config';
import { unsupported } from '../config/problems';
import type { Architecture } from '../registry';
import { Mlp } from './feed-forward';
import { transformer } from './transformer';

/** What config.json calls the activations. GGUF files mean the first. */
const ACTIVATIONS: Readonly<Record<string, ActivationName>> = {
  gelu_new: 'gelu_new',
  gelu_pytorch_tanh: 'gelu_new',
  gelu_fast: 'gelu_new',
  gelu: 'gelu',
  relu: 'relu',
};

export interface Gpt2Config extends DecoderConfig {
  activation: ActivationName;
  /** Multiplies the scores of attention: of each layer. */
  attentionScales: readonly number[];
}

function gpt2Config(source: ConfigSource, vocabSize?: number): Gpt2Config {
  if (source.jsonFlag('add_cross_attention', false)) throw unsupported('has add_cross_attention');
  const base = decoderConfig(source, vocabSize, { norm: 'layer', activations: Object.keys(ACTIVATIONS), widening: 4 });
  const scale = source.jsonFlag('scale_attn_weights', true) ? usualScale(base.headDim) : 1;
  const byLayer = source.jsonFlag('scale_attn_by_inverse_layer_idx', false);
  return {
    ...base,
    activation: ACTIVATIONS[String(source.json('activation_function') ?? 'gelu_new')],
    attentionScales: Array.from({ length: base.numLayers }, (_, i) => (byLayer ? scale / (i + 1) : scale)),
  };
}

const usualScale = (headDim: number) => 1 / Math.sqrt(headDim);

export const gpt2: Architecture<Gpt2Config> = {
  architectures: ['gpt2', 'GPT2LMHeadModel'],
  gguf: 'gpt2',
  names: [
    ['transformer.wte', 'token_embd'],
    ['transformer.wpe', 'position_embd'],
    ['transformer.ln_f', 'output_norm'],
    ['lm_head', 'output'],
    ['transformer.h.{i}.ln_1', 'blk.{i}.attn_norm'],
    ['transformer.h.{i}.attn.c_attn', 'blk.{i}.attn_qkv', { transposed: true }],
    ['transformer.h.{i}.attn.c_proj', 'blk.{i}.attn_output', { transposed: true }],
    ['transformer.h.{i}.ln_2', 'blk.{i}.ffn_norm'],
    ['transformer.h.{i}.mlp.c_fc', 'blk.{i}.ffn_up', { transposed: true }],
    ['transformer.h.{i}.mlp.c_proj', 'blk.{i}.ffn_down', { transposed: true }],
  ],
  config: gpt2Config,
  // Files do not say the activation or the scale.
  ggufExtras: ({ activation, attentionScales, headDim, normEps }) =>
    activation === 'gelu_new' && attentionScales.every((scale) => scale === usualScale(headDim))
      ? { real: { layer_norm_eps: normEps } }
      : undefined,
  build: (source, config, length) =>
    transformer(source, config, {
      length,
      norm: 'layer',
      learntPositions: config.contextLength,
      rotations: [],
      layer: (i) => ({
        attention: { scale: config.attentionScales[i] },
        rotation: 'none',
        feed: () => Mlp.load(source, `blk.${i}`, config, config.activation),
      }),
    }),
};
