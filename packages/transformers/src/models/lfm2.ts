/** LFM2 (Liquid AI): short convolutions, with attention in some layers. */
import type { ConfigSource } from '../config/config-source';
import { type DecoderConfig, decoderConfig } from '../config/decoder-config';
import { shown, unsupported } from '../config/problems';
import type { Architecture } from '../registry';
import { ShortConv } from './short-conv';
import { transformer } from './transformer';

export interface Lfm2Config extends DecoderConfig {
  /** Whether each layer is a convolution. */
  convolutions: readonly boolean[];
  /** Rows that a convolution sees, its own included. */
  taps: number;
}

function lfm2Config(source: ConfigSource, vocabSize?: number): Lfm2Config {
  // GGUF files have no key heads in the layers without attention.
  const kvHeads = source.numbers('num_key_value_heads');
  const base = decoderConfig(source, vocabSize, {
    ropeTheta: 1e6,
    sizes: { numKvHeads: kvHeads && Math.max(...kvHeads) },
  });
  return {
    ...base,
    intermediateSize: source.format === 'json' ? feedForward(source, base.intermediateSize) : base.intermediateSize,
    convolutions: kvHeads ? kvHeads.map((heads) => heads === 0) : convolutions(source, base.numLayers),
    taps: source.count('conv_L_cache'),
  };
}

/** Which layers are convolutions, by `layer_types` or `full_attn_idxs`. */
function convolutions(source: ConfigSource, numLayers: number): boolean[] {
  const types = source.json('layer_types') ?? undefined;
  if (types === undefined) {
    const attention = source.json('full_attn_idxs') ?? undefined;
    return Array.from({ length: numLayers }, (_, i) => Array.isArray(attention) && !attention.includes(i));
  }
  const known = ['conv', 'full_attention'];
  if (!Array.isArray(types) || types.length !== numLayers || !types.every((type) => known.includes(type)))
    throw unsupported(`has layer_types ${shown(types)}; ${numLayers} of "${known.join('" or "')}" work`);
  return types.map((type) => type === 'conv');
}

/** The width of the feed-forward layers, which config.json gives for a layer without a gate unless it says otherwise. */
function feedForward(source: ConfigSource, given: number): number {
  const size = source.jsonWhole('block_ff_dim', given);
  if (!source.jsonFlag('block_auto_adjust_ff_dim', true)) return size;
  const part = Math.trunc(source.jsonNumber('block_ffn_dim_multiplier', 1) * Math.trunc((2 * size) / 3));
  const multiple = source.jsonWhole('block_multiple_of', 256);
  return multiple * Math.ceil(part / multiple);
}

export const lfm2: Architecture<Lfm2Config> = {
  architectures: ['lfm2', 'Lfm2ForCausalLM'],
  gguf: 'lfm2',
  names: [
    ['model.embed_tokens', 'token_embd'],
    ['model.embedding_norm', 'token_embd_norm'],
    ['lm_head', 'output'],
    ['model.layers.{i}.operator_norm', 'blk.{i}.attn_norm'],
    ['model.layers.{i}.conv.in_proj', 'blk.{i}.shortconv.in_proj'],
    ['model.layers.{i}.conv.conv', 'blk.{i}.shortconv.conv'],
    ['model.layers.{i}.conv.out_proj', 'blk.{i}.shortconv.out_proj'],
    ['model.layers.{i}.self_attn.q_proj', 'blk.{i}.attn_q'],
    ['model.layers.{i}.self_attn.k_proj', 'blk.{i}.attn_k'],
    ['model.layers.{i}.self_attn.v_proj', 'blk.{i}.attn_v'],
    ['model.layers.{i}.self_attn.out_proj', 'blk.{i}.attn_output'],
    ['model.layers.{i}.self_attn.q_layernorm', 'blk.{i}.attn_q_norm'],
    ['model.layers.{i}.self_attn.k_layernorm', 'blk.{i}.attn_k_norm'],
    ['model.layers.{i}.ffn_norm', 'blk.{i}.ffn_norm'],
    ['model.layers.{i}.feed_forward.w1', 'blk.{i}.ffn_gate'],
    ['model.layers.{i}.feed_forward.w3', 'blk.{i}.ffn_up'],
    ['model.layers.{i}.feed_forward.w2', 'blk.{i}.ffn_down'],
  ],
  config: lfm2Config,
  build: (source, config, length) =>
    transformer(source, config, {
      length,
      outputNorm: 'token_embd_norm',
      layer: (i) =>
        config.convolutions[i]
          ? { mix: () => ShortConv.load(source, `blk.${i}`, config.hiddenSize, config.taps) }
          : { attention: { qkNorm: 'head' } },
    }),
};
