/**
 * Jina's BERT of jina-embeddings-v2: scores lose a slope times distance (ALiBi) instead of learnt positions, and a gated
 * feed-forward layer; that for code has norms of queries and keys and one more norm a layer. candle's jina_bert.rs. Its config.json
 * calls it `bert`; the class tells.
 */
import type { ConfigSource } from '../config/config-source';
import { decoderConfig } from '../config/decoder-config';
import { unsupported } from '../config/problems';
import { GatedMlp } from '../models/gated-mlp';
import type { ActivatedConfig } from './activation';
import { bertNames } from './bert';
import { Encoder } from './encoder';
import type { EncoderArchitecture } from './registry';

/**
 * Press et al., "Train Short, Test Long": powers of 2^(-8 / n) for n heads, a power of two; for other numbers those of the
 * power below, then every second one of twice as many.
 */
function alibiSlopesOf(heads: number): number[] {
  const below = 2 ** Math.floor(Math.log2(heads));
  const powers = (n: number) => Array.from({ length: n }, (_, i) => 2 ** ((-8 * (i + 1)) / n));
  const others = powers(2 * below).filter((_, i) => i % 2 === 0);
  return [...powers(below), ...others.slice(0, heads - below)];
}

function jinaBertConfig(source: ConfigSource, vocabSize?: number): ActivatedConfig {
  const kind = source.json('position_embedding_type') ?? 'alibi';
  if (kind !== 'alibi') throw unsupported(`has positions of the kind ${JSON.stringify(kind)}`);
  const gate = source.json('feed_forward_type') ?? 'geglu';
  if (gate !== 'geglu' && gate !== 'reglu')
    throw unsupported(`has feed-forward layers of the kind ${JSON.stringify(gate)}`);
  const config = decoderConfig(source, vocabSize, { norm: 'layer', normEps: 1e-12, activations: ['gelu', 'relu'] });
  return { ...config, activation: gate === 'reglu' ? 'relu' : 'gelu' };
}

export const jinaBert: EncoderArchitecture<ActivatedConfig> = {
  architectures: ['jina_bert', 'JinaBertModel', 'JinaBertForMaskedLM', 'JinaBertForSequenceClassification'],
  gguf: 'jina-bert-v2',
  names: [
    ...bertNames('bert').filter(([, name]) => !/ffn_|layer_output_norm|position_embd/.test(name)),
    ['bert.encoder.layer.{i}.attention.self.layer_norm_q', 'blk.{i}.attn_q_norm'],
    ['bert.encoder.layer.{i}.attention.self.layer_norm_k', 'blk.{i}.attn_k_norm'],
    ['bert.encoder.layer.{i}.mlp.gated_layers', 'blk.{i}.ffn_up'],
    ['bert.encoder.layer.{i}.mlp.wo', 'blk.{i}.ffn_down'],
    ['bert.encoder.layer.{i}.mlp.layernorm', 'blk.{i}.layer_output_norm'],
    // The model for code, whose one weight has ups above gates.
    ['bert.encoder.layer.{i}.layer_norm_1', 'blk.{i}.attn_norm_2'],
    ['bert.encoder.layer.{i}.mlp.up_gated_layer', 'blk.{i}.ffn_up', { part: [0, 2] }],
    ['bert.encoder.layer.{i}.mlp.up_gated_layer', 'blk.{i}.ffn_gate', { part: [1, 2] }],
    ['bert.encoder.layer.{i}.mlp.down_layer', 'blk.{i}.ffn_down'],
    ['bert.encoder.layer.{i}.layer_norm_2', 'blk.{i}.layer_output_norm'],
    ['bert.pooler.dense', 'cls'],
    ['classifier', 'cls.output'],
  ],
  config: jinaBertConfig,
  build(source, config, length) {
    // Of the model for code; its files without gates by themselves do not say which half of the weight they are.
    const isCode = source.has('blk.0.attn_norm_2');
    if (isCode && !source.has('blk.0.ffn_gate'))
      throw unsupported('has gates and what they multiply in one weight (ffn_up), in an order that is not known');
    return Encoder.load(source, config, {
      length,
      slopes: alibiSlopesOf(config.numHeads),
      layer: (i) => ({
        norms: 'post',
        again: isCode,
        attention: { qkNorm: source.has(`blk.${i}.attn_q_norm`) },
        feed: () => GatedMlp.load(source, `blk.${i}`, config),
      }),
    });
  },
};
