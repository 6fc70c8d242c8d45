/**
 * ModernBERT: rotations instead of learnt positions, norms in front of each half of a layer, a gated feed-forward layer, and
 * layers that see a window to either side, which rotate by a base of their own. candle's modernbert.rs.
 */
import type { ActivationName } from '@x/nn';
import type { ConfigSource } from '../config/config-source';
import { checkRope, decoderConfig } from '../config/decoder-config';
import { badConfig, shown } from '../config/problems';
import type { RopeConfig } from '../config/rope';
import { GatedMlp } from '../models/gated-mlp';
import { type ActivatedConfig, activationOf, encoderActivation } from './activation';
import { Encoder } from './encoder';
import type { EncoderArchitecture } from './registry';

export interface ModernBertConfig extends ActivatedConfig {
  /** Whether each layer sees a window only. */
  local: readonly boolean[];
  /** Tokens to either side that such a layer sees. */
  reach: number;
  /** How it rotates. */
  localRope: RopeConfig;
  /** What the classification head reads. */
  classifierPooling: 'cls' | 'mean';
  /** Behind the first of its products. */
  classifierActivation: ActivationName;
}

/** Of released models: every third layer sees everything, beginning with the first. */
const PATTERN = 3;
const [GLOBAL_THETA, LOCAL_THETA] = [160_000, 10_000];

function modernBertConfig(source: ConfigSource, vocabSize?: number): ModernBertConfig {
  const activation = encoderActivation(source);
  // config.json of the first releases has the bases of both rotations under names of its own.
  const base = decoderConfig(source, vocabSize, {
    norm: 'layer',
    activations: [activation],
    ropeTheta: source.jsonNumber('global_rope_theta', GLOBAL_THETA),
  });
  const localTheta = source.number('rope_local_base_freq', source.jsonNumber('local_rope_theta', LOCAL_THETA));
  // The window of GGUF files is that of both sides together, as in config.json.
  const window =
    source.format === 'gguf' ? source.number('sliding_window', 128) : source.jsonWhole('local_attention', 128);
  return {
    ...base,
    activation,
    local: localLayers(source, base.numLayers),
    reach: Math.floor(window / 2),
    localRope: checkRope({
      rotaryDim: base.rotaryDim,
      ropeTheta: localTheta,
      // Scaling that is not by kinds of layers is of all.
      ropeScaling: source.json('rope_scaling') == null ? source.ropeScaling('sliding_attention') : source.ropeScaling(),
    }),
    classifierPooling: source.json('classifier_pooling') === 'mean' ? 'mean' : 'cls',
    classifierActivation: activationOf(source.json('classifier_activation') ?? 'gelu'),
  };
}

function localLayers(source: ConfigSource, numLayers: number): boolean[] {
  const types = source.json('layer_types');
  if (types === undefined || types === null) {
    const pattern = source.jsonWhole('global_attn_every_n_layers', source.number('sliding_window_pattern', PATTERN));
    if (pattern >= 1) return Array.from({ length: numLayers }, (_, i) => i % pattern !== 0);
    throw badConfig(`gives global_attn_every_n_layers = ${pattern}; download it again`);
  }
  const known = ['full_attention', 'sliding_attention'];
  if (Array.isArray(types) && types.length === numLayers && types.every((type) => known.includes(type)))
    return types.map((type) => type === 'sliding_attention');
  throw badConfig(`gives layer_types = ${shown(types)} for ${numLayers} layers; download it again`);
}

export const modernBert: EncoderArchitecture<ModernBertConfig> = {
  architectures: ['modernbert', 'ModernBertModel', 'ModernBertForMaskedLM', 'ModernBertForSequenceClassification'],
  gguf: 'modern-bert',
  names: [
    ['model.embeddings.tok_embeddings', 'token_embd'],
    ['model.embeddings.norm', 'token_embd_norm'],
    ['model.layers.{i}.attn_norm', 'blk.{i}.attn_norm'],
    ['model.layers.{i}.attn.Wqkv', 'blk.{i}.attn_qkv'],
    ['model.layers.{i}.attn.Wo', 'blk.{i}.attn_output'],
    ['model.layers.{i}.mlp_norm', 'blk.{i}.ffn_norm'],
    ['model.layers.{i}.mlp.Wi', 'blk.{i}.ffn_up'],
    ['model.layers.{i}.mlp.Wo', 'blk.{i}.ffn_down'],
    ['model.final_norm', 'output_norm'],
    ['head.dense', 'cls'],
    ['head.norm', 'cls.norm'],
    ['classifier', 'cls.output'],
  ],
  config: modernBertConfig,
  build(source, config, length) {
    const { local, reach, localRope, activation, classifierPooling, classifierActivation } = config;
    return Encoder.load(source, config, {
      length,
      rotations: [config, localRope],
      layer: (i) => ({
        norms: 'pre',
        rotation: local[i] ? 1 : 0,
        attention: { window: local[i] ? reach : undefined },
        feed: () => GatedMlp.load(source, `blk.${i}`, { ...config, activation }),
      }),
      classifier: { pooling: classifierPooling, activation: classifierActivation },
    });
  },
};
