/**
 * Phi 3 and 4: Llama with query, key and value in one weight, gate and up in another, and positions scaled by factors of
 * their own for long texts. candle's phi3.rs and quantized_phi3.rs. The `sliding_window` of a GGUF file is not the model's: llama.cpp
 * computes none for these.
 */
import { type DecoderConfig, decoderConfig } from '../config/decoder-config';
import type { Architecture } from '../registry';
import { EMBEDDING_NAMES, PRE_NORM_NAMES } from '../weights/tensor-names';
import { type WindowedConfig, windowExtras, windowOf } from './mistral';
import { transformer } from './transformer';

export const phi3: Architecture<DecoderConfig & WindowedConfig> = {
  architectures: ['phi3', 'Phi3ForCausalLM'],
  gguf: 'phi3',
  names: [
    ...EMBEDDING_NAMES,
    ...PRE_NORM_NAMES,
    ['model.layers.{i}.self_attn.qkv_proj', 'blk.{i}.attn_qkv'],
    ['model.layers.{i}.self_attn.o_proj', 'blk.{i}.attn_output'],
    ['model.layers.{i}.mlp.gate_up_proj', 'blk.{i}.ffn_up'],
    ['model.layers.{i}.mlp.down_proj', 'blk.{i}.ffn_down'],
  ],
  config(source, vocabSize) {
    return { ...decoderConfig(source, vocabSize, { partialRotary: 1 }), ...windowOf(source) };
  },
  ggufExtras: (config) => ({ whole: windowExtras(config) }),
  build: (source, config, length) =>
    transformer(source, config, { length, layer: () => ({ attention: { window: config.slidingWindow } }) }),
};
