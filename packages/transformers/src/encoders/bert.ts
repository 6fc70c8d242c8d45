/**
 * BERT: learnt positions and types of tokens, norms behind each half of a layer, gelu. candle's bert.rs. GGUF files of this
 * name hold RoBERTa and XLM-RoBERTa too, whose tables of positions llama.cpp's converter cuts to begin at the first one.
 */
import type { ConfigSource } from '../config/config-source';
import { decoderConfig } from '../config/decoder-config';
import { unsupported } from '../config/problems';
import { Mlp } from '../models/feed-forward';
import type { TensorNamePair } from '../weights/tensor-names';
import type { Weights } from '../weights/weights';
import { type ActivatedConfig, encoderActivation } from './activation';
import { Encoder, type EncoderOptions } from './encoder';
import type { EncoderArchitecture } from './registry';

/** The names of all models that are BERT inside. @param front what their names begin with, such as `bert` */
export function bertNames(front: string): TensorNamePair[] {
  const layer = `${front}.encoder.layer.{i}`;
  return [
    [`${front}.embeddings.word_embeddings`, 'token_embd'],
    [`${front}.embeddings.position_embeddings`, 'position_embd'],
    [`${front}.embeddings.token_type_embeddings`, 'token_types'],
    [`${front}.embeddings.LayerNorm`, 'token_embd_norm'],
    [`${layer}.attention.self.query`, 'blk.{i}.attn_q'],
    [`${layer}.attention.self.key`, 'blk.{i}.attn_k'],
    [`${layer}.attention.self.value`, 'blk.{i}.attn_v'],
    [`${layer}.attention.output.dense`, 'blk.{i}.attn_output'],
    [`${layer}.attention.output.LayerNorm`, 'blk.{i}.attn_output_norm'],
    [`${layer}.intermediate.dense`, 'blk.{i}.ffn_up'],
    [`${layer}.output.dense`, 'blk.{i}.ffn_down'],
    [`${layer}.output.LayerNorm`, 'blk.{i}.layer_output_norm'],
  ];
}

export function bertConfig(source: ConfigSource, vocabSize?: number): ActivatedConfig {
  const kind = source.json('position_embedding_type') ?? 'absolute';
  if (kind !== 'absolute') throw unsupported(`has positions of the kind ${JSON.stringify(kind)}`);
  if (source.jsonFlag('is_decoder', false)) throw unsupported('is a decoder (is_decoder)');
  const activation = encoderActivation(source);
  const config = decoderConfig(source, vocabSize, { norm: 'layer', normEps: 1e-12, activations: [activation] });
  return { ...config, activation };
}

/** @param first row of the first position in the table of positions */
export function buildBert(
  source: Weights,
  config: ActivatedConfig,
  length: number,
  first = 0,
  classifier?: EncoderOptions['classifier'],
): Promise<Encoder> {
  return Encoder.load(source, config, {
    length,
    positions: { rows: config.contextLength + first, first },
    layer: (i) => ({ norms: 'post', feed: () => Mlp.load(source, `blk.${i}`, config, config.activation) }),
    ...(classifier && { classifier }),
  });
}

export const bert: EncoderArchitecture<ActivatedConfig> = {
  architectures: ['bert', 'BertModel', 'BertForMaskedLM', 'BertForSequenceClassification'],
  gguf: 'bert',
  names: [...bertNames('bert'), ['bert.pooler.dense', 'cls'], ['classifier', 'cls.output']],
  config: bertConfig,
  build: (source, config, length) => buildBert(source, config, length),
};
