/**
 * What a tensor is called in a checkpoint and in a GGUF file: one list an architecture, read both ways by the loader and by
 * the export. `{i}` stands for the number of a layer. The names are those of transformers and of llama.cpp's gguf-py.
 */

/** Name in the checkpoint, name in GGUF; both without `.weight` and `.bias`. */
export type TensorNamePair = readonly [checkpoint: string, gguf: string];

/** Embedding, attention and feed-forward layer of the Llama family. */
export const DECODER_NAMES: readonly TensorNamePair[] = [
  ['model.embed_tokens', 'token_embd'],
  ['model.norm', 'output_norm'],
  ['lm_head', 'output'],
  ['model.layers.{i}.input_layernorm', 'blk.{i}.attn_norm'],
  ['model.layers.{i}.self_attn.q_proj', 'blk.{i}.attn_q'],
  ['model.layers.{i}.self_attn.k_proj', 'blk.{i}.attn_k'],
  ['model.layers.{i}.self_attn.v_proj', 'blk.{i}.attn_v'],
  ['model.layers.{i}.self_attn.o_proj', 'blk.{i}.attn_output'],
  ['model.layers.{i}.post_attention_layernorm', 'blk.{i}.ffn_norm'],
  ['model.layers.{i}.mlp.gate_proj', 'blk.{i}.ffn_gate'],
  ['model.layers.{i}.mlp.up_proj', 'blk.{i}.ffn_up'],
  ['model.layers.{i}.mlp.down_proj', 'blk.{i}.ffn_down'],
];

/** Norms of queries and keys, a head each. */
export const QK_NORM_NAMES: readonly TensorNamePair[] = [
  ['model.layers.{i}.self_attn.q_norm', 'blk.{i}.attn_q_norm'],
  ['model.layers.{i}.self_attn.k_norm', 'blk.{i}.attn_k_norm'],
];

/** One list, by either name. */
export class TensorNames {
  private readonly byCheckpoint = new Map<string, string>();
  private readonly byGguf = new Map<string, string>();

  /** Later pairs replace earlier ones of the same checkpoint name. */
  constructor(pairs: readonly TensorNamePair[]) {
    for (const [checkpoint, gguf] of pairs) this.byCheckpoint.set(checkpoint, gguf);
    for (const [checkpoint, gguf] of this.byCheckpoint) this.byGguf.set(gguf, checkpoint);
  }

  /** `model.layers.3.mlp.up_proj` to `blk.3.ffn_up`; undefined for a tensor that the architecture has not. */
  toGguf(name: string): string | undefined {
    return translate(this.byCheckpoint, name);
  }

  /** The inverse of {@link toGguf}. */
  toCheckpoint(name: string): string | undefined {
    return translate(this.byGguf, name);
  }
}

function translate(names: ReadonlyMap<string, string>, name: string): string | undefined {
  const layer = /\.(\d+)\./.exec(name)?.[1];
  if (layer === undefined) return names.get(name);
  return names.get(name.replace(`.${layer}.`, '.{i}.'))?.replace('{i}', layer);
}
