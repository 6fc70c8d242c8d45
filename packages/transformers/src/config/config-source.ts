/**
 * Where a model's configuration is read from: config.json, or the metadata of a GGUF file under llama.cpp's names for the
 * same things. An architecture reads both through one interface, by the keys of config.json.
 */
import type { GgufMetadata } from '@x/quantized';
import { TransformersError } from '../errors';
import type { RopeScaling } from './rope';

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
  rms_norm_eps: 'attention.layer_norm_rms_epsilon',
  sliding_window: 'attention.sliding_window',
  rope_theta: 'rope.freq_base',
  rope_local_base_freq: 'rope.freq_base_swa',
  rotary_dim: 'rope.dimension_count',
  vocab_size: 'vocab_size',
  num_experts: 'expert_count',
} as const;

export type ConfigKey = keyof typeof GGUF_KEYS;

export interface ConfigSource {
  readonly format: 'json' | 'gguf';
  /** The value is there, and is not null. */
  has(key: ConfigKey): boolean;
  /** @throws TransformersError BAD_CONFIG, FileFormatError for GGUF, when it is no number, or missing without `fallback` */
  number(key: ConfigKey, fallback?: number): number;
  ropeScaling(): RopeScaling | undefined;
  /** As {@link number}, a whole number above 0. */
  count(key: ConfigKey): number;
  /** A setting that only config.json has; undefined in GGUF files, where the architecture decides. */
  json(key: string): unknown;
  /** As {@link json}, a number above 0 or `fallback`. @throws TransformersError BAD_CONFIG */
  jsonNumber(key: string, fallback: number): number;
}

/** @param json the parsed config.json @throws TransformersError BAD_CONFIG unless it is an object */
export function jsonConfig(json: unknown): ConfigSource {
  const source = objectOf(json);
  // transformers 5 moved both into rope_parameters.
  const rope = partOf(source, 'rope_parameters') ?? partOf(source, 'rope_scaling') ?? {};
  const value = (key: ConfigKey) => source[key] ?? (key === 'rope_theta' ? rope.rope_theta : undefined);
  const number = (key: ConfigKey, fallback?: number) => {
    const found = value(key) ?? fallback;
    if (typeof found === 'number') return found;
    throw badConfig(`gives ${key} = ${shown(found)}, but a number is needed; download it again`);
  };
  return {
    format: 'json',
    has: (key) => value(key) != null,
    number,
    count: (key) => count(key, number(key)),
    ropeScaling: () => jsonRopeScaling(rope),
    json: (key) => source[key],
    jsonNumber: (key, fallback) => {
      const found = source[key] ?? fallback;
      if (typeof found === 'number' && found > 0 && Number.isFinite(found)) return found;
      throw badConfig(`gives ${key} = ${shown(found)}, but a number above 0 is needed; download it again`);
    },
  };
}

/** An object inside of config.json, undefined for none. */
export function partOf(source: Record<string, unknown>, key: string): Record<string, unknown> | undefined {
  const value = source[key] ?? undefined;
  if (value === undefined) return undefined;
  if (typeof value === 'object' && !Array.isArray(value)) return value as Record<string, unknown>;
  throw badConfig(`gives ${key} = ${shown(value)}, but an object is needed; download it again`);
}

function count(key: ConfigKey, value: number): number {
  if (Number.isSafeInteger(value) && value > 0) return value;
  throw badConfig(`gives ${key} = ${value}, but a whole number above 0 is needed; download it again`);
}

/** A value of any kind for a message. */
export function shown(value: unknown): string {
  const text = JSON.stringify(value) ?? 'nothing';
  return text.length > 80 ? `${text.slice(0, 80)}...` : text;
}

export function objectOf(json: unknown): Record<string, unknown> {
  if (typeof json === 'object' && json !== null && !Array.isArray(json)) return json as Record<string, unknown>;
  throw badConfig(`holds no object; download the model's config.json again`);
}

/** Scaling as config.json describes it: rope_scaling, or rope_parameters of transformers 5. */
export function jsonRopeScaling(rope: Record<string, unknown>): RopeScaling | undefined {
  const type = rope.rope_type ?? rope.type ?? 'default';
  const number = (key: string): number => {
    const value = rope[key];
    if (typeof value === 'number' && value > 0 && Number.isFinite(value)) return value;
    throw badConfig(`scales positions by ${shown(type)} with ${key} = ${shown(value)}; a number above 0 is needed`);
  };
  if (type === 'default') return undefined;
  if (type === 'linear') return { type, factor: number('factor') };
  if (type === 'llama3') {
    return {
      type,
      factor: number('factor'),
      lowFreqFactor: number('low_freq_factor'),
      highFreqFactor: number('high_freq_factor'),
      originalContextLength: number('original_max_position_embeddings'),
    };
  }
  throw unsupported(`scales positions by ${shown(type)}; "default", "linear" and "llama3" work`);
}

export function ggufConfig(metadata: GgufMetadata): ConfigSource {
  const arch = metadata.string('general.architecture');
  const name = (key: ConfigKey) => `${arch}.${GGUF_KEYS[key]}`;
  return {
    format: 'gguf',
    has: (key) => metadata.has(name(key)),
    number: (key, fallback) => metadata.float(name(key), fallback),
    count: (key) => count(key, metadata.float(name(key))),
    ropeScaling: () => {
      // The llama3 kind is not here: such files hold its factors as the tensor `rope_freqs.weight`.
      const type = metadata.string(`${arch}.rope.scaling.type`, 'none');
      if (type === 'none') return undefined;
      if (type === 'linear') return { type, factor: metadata.float(`${arch}.rope.scaling.factor`) };
      throw unsupported(`scales positions by "${type}"; "none", "linear" and llama3's factors work`);
    },
    json: () => undefined,
    jsonNumber: (_, fallback) => fallback,
  };
}

/** @param what continues "config.json" */
export function badConfig(what: string): TransformersError {
  return new TransformersError('BAD_CONFIG', `config.json ${what}.`);
}

/** @param what continues "This model" */
export function unsupported(what: string): TransformersError {
  return new TransformersError(
    'UNSUPPORTED_MODEL',
    `This model ${what}; that is not supported. Use another model or conversion.`,
  );
}
