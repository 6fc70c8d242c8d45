/**
 * The experts of a mixture for few tokens, as a device may have them in two kernels: what the router chose goes in, and what is
 * added to the residual comes out. With one expert and no ids they are a feed-forward layer that all tokens take, and the second
 * one alone is a product with a bias. Weights are in blocks, see {@link QuantizedOps}; results are the same bits every time.
 */
import type { BlockType } from '../quantized-types';
import type { StoragePart } from './attention';
import type { BackendStorage } from './storage';

/** Which experts each token takes. */
export interface ExpertChoice {
  tokens: number;
  /** Experts of a token; 1 without ids. */
  topk: number;
  /** [tokens, topk], u32, contiguous, each below the number of experts. Default: the only expert there is. */
  ids?: StoragePart;
}

/** `clamped` is gpt-oss's: g · sigmoid(1.702 · g) · (u + 1) with g at most `limit` and u within plus and minus that. */
export type GateActivation = 'silu' | 'gelu' | { clamped: number };

export interface GatedExpertsProblem extends ExpertChoice {
  type: BlockType;
  /** Rows of an expert's gate, and as many of its up: a multiple of 32. */
  n: number;
  k: number;
  /** Blocks [experts, n, k], u8, from there on. */
  gate: StoragePart;
  up: StoragePart;
  /** [experts, n], f32, added to the products. */
  gateBias?: StoragePart;
  upBias?: StoragePart;
  activation: GateActivation;
  /** [tokens, k] in the form of {@link QuantizedOps.quantizeActivations} that is blocks (u8). */
  x: BackendStorage;
}

export interface MixedExpertsProblem extends ExpertChoice {
  type: BlockType;
  n: number;
  k: number;
  /** Blocks [experts, n, k], u8, from there on. */
  weights: StoragePart;
  /** [experts, n], f32, added to the products. */
  bias?: StoragePart;
  /** [tokens, topk], f32, contiguous: what multiplies each expert's result. Default: ones. */
  mix?: StoragePart;
  /** [tokens * topk, k] in the form of {@link QuantizedOps.quantizeActivations} that is blocks (u8). */
  x: BackendStorage;
  /** Added to the sum: [tokens, n], f32, contiguous. */
  base?: StoragePart;
  /** Numbers whose sigmoid multiplies a token's row of `base`: f32, one every `row` values. */
  baseGate?: { values: StoragePart; row: number };
}

export interface QuantizedExpertOps {
  /** activation(gate · x) times (up · x) of each token's experts, [tokens * topk, n], in the form that `x` has. */
  gated(problem: GatedExpertsProblem): BackendStorage;
  /** The sum over each token's experts of weights · x, [tokens, n], f32. */
  mixed(problem: MixedExpertsProblem): BackendStorage;
  /** The same into memory from `out` on, f32, where a token's `n` values begin every `row` values. */
  mixedInto(problem: MixedExpertsProblem, out: StoragePart, row: number): void;
}
