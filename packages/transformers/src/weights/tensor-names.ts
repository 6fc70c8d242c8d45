/**
 * What a tensor is called in a checkpoint and in a GGUF file: one list an architecture, read both ways by the loader and by
 * the export. Models ask for tensors by their GGUF names, which are the same in all architectures. `{i}` stands for the
 * number of a layer. The names are those of transformers and of llama.cpp's gguf-py.
 */

/** How a tensor of a GGUF file lies in the checkpoint, where it is not simply the same. */
export interface TensorForm {
  /** It is the first (0), second (1), ... of so many equal parts of the rows. */
  part?: readonly [index: number, of: number];
  /** The rows of the parts take turns, instead of following one another. */
  interleaved?: boolean;
  /** Rows and columns have changed places: [in, out]. */
  transposed?: boolean;
  /** Neither name has an ending. */
  bare?: boolean;
  /** Its values are -exp of those of the checkpoint. */
  negativeExp?: boolean;
}

/**
 * Name in the checkpoint, name in GGUF. Both without `.weight` and `.bias`; with the ending in GGUF, the name in the
 * checkpoint is that of the tensor itself. `{e}` in the checkpoint's name: one tensor for each expert, which GGUF stacks.
 */
export type TensorNamePair = readonly [checkpoint: string, gguf: string, form?: TensorForm];

/** Embeddings and head. */
export const EMBEDDING_NAMES: readonly TensorNamePair[] = [
  ['model.embed_tokens', 'token_embd'],
  ['model.norm', 'output_norm'],
  ['lm_head', 'output'],
];

const ATTENTION_NAMES: readonly TensorNamePair[] = [
  ['model.layers.{i}.self_attn.q_proj', 'blk.{i}.attn_q'],
  ['model.layers.{i}.self_attn.k_proj', 'blk.{i}.attn_k'],
  ['model.layers.{i}.self_attn.v_proj', 'blk.{i}.attn_v'],
  ['model.layers.{i}.self_attn.o_proj', 'blk.{i}.attn_output'],
];

/** Embeddings, head and attention of nearly all decoders. */
export const BASE_NAMES: readonly TensorNamePair[] = [...EMBEDDING_NAMES, ...ATTENTION_NAMES];

/** Norms before attention and before the feed-forward layer. */
export const PRE_NORM_NAMES: readonly TensorNamePair[] = [
  ['model.layers.{i}.input_layernorm', 'blk.{i}.attn_norm'],
  ['model.layers.{i}.post_attention_layernorm', 'blk.{i}.ffn_norm'],
];

/** Norms before and behind both: Gemma's names. */
export const FOUR_NORM_NAMES: readonly TensorNamePair[] = [
  ['model.layers.{i}.input_layernorm', 'blk.{i}.attn_norm'],
  ['model.layers.{i}.post_attention_layernorm', 'blk.{i}.post_attention_norm'],
  ['model.layers.{i}.pre_feedforward_layernorm', 'blk.{i}.ffn_norm'],
  ['model.layers.{i}.post_feedforward_layernorm', 'blk.{i}.post_ffw_norm'],
];

/** Norms behind attention and behind the feed-forward layer. */
export const POST_NORM_NAMES: readonly TensorNamePair[] = [
  ['model.layers.{i}.post_attention_layernorm', 'blk.{i}.post_attention_norm'],
  ['model.layers.{i}.post_feedforward_layernorm', 'blk.{i}.post_ffw_norm'],
];

/** The feed-forward layer of the Llama family. */
export const GATED_MLP_NAMES: readonly TensorNamePair[] = [
  ['model.layers.{i}.mlp.gate_proj', 'blk.{i}.ffn_gate'],
  ['model.layers.{i}.mlp.up_proj', 'blk.{i}.ffn_up'],
  ['model.layers.{i}.mlp.down_proj', 'blk.{i}.ffn_down'],
];

/** Norms of queries and keys. */
export const QK_NORM_NAMES: readonly TensorNamePair[] = [
  ['model.layers.{i}.self_attn.q_norm', 'blk.{i}.attn_q_norm'],
  ['model.layers.{i}.self_attn.k_norm', 'blk.{i}.attn_k_norm'],
];

/** Router and experts, in the place of the feed-forward layer. */
export const EXPERT_NAMES: readonly TensorNamePair[] = [
  ['model.layers.{i}.mlp.gate', 'blk.{i}.ffn_gate_inp'],
  ['model.layers.{i}.mlp.experts.{e}.gate_proj', 'blk.{i}.ffn_gate_exps'],
  ['model.layers.{i}.mlp.experts.{e}.up_proj', 'blk.{i}.ffn_up_exps'],
  ['model.layers.{i}.mlp.experts.{e}.down_proj', 'blk.{i}.ffn_down_exps'],
];

/** All tensors of the Llama family. */
export const DECODER_NAMES: readonly TensorNamePair[] = [...BASE_NAMES, ...PRE_NORM_NAMES, ...GATED_MLP_NAMES];

/** Where a tensor lies in a checkpoint; `{e}` in the name stands for the number of an expert. */
export interface StoredTensor {
  name: string;
  form: TensorForm;
}

const ENDING = /\.(?:weight|bias)$/;

/** One list, by either name. Several entries of one name in GGUF are what different checkpoints call it, the usual one first. */
export class TensorNames {
  private readonly byCheckpoint = new Map<string, string[]>();
  private readonly byGguf = new Map<string, StoredTensor[]>();

  /** @param pairs names without `.weight` and `.bias` stand for both, unless their form is `bare` */
  constructor(pairs: readonly TensorNamePair[]) {
    for (const [checkpoint, gguf, form = {}] of pairs) {
      for (const ending of ENDING.test(gguf) || form.bare ? [''] : ['.weight', '.bias']) {
        const name = `${checkpoint}${ending}`;
        this.byGguf.set(`${gguf}${ending}`, [...(this.byGguf.get(`${gguf}${ending}`) ?? []), { name, form }]);
        this.byCheckpoint.set(name, [...(this.byCheckpoint.get(name) ?? []), `${gguf}${ending}`]);
      }
    }
  }

  /** `blk.3.ffn_up.weight` to `model.layers.3.mlp.up_proj.weight`; undefined for a tensor that the architecture has not. */
  toCheckpoint(gguf: string): StoredTensor | undefined {
    return this.allInCheckpoints(gguf)[0];
  }

  /** The same in all checkpoints, where these differ; none for a tensor that the architecture has not. */
  allInCheckpoints(gguf: string): StoredTensor[] {
    const [, layer] = /^blk\.(\d+)\./.exec(gguf) ?? [];
    const found = this.byGguf.get(layer === undefined ? gguf : gguf.replace(`.${layer}.`, '.{i}.')) ?? [];
    return found.map(({ name, form }) => ({ name: name.replace('{i}', layer ?? ''), form }));
  }

  /** The inverse: the tensors that a checkpoint's one is, or is part of; none for one that the architecture has not. */
  toGguf(name: string): string[] {
    const numbers: string[] = [];
    const places = ['{i}', '{e}'];
    const general = name.replace(/\.(\d+)(?=\.)/g, (_, number) => `.${places[numbers.push(number) - 1]}`);
    return (this.byCheckpoint.get(general) ?? []).map((gguf) => gguf.replace('{i}', numbers[0] ?? ''));
  }
}
