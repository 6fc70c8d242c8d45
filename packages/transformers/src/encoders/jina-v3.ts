/**
 * jina-embeddings-v3: XLM-RoBERTa with rotations instead of learnt positions, by the names that transformers 5 gives its
 * weights. Its adapters of tasks (LoRA) are not applied.
 */
import { decoderConfig } from '../config/decoder-config';
import { Mlp } from '../models/feed-forward';
import { type ActivatedConfig, encoderActivation } from './activation';
import { Encoder } from './encoder';
import type { EncoderArchitecture } from './registry';

export const jinaV3: EncoderArchitecture<ActivatedConfig> = {
  architectures: ['jina_embeddings_v3', 'JinaEmbeddingsV3Model', 'JinaEmbeddingsV3ForSequenceClassification'],
  gguf: 'jina-bert-v3',
  names: [
    ['roberta.embeddings.word_embeddings', 'token_embd'],
    ['roberta.embeddings.token_type_embeddings', 'token_types'],
    ['roberta.embeddings.LayerNorm', 'token_embd_norm'],
    ['roberta.layers.{i}.self_attn.q_proj', 'blk.{i}.attn_q'],
    ['roberta.layers.{i}.self_attn.k_proj', 'blk.{i}.attn_k'],
    ['roberta.layers.{i}.self_attn.v_proj', 'blk.{i}.attn_v'],
    ['roberta.layers.{i}.self_attn.o_proj', 'blk.{i}.attn_output'],
    ['roberta.layers.{i}.post_attention_layernorm', 'blk.{i}.attn_output_norm'],
    ['roberta.layers.{i}.mlp.fc1', 'blk.{i}.ffn_up'],
    ['roberta.layers.{i}.mlp.fc2', 'blk.{i}.ffn_down'],
    ['roberta.layers.{i}.post_mlp_layernorm', 'blk.{i}.layer_output_norm'],
    // Those of its own code, which transformers 5 writes.
    ['roberta.emb_ln', 'token_embd_norm'],
    ['roberta.encoder.layers.{i}.mixer.Wqkv', 'blk.{i}.attn_qkv'],
    ['roberta.encoder.layers.{i}.mixer.out_proj', 'blk.{i}.attn_output'],
    ['roberta.encoder.layers.{i}.norm1', 'blk.{i}.attn_output_norm'],
    ['roberta.encoder.layers.{i}.mlp.fc1', 'blk.{i}.ffn_up'],
    ['roberta.encoder.layers.{i}.mlp.fc2', 'blk.{i}.ffn_down'],
    ['roberta.encoder.layers.{i}.norm2', 'blk.{i}.layer_output_norm'],
    ['classifier.dense', 'cls'],
    ['classifier.out_proj', 'cls.output'],
  ],
  config(source, vocabSize) {
    const activation = encoderActivation(source);
    const defaults = { norm: 'layer' as const, activations: [activation], ropeTheta: 20_000 };
    return { ...decoderConfig(source, vocabSize, defaults), activation };
  },
  build: (source, config, length) =>
    Encoder.load(source, config, {
      length,
      rotations: [config],
      layer: (i) => ({ norms: 'post', feed: () => Mlp.load(source, `blk.${i}`, config, config.activation) }),
    }),
};
