/**
 * What lies between the products of a language model's layer, as a device may have it in few kernels: results go to the next
 * quantized product in the blocks that it reads (see {@link QuantizedOps.quantizeActivations}), and keys and values to their
 * cache. `@x/nn` composes the same of operations where a device has none.
 */
import type { DType } from '../dtype';
import type { PagedPool, StoragePart } from './attention';
import type { BackendStorage } from './storage';

/** Dtypes that a norm may be given in. */
export type NormDType = 'f32' | 'f16' | 'bf16';

/** Rows of `n` f32 values, contiguous; weights [n], f32. */
export interface NormProblem {
  rows: number;
  n: number;
  /** Added to the mean of squares, of both norms. */
  eps: number;
  x: StoragePart;
  /** What is added to x first. */
  delta?: StoragePart;
  /** Weights of a norm of the delta before it is added. */
  deltaAlpha?: StoragePart;
  alpha: StoragePart;
}

/** Two matrices [rows, n] of f32, whose rows are contiguous and begin every so many values. */
export interface GatedProblem {
  rows: number;
  /** A multiple of 32 for blocks. */
  n: number;
  gate: StoragePart;
  gateRow: number;
  up: StoragePart;
  upRow: number;
}

/** Queries, keys and values as products give them: a row a token, f32, heads one after the other, rows every so many values. */
export interface HeadsProblem {
  tokens: number;
  heads: number;
  q: StoragePart;
  qRow: number;
  k: StoragePart;
  kRow: number;
  v: StoragePart;
  vRow: number;
  /** Weights [d] of RMS norms of each head. */
  qNorm?: StoragePart;
  kNorm?: StoragePart;
  /** Added to the mean of squares. */
  eps: number;
  /** Elements that are rotated, the first ones of each head; even. */
  rotated: number;
  /** Whether neighbours are rotated together; else an element of the first half of those rotated and one of the second. */
  interleaved: boolean;
  /** Rows of rotated / 2 values of f32, one a position; a row begins every `tableRow` values. */
  cos: StoragePart;
  sin: StoragePart;
  tableRow: number;
  tableLength: number;
  /** [tokens], u32: rows of the tables; one beyond them is the last. */
  positions: StoragePart;
  /** [tokens], u32: where in the pool keys and values go; one beyond the pool is left out. */
  slots: StoragePart;
  /** Multiplies the queries. */
  scale: number;
}

/** Rows of heads, f32, contiguous but for rows of the gate. */
export interface HeadNormProblem {
  rows: number;
  heads: number;
  /** Values of a head. */
  d: number;
  eps: number;
  /** [rows, heads * d] */
  x: StoragePart;
  /** [d] */
  alpha: StoragePart;
  /** heads * d values a row, which begins every `gateRow` values. */
  gate: StoragePart;
  gateRow: number;
}

export interface DecodeOps {
  /** Whether there are kernels for rows of n values in blocks. */
  supports(n: number): boolean;
  /** Whether {@link heads} is for a pool of this dtype, with these sizes of heads. */
  supportsHeads(poolDType: DType, d: number, dv: number): boolean;
  /**
   * The RMS norm of x + delta, [rows, n] in a dtype or in the form of {@link QuantizedOps.matmulActivations}, and, where
   * there is a delta, the sum. `both`: in f32, and as `blocks` where that form is blocks (u8) for so many rows.
   */
  norm(
    problem: NormProblem,
    as: NormDType | 'blocks' | 'both',
  ): { sum?: BackendStorage; normed: BackendStorage; blocks?: BackendStorage };
  /** act(gate) · up as blocks, or as numbers in f32, of any `n`. `gelu` is the form with tanh. */
  gated(activation: 'silu' | 'gelu', problem: GatedProblem, as?: 'blocks' | 'f32'): BackendStorage;
  /** Whether {@link headNorm} is for so many rows of heads of d values. */
  supportsHeadNorm(rows: number, d: number): boolean;
  /** The RMS norm of each head times silu of the gate, as blocks of rows of heads * d values. */
  headNorm(problem: HeadNormProblem): BackendStorage;
  /** Normalises and rotates heads and writes keys and values into the pool: queries [tokens, heads, d], f32. */
  heads(problem: HeadsProblem, pool: PagedPool): BackendStorage;
}
