/**
 * Mixtures of experts, as a device may have them in kernels: the choice of experts, the pairs of token and expert in an order
 * in which the pairs of an expert follow one another, and products with the weights of each pair's expert, one launch for all
 * of them. Nothing of it is read on the host. For weights in blocks see {@link QuantizedOps.groupedMatmul}.
 */
import type { BlockType } from '../quantized-types';
import type { StoragePart } from './attention';
import type { Operand } from './operand';
import type { BackendStorage } from './storage';

/** How logits become a choice. */
export interface RouteRules {
  tokens: number;
  experts: number;
  /** Experts that each token takes. */
  chosen: number;
  /** What makes scores of the logits. */
  scores: 'softmax' | 'sigmoid';
  /** Whether the weights of those chosen are divided by their sum. */
  renormalise: boolean;
  /** Multiplies the weights. */
  scale: number;
  /** Experts lie in `count` groups of equal size, of which a token takes the `chosen` best: by their `best` best experts together. */
  groups?: { count: number; chosen: number; best: 1 | 2 };
  /** Added to the logits: [experts], f32. */
  bias?: StoragePart;
  /** Added to the scores for the choice, not for the weights: [experts], f32. */
  correction?: StoragePart;
}

/** For {@link ExpertOps.route}: the choice by logits that are there already. */
export interface RouteProblem extends RouteRules {
  /** [tokens, experts], f32; a row begins every `logitsRow` values, which is at least `experts`. */
  logits: StoragePart;
  logitsRow: number;
}

/** Everything contiguous, f32. */
export interface RouterProblem extends RouteRules {
  hidden: number;
  /** [tokens, hidden] */
  x: StoragePart;
  /** [rows, hidden]: the experts' rows and, behind them, any others. */
  weight: StoragePart;
  rows: number;
}

/** Runs of pairs of one expert: u32 [count, 3], expert, first place, the place behind the last. */
export interface ExpertTiles {
  tiles: StoragePart;
  count: number;
  /** Pairs of a run, at most. */
  most: number;
}

export interface ExpertOps {
  /** Whether {@link order} and products are for so many experts. */
  supports(experts: number): boolean;
  /** Whether {@link route} is for so many experts, of which each token takes `chosen`. */
  supportsRoute(experts: number, chosen: number): boolean;
  /** Weights (f32) and numbers (u32) of each token's experts, the best first: [tokens, chosen]. */
  route(problem: RouteProblem): { weights: BackendStorage; ids: BackendStorage };
  /** Whether {@link router} is for so many tokens. */
  supportsRouter(problem: Pick<RouterProblem, 'tokens' | 'experts' | 'chosen'>): boolean;
  /** The logits x · weightᵀ, [tokens, rows], f32, and {@link route} of the experts' ones. */
  router(problem: RouterProblem): { logits: BackendStorage; weights: BackendStorage; ids: BackendStorage };
  /**
   * Pairs that a tile should have, at most.
   * @param types of the weights, where products with blocks alone take the tiles; default: as all products take them
   */
  tilePairs(size: { pairs: number; experts: number }, types?: readonly BlockType[]): number;
  /** Tiles that {@link order} makes room for. */
  tileCount(size: { pairs: number; experts: number; tile: number }): number;
  /**
   * The pairs by expert, u32 one after the other: the place of each pair, and of each place the token and the expert, [pairs]
   * each, then the tiles of up to `tile` pairs, [tileCount, 3], of which those left over are empty.
   * @param ids [pairs], u32, contiguous, below `experts`; `chosen` of a token follow one another
   */
  order(ids: StoragePart, size: { pairs: number; experts: number; chosen: number; tile: number }): BackendStorage;
  /**
   * x [pairs, k] by expert times the transposes of weights [experts, n, k], f32, f16 or bf16, in whose dtype x is, or in f32:
   * [pairs, n] in x's dtype.
   */
  groupedMatmul(
    weight: StoragePart,
    size: { pairs: number; n: number; k: number },
    x: Operand,
    tiles: ExpertTiles,
  ): BackendStorage;
}
