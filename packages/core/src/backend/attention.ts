/**
 * Attention, of whole tensors and over a cache in blocks, as a device may have it in kernels. `@x/nn` composes it of
 * operations where not.
 */
import type { DType } from '../dtype';
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

/** A storage from an element on. */
export type StoragePart = readonly [storage: BackendStorage, offset: number];

/** Blocks of one layer's cache: keys [blocks · blockSize, kvHeads, d] and values [.., dv], contiguous and of one dtype. */
export interface PagedPool {
  keys: StoragePart;
  values: StoragePart;
  blocks: number;
  /** Positions of a block, a power of two. */
  blockSize: number;
  kvHeads: number;
  d: number;
  dv: number;
}

export interface PagedProblem {
  tokens: number;
  /** A multiple of the pool's. */
  heads: number;
  scale: number;
  /** Keys that a query sees at most; 0: all. */
  window: number;
  /** Scores become cap · tanh(scores / cap); 0: they stay. */
  softcap: number;
}

/** Which blocks a token's keys lie in. Contiguous, of u32. No launch depends on what they hold. */
export interface PagedTables {
  /** [sequences, maxBlocks] */
  tables: StoragePart;
  sequences: number;
  maxBlocks: number;
  /** [tokens]: the row of the tables; without it token i has row i. */
  rows?: StoragePart;
  /** [tokens]: keys before and at the token. One that has none gives 0. */
  lengths: StoragePart;
}

export interface PagedAttentionOps {
  /** Whether there is a kernel for queries of a dtype and a pool of another, with these sizes of heads. */
  supports(dtype: DType, poolDType: DType, d: number, dv: number): boolean;
  /** q [tokens, heads, d] of any strides: [tokens, heads, dv] in its dtype, contiguous. Sums are made in f32. */
  attend(problem: PagedProblem, q: Operand, pool: PagedPool, at: PagedTables): BackendStorage;
  /** Whether there is {@link attendInBlocks} for them. */
  supportsBlocks(dtype: DType, poolDType: DType, d: number, dv: number): boolean;
  /** As {@link attend}, [tokens, heads · dv] as blocks (u8) for {@link QuantizedOps.matmulActivations}. */
  attendInBlocks(problem: PagedProblem, q: Operand, pool: PagedPool, at: PagedTables): BackendStorage;
  /** Keys [kvHeads, tokens, d] and values [kvHeads, tokens, dv] into the pool's slots [tokens], contiguous u32; one beyond the pool is left out. */
  append(k: Operand, v: Operand, slots: StoragePart, pool: PagedPool): void;
}
