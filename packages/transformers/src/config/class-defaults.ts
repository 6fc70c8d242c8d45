/**
 * What transformers' classes have where config.json leaves a setting out: by `model_type`, where it is not what the architecture's
 * own code takes. Sizes without which there is no model are not here; files have them.
 */
import { aliasesOf } from './config-source';

type Json = Record<string, unknown>;

const DEFAULTS: Readonly<Record<string, Json>> = {
  cohere2: { max_position_embeddings: 8192 },
  deepseek_v2: { kv_lora_rank: 512, moe_intermediate_size: 1407, n_shared_experts: 2, num_experts: 64, q_lora_rank: 1536, topk_method: 'greedy', v_head_dim: 128 },
  deepseek_v3: { first_k_dense_replace: 3, kv_lora_rank: 512, max_position_embeddings: 4096, moe_intermediate_size: 2048, n_group: 8, n_shared_experts: 1, num_experts: 256, num_experts_per_tok: 8, q_lora_rank: 1536, routed_scaling_factor: 2.5, topk_group: 4, v_head_dim: 128 },
  exaone4: { num_key_value_heads: 32, rms_norm_eps: 1e-5, sliding_window: 4096 },
  falcon_mamba: { conv_kernel: 4, state_size: 16 },
  gemma2: { attn_logit_softcapping: 50, final_logit_softcapping: 30, max_position_embeddings: 8192, num_key_value_heads: 4, query_pre_attn_scalar: 256 },
  gemma3_text: { max_position_embeddings: 131_072, num_key_value_heads: 4, query_pre_attn_scalar: 256, sliding_window: 4096 },
  glm4: { max_position_embeddings: 131_072, num_key_value_heads: 2, rms_norm_eps: 1.5625e-7 },
  glm4_moe: { max_position_embeddings: 131_072, moe_intermediate_size: 1408, n_group: 1, num_experts: 128, num_experts_per_tok: 8, num_key_value_heads: 8, rms_norm_eps: 1e-5, topk_group: 1 },
  gpt2: { max_position_embeddings: 1024 },
  gpt_oss: { max_position_embeddings: 131_072, num_experts: 128, num_experts_per_tok: 4, num_key_value_heads: 8, rms_norm_eps: 1e-5, rope_theta: 150_000 },
  granitemoe: { num_experts: 8, num_experts_per_tok: 2 },
  jina_embeddings_v3: { max_position_embeddings: 8194 },
  lfm2: { conv_L_cache: 3, max_position_embeddings: 128_000, num_key_value_heads: 8, rms_norm_eps: 1e-5 },
  mamba2: { conv_kernel: 4, state_size: 128 },
  mistral: { max_position_embeddings: 131_072, num_key_value_heads: 8, sliding_window: 4096 },
  mixtral: { max_position_embeddings: 131_072, num_experts: 8, num_experts_per_tok: 2, num_key_value_heads: 8, rms_norm_eps: 1e-5, rope_theta: 1e6 },
  modernbert: { max_position_embeddings: 8192 },
  nemotron: { max_position_embeddings: 4096 },
  olmo2: { rms_norm_eps: 1e-5 },
  olmo3: { rms_norm_eps: 1e-5, rope_theta: 500_000, sliding_window: 4096 },
  olmoe: { max_position_embeddings: 4096, num_experts: 64, num_experts_per_tok: 8, rms_norm_eps: 1e-5 },
  phi3: { max_position_embeddings: 4096, original_max_position_embeddings: 4096, rms_norm_eps: 1e-5 },
  qwen2: { max_position_embeddings: 32_768, num_key_value_heads: 32, sliding_window: 4096 },
  qwen3: { max_position_embeddings: 32_768, num_key_value_heads: 32, sliding_window: 4096 },
  qwen3_moe: { max_position_embeddings: 32_768, moe_intermediate_size: 768, num_experts: 128, num_experts_per_tok: 8, num_key_value_heads: 4, sliding_window: 4096 },
  qwen3_next: { linear_conv_kernel_dim: 4, linear_key_head_dim: 128, linear_num_key_heads: 16, linear_num_value_heads: 32, max_position_embeddings: 32_768, moe_intermediate_size: 512, num_experts: 512, num_experts_per_tok: 10, num_key_value_heads: 2, shared_expert_intermediate_size: 512 },
  qwen3_5_text: { linear_conv_kernel_dim: 4, linear_key_head_dim: 128, linear_num_key_heads: 16, linear_num_value_heads: 32, max_position_embeddings: 32_768, num_key_value_heads: 4 },
  smollm3: { max_position_embeddings: 32_768, num_key_value_heads: 4, rope_theta: 2e6 },
  starcoder2: { max_position_embeddings: 4096, num_key_value_heads: 2 },
}; // biome-ignore format: a table reads better in rows

/** gpt-oss's, of a file that names no scaling at all. */
const YARN = {
  rope_type: 'yarn',
  factor: 32,
  beta_fast: 32,
  beta_slow: 1,
  truncate: false,
  original_max_position_embeddings: 4096,
};

/** A file's settings, and the class's for those that it leaves out. What it gives as null is given. @param type `model_type` */
export function withClassDefaults(type: string, source: Json): Json {
  const defaults = Object.hasOwn(DEFAULTS, type) ? DEFAULTS[type] : {};
  const missing = Object.entries(defaults).filter(([key]) => ![key, ...aliasesOf(key)].some((name) => name in source));
  const scaled = source.rope_parameters ?? source.rope_scaling;
  return {
    ...source,
    ...Object.fromEntries(missing),
    ...(type === 'gpt_oss' && scaled == null && { rope_scaling: YARN }),
  };
}
