/**
 * GLM 4: half of each head is rotated, by neighbours; norms in front of both steps and behind them; gate and up in one weight.
 * candle's glm4_new.rs.
 */
import { decoderConfig } from '../config/decoder-config';
import type { Architecture } from '../registry';
import { BASE_NAMES } from '../weights/tensor-names';
import { FOUR_NORMS } from './layer';
import { transformer } from './transformer';

export const glm4: Architecture = {
  architectures: ['glm4', 'Glm4ForCausalLM'],
  gguf: 'glm4',
  names: [
    ...BASE_NAMES,
    ['model.layers.{i}.input_layernorm', 'blk.{i}.attn_norm'],
    ['model.layers.{i}.post_self_attn_layernorm', 'blk.{i}.post_attention_norm'],
    ['model.layers.{i}.post_attention_layernorm', 'blk.{i}.ffn_norm'],
    ['model.layers.{i}.post_mlp_layernorm', 'blk.{i}.post_ffw_norm'],
    ['model.layers.{i}.mlp.gate_up_proj', 'blk.{i}.ffn_up'],
    ['model.layers.{i}.mlp.down_proj', 'blk.{i}.ffn_down'],
  ],
  pairs: 'interleaved',
  config: (source, vocabSize) => decoderConfig(source, vocabSize, { headDim: 128, partialRotary: 0.5 }),
  ggufExtras: () => ({}),
  build: (source, config, length) => transformer(source, config, { length, layer: () => ({ norms: FOUR_NORMS }) }),
};
