/**
 * Decoders in the shapes of published models of 4 to 8 billion parameters, as config.json says them. Where an architecture has
 * only larger models, it is a layer of these with fewer layers or fewer experts; where it has only smaller ones, the largest.
 */
import type { MixName } from '@x/quantized';
import { describeConfig, type ModelDescription } from '@x/transformers';

export interface Shape {
  /** The model whose layers these are. */
  model: string;
  /** What of it is less than there. */
  reduced?: string;
  /** Without `model_type`, which is the shape's name up to a slash. */
  config: Record<string, unknown>;
  /** Biases and the like that files of the architecture have, without `blk.N.`, as {@link DEFAULT}. */
  optional?: readonly string[];
  /** Whether weights that others have as two are one, such as gate and up. */
  without?: readonly string[];
  /** How files of the model are quantized; default: as is asked for. */
  mix?: MixName;
}

/** What files of most architectures have of that which models ask about. */
const DEFAULT = ['ffn_gate.weight', 'ffn_gate_shexp.weight', 'attn_k_b.weight'];

const names = (text: string) => text.split(' ');
const QKV_BIASES = names('attn_q.bias attn_k.bias attn_v.bias');
const ATTENTION_BIASES = [...QKV_BIASES, 'attn_output.bias'];
const MLP_BIASES = names('ffn_up.bias ffn_down.bias');
const NORM_BIASES = names('attn_norm.bias ffn_norm.bias output_norm.bias');
const QKV_BIAS = 'attn_qkv.bias';
const EXPERT_BIASES = names('ffn_gate_inp.bias ffn_gate_exps.bias ffn_up_exps.bias ffn_down_exps.bias');

/** hidden_size, intermediate_size, num_hidden_layers, num_attention_heads, num_key_value_heads, vocab_size; numbers in that order. */
function dims(hidden: number, inside: number, layers: number, heads: number, kvHeads: number, vocabulary: number) {
  return {
    hidden_size: hidden,
    intermediate_size: inside,
    num_hidden_layers: layers,
    num_attention_heads: heads,
    num_key_value_heads: kvHeads,
    vocab_size: vocabulary,
    max_position_embeddings: 8192,
  };
}

/** Every so many layers one of `then`, all others of `most`. */
const each = (layers: number, every: number, most: string, then: string) =>
  Array.from({ length: layers }, (_, i) => ((i + 1) % every === 0 ? then : most));

const TIED = { tie_word_embeddings: true };
const DELTA = {
  linear_conv_kernel_dim: 4,
  linear_key_head_dim: 128,
  linear_value_head_dim: 128,
  linear_num_key_heads: 16,
  linear_num_value_heads: 32,
  head_dim: 256,
  partial_rotary_factor: 0.25,
  rope_theta: 1e7,
};

/** By `model_type` of config.json; a slash and what follows tells shapes of one architecture apart. */
export const SHAPES: Readonly<Record<string, Shape>> = {
  llama: { model: 'Llama 3.1 8B', config: { ...dims(4096, 14336, 32, 32, 8, 128256), rope_theta: 5e5 } },
  'llama/3b': { model: 'Llama 3.2 3B', config: { ...dims(3072, 8192, 28, 24, 8, 128256), rope_theta: 5e5, ...TIED } },
  'llama/1b': { model: 'Llama 3.2 1B', config: { ...dims(2048, 8192, 16, 32, 8, 128256), rope_theta: 5e5, ...TIED } },
  mistral: { model: 'Mistral 7B v0.1', config: { ...dims(4096, 14336, 32, 32, 8, 32000), sliding_window: 4096 } },
  mixtral: {
    model: 'Mixtral 8x7B',
    reduced: '8 of 32 layers',
    config: { ...dims(4096, 14336, 8, 32, 8, 32000), num_local_experts: 8, num_experts_per_tok: 2 },
  },
  qwen2: { model: 'Qwen 2.5 7B', config: dims(3584, 18944, 28, 28, 4, 152064), optional: QKV_BIASES },
  qwen3: { model: 'Qwen 3 8B', config: { ...dims(4096, 12288, 36, 32, 8, 151936), head_dim: 128 } },
  qwen3_moe: {
    model: 'Qwen 3 30B-A3B',
    reduced: '32 of 128 experts',
    config: {
      ...dims(2048, 6144, 48, 32, 4, 151936),
      head_dim: 128,
      moe_intermediate_size: 768,
      num_experts: 32,
      num_experts_per_tok: 8,
      norm_topk_prob: true,
    },
  },
  qwen3_next: {
    model: 'Qwen 3 Next 80B-A3B',
    reduced: '64 of 512 experts',
    config: {
      ...dims(2048, 5120, 48, 16, 2, 151936),
      ...DELTA,
      moe_intermediate_size: 512,
      shared_expert_intermediate_size: 512,
      num_experts: 64,
      num_experts_per_tok: 10,
    },
    optional: names('ssm_ba.weight ffn_gate_inp_shexp.weight'),
  },
  qwen3_5_text: { model: 'Qwen 3.5 9B', config: { ...dims(4096, 12288, 32, 16, 4, 248320), ...DELTA } },
  gemma2: {
    model: 'Gemma 2 9B',
    config: {
      ...dims(3584, 14336, 42, 16, 8, 256000),
      head_dim: 256,
      query_pre_attn_scalar: 256,
      sliding_window: 4096,
      attn_logit_softcapping: 50,
      final_logit_softcapping: 30,
      ...TIED,
    },
  },
  gemma3_text: {
    model: 'Gemma 3 4B',
    config: {
      ...dims(2560, 10240, 34, 8, 4, 262208),
      head_dim: 256,
      query_pre_attn_scalar: 256,
      sliding_window: 1024,
      ...TIED,
    },
  },
  phi3: {
    model: 'Phi 3 mini',
    config: { ...dims(3072, 8192, 32, 32, 32, 32064), sliding_window: 2047 },
    optional: ['attn_qkv.weight'],
    without: ['ffn_gate.weight'],
  },
  'phi3/4-mini': {
    model: 'Phi 4 mini',
    config: { ...dims(3072, 8192, 32, 24, 8, 200064), partial_rotary_factor: 0.75, ...TIED },
    optional: ['attn_qkv.weight'],
    without: ['ffn_gate.weight'],
  },
  smollm3: { model: 'SmolLM 3 3B', config: { ...dims(2048, 11008, 36, 16, 4, 128256), rope_theta: 5e6, ...TIED } },
  olmo2: { model: 'OLMo 2 7B', config: dims(4096, 11008, 32, 32, 32, 100352) },
  olmo3: { model: 'OLMo 3 7B', config: { ...dims(4096, 11008, 32, 32, 32, 100278), sliding_window: 4096 } },
  olmoe: {
    model: 'OLMoE 1B-7B',
    config: { ...dims(2048, 1024, 16, 16, 16, 50304), num_experts: 64, num_experts_per_tok: 8 },
  },
  granite: {
    model: 'Granite 3.3 8B',
    config: {
      ...dims(4096, 12800, 40, 32, 8, 49159),
      embedding_multiplier: 12,
      attention_multiplier: 0.0078125,
      residual_multiplier: 0.22,
      logits_scaling: 16,
      ...TIED,
    },
  },
  granitemoe: {
    model: 'Granite 3.1 3B-A800M',
    config: {
      ...dims(1536, 512, 32, 24, 8, 49155),
      num_local_experts: 40,
      num_experts_per_tok: 8,
      embedding_multiplier: 12,
      attention_multiplier: 0.015625,
      residual_multiplier: 0.22,
      logits_scaling: 6,
      ...TIED,
    },
  },
  glm4: {
    model: 'GLM 4 9B 0414',
    config: { ...dims(4096, 13696, 40, 32, 2, 151552), head_dim: 128 },
    optional: QKV_BIASES,
    without: ['ffn_gate.weight'],
  },
  glm4_moe: {
    model: 'GLM 4.5 Air',
    reduced: '12 of 46 layers, 32 of 128 experts',
    config: {
      ...dims(4096, 10944, 12, 96, 8, 151552),
      head_dim: 128,
      moe_intermediate_size: 1408,
      n_routed_experts: 32,
      num_experts_per_tok: 8,
      n_shared_experts: 1,
      first_k_dense_replace: 1,
    },
    optional: [...QKV_BIASES, 'exp_probs_b.bias'],
  },
  cohere2: {
    model: 'Command R7B',
    config: {
      ...dims(4096, 14336, 32, 32, 8, 256000),
      sliding_window: 4096,
      logit_scale: 0.25,
      rope_theta: 5e4,
      ...TIED,
    },
  },
  exaone4: {
    model: 'EXAONE 4 32B',
    reduced: '12 of 64 layers',
    config: { ...dims(5120, 27392, 12, 40, 8, 102400), head_dim: 128, sliding_window: 4096 },
  },
  nemotron: {
    model: 'Minitron 8B',
    config: { ...dims(4096, 16384, 32, 48, 8, 256000), head_dim: 128 },
    optional: NORM_BIASES,
  },
  starcoder2: {
    model: 'StarCoder 2 7B',
    config: { ...dims(4608, 18432, 32, 36, 4, 49152), sliding_window: 4096, ...TIED },
    optional: [...ATTENTION_BIASES, ...MLP_BIASES, ...NORM_BIASES],
  },
  lfm2: {
    model: 'LFM2 2.6B',
    config: {
      ...dims(2048, 10752, 30, 32, 8, 65536),
      block_auto_adjust_ff_dim: false,
      conv_L_cache: 3,
      layer_types: Array.from({ length: 30 }, (_, i) => (i % 4 === 2 ? 'full_attention' : 'conv')),
      ...TIED,
    },
  },
  mamba2: {
    model: 'Mamba Codestral 7B',
    config: {
      hidden_size: 4096,
      num_hidden_layers: 64,
      vocab_size: 32768,
      num_heads: 128,
      head_dim: 64,
      n_groups: 8,
      state_size: 128,
      conv_kernel: 4,
      expand: 2,
    },
    optional: ['ssm_conv1d.bias'],
  },
  falcon_mamba: {
    model: 'Falcon Mamba 7B',
    config: {
      hidden_size: 4096,
      intermediate_size: 8192,
      num_hidden_layers: 64,
      vocab_size: 65024,
      time_step_rank: 256,
      state_size: 16,
      conv_kernel: 4,
    },
    optional: names('ssm_conv1d.bias ssm_dt.bias'),
  },
  gpt2: {
    model: 'Cerebras-GPT 6.7B',
    config: { n_embd: 4096, n_inner: 16384, n_layer: 32, n_head: 32, n_positions: 2048, vocab_size: 50257, ...TIED },
    optional: [...names('attn_qkv.weight attn_output.bias'), QKV_BIAS, ...MLP_BIASES, ...NORM_BIASES],
  },
  gpt_oss: {
    model: 'gpt-oss 20B',
    reduced: '16 of 32 experts',
    config: {
      ...dims(2880, 2880, 24, 64, 8, 201088),
      head_dim: 64,
      num_local_experts: 16,
      num_experts_per_tok: 4,
      sliding_window: 128,
      layer_types: each(24, 2, 'sliding_attention', 'full_attention'),
      rope_theta: 150000,
    },
    optional: [...ATTENTION_BIASES, ...EXPERT_BIASES],
    mix: 'mxfp4',
  },
  deepseek_v2: {
    model: 'DeepSeek V2 Lite',
    reduced: '32 of 64 experts',
    config: {
      ...dims(2048, 10944, 27, 16, 16, 102400),
      kv_lora_rank: 512,
      qk_nope_head_dim: 128,
      qk_rope_head_dim: 64,
      v_head_dim: 128,
      first_k_dense_replace: 1,
      moe_intermediate_size: 1408,
      n_routed_experts: 32,
      num_experts_per_tok: 6,
      n_shared_experts: 2,
      topk_method: 'greedy',
    },
  },
  deepseek_v3: {
    model: 'DeepSeek V3',
    reduced: '5 of 61 layers, 32 of 256 experts',
    config: {
      ...dims(7168, 18432, 5, 128, 128, 129280),
      q_lora_rank: 1536,
      kv_lora_rank: 512,
      qk_nope_head_dim: 128,
      qk_rope_head_dim: 64,
      v_head_dim: 128,
      first_k_dense_replace: 1,
      moe_intermediate_size: 2048,
      n_routed_experts: 32,
      num_experts_per_tok: 8,
      n_shared_experts: 1,
      n_group: 8,
      topk_group: 4,
      norm_topk_prob: true,
      routed_scaling_factor: 2.5,
      scoring_func: 'sigmoid',
    },
    optional: ['exp_probs_b.bias'],
  },
};

/** The `model_type` that a shape is of. */
export function typeOf(name: string): string {
  return name.split('/')[0];
}

export interface ShapeOptions {
  /** Of config.json, in place of the shape's. */
  config?: Record<string, unknown>;
  /** Layers at most; default all. */
  layers?: number;
}

/** What a GGUF file of the shape says, and which of the tensors that models ask about it has. */
export function describeShape(
  name: string,
  { config: other, layers }: ShapeOptions = {},
): { description: ModelDescription; optional: Set<string> } {
  const shape = SHAPES[name];
  if (!shape) throw new Error(`There is no shape "${name}"; there are ${Object.keys(SHAPES).join(', ')}.`);
  const config = shortened({ ...(other ?? shape.config), model_type: typeOf(name) }, layers);
  const description = describeConfig(config);
  // The one thing that config.json says in another way than such files: which heads share keys.
  const { delta } = description.config as { delta?: { sharing: string } };
  if (delta && name === 'qwen3_5_text') delta.sharing = 'tiled';
  const optional = new Set([...DEFAULT, ...(shape.optional ?? [])]);
  for (const absent of shape.without ?? []) optional.delete(absent);
  if (config.tie_word_embeddings !== true) optional.add('output.weight');
  return { description, optional };
}

function shortened(config: Record<string, unknown>, layers: number | undefined): Record<string, unknown> {
  if (layers === undefined) return config;
  const key = 'n_layer' in config ? 'n_layer' : 'num_hidden_layers';
  const count = Math.min(layers, config[key] as number);
  const { layer_types: types } = config;
  return { ...config, [key]: count, ...(Array.isArray(types) && { layer_types: types.slice(0, count) }) };
}
