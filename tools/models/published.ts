/** Which published models an architecture is of, and the templates among the tests' that they have. A test wants all of the registry. */

export interface Published {
  models: string;
  /** Another architecture of the same layers, whose small model stands for this one's: the text part of a whole. */
  like?: string;
  /** Files of packages/transformers/test/chat/templates. */
  templates?: readonly string[];
  /** Of a published template that is not among them. */
  family?: 'glm' | 'qwen-coder' | 'gemma';
}

/** By the first of an architecture's names. */
export const PUBLISHED: Readonly<Record<string, Published>> = {
  llama: { models: 'Llama 1 to 3.3, TinyLlama, SmolLM', templates: ['llama3'] },
  mistral: { models: 'Mistral 7B', templates: ['mistral'] },
  mixtral: { models: 'Mixtral 8x7B, 8x22B', templates: ['mistral'] },
  mistral3_text: { models: 'Mistral Small 3.1 and 3.2, text', like: 'mistral', templates: ['mistral'] },
  qwen2_vl_text: { models: 'Qwen2-VL, Qwen2.5-VL, text', like: 'qwen2', templates: ['qwen25'] },
  qwen3_vl_text: { models: 'Qwen3-VL, text', like: 'qwen3', templates: ['qwen3'] },
  qwen3_vl_moe_text: { models: 'Qwen3-VL 30B-A3B, 235B-A22B, text', like: 'qwen3_moe', templates: ['qwen3'] },
  qwen2: { models: 'Qwen 2, 2.5', templates: ['qwen25'] },
  qwen3: { models: 'Qwen 3, Qwen3-Embedding, Qwen3-Reranker', templates: ['qwen3'] },
  qwen3_moe: { models: 'Qwen 3 30B-A3B, 235B-A22B, Qwen3-Coder', templates: ['qwen3'], family: 'qwen-coder' },
  qwen3_next: { models: 'Qwen3-Next', templates: ['qwen3'] },
  qwen3_5_text: { models: 'Qwen 3.5, text', family: 'qwen-coder' },
  gemma2: { models: 'Gemma 2', templates: ['gemma2'] },
  gemma3_text: { models: 'Gemma 3, text, FunctionGemma', templates: ['gemma3'], family: 'gemma' },
  gemma_embedding: { models: 'EmbeddingGemma' },
  phi3: { models: 'Phi 3, 3.5, 4', templates: ['phi3', 'phi4', 'phi4-mini'] },
  smollm3: { models: 'SmolLM3', templates: ['smollm3'] },
  olmo3: { models: 'OLMo 3' },
  olmo2: { models: 'OLMo 2' },
  olmoe: { models: 'OLMoE' },
  granite: { models: 'Granite 3', templates: ['granite'] },
  granitemoe: { models: 'Granite 3 MoE', templates: ['granite'] },
  glm4: { models: 'GLM 4' },
  glm4_moe: { models: 'GLM 4.5, 4.5 Air', family: 'glm' },
  cohere2: { models: 'Command R7B' },
  exaone4: { models: 'EXAONE 4' },
  nemotron: { models: 'Minitron, Nemotron 4' },
  starcoder2: { models: 'StarCoder2' },
  lfm2: { models: 'LFM2' },
  mamba2: { models: 'Mamba 2, Codestral Mamba' },
  falcon_mamba: { models: 'Falcon Mamba' },
  gpt2: { models: 'GPT-2' },
  gpt_oss: { models: 'gpt-oss', templates: ['harmony'] },
  deepseek_v3: { models: 'DeepSeek V3, V3.1, R1', templates: ['deepseek'] },
  deepseek_v2: { models: 'DeepSeek V2, V2.5, V2 Lite' },
};

/** Published models of an encoder. */
export const ENCODER_MODELS: Readonly<Record<string, string>> = {
  jina_bert: 'jina-embeddings-v2',
  bert: 'BERT, most of sentence-transformers, BGE, E5, GTE, MiniLM',
  roberta: 'RoBERTa',
  'xlm-roberta': 'XLM-RoBERTa, BGE-M3, multilingual E5',
  modernbert: 'ModernBERT',
  nomic_bert: 'nomic-embed-text',
  jina_embeddings_v3: 'jina-embeddings-v3, without its adapters of tasks',
};
