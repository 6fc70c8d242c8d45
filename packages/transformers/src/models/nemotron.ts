/** Nemotron and Minitron: norms that take the mean away, squared relu without a gate, half of each head rotated. */
import { decoderConfig } from '../config/decoder-config';
import type { Architecture } from '../registry';
import { BASE_NAMES, PRE_NORM_NAMES } from '../weights/tensor-names';
import { Mlp } from './feed-forward';
import { transformer } from './transformer';

export const nemotron: Architecture = {
  architectures: ['nemotron', 'NemotronForCausalLM'],
  gguf: 'nemotron',
  names: [
    ...BASE_NAMES,
    ...PRE_NORM_NAMES,
    ['model.layers.{i}.mlp.up_proj', 'blk.{i}.ffn_up'],
    ['model.layers.{i}.mlp.down_proj', 'blk.{i}.ffn_down'],
  ],
  normOffset: 1,
  config: (source, vocabSize) =>
    decoderConfig(source, vocabSize, { norm: 'layer', activations: ['relu2'], partialRotary: 0.5 }),
  ggufExtras: ({ normEps }) => ({ real: { layer_norm_eps: normEps } }),
  build: (source, config, length) =>
    transformer(source, config, {
      length,
      norm: 'layer',
      layer: (i) => ({ feed: () => Mlp.load(source, `blk.${i}`, config, 'relu2') }),
    }),
};
