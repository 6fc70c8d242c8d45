/**
 * Nomic's BERT: rotations instead of learnt positions and a gated feed-forward layer, otherwise BERT. candle's nomic_bert.rs.
 * Checkpoints have the names of its own code, or those that transformers 5 gives it.
 */
import type { ConfigSource } from '../config/config-source';
import { decoderConfig } from '../config/decoder-config';
import { unsupported } from '../config/problems';
import { GatedMlp } from '../models/gated-mlp';
import type { TensorNamePair } from '../weights/tensor-names';
import { type ActivatedConfig, encoderActivation } from './activation';
import { Encoder } from './encoder';
import type { EncoderArchitecture } from './registry';

function nomicBertConfig(source: ConfigSource, vocabSize?: number): ActivatedConfig {
  for (const key of ['prenorm', 'rotary_emb_interleaved', 'parallel_block', 'causal'])
    if (source.jsonFlag(key, false)) throw unsupported(`has ${key}`);
  if ((source.json('num_experts') ?? 0) !== 0) throw unsupported('has experts (num_experts)');
  if (source.json('rotary_emb_scale_base')) throw unsupported('scales rotations by position (rotary_emb_scale_base)');
  const gate = source.json('activation_function') ?? undefined;
  const gated = gate === 'swiglu' ? 'silu' : gate === 'geglu' ? 'gelu' : undefined;
  if (gate !== undefined && gated === undefined)
    throw unsupported(`uses the activation ${JSON.stringify(gate)} without a gate`);
  // transformers 5 says what the gate goes through as others do.
  const activation = gated ?? encoderActivation(source, 'silu');
  const config = decoderConfig(source, vocabSize, {
    norm: 'layer',
    normEps: 1e-12,
    activations: [activation, 'swiglu', 'geglu'],
    ropeTheta: source.jsonNumber('rotary_emb_base', 1000),
    partialRotary: source.jsonNumber('rotary_emb_fraction', 1),
  });
  return { ...config, activation };
}

const NAMES: readonly TensorNamePair[] = [
  ['bert.embeddings.word_embeddings', 'token_embd'],
  ['bert.embeddings.token_type_embeddings', 'token_types'],
  ['bert.emb_ln', 'token_embd_norm'],
  ['bert.encoder.layers.{i}.attn.Wqkv', 'blk.{i}.attn_qkv'],
  ['bert.encoder.layers.{i}.attn.out_proj', 'blk.{i}.attn_output'],
  ['bert.encoder.layers.{i}.norm1', 'blk.{i}.attn_output_norm'],
  ['bert.encoder.layers.{i}.mlp.fc12', 'blk.{i}.ffn_gate'],
  ['bert.encoder.layers.{i}.mlp.fc11', 'blk.{i}.ffn_up'],
  ['bert.encoder.layers.{i}.mlp.fc2', 'blk.{i}.ffn_down'],
  ['bert.encoder.layers.{i}.norm2', 'blk.{i}.layer_output_norm'],
  ['bert.pooler.dense', 'cls'],
  ['classifier', 'cls.output'],
];

export const nomicBert: EncoderArchitecture<ActivatedConfig> = {
  architectures: ['nomic_bert', 'NomicBertModel', 'NomicBertForMaskedLM', 'NomicBertForSequenceClassification'],
  gguf: 'nomic-bert',
  // transformers 5 writes another first word where there is a head.
  names: [...NAMES, ...NAMES.map(([name, gguf]): TensorNamePair => [name.replace(/^bert\./, 'nomic_bert.'), gguf])],
  config: nomicBertConfig,
  build: (source, config, length) =>
    Encoder.load(source, config, {
      length,
      rotations: [config],
      layer: (i) => ({
        norms: 'post',
        feed: () => GatedMlp.load(source, `blk.${i}`, config),
      }),
    }),
};
