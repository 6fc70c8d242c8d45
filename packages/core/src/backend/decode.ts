/**
 * What lies between the products of a language model's layer, as a device may have it in few kernels: results go to the next
 * quantized product in the blocks that it reads (see {@link QuantizedOps.quantizeActivations}), and keys and values to their
 * cache. `@x/nn` composes the same of operations where a device has none.
 */
import type { PagedPool, PoolDType, StoragePart } from './attention';
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
  /** Multiplies the delta where it has no norm. Default 1. */
  deltaScale?: number;
  /** Weights of an RMS norm of the delta before it is added. */
  deltaAlpha?: StoragePart;
  /** Weights of the norm. Default: there is none, the sum itself is given. */
  alpha?: StoragePart;
  /** What is added to the norm. */
  beta?: StoragePart;
  /** Whether the mean is taken away first: a layer norm. Default false. */
  centred?: boolean;
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

/** One of them, for an activation without a gate: `n` is a multiple of 32. */
export type ActivatedProblem = Omit<GatedProblem, 'up' | 'upRow'>;

/** The norm of x and a product whose bias is still to be added. Rows of `n` f32 values, contiguous; weights [n], f32. */
export interface BiasedNormProblem extends Omit<NormProblem, 'deltaScale' | 'deltaAlpha'> {
  delta: StoragePart;
  /** Added to the delta. */
  bias: StoragePart;
}

/** Activations of layers without a gate: `gelu` is the form with tanh, `gelu_erf` that with the error function. */
export type PlainActivation = 'silu' | 'gelu' | 'gelu_erf';

/** A matrix [rows, n] of f32, whose rows are contiguous and begin every `row` values. */
export interface BiasedActivationProblem {
  rows: number;
  /** A multiple of 32 for blocks. */
  n: number;
  x: StoragePart;
  row: number;
  /** [n], added first. */
  bias?: StoragePart;
}

/** Kernels that add the bias of the product in front of them. */
export interface BiasedOps {
  /** As {@link DecodeOps.norm}. */
  norm(
    problem: BiasedNormProblem,
    as: 'f32' | 'blocks' | 'both',
  ): { sum: BackendStorage; normed: BackendStorage; blocks?: BackendStorage };
  /** act(x + bias) as blocks, or as numbers in f32 of any `n`. */
  activated(activation: PlainActivation, problem: BiasedActivationProblem, as: 'blocks' | 'f32'): BackendStorage;
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

/** What {@link DecodeOps.promptHeads} gives. */
export interface PromptHeads {
  /** [wide, heads, d], f32 */
  wide: BackendStorage;
  /** [tokens - wide, heads, d], of the dtype of the pool. */
  q: BackendStorage;
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

/** Rows of groups, f32, contiguous but for rows of the gate. */
export interface GroupNormProblem {
  rows: number;
  groups: number;
  /** Values of a group. */
  d: number;
  eps: number;
  /** [rows, groups * d] */
  x: StoragePart;
  /** [groups * d] */
  alpha: StoragePart;
  /** groups * d values a row, which begins every `gateRow` values. */
  gate: StoragePart;
  gateRow: number;
}

/** Queries, latent vectors and shared keys of multi-head latent attention, a row a token, f32, rows every so many values. */
export interface LatentProblem {
  tokens: number;
  heads: number;
  /** Elements of a head that are not rotated, a multiple of 32, and those behind them that are; even. */
  plain: number;
  rotated: number;
  /** Elements of the latent vector, behind which the shared key is: `rotated` more. */
  rank: number;
  interleaved: boolean;
  q: StoragePart;
  qRow: number;
  latent: StoragePart;
  latentRow: number;
  /** Weights [rank] of the latent vector's RMS norm, and what is added to the mean of squares. */
  alpha: StoragePart;
  eps: number;
  /** Tables, positions and slots as of {@link HeadsProblem}. */
  cos: StoragePart;
  sin: StoragePart;
  tableRow: number;
  tableLength: number;
  positions: StoragePart;
  slots: StoragePart;
}

/** Fused kernels for what lies between the products of a decoder's layer. */
export interface DecodeOps {
  /** Present where that is worth a kernel: where memory is slow, as on the host. */
  readonly biased?: BiasedOps;
  /** Whether there are kernels for rows of n values in blocks. */
  supports(n: number): boolean;
  /** Whether {@link heads} is for a pool of this dtype, with these sizes of heads. */
  supportsHeads(poolDType: PoolDType, d: number, dv: number): boolean;
  /**
   * The norm of x + delta, [rows, n] in a dtype or in the form of {@link QuantizedOps.matmulActivations}, and, where
   * there is a delta, the sum. `both`: in f32, and as `blocks` where that form is blocks (u8) for so many rows.
   */
  norm(
    problem: NormProblem,
    as: NormDType | 'blocks' | 'both',
  ): { sum?: BackendStorage; normed: BackendStorage; blocks?: BackendStorage };
  /** act(gate) · up as blocks, or as numbers of a dtype, of any `n`. `gelu` is the form with tanh. */
  gated(activation: 'silu' | 'gelu' | 'sigmoid', problem: GatedProblem, as?: NormDType | 'blocks'): BackendStorage;
  /** act(gate) as blocks. */
  activated(activation: 'silu' | 'gelu', problem: ActivatedProblem): BackendStorage;
  /** Whether {@link headNorm} is for so many rows of heads of d values. */
  supportsHeadNorm(rows: number, d: number): boolean;
  /** The RMS norm of each head times silu of the gate, as blocks of rows of heads * d values. */
  headNorm(problem: HeadNormProblem): BackendStorage;
  /** Whether {@link groupNorm} is for so many rows of groups of d values. */
  supportsGroupNorm(rows: number, d: number): boolean;
  /** The RMS norm of each group of x times silu of the gate, as blocks of rows of groups * d values. */
  groupNorm(problem: GroupNormProblem): BackendStorage;
  /** Normalises and rotates heads and writes keys and values into the pool: queries [tokens, heads, d], f32. */
  heads(problem: HeadsProblem, pool: PagedPool): BackendStorage;
  /**
   * As {@link heads} of the first `wide` tokens; queries of later ones are given in the dtype of the pool, f16 or bf16, as
   * attention of prompts multiplies them.
   */
  promptHeads(problem: HeadsProblem, wide: number, pool: PagedPool): PromptHeads;
  /** Whether {@link latent} is for so many tokens, a pool of this dtype and heads with so many elements that are not rotated. */
  supportsLatent(poolDType: PoolDType, tokens: number, plain: number): boolean;
  /**
   * Writes norms of latent vectors and the rotated shared keys into the pool. `queries` are [tokens, heads, rank + rotated], f32,
   * with the rotated parts of queries; what goes in front of these is a product with `plain`, the plain parts as blocks of
   * tokens * heads rows.
   */
  latent(problem: LatentProblem, pool: PagedPool): { queries: BackendStorage; plain: BackendStorage };
  /** Whether a row in blocks of several times `d` values is as many rows of `d` values in blocks. */
  splitsRows(d: number): boolean;
}
