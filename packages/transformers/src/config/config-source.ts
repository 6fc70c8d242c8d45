/**
 * Where a model's configuration is read from: config.json, or the metadata of a GGUF file under llama.cpp's names for the
 * same things. An architecture reads both through one interface, by the keys of config.json.
 */
import type { GgufMetadata } from '@x/quantized';
import { TransformersError } from '../errors';
import { badConfig, shown, unsupported } from './problems';
import type { RopeScaling } from './rope';
import { readRopeScaling } from './rope-settings';

/** Keys of config.json and what llama.cpp calls them, behind the architecture's name. Read both ways (gguf-export.ts). */
export const GGUF_KEYS = {
  num_hidden_layers: 'block_count',
  max_position_embeddings: 'context_length',
  hidden_size: 'embedding_length',
  intermediate_size: 'feed_forward_length',
  num_attention_heads: 'attention.head_count',
  num_key_value_heads: 'attention.head_count_kv',
  head_dim: 'attention.key_length',
  value_head_dim: 'attention.value_length',
  qk_head_dim: 'attention.key_length_mla',
  v_head_dim: 'attention.value_length_mla',
  q_lora_rank: 'attention.q_lora_rank',
  kv_lora_rank: 'attention.kv_lora_rank',
  rms_norm_eps: 'attention.layer_norm_rms_epsilon',
  sliding_window: 'attention.sliding_window',
  // Ours: llama.cpp computes no window for these models, whether a file names one or not.
  every_layer_window: 'attention.every_layer_window',
  rope_theta: 'rope.freq_base',
  rope_local_base_freq: 'rope.freq_base_swa',
  rotary_dim: 'rope.dimension_count',
  rope_sections: 'rope.dimension_sections',
  vocab_size: 'vocab_size',
  conv_L_cache: 'shortconv.l_cache',
  conv_kernel: 'ssm.conv_kernel',
  ssm_inner_size: 'ssm.inner_size',
  state_size: 'ssm.state_size',
  time_step_rank: 'ssm.time_step_rank',
  n_groups: 'ssm.group_count',
  ssm_norms: 'ssm.dt_b_c_rms',
  linear_conv_kernel_dim: 'ssm.conv_kernel',
  linear_key_head_dim: 'ssm.state_size',
  linear_num_key_heads: 'ssm.group_count',
  linear_num_value_heads: 'ssm.time_step_rank',
  full_attention_interval: 'full_attention_interval',
  linear_layers: 'attention.recurrent_layers',
  shared_expert_intermediate_size: 'expert_shared_feed_forward_length',
  layer_norm_eps: 'attention.layer_norm_epsilon',
  sliding_window_pattern: 'attention.sliding_window_pattern',
  attn_logit_softcapping: 'attn_logit_softcapping',
  final_logit_softcapping: 'final_logit_softcapping',
  attention_multiplier: 'attention.scale',
  attention_temperature_scale: 'attention.temperature_scale',
  embedding_multiplier: 'embedding_scale',
  residual_multiplier: 'residual_scale',
  logits_scaling: 'logit_scale',
  logit_scale: 'logit_scale',
  num_experts: 'expert_count',
  num_experts_per_tok: 'expert_used_count',
  moe_intermediate_size: 'expert_feed_forward_length',
  n_shared_experts: 'expert_shared_count',
  norm_topk_prob: 'expert_weights_norm',
  num_nextn_predict_layers: 'nextn_predict_layers',
  first_k_dense_replace: 'leading_dense_block_count',
  routed_scaling_factor: 'expert_weights_scale',
  n_group: 'expert_group_count',
  topk_group: 'expert_group_used_count',
  scoring_func: 'expert_gating_func',
} as const;

/** What some architectures call the same in config.json. */
const ALIASES: Partial<Record<ConfigKey, readonly string[]>> = {
  num_hidden_layers: ['n_layer'],
  max_position_embeddings: ['n_positions'],
  hidden_size: ['n_embd'],
  intermediate_size: ['n_inner'],
  rms_norm_eps: ['norm_eps', 'layer_norm_epsilon'],
  num_attention_heads: ['n_head'],
  layer_norm_eps: ['norm_eps', 'norm_epsilon', 'layer_norm_epsilon'],
  num_experts: ['num_local_experts', 'n_routed_experts'],
};

export type ConfigKey = keyof typeof GGUF_KEYS;

/** Other names of a key of config.json. */
export function aliasesOf(key: string): readonly string[] {
  return ALIASES[key as ConfigKey] ?? [];
}

export interface ConfigSource {
  readonly format: 'json' | 'gguf';
  /** The value is there, and is not null. */
  has(key: ConfigKey): boolean;
  /**
   * @throws TransformersError BAD_CONFIG, FileFormatError for GGUF, when it is no number, or missing without `fallback`;
   *   UNSUPPORTED_MODEL for a GGUF file with a number for each layer, unless they are all one
   */
  number(key: ConfigKey, fallback?: number): number;
  flag(key: ConfigKey, fallback: boolean): boolean;
  /** An array of flags, or of numbers for them, that only GGUF files have; undefined in others and without it. */
  flags(key: ConfigKey): readonly boolean[] | undefined;
  /** An array of numbers, one a layer, that only GGUF files have; undefined in others and where there is one number for all. */
  numbers(key: ConfigKey): readonly number[] | undefined;
  /** @param kind of layers, where they have rotations of their own; those of layers with a window are scaled only if so said */
  ropeScaling(kind?: 'full_attention' | 'sliding_attention'): RopeScaling | undefined;
  /** Frequencies that each of three axes turns, where the model is for images too. @throws as {@link number} for no such numbers */
  ropeSections(): readonly number[] | undefined;
  /** As {@link number}, a whole number above 0. */
  count(key: ConfigKey): number;
  /** As {@link number}, above 0. */
  positive(key: ConfigKey, fallback?: number): number;
  /** A setting that only config.json has; undefined in GGUF files, where the architecture decides. */
  json(key: string): unknown;
  /** As {@link json}, a number above 0 or `fallback`. @throws TransformersError BAD_CONFIG */
  jsonNumber(key: string, fallback: number): number;
  /** As {@link json}, a whole number from 0 or `fallback`. @throws TransformersError BAD_CONFIG */
  jsonWhole(key: string, fallback: number): number;
  /** As {@link json}, true, false or `fallback`. @throws TransformersError BAD_CONFIG */
  jsonFlag(key: string, fallback: boolean): boolean;
}

/** @param json the parsed config.json @throws TransformersError BAD_CONFIG unless it is an object */
export function jsonConfig(json: unknown): ConfigSource {
  const source = objectOf(json);
  // transformers 5 moved these into rope_parameters, by kinds of layers where they differ, and writes what its classes have beside them.
  const parameters = partOf(source, 'rope_parameters') ?? {};
  const rope = partOf(parameters, 'full_attention') ?? ropeOf(parameters, partOf(source, 'rope_scaling') ?? {});
  const local = partOf(parameters, 'sliding_attention')?.rope_theta;
  const inRope: Record<string, unknown> = {
    rope_theta: rope.rope_theta,
    partial_rotary_factor: rope.partial_rotary_factor,
    rope_local_base_freq: local,
  };
  const setting = (key: string) => inRope[key] ?? source[key] ?? undefined;
  const value = (key: ConfigKey) => [key, ...(ALIASES[key] ?? [])].map(setting).find((found) => found !== undefined);
  const number = (key: ConfigKey, fallback?: number) => {
    const found = value(key) ?? fallback;
    if (typeof found === 'number' && Number.isFinite(found)) return found;
    throw badConfig(`gives ${key} = ${shown(found)}, but a number is needed; download it again`);
  };
  const checked = (key: string, fallback: number, what: string, fits: (found: number) => boolean) => {
    const found = setting(key) ?? fallback;
    if (typeof found === 'number' && fits(found)) return found;
    throw badConfig(`gives ${key} = ${shown(found)}, but ${what} is needed; download it again`);
  };
  const flag = (key: string, found: unknown) => {
    if (typeof found === 'boolean') return found;
    throw badConfig(`gives ${key} = ${shown(found)}, but true or false is needed; download it again`);
  };
  return {
    format: 'json',
    has: (key) => value(key) != null,
    number,
    count: (key) => count(key, number(key)),
    positive: (key, fallback) => positive(key, number(key, fallback)),
    flag: (key, fallback) => flag(key, value(key) ?? fallback),
    flags: () => undefined,
    numbers: () => undefined,
    ropeScaling: (kind) => {
      const own = (kind && partOf(parameters, kind)) ?? (kind === 'sliding_attention' ? {} : rope);
      const length = number('max_position_embeddings', 2048);
      // Of the whole model it counts before what the scaling says; layers of two kinds have their own.
      const original = own === rope && partOf(parameters, 'full_attention') === undefined;
      const whole = original ? source.original_max_position_embeddings : undefined;
      return jsonRopeScaling(whole == null ? own : { ...own, original_max_position_embeddings: whole }, length);
    },
    ropeSections: () => {
      const sections = rope.mrope_section ?? undefined;
      if (sections === undefined && (rope.rope_type ?? rope.type) !== 'mrope') return undefined;
      if (Array.isArray(sections) && sections.length === 3 && sections.every(isCount)) return sections;
      throw badConfig(
        `gives mrope_section = ${shown(sections)}, but three whole numbers are needed; download it again`,
      );
    },
    json: (key) => source[key],
    jsonNumber: (key, fallback) =>
      checked(key, fallback, 'a number above 0', (found) => found > 0 && Number.isFinite(found)),
    jsonWhole: (key, fallback) =>
      checked(key, fallback, 'a whole number from 0', (found) => Number.isSafeInteger(found) && found >= 0),
    jsonFlag: (key, fallback) => flag(key, source[key] ?? fallback),
  };
}

/** What is in a file of transformers 5 to which someone has added `rope_scaling`, which then counts; its base stays. */
function ropeOf(parameters: Record<string, unknown>, scaling: Record<string, unknown>): Record<string, unknown> {
  if (Object.keys(scaling).length === 0) return parameters;
  const { rope_theta, partial_rotary_factor } = parameters;
  return {
    ...(rope_theta != null && { rope_theta }),
    ...(partial_rotary_factor != null && { partial_rotary_factor }),
    ...scaling,
  };
}

/** An object inside of config.json, undefined for none. */
function partOf(source: Record<string, unknown>, key: string): Record<string, unknown> | undefined {
  const value = source[key] ?? undefined;
  if (value === undefined) return undefined;
  if (typeof value === 'object' && !Array.isArray(value)) return value as Record<string, unknown>;
  throw badConfig(`gives ${key} = ${shown(value)}, but an object is needed; download it again`);
}

function isCount(value: unknown): value is number {
  return Number.isSafeInteger(value) && (value as number) >= 0;
}

function count(key: ConfigKey, value: number): number {
  if (Number.isSafeInteger(value) && value > 0) return value;
  throw badConfig(`gives ${key} = ${value}, but a whole number above 0 is needed; download it again`);
}

function positive(key: ConfigKey, value: number): number {
  if (value > 0) return value;
  throw badConfig(`gives ${key} = ${value}, but a number above 0 is needed; download it again`);
}

export function objectOf(json: unknown): Record<string, unknown> {
  if (typeof json === 'object' && json !== null && !Array.isArray(json)) return json as Record<string, unknown>;
  throw badConfig(`holds no object; download the model's config.json again`);
}

/** Scaling as config.json describes it: rope_scaling, or rope_parameters of transformers 5. */
function jsonRopeScaling(rope: Record<string, unknown>, contextLength: number): RopeScaling | undefined {
  const type = rope.rope_type ?? rope.type ?? 'default';
  const fail = (key: string, what: string) =>
    badConfig(`scales positions by ${shown(type)} with ${key} = ${shown(rope[key])}; ${what} is needed`);
  return readRopeScaling({
    type,
    contextLength,
    // As in transformers, 0 is as good as nothing.
    has: (key) => rope[key] != null && rope[key] !== 0,
    number: (key, fallback) => {
      const value = rope[key] ?? fallback;
      if (typeof value === 'number' && value > 0 && Number.isFinite(value)) return value;
      throw fail(key, 'a number above 0');
    },
    numbers: (key) => {
      const values = rope[key];
      if (Array.isArray(values) && values.every((value) => typeof value === 'number' && value > 0)) return values;
      throw fail(key, 'an array of numbers above 0');
    },
    flag: (key, fallback) => {
      const value = rope[key] ?? fallback;
      if (typeof value === 'boolean') return value;
      throw fail(key, 'true or false');
    },
  });
}

/** llama.cpp's keys of scaling, by those of config.json. */
const GGUF_ROPE_KEYS: Record<string, string> = {
  factor: 'factor',
  original_max_position_embeddings: 'original_context_length',
  beta_fast: 'yarn_beta_fast',
  beta_slow: 'yarn_beta_slow',
  attention_factor: 'attn_factor',
  // What grows with the logarithm of the factor: a tenth of these.
  mscale: 'yarn_log_multiplier',
  mscale_all_dim: 'yarn_log_multiplier',
};

/** What GGUF files may give for each layer. */
const PER_LAYER: readonly ConfigKey[] = ['num_attention_heads', 'num_key_value_heads', 'intermediate_size'];

export function ggufConfig(metadata: GgufMetadata): ConfigSource {
  const arch = metadata.string('general.architecture');
  const name = (key: ConfigKey) => `${arch}.${GGUF_KEYS[key]}`;
  const scaling = (key: string) => `${arch}.rope.scaling.${GGUF_ROPE_KEYS[key]}`;
  // llama.cpp's first files have the factor under another name.
  const factorKey = metadata.has(scaling('factor')) ? scaling('factor') : `${arch}.rope.scale_linear`;
  const wrong = (what: string) => new TransformersError('BAD_CONFIG', `The file ${what}.`);
  const number = (key: string, fallback?: number) => {
    const found = metadata.float(key, fallback);
    if (Number.isFinite(found)) return found;
    throw wrong(`gives ${key} = ${found}, but a number is needed; download it again`);
  };
  const arrayOf = (key: ConfigKey) => {
    const entry = metadata.get(name(key));
    if (entry?.type !== 'array' || entry.elementType === 'string' || entry.elementType === 'array') return undefined;
    return Array.from(entry.value as ArrayLike<unknown>, Number);
  };
  /** The number that a file gives for all layers, or for each. */
  const layers = (key: ConfigKey, fallback?: number) => {
    const each = PER_LAYER.includes(key) ? arrayOf(key) : undefined;
    if (!each) return number(name(key), fallback);
    const count = number(name('num_hidden_layers'));
    if (each.length !== count)
      throw wrong(`gives ${name(key)} for ${each.length} layers, but has ${count}; download it again`);
    if (each.every((value) => value === each[0])) return each[0];
    throw unsupported(`has layers of different sizes (${name(key)} = ${shown(each)})`);
  };
  const above0 = (key: string, fallback?: number) => {
    const found = number(key, fallback);
    if (found > 0) return found;
    throw wrong(`gives ${key} = ${found}, but a number above 0 is needed; download it again`);
  };
  return {
    format: 'gguf',
    has: (key) => metadata.has(name(key)),
    number: layers,
    count: (key) => {
      const found = layers(key);
      if (Number.isSafeInteger(found) && found > 0) return found;
      throw wrong(`gives ${name(key)} = ${found}, but a whole number above 0 is needed; download it again`);
    },
    positive: (key, fallback) => above0(name(key), fallback),
    flag: (key, fallback) => metadata.bool(name(key), fallback),
    flags: (key) => arrayOf(key)?.map(Boolean),
    numbers: arrayOf,
    ropeScaling: (kind) => {
      if (kind === 'sliding_attention') return undefined;
      // The llama3 kind is not here: such files hold its factors as the tensor `rope_freqs.weight`.
      const named = metadata.string(`${arch}.rope.scaling.type`, '') || undefined;
      // Phi's files do not name it; they hold the factors as tensors.
      const isLong = (named ?? 'none') === 'none' && metadata.has(scaling('attention_factor'));
      // llama.cpp's, where a file names none; a factor of 0 is none.
      const usual = number(factorKey, 0) === 0 ? 'none' : 'linear';
      const type = isLong ? 'longrope' : (named ?? usual);
      return readRopeScaling({
        type: type === 'none' ? 'default' : type,
        contextLength: number(name('max_position_embeddings')),
        has: (key) => metadata.has(scaling(key)) && number(scaling(key)) !== 0,
        number: (key, fallback) => {
          // As llama.cpp, which infers none.
          if (key === 'factor') return above0(factorKey, 1);
          if (!key.startsWith('mscale')) return above0(scaling(key), fallback);
          return 10 * above0(scaling(key), fallback && fallback / 10);
        },
        numbers: () => undefined,
        flag: (_, fallback) => fallback,
      });
    },
    ropeSections: () => {
      if (!metadata.has(name('rope_sections'))) return undefined;
      const sections = metadata.numbers(name('rope_sections'));
      // The fourth axis is of no model here.
      if ((sections.length === 3 || (sections.length === 4 && sections[3] === 0)) && sections.every(isCount))
        return sections.slice(0, 3);
      throw wrong(`gives ${name('rope_sections')} = ${shown(sections)}, but three whole numbers are needed`);
    },
    json: () => undefined,
    jsonNumber: (_, fallback) => fallback,
    jsonWhole: (_, fallback) => fallback,
    jsonFlag: (_, fallback) => fallback,
  };
}
