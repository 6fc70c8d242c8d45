/**
 * Models of texts and images whose text part is a decoder of its own: its configuration inside of config.json, and its
 * tensors among those of the whole checkpoint. The text part alone is loaded; for texts it computes what the whole model does.
 */
import { badConfig, shown } from './problems';

type Json = Record<string, unknown>;

export interface TextPart {
  /** `model_type` of the whole. */
  of: string;
  /** config.json of the text part. */
  config: Json;
}

/** By `model_type` of the whole that of its text part, where `text_config` does not say it. */
const WHOLES: Readonly<Record<string, string>> = {
  aya_vision: 'cohere2',
  cohere2_vision: 'cohere2',
  gemma3: 'gemma3_text',
  idefics3: 'llama',
  internvl: 'qwen2',
  lfm2_vl: 'lfm2',
  llava: 'llama',
  llava_next: 'llama',
  llava_onevision: 'qwen2',
  mistral3: 'mistral',
  qwen2_5_vl: 'qwen2_5_vl_text',
  qwen2_vl: 'qwen2_vl_text',
  qwen3_5: 'qwen3_5_text',
  qwen3_vl: 'qwen3_vl_text',
  qwen3_vl_moe: 'qwen3_vl_moe_text',
  smolvlm: 'llama',
};

/** Models of texts and images whose text part loads, by `model_type` of config.json. */
export const WHOLE_MODELS: readonly string[] = Object.keys(WHOLES);

/**
 * What `text_config` leaves out where it is what transformers' classes have anyway, as Gemma 3's files do: beside what is left out of
 * any model's config.json (class-defaults.ts), the sizes.
 */
const DEFAULTS: Readonly<Record<string, Json>> = {
  cohere2: { vocab_size: 256_000, hidden_size: 8192, intermediate_size: 22_528, num_hidden_layers: 40, num_attention_heads: 64 },
  gemma3_text: { vocab_size: 262_208, hidden_size: 2304, intermediate_size: 9216, num_hidden_layers: 26, num_attention_heads: 8, head_dim: 256 },
  lfm2: { vocab_size: 65_536, hidden_size: 2560, intermediate_size: 12_288, num_hidden_layers: 32, num_attention_heads: 32, rope_theta: 1e6 },
  llama: { vocab_size: 32_000, hidden_size: 4096, intermediate_size: 11_008, num_hidden_layers: 32, num_attention_heads: 32, max_position_embeddings: 2048 },
  mistral: { vocab_size: 32_000, hidden_size: 4096, intermediate_size: 14_336, num_hidden_layers: 32, num_attention_heads: 32 },
  qwen2: { vocab_size: 151_936, hidden_size: 4096, intermediate_size: 22_016, num_hidden_layers: 32, num_attention_heads: 32 },
  qwen2_vl_text: { vocab_size: 152_064, hidden_size: 8192, intermediate_size: 29_568, num_hidden_layers: 80, num_attention_heads: 64, num_key_value_heads: 8, max_position_embeddings: 32_768, rms_norm_eps: 1e-5, rope_theta: 1e6, max_window_layers: 80 },
  qwen2_5_vl_text: { vocab_size: 152_064, hidden_size: 8192, intermediate_size: 29_568, num_hidden_layers: 80, num_attention_heads: 64, num_key_value_heads: 8, max_position_embeddings: 32_768, rms_norm_eps: 1e-5, rope_theta: 1e6, max_window_layers: 80 },
  qwen3_vl_text: { vocab_size: 151_936, hidden_size: 4096, intermediate_size: 22_016, num_hidden_layers: 32, num_attention_heads: 32, num_key_value_heads: 32, max_position_embeddings: 128_000, rope_theta: 5e5 },
  qwen3_5_text: { vocab_size: 248_320, hidden_size: 4096, intermediate_size: 12_288, num_hidden_layers: 32, num_attention_heads: 16 },
}; // biome-ignore format: a table reads better in rows

/** Whose first checkpoints have the text part's settings among their own. */
const FLAT = ['qwen2_vl', 'qwen2_5_vl'];
/** Said of the whole where the text part does not say it. */
const SHARED = ['bos_token_id', 'eos_token_id', 'tie_word_embeddings', 'quantization_config'];

/** Undefined for a model that is none of these. @throws TransformersError BAD_CONFIG */
export function textPartOf(source: Json): TextPart | undefined {
  const { model_type: of, text_config: inner } = source;
  if (typeof of !== 'string' || !Object.hasOwn(WHOLES, of)) return undefined;
  if (inner !== undefined && inner !== null && (typeof inner !== 'object' || Array.isArray(inner)))
    throw badConfig(`gives text_config = ${shown(inner)}, but an object is needed; download it again`);
  const flat = { ...source, model_type: undefined, architectures: undefined };
  const text: Json = (inner as Json | null | undefined) ?? (FLAT.includes(of) ? flat : {});
  const type = text.model_type ?? WHOLES[of];
  if (typeof type !== 'string')
    throw badConfig(`gives model_type = ${shown(type)} in text_config, but a string is needed; download it again`);
  const config: Json = { ...text, model_type: type };
  const { rope_theta: theta, ...defaults } = Object.hasOwn(DEFAULTS, type) ? DEFAULTS[type] : {};
  for (const [key, value] of Object.entries(defaults)) if (!(key in config)) config[key] = value;
  if (theta !== undefined && config.rope_parameters == null) config.rope_theta ??= theta;
  for (const key of SHARED) config[key] ??= source[key];
  return { of, config };
}
