/**
 * The experts of a mixture, as a device may have them in few kernels: what the router chose goes in, and what is added to the
 * residual comes out. For few tokens they are two, whose weights are read once for each token; with one expert and no ids these are
 * a feed-forward layer that all tokens take, and the second one alone is a product with a bias. For many tokens they are six, and
 * the pairs of token and expert lie in the order of their experts. Weights are in blocks, see {@link QuantizedOps}; results are the
 * same bits every time.
 */
import type { BlockType } from '../quantized-types';
import type { StoragePart } from './attention';
import type { ExpertTiles } from './experts';
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

/** An expert of a width of its own that all tokens take beside those that they chose, in blocks of the same type, without biases. */
export interface SharedGate {
  /** A multiple of 32. */
  n: number;
  /** Blocks [n, k], u8, from there on. */
  gate: StoragePart;
  up: StoragePart;
}

/** How what a token's experts give, rows of `n` values, is added up. */
export interface ExpertMix {
  /** [experts, n], f32, added to the products. */
  bias?: StoragePart;
  /** [tokens, topk], f32, contiguous: what multiplies each expert's result. Default: ones. */
  mix?: StoragePart;
  /** Added to the sum: [tokens, n], f32, contiguous. */
  base?: StoragePart;
  /** Numbers whose sigmoid multiplies a token's row of `base`, or what a shared expert gives: f32, one every `row` values. */
  baseGate?: { values: StoragePart; row: number };
}

export interface MixedExpertsProblem extends ExpertChoice, ExpertMix {
  type: BlockType;
  n: number;
  k: number;
  /** Blocks [experts, n, k], u8, from there on. */
  weights: StoragePart;
  /** [tokens * topk, k] in the form of {@link QuantizedOps.quantizeActivations} that is blocks (u8). */
  x: BackendStorage;
  /** In the place of `base`: an expert that all tokens take, blocks [n, k] of the same type, and its x, [tokens, k], as `x`. */
  shared?: { weights: StoragePart; k: number; x: BackendStorage };
}

/** Experts of many tokens, from rows of `n` values by rows of `width` to rows of `n`. */
export interface GroupedExpertsProblem extends ExpertMix {
  tokens: number;
  topk: number;
  n: number;
  /** A multiple of 32. */
  width: number;
  /** [tokens, topk], u32, contiguous, each below the number of experts. */
  ids: StoragePart;
  /** Of those ids: see {@link ExpertOps.order}. */
  order: { places: StoragePart; sources: StoragePart; owners: StoragePart; tiles: ExpertTiles };
  /** [tokens, n], f32, contiguous. */
  x: StoragePart;
  /** Blocks [experts, width, n], u8, from there on, of one type. */
  gate: StoragePart;
  up: StoragePart;
  type: BlockType;
  /** [experts, width], f32, added to the products. */
  gateBias?: StoragePart;
  upBias?: StoragePart;
  activation: GateActivation;
  /** Blocks [experts, n, width], u8, from there on. */
  down: StoragePart;
  downType: BlockType;
}

export interface QuantizedExpertOps {
  /** activation(gate · x) times (up · x) of each token's experts, [tokens * topk, n], in the form that `x` has. */
  gated(problem: GatedExpertsProblem): BackendStorage;
  /** The same, and what the expert makes that all tokens take, [tokens, shared.n]; without biases. */
  gatedBeside(problem: GatedExpertsProblem, shared: SharedGate): { own: BackendStorage; shared: BackendStorage };
  /** The sum over each token's experts of weights · x, [tokens, n], f32. */
  mixed(problem: MixedExpertsProblem): BackendStorage;
  /** The same into memory from `out` on, f32, where a token's `n` values begin every `row` values. */
  mixedInto(problem: MixedExpertsProblem, out: StoragePart, row: number): void;
  /** The sum over each token's experts of down · (activation(gate · x) times (up · x)), [tokens, n], f32. */
  grouped(problem: GroupedExpertsProblem): BackendStorage;
}
