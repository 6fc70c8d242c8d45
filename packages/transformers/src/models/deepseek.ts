/**
 * DeepSeek V2 and V3: latent attention, and behind some dense layers mixtures of many small experts beside some that all
 * tokens take. V2 scores experts by softmax, V3 by sigmoids with a correction. candle's deepseek2.rs, which has V2 alone.
 */
import type { ConfigSource } from '../config/config-source';
import { decoderConfig } from '../config/decoder-config';
import { badConfig, shown, unsupported } from '../config/problems';
import type { Architecture } from '../registry';
import {
  BASE_NAMES,
  EXPERT_NAMES,
  GATED_MLP_NAMES,
  PRE_NORM_NAMES,
  type TensorNamePair,
} from '../weights/tensor-names';
import { GatedMlp } from './gated-mlp';
import { LatentAttention, type LatentConfig } from './latent-attention';
import { expertGroups, MixtureOfExperts, type MoeDecoderConfig, moeSizes } from './moe';
import { transformer } from './transformer';

export interface DeepseekConfig extends MoeDecoderConfig, LatentConfig {
  /** Whether each layer has experts; the others have one feed-forward layer. */
  sparse: readonly boolean[];
}

/** GGUF's numbers of how experts are scored. */
const SIGMOID = 2;

const NAMES: readonly TensorNamePair[] = [
  ...BASE_NAMES,
  ...PRE_NORM_NAMES,
  ...GATED_MLP_NAMES,
  ...EXPERT_NAMES,
  ['model.layers.{i}.self_attn.q_a_proj', 'blk.{i}.attn_q_a'],
  ['model.layers.{i}.self_attn.q_a_layernorm', 'blk.{i}.attn_q_a_norm'],
  ['model.layers.{i}.self_attn.q_b_proj', 'blk.{i}.attn_q_b'],
  ['model.layers.{i}.self_attn.kv_a_proj_with_mqa', 'blk.{i}.attn_kv_a_mqa'],
  ['model.layers.{i}.self_attn.kv_a_layernorm', 'blk.{i}.attn_kv_a_norm'],
  ['model.layers.{i}.self_attn.kv_b_proj', 'blk.{i}.attn_kv_b'],
  ['model.layers.{i}.mlp.gate.e_score_correction_bias', 'blk.{i}.exp_probs_b.bias'],
  ['model.layers.{i}.mlp.shared_experts.gate_proj', 'blk.{i}.ffn_gate_shexp'],
  ['model.layers.{i}.mlp.shared_experts.up_proj', 'blk.{i}.ffn_up_shexp'],
  ['model.layers.{i}.mlp.shared_experts.down_proj', 'blk.{i}.ffn_down_shexp'],
];

/** What V2 and V3 differ in. */
interface Version {
  scores: 'softmax' | 'sigmoid';
  /** Experts of a group whose scores are added up for that of the group. */
  best: 1 | 2;
  /** Values of `topk_method`. */
  methods: readonly string[];
  /** Default of `norm_topk_prob`; undefined where config.json cannot ask for it. */
  renormalise?: boolean;
}

function deepseekConfig(source: ConfigSource, vocabSize: number | undefined, version: Version): DeepseekConfig {
  checkRouting(source, version);
  const latent = latentSizes(source);
  const headDim = latent.plain + latent.rotated;
  const heads = { numKvHeads: 1, headDim, rotaryDim: latent.rotated };
  const base = decoderConfig(source, vocabSize, { sizes: heads });
  const scaling = base.ropeScaling?.type === 'yarn' ? base.ropeScaling.magnitude : 1;
  const sizes = moeSizes(source, source.count('moe_intermediate_size'));
  // GGUF files count the layers that predict further tokens, which are not used here.
  const further = source.format === 'gguf' ? source.number('num_nextn_predict_layers', 0) : 0;
  const { scores, best, renormalise } = version;
  const numLayers = base.numLayers - further;
  return {
    ...base,
    numLayers,
    latent: {
      ...latent,
      ropeKind: source.jsonFlag('rope_interleave', true) ? 'interleaved' : 'half',
      scale: scaling ** 2 / Math.sqrt(headDim),
    },
    sparse: sparseLayers(source, numLayers),
    moe: {
      ...sizes,
      scores,
      renormalise:
        source.format === 'json' && renormalise === undefined
          ? false
          : source.flag('norm_topk_prob', renormalise ?? false),
      scale: source.number('routed_scaling_factor', 1),
      shared: source.number('n_shared_experts', 0) * sizes.width,
      // V2 names the way of choosing; `greedy` looks at no groups whatever it says of them.
      groups: source.json('topk_method') === 'greedy' ? undefined : expertGroups(source, sizes, best),
    },
  };
}

/** What DeepSeek's own code can be told; transformers knows one way for V3, and two for V2. */
function checkRouting(source: ConfigSource, { scores, methods }: Version): void {
  const scoring = source.json('scoring_func') ?? scores;
  if (scoring !== scores) throw unsupported(`scores experts by ${shown(scoring)} (scoring_func)`);
  const method = source.json('topk_method') ?? methods[0];
  if (!methods.includes(method as string)) throw unsupported(`chooses experts by ${shown(method)} (topk_method)`);
}

/** Files from before llama.cpp kept latent vectors give the heads' sizes in the usual keys. */
function latentSizes(source: ConfigSource): Omit<LatentConfig['latent'], 'ropeKind' | 'scale'> {
  const isGguf = source.format === 'gguf';
  const whole = (key: string, value: number) => {
    if (Number.isSafeInteger(value) && value > 0 && value <= 2 ** 16) return value;
    throw badConfig(`gives ${key} = ${value}, but a whole number above 0 is needed; download it again`);
  };
  const size = (key: string, usual: number) => whole(key, source.jsonWhole(key, usual));
  const rotated = isGguf ? source.count('rotary_dim') : size('qk_rope_head_dim', 64);
  const key = isGguf ? source.count(source.has('qk_head_dim') ? 'qk_head_dim' : 'head_dim') : 0;
  const plain = isGguf ? whole('attention.key_length', key - rotated) : size('qk_nope_head_dim', 128);
  const value = isGguf && !source.has('v_head_dim') ? source.count('value_head_dim') : source.count('v_head_dim');
  if (rotated % 2 !== 0) throw badConfig(`rotates ${rotated} elements of a head, an odd number; download it again`);
  const sizes = {
    rank: whole('kv_lora_rank', source.count('kv_lora_rank')),
    rotated,
    plain,
    value: whole('v_head_dim', value),
  };
  const compressed = source.has('q_lora_rank') && source.number('q_lora_rank') !== 0;
  return compressed ? { queryRank: whole('q_lora_rank', source.number('q_lora_rank')), ...sizes } : sizes;
}

/**
 * The first layers have no experts, and of the others those that `moe_layer_freq` does not divide: DeepSeek's own code. transformers
 * has no such setting; all published models have 1.
 */
function sparseLayers(source: ConfigSource, numLayers: number): boolean[] {
  const dense = source.number('first_k_dense_replace', 0);
  const every = source.jsonWhole('moe_layer_freq', 1);
  if (every === 0) throw badConfig('gives moe_layer_freq = 0, but a whole number above 0 is needed; download it again');
  return Array.from({ length: numLayers }, (_, i) => i >= dense && i % every === 0);
}

const build: Architecture<DeepseekConfig>['build'] = (source, config, length) =>
  transformer(source, config, {
    length,
    layer: (i) => ({
      mix: () => LatentAttention.load(source, `blk.${i}`, config),
      feed: () =>
        config.sparse[i]
          ? MixtureOfExperts.load(source, `blk.${i}`, config)
          : GatedMlp.load(source, `blk.${i}`, config),
    }),
  });

export const deepseekV3: Architecture<DeepseekConfig> = {
  architectures: ['deepseek_v3', 'DeepseekV3ForCausalLM'],
  gguf: 'deepseek2',
  isInGguf: (source) => source.number('scoring_func', 0) === SIGMOID,
  names: NAMES,
  pairs: 'interleaved',
  config: (source, vocabSize) =>
    deepseekConfig(source, vocabSize, { scores: 'sigmoid', best: 2, methods: ['noaux_tc'], renormalise: true }),
  build,
};

export const deepseekV2: Architecture<DeepseekConfig> = {
  architectures: ['deepseek_v2', 'DeepseekV2ForCausalLM'],
  gguf: 'deepseek2',
  names: NAMES,
  pairs: 'interleaved',
  // transformers never divides the weights of V2.
  config: (source, vocabSize) =>
    deepseekConfig(source, vocabSize, {
      scores: 'softmax',
      best: 1,
      methods: ['greedy', 'group_limited_greedy'],
    }),
  build,
};
