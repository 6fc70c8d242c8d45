/**
 * StarCoder 2: norms that take the mean away, biases everywhere, gelu without a gate. candle's starcoder2.rs.
 */
import { type DecoderConfig, decoderConfig } from '../config/decoder-config';
import type { Architecture } from '../registry';
import { BASE_NAMES, PRE_NORM_NAMES } from '../weights/tensor-names';
import { Mlp } from './feed-forward';
import { type WindowedConfig, windowExtras, windowOf } from './mistral';
import { transformer } from './transformer';

export const starcoder2: Architecture<DecoderConfig & WindowedConfig> = {
  architectures: ['starcoder2', 'Starcoder2ForCausalLM'],
  gguf: 'starcoder2',
  names: [
    ...BASE_NAMES,
    ...PRE_NORM_NAMES,
    ['model.layers.{i}.mlp.c_fc', 'blk.{i}.ffn_up'],
    ['model.layers.{i}.mlp.c_proj', 'blk.{i}.ffn_down'],
  ],
  config(source, vocabSize) {
    const base = decoderConfig(source, vocabSize, { norm: 'layer', activations: ['gelu_pytorch_tanh'] });
    return { ...base, ...windowOf(source) };
  },
  ggufExtras: (config) => ({ whole: windowExtras(config), real: { layer_norm_eps: config.normEps } }),
  build: (source, config, length) =>
    transformer(source, config, {
      length,
      norm: 'layer',
      layer: (i) => ({
        attention: { window: config.slidingWindow },
        feed: () => Mlp.load(source, `blk.${i}`, config, 'gelu_pytorch_tanh'),
      }),
    }),
};
