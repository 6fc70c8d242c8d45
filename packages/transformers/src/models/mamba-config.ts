/** Configurations of models that are Mamba layers only, without attention and feed-forward layers. */
import type { ConfigSource } from '../config/config-source';
import { type DecoderConfig, decoderConfig } from '../config/decoder-config';
import type { TensorNamePair } from '../weights/tensor-names';

export interface MambaConfig extends DecoderConfig {
  /** Channels inside of a layer. */
  inner: number;
  /** Values of a channel's state. */
  stateSize: number;
  /** Rows that the convolution sees, its own included. */
  taps: number;
}

/** No length is special to such a model; llama.cpp's files say this one. */
const CONTEXT = 2 ** 20;

/** @param inner of config.json, where it says it in another way than by `expand` */
export function mambaConfig(source: ConfigSource, vocabSize: number | undefined, inner?: number): MambaConfig {
  const hiddenSize = source.count('hidden_size');
  const width =
    source.format === 'gguf'
      ? source.count('ssm_inner_size')
      : (inner ?? Math.trunc(source.jsonNumber('expand', 2) * hiddenSize));
  const sizes = { numHeads: 1, numKvHeads: 1, headDim: 2, rotaryDim: 2, intermediateSize: width };
  const base = decoderConfig(source, vocabSize, { sizes: { ...sizes, contextLength: CONTEXT }, normEps: 1e-5 });
  return {
    ...base,
    inner: width,
    stateSize: source.count('state_size'),
    taps: source.count('conv_kernel'),
  };
}

export const MAMBA_NAMES: readonly TensorNamePair[] = [
  ['backbone.embeddings', 'token_embd'],
  ['backbone.norm_f', 'output_norm'],
  ['lm_head', 'output'],
  ['backbone.layers.{i}.norm', 'blk.{i}.attn_norm'],
  ['backbone.layers.{i}.mixer.in_proj', 'blk.{i}.ssm_in'],
  ['backbone.layers.{i}.mixer.conv1d', 'blk.{i}.ssm_conv1d'],
  ['backbone.layers.{i}.mixer.A_log', 'blk.{i}.ssm_a', { bare: true, negativeExp: true }],
  ['backbone.layers.{i}.mixer.D', 'blk.{i}.ssm_d', { bare: true }],
  ['backbone.layers.{i}.mixer.out_proj', 'blk.{i}.ssm_out'],
];
