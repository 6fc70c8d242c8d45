/** GPT-2: learnt positions, norms that take the mean away, gelu without a gate; checkpoints hold weights as [in, out]. */
import type { ConfigSource } from '../config/config-source';
import { type DecoderConfig, decoderConfig } from '../config/decoder-config';
import { unsupported } from '../config/problems';
import type { Architecture } from '../registry';
import { Mlp } from './feed-forward';
import { transformer } from './transformer';

function gpt2Config(source: ConfigSource, vocabSize?: number): DecoderConfig {
  for (const key of ['scale_attn_by_inverse_layer_idx', 'add_cross_attention'])
    if (source.json(key) === true) throw unsupported(`has ${key}`);
  if (source.json('scale_attn_weights') === false) throw unsupported('does not scale its scores (scale_attn_weights)');
  return decoderConfig(source, vocabSize, {
    norm: 'layer',
    activations: ['gelu_new', 'gelu_pytorch_tanh'],
    widening: 4,
  });
}

export const gpt2: Architecture = {
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
  ggufExtras: ({ normEps }) => ({ real: { layer_norm_eps: normEps } }),
  build: (source, config, length) =>
    transformer(source, config, {
      length,
      norm: 'layer',
      learntPositions: config.contextLength,
      rotations: [],
      layer: (i) => ({ rotation: 'none', feed: () => Mlp.load(source, `blk.${i}`, config, 'gelu_new') }),
    }),
};
