/**
 * Attention, of whole tensors and over a cache in blocks, as a device may have it in kernels. `@x/nn` composes it of
 * operations where not.
 */
import type { DType } from '../dtype';
import type { HeadsProblem } from './decode';
import type { Operand } from './operand';
import type { BackendStorage } from './storage';

/** Attention of `heads` query heads, a multiple of `kvHeads`: softmax(q · kᵀ · scale) · v. */
export interface AttentionProblem {
  b: number;
  heads: number;
  kvHeads: number;
  seq: number;
  kv: number;
  /** Size of a head, of the values too. */
  d: number;
  scale: number;
  /** The last query sees all keys, the one before it all but one, and so on; a query that sees none gives NaN. */
  causal: boolean;
}

/** Attention in one kernel, whose scores never lie in memory. */
export interface AttentionOps {
  /** Whether the device has a kernel that is faster here than two products and a softmax. */
  supports(dtype: DType, problem: AttentionProblem): boolean;
  /** q [b, heads, seq, d], k and v [b, kvHeads, kv, d], any strides: [b, heads, seq, d]. Sums are made in f32. */
  forward(problem: AttentionProblem, q: Operand, k: Operand, v: Operand): BackendStorage;
}

/** Attention of sequences that lie one after the other, each within itself. */
export interface PackedProblem {
  /** Of all sequences together. */
  tokens: number;
  /** A multiple of `kvHeads`. */
  heads: number;
  kvHeads: number;
  /** Size of a head, of the values too. */
  d: number;
  scale: number;
  /** Keys that a query sees at most in front of it and behind it, its own aside; Infinity: all of its sequence. */
  before: number;
  after: number;
}

/** Queries in tiles, each within one sequence. */
export interface PackedTiles {
  /** Contiguous u32 [count, 3]: the first token of a sequence, its tokens, and the tile's first query, counted within it. */
  table: StoragePart;
  count: number;
}

/** Attention of packed sequences, as a device may have it in a kernel. */
export interface PackedAttentionOps {
  /** Queries of a tile in a kernel that is faster here than products and a softmax a sequence; undefined: there is none. */
  tileRows(dtype: DType, problem: PackedProblem): number | undefined;
  /**
   * q [tokens, heads, d], k and v [tokens, kvHeads, d] of any strides and one dtype: [tokens, heads, d], contiguous. Sums are
   * made in f32. Tiles are those of {@link tileRows}.
   * @param slopes [heads], f32: slope times distance is taken from the scores (ALiBi)
   */
  forward(
    problem: PackedProblem,
    q: Operand,
    k: Operand,
    v: Operand,
    tiles: PackedTiles,
    slopes?: StoragePart,
  ): BackendStorage;
}

/** A storage from an element on. */
export type StoragePart = readonly [storage: BackendStorage, offset: number];

/** What keys and values of a cache are: numbers of a dtype, or 8 bits with a scale of each 32, as ggml's q8_0 has them. */
export type PoolDType = DType | 'q8_0';

/** Blocks of one layer's cache: keys [blocks · blockSize, kvHeads, d], contiguous, and values [.., dv] of the same dtype. */
export interface PagedPool {
  keys: StoragePart;
  values: StoragePart;
  /**
   * Of a pool of `q8_0`, whose keys and values are u8, each the value over its scale and 128: a scale of each 32 of a head,
   * [blocks · blockSize, kvHeads, d / 32], f16, contiguous. Where values are the first elements of keys, both are the same.
   */
  scales?: { keys: StoragePart; values: StoragePart };
  /** Elements from one value to the next: dv where they are contiguous, d where they are the first elements of keys. */
  valueRow: number;
  blocks: number;
  /** Positions of a block, a power of two. */
  blockSize: number;
  kvHeads: number;
  d: number;
  dv: number;
}

/** Attention of tokens over a {@link PagedPool}. */
export interface PagedProblem {
  tokens: number;
  /** A multiple of the pool's. */
  heads: number;
  scale: number;
  /** Keys that a query sees at most; 0: all. */
  window: number;
  /** Scores become cap · tanh(scores / cap); 0: they stay. */
  softcap: number;
  /** A score of each head that takes its share of the softmax and has no value: [heads], f32, contiguous. */
  sinks?: StoragePart;
}

/** Which blocks a token's keys lie in. Contiguous, of u32. No launch depends on what they hold. */
export interface PagedTables {
  /** [sequences, maxBlocks] */
  tables: StoragePart;
  sequences: number;
  maxBlocks: number;
  /** [tokens], the row of the tables; without it token i has row i. */
  rows?: StoragePart;
  /** [tokens], keys before and at the token. One that has none gives 0. */
  lengths: StoragePart;
}

/** Many tokens of one sequence, f32. */
export interface PromptProblem extends PagedProblem {
  /** Keys in front of the first token. */
  before: number;
}

/** Parts of several sequences, such as prompts, each token looking at the keys of its sequence up to its own. */
export interface VarlenProblem {
  /** Rows of the result. */
  tokens: number;
  /** A multiple of the pool's. */
  heads: number;
  scale: number;
  /** Keys that a query sees at most; 0: all. */
  window: number;
  /** As {@link PagedProblem} has them. */
  softcap: number;
  sinks?: StoragePart;
}

/** Tiles of their tokens, which are in every row of the result once. Contiguous, of u32. No launch depends on what they hold. */
export interface VarlenTiles {
  /**
   * [count, 4]: a tile's first row, its rows, the keys that the first of them sees, and where the blocks of its sequence begin in
   * `tables`. Rows of a tile that sees no key become 0; a tile of no rows is left out. Long ones come first.
   */
  tiles: StoragePart;
  count: number;
  /** Blocks of the sequences, in order, one sequence after the other. */
  tables: StoragePart;
}

/** Blocks of the keys or the values of a pool of `q8_0`. */
export interface UnpackProblem {
  /** Of `blocks`, contiguous u32. */
  count: number;
  blocks: StoragePart;
  /** Values of a block. */
  blockValues: number;
  /** Of the pool. */
  poolBlocks: number;
  codes: StoragePart;
  scales: StoragePart;
}

/** Attention over a cache in blocks, as a device may have it in kernels. `@x/nn` gathers the blocks where not. */
export interface PagedAttentionOps {
  /** Whether there is a kernel for queries of a dtype and a pool of another, with these sizes of heads. */
  supports(dtype: DType, poolDType: PoolDType, d: number, dv: number): boolean;
  /** q [tokens, heads, d] of any strides: [tokens, heads, dv] in its dtype, contiguous. Sums are made in f32. */
  attend(problem: PagedProblem, q: Operand, pool: PagedPool, at: PagedTables): BackendStorage;
  /** Whether there is {@link attendInBlocks} for them. */
  supportsBlocks(dtype: DType, poolDType: PoolDType, d: number, dv: number): boolean;
  /** As {@link attend}, [tokens, heads · dv] as blocks (u8) for {@link QuantizedOps.matmulActivations}. */
  attendInBlocks(problem: PagedProblem, q: Operand, pool: PagedPool, at: PagedTables): BackendStorage;
  /** Whether there is {@link step} for a pool of this dtype, with these sizes of heads. */
  supportsStep(poolDType: PoolDType, d: number, dv: number): boolean;
  /**
   * `DecodeOps.heads` and {@link attendInBlocks} at once, of tokens of which no two are of one sequence: the slot of each is
   * that of the last key that it sees. The scale is that of `heads`; `at` has no rows.
   */
  step(heads: HeadsProblem, problem: PagedProblem, pool: PagedPool, at: PagedTables): BackendStorage;
  /** Whether there is {@link attendPrompt} for a pool of this dtype, with these sizes of heads. */
  supportsPrompt(poolDType: PoolDType, d: number, dv: number): boolean;
  /**
   * q [heads, tokens, d] of any strides, f32, each token looking at the keys up to its own: [tokens, heads, dv], f32.
   * @param table the blocks of the sequence, contiguous u32, as many as before + tokens positions have
   */
  attendPrompt(problem: PromptProblem, q: Operand, pool: PagedPool, table: StoragePart): BackendStorage;
  /** Rows of a tile at most, where there is {@link attendVarlen} for a pool of this dtype, with these sizes of heads. */
  varlenRows(poolDType: PoolDType, d: number, dv: number): number | undefined;
  /** q [tokens, heads, d] of any strides, of the pool's dtype: [tokens, heads, dv] of it. Sums are made in f32, scores capped there. */
  attendVarlen(problem: VarlenProblem, q: Operand, pool: PagedPool, tiles: VarlenTiles): BackendStorage;
  /**
   * Keys [kvHeads, tokens, d] and values [kvHeads, tokens, dv] into the pool's slots [tokens], contiguous u32; one beyond the
   * pool is left out. Without `v`, values are part of the keys.
   */
  append(k: Operand, v: Operand | undefined, slots: StoragePart, pool: PagedPool): void;
  /** Numbers of f32, f16 or bf16, one block after the other: [count · blockValues]. */
  unpack(problem: UnpackProblem, dtype: DType): BackendStorage;
}
