/** Mixtures of experts: the kernels `decode_route`, `decode_group`, `decode_router` (kernels/decode/) and `gemm_groups`. */
import type {
  BlockType,
  ExpertOps,
  ExpertTiles,
  Operand,
  RouteProblem,
  RouteRules,
  RouterProblem,
  StoragePart,
} from '@x/core';
import type { Counters } from '../counters';
import type { KernelDevice } from '../device';
import { unsupported } from '../errors';
import { clamp } from '../launch-shape';
import { ROUTE_MAX_CHOSEN, ROUTE_MAX_EXPERTS, ROUTER_ROWS } from '../launchers/constants';
import {
  type DecodeRouteArguments,
  launchDecodeGroup,
  launchDecodeRoute,
  launchDecodeRouter,
} from '../launchers/decode';
import { launchGemmGroups } from '../launchers/gemm';
import type { KernelStorage } from '../storage';
import { filled } from './result';

/** Pairs of a tile: what the tiles of products have. */
export const EXPERT_TILE = 64;
/** The same of `mul_mat_stream_grouped_*` (cuda) where experts have few pairs or many, on average. */
const SMALL_TILE = 16;
const FEW_PAIRS = 8;
const LARGE_TILE = 128;
const MANY_PAIRS = 64;
const GROUP_THREADS = 1024;
const PRODUCT_THREADS = 256;
/** Tokens of which the router's weights are read once each, and threads of a block, which takes {@link ROUTER_ROWS} rows. */
const ROUTER_TOKENS = 8;
const ROUTER_THREADS = 128;
/** Blocks of a warp that a grid has. */
const MOST_TOKENS = 2 ** 24;
/** What a kernel counts in u32. */
const MOST_PAIRS = 2 ** 31;

/** What both kernels that choose are launched with. */
type RouteArguments = Omit<DecodeRouteArguments, 'logits' | 'logitsRow'>;

export class DeviceExpertOps implements ExpertOps {
  readonly #device: KernelDevice;
  readonly #counters: Counters;

  constructor(device: KernelDevice, counters: Counters) {
    this.#device = device;
    this.#counters = counters;
  }

  supports(experts: number): boolean {
    return experts > 0 && experts <= ROUTE_MAX_EXPERTS;
  }

  supportsRoute(experts: number, chosen: number): boolean {
    return this.supports(experts) && chosen > 0 && chosen <= Math.min(experts, ROUTE_MAX_CHOSEN);
  }

  /** A warp a token. */
  route(problem: RouteProblem): { weights: KernelStorage; ids: KernelStorage } {
    const device = this.#device;
    const { tokens, logits, logitsRow } = problem;
    const { shapes, hip } = device;
    const block = shapes.isHost ? 1 : hip.properties.warpSize;
    const most = hip.properties.multiprocessorCount * 4;
    const grid = shapes.isHost ? clamp(tokens, 1, most) : shapes.blocks(tokens, block);
    return this.#choice(problem, (rules) => {
      const args = { ...rules, logits: device.address(logits), logitsRow };
      launchDecodeRoute(device, 'decode_route', { grid, block }, args);
    });
  }

  supportsRouter({ tokens, experts, chosen }: Pick<RouterProblem, 'tokens' | 'experts' | 'chosen'>): boolean {
    return tokens > 0 && tokens <= ROUTER_TOKENS && this.supportsRoute(experts, chosen);
  }

  router(problem: RouterProblem): { logits: KernelStorage; weights: KernelStorage; ids: KernelStorage } {
    const device = this.#device;
    const { tokens, hidden, rows, x, weight } = problem;
    if (!this.supportsRouter(problem)) throw unsupported(`router of ${tokens} tokens`, 'f32', device);
    const { shapes, hip } = device;
    const pairs = Math.ceil(rows / ROUTER_ROWS);
    const across = shapes.isHost ? clamp(Math.ceil(pairs / 8), 1, hip.properties.multiprocessorCount) : pairs;
    const shape = { grid: [across, tokens, 1] as const, block: shapes.isHost ? 1 : ROUTER_THREADS };
    const logits = device.allocUninit(tokens * rows, 'f32');
    try {
      const choice = this.#choice(problem, (rules) => {
        const operands = { x: device.address(x), weight: device.address(weight), logits: logits.ptr };
        const args = { ...rules, hidden, rows, ...operands, counters: this.#counters.of(tokens) };
        launchDecodeRouter(device, 'decode_router', shape, args);
      });
      return { logits, ...choice };
    } catch (error) {
      logits.dispose();
      throw error;
    }
  }

  /** Memory for a choice, which `launch` fills. */
  #choice(
    { tokens, experts, chosen, scores, renormalise, scale, groups, bias, correction }: RouteRules,
    launch: (rules: RouteArguments) => void,
  ): { weights: KernelStorage; ids: KernelStorage } {
    const device = this.#device;
    if (!this.supportsRoute(experts, chosen) || tokens > MOST_TOKENS)
      throw unsupported(`route to ${chosen} of ${experts} experts`, 'f32', device);
    const weights = device.allocUninit(tokens * chosen, 'f32');
    try {
      const ids = filled(device, 'u32', tokens * chosen, (to) =>
        launch({
          ...{ tokens, experts, chosen, renormalise, scale },
          groups: groups?.count ?? 1,
          openGroups: groups?.chosen ?? 1,
          best: groups?.best ?? 1,
          sigmoid: scores === 'sigmoid',
          bias: bias ? device.address(bias) : 0,
          correction: correction ? device.address(correction) : 0,
          weights: weights.ptr,
          ids: to,
        }),
      );
      return { weights, ids };
    } catch (error) {
      weights.dispose();
      throw error;
    }
  }

  tilePairs({ pairs, experts }: { pairs: number; experts: number }, types?: readonly BlockType[]): number {
    if (this.#device.location.kind !== 'cuda') return EXPERT_TILE;
    if (pairs <= FEW_PAIRS * experts) return SMALL_TILE;
    if (!types || pairs < MANY_PAIRS * experts) return EXPERT_TILE;
    return types.every((type) => this.#device.quantized.takesTiles(type, LARGE_TILE)) ? LARGE_TILE : EXPERT_TILE;
  }

  tileCount({ pairs, experts, tile }: { pairs: number; experts: number; tile: number }): number {
    return Math.floor(pairs / tile) + Math.min(pairs, experts);
  }

  order(
    ids: StoragePart,
    { pairs, experts, chosen, tile }: { pairs: number; experts: number; chosen: number; tile: number },
  ): KernelStorage {
    const device = this.#device;
    if (!this.supports(experts) || pairs >= MOST_PAIRS)
      throw unsupported(`order of ${pairs} pairs with ${experts} experts`, 'u32', device);
    const tiles = this.tileCount({ pairs, experts, tile });
    const shape = { grid: 1, block: device.shapes.isHost ? 1 : GROUP_THREADS };
    return filled(device, 'u32', 3 * (pairs + tiles), (out) => {
      const [places, sources, owners] = [0, 1, 2].map((part) => out + part * pairs * 4);
      const result = { places, sources, owners, out: out + 3 * pairs * 4 };
      const sizes = { pairs, experts, chosen, tile, tiles };
      launchDecodeGroup(device, 'decode_group', shape, { ...sizes, ids: device.address(ids), ...result });
    });
  }

  groupedMatmul(
    weight: StoragePart,
    { pairs, n, k }: { pairs: number; n: number; k: number },
    x: Operand,
    { tiles, count }: ExpertTiles,
  ): KernelStorage {
    const device = this.#device;
    const { dtype } = x.storage;
    const [{ dtype: type }] = weight;
    if (!['f32', 'f16', 'bf16'].includes(type) || (dtype !== type && dtype !== 'f32'))
      throw unsupported('groupedMatmul', dtype, device);
    const kernel = `${dtype === type ? 'gemm' : 'linear'}_groups_${type}`;
    return filled(device, dtype, pairs * n, (out) =>
      launchGemmGroups(device, kernel, productShape(device, count, n), {
        n,
        k,
        rows: device.view(x).ptr,
        weights: device.address(weight),
        tiles: device.address(tiles),
        count,
        out,
      }),
    );
  }
}

/** Blocks for `count` tiles of pairs and n columns. */
function productShape({ shapes, hip }: KernelDevice, count: number, n: number) {
  const blocks = count * Math.ceil(n / EXPERT_TILE);
  if (shapes.isHost) return { grid: clamp(blocks, 1, hip.properties.multiprocessorCount * 4), block: 1 };
  return { grid: shapes.blocks(blocks, PRODUCT_THREADS), block: PRODUCT_THREADS };
}
