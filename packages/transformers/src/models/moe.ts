/**
 * A mixture of experts in the place of a feed-forward layer: a router scores the experts, each token takes those with the
 * best scores, and their outputs are added by weight. The choice stays on the device. candle writes this out in every model.
 */

import { type Communicator, type GateActivation, hostStep, keep, QuantizedActivations, scope, Tensor } from '@x/core';
import {
  type ActivationForm,
  type ActivationName,
  type Activations,
  activate,
  gateActivation,
  type RouteOptions,
  routeTokens,
} from '@x/nn';
import {
  areBlocks,
  ExpertOrder,
  fusesGate,
  fusesMix,
  gatedExperts,
  gatedExpertsBeside,
  groupedExperts,
  mixedExperts,
  type PartRange,
  type QTensor,
  quantizedRows,
} from '@x/quantized';
import type { ConfigKey, ConfigSource } from '../config/config-source';
import type { DecoderConfig } from '../config/decoder-config';
import { badConfig, unsupported } from '../config/problems';
import type { ExpertLinear } from '../weights/expert-linear';
import type { HotExperts } from '../weights/host-experts';
import { shareOf, summed } from '../weights/shard';
import type { Weights } from '../weights/weights';
import type { FeedForward } from './feed-forward';
import { GatedMlp } from './gated-mlp';

export interface MoeConfig {
  experts: number;
  /** Experts that each token takes. */
  chosen: number;
  /** Width of an expert. */
  width: number;
  /** What the router's scores become before the choice. */
  scores: 'softmax' | 'sigmoid';
  /** Whether the weights of those chosen are divided by their sum. */
  renormalise: boolean;
  /** Multiplies the weights. Default 1. */
  scale?: number;
  /** Experts lie in so many groups of equal size, of which a token takes the `chosen` best. Default: one group. */
  groups?: ExpertGroups;
  /** Width of an expert that every token takes. Default: there is none. */
  shared?: number;
}

export type ExpertGroups = NonNullable<RouteOptions['groups']>;

export interface MoeDecoderConfig extends DecoderConfig {
  moe: MoeConfig;
}

/** The numbers of a mixture. @throws TransformersError BAD_CONFIG */
export function moeSizes(source: ConfigSource, width: number): Pick<MoeConfig, 'experts' | 'chosen' | 'width'> {
  const [experts, chosen] = [source.count('num_experts'), source.count('num_experts_per_tok')];
  if (chosen > experts) throw badConfig(`has each token take ${chosen} of ${experts} experts; download it again`);
  return { experts, chosen, width };
}

/**
 * Groups of experts, undefined where all are one.
 * @param best experts of a group whose scores are added up for that of the group @throws TransformersError BAD_CONFIG
 */
export function expertGroups(
  source: ConfigSource,
  { experts, chosen }: Pick<MoeConfig, 'experts' | 'chosen'>,
  best: 1 | 2,
): ExpertGroups | undefined {
  const count = source.number('n_group', 1);
  const taken = source.number('topk_group', count);
  if (count === 1 || taken === count) return undefined;
  const size = experts / count;
  const fits = [count, taken, size].every((value) => Number.isSafeInteger(value) && value > 0);
  if (fits && taken <= count && size >= best && taken * size >= chosen) return { count, chosen: taken, best };
  throw badConfig(
    `has each token take ${chosen} of ${experts} experts from ${taken} of ${count} groups, which does not go; download it again`,
  );
}

/** Whether each layer has experts: each of so many (`decoder_sparse_step`), but those of `mlp_only_layers`; in GGUF files all do. */
export function sparseLayers(source: ConfigSource, numLayers: number): boolean[] {
  const dense = source.json('mlp_only_layers') ?? [];
  const step = source.jsonWhole('decoder_sparse_step', 1);
  if (!Array.isArray(dense) || !dense.every((i) => Number.isInteger(i) && i >= 0 && i < numLayers) || step < 1)
    throw badConfig(
      `has mlp_only_layers and decoder_sparse_step that name no layers without experts among ${numLayers}; download it again`,
    );
  return Array.from({ length: numLayers }, (_, i) => !dense.includes(i) && (i + 1) % step === 0);
}

/** llama.cpp's numbers of what a router's scores become. */
const GATING = { softmax: 1, sigmoid: 2 } as const;

/**
 * Of a GGUF file for which the architecture has one way of weighing experts. @param scale whether it can multiply their weights
 * @throws TransformersError UNSUPPORTED_MODEL for a file that says another
 */
export function checkWeighing(source: ConfigSource, scores: MoeConfig['scores'], scale: boolean): void {
  if (source.format !== 'gguf') return;
  const gating = source.number('scoring_func', GATING[scores]);
  if (gating !== 0 && gating !== GATING[scores])
    throw unsupported(`scores experts in the way ${gating} (expert_gating_func), not by ${scores}`);
  const factor = source.number('routed_scaling_factor', 1);
  if (!scale && factor !== 0 && factor !== 1)
    throw unsupported(`multiplies the weights of experts by ${factor} (expert_weights_scale)`);
}

/** The numbers of a mixture in a GGUF file. */
export function moeMetadata({ experts, chosen, width }: MoeConfig): Partial<Record<ConfigKey, number>> {
  return { num_experts: experts, num_experts_per_tok: chosen, moe_intermediate_size: width };
}

/** The mixture of a model; undefined for one without experts. */
export function mixtureOf(config: DecoderConfig): MoeConfig | undefined {
  return (config as Partial<MoeDecoderConfig>).moe;
}

export interface MoeOptions {
  /** Default `silu`. */
  activation?: ActivationName;
  /** In the place of `activation` gpt-oss's: gates are at most this, ups within plus and minus this. */
  limit?: number;
}

/** Of the sigmoid that gates with a limit take. */
const STEEPNESS = 1.702;

interface Parts {
  /** [experts, hidden], and behind them a row for the gate of the shared one. */
  router: Tensor;
  /** Added to the experts' logits: [experts]. */
  routerBias?: Tensor;
  gate: ExpertLinear;
  up: ExpertLinear;
  down: ExpertLinear;
  /** Added to the scores for the choice, not for the weights: [experts]. */
  correction?: Tensor;
  shared?: GatedMlp;
}

/** Where a mixture's experts are. */
interface Placement {
  /** What a rank has; undefined: all. */
  share?: Share | undefined;
  /** Where experts are in host memory; undefined: on the device. */
  hot?: HotExperts | undefined;
}

/** What a rank has of a mixture: a part of every expert, or some experts as a whole. */
interface Share {
  communicator: Communicator;
  /** Undefined where it has a part of every one. */
  experts?: PartRange;
  /** Whether what the shared expert gives is a part, too. */
  shared: boolean;
}

/** [tokens, chosen] each, f32 and u32. */
interface Choice {
  weights: Tensor;
  ids: Tensor;
}

/** What is added to the sum of the experts: what the shared one gives, of which nothing is made yet, and the logits of its gate. */
interface Base {
  shared: GatedMlp;
  sharedGate?: Tensor;
}

export class MixtureOfExperts implements FeedForward {
  private constructor(
    private readonly config: MoeConfig,
    private readonly options: MoeOptions,
    private readonly parts: Parts,
    private readonly placement: Placement,
  ) {}

  /** @param at the name of the layer, such as `blk.0` */
  static async load(
    source: Weights,
    at: string,
    { hiddenSize, moe }: MoeDecoderConfig,
    options: MoeOptions = {},
  ): Promise<MixtureOfExperts> {
    const { experts, width, shared } = moe;
    const { activation = 'silu' } = options;
    const made: { dispose(): void }[] = [];
    const own = <T extends { dispose(): void } | undefined>(thing: T): T => {
      if (thing) made.push(thing);
      return thing;
    };
    try {
      // The choice hangs on small differences: the router is f32 whatever the other layers are.
      const logits = own(await source.numbers(`${at}.ffn_gate_inp.weight`, [experts, hiddenSize]));
      const gate = shared ? own(await source.optional(`${at}.ffn_gate_inp_shexp.weight`, [1, hiddenSize])) : undefined;
      const { shard } = source;
      const inside = shareOf(shard, width, source.unitOf(`${at}.ffn_down_exps`));
      const some = inside ? undefined : shareOf(shard, experts);
      // Dimension 1 counts what `gate` and `up` give, dimension 2 what `down` takes.
      const partOf = (dim: 1 | 2) => (inside ? { dim, ranges: [inside] } : some && { dim: 0, ranges: [some] });
      const slots = source.hostExperts?.slotsOf(some?.count ?? experts, moe.chosen);
      const layer = async (name: string, out: number, size: number, dim: 1 | 2) =>
        own(await source.experts(`${at}.ffn_${name}_exps`, experts, out, size, { part: partOf(dim), slots }));
      const parts: Parts = {
        router: keep(own(gate ? stacked(logits, gate) : logits.detach())),
        routerBias: own(await source.optional(`${at}.ffn_gate_inp.bias`, [experts])),
        gate: await layer('gate', width, hiddenSize, 1),
        up: await layer('up', width, hiddenSize, 1),
        down: await layer('down', hiddenSize, width, 2),
        correction: own(await source.optional(`${at}.exp_probs_b.bias`, [experts])),
      };
      const isShared = inside !== undefined || some !== undefined;
      let partial = false;
      if (shared) {
        partial = isShared && shareOf(shard, shared, source.unitOf(`${at}.ffn_down_shexp`)) !== undefined;
        const sizes = { hiddenSize, intermediateSize: shared, activation, suffix: '_shexp', partial, small: true };
        parts.shared = own(await GatedMlp.load(source, at, sizes));
      }
      const share = isShared ? { communicator: shard!.communicator, experts: some, shared: partial } : undefined;
      for (const part of [logits, gate]) part?.dispose();
      const { gate: first, up, down } = parts;
      const hot = slots === undefined ? undefined : source.hostExperts!.add(first.all, slots, [first, up, down]);
      return new MixtureOfExperts(moe, options, parts, { share, hot });
    } catch (error) {
      for (const thing of made) thing.dispose();
      throw error;
    }
  }

  /** Numbers, of which the router makes its scores, and blocks, where experts take these. */
  reads(rows: number): ActivationForm {
    const { gate, shared } = this.parts;
    const takesBlocks = shared !== undefined || !gate.prefersGroups(rows, this.config.chosen);
    return this.isFused && takesBlocks ? 'both' : 'f32';
  }

  forward(x: Activations): Tensor {
    const numbers = numbersOf(x);
    const { router, routerBias: bias, correction, shared } = this.parts;
    const { experts, chosen, scores, renormalise, scale, groups } = this.config;
    const options = { chosen, scores, renormalise, scale, groups, bias, correction };
    const { logits, ...routed } = routeTokens(numbers, router, experts, options);
    const sharedGate = logits.dim(1) > experts ? logits.narrow(1, experts, 1) : undefined;
    const choice = this.own(routed);
    const { share, hot } = this.placement;
    const whole = (part: Tensor) => (share ? summed(part, share.communicator) : part);
    // What the shared expert gives is added before the sum over the ranks where it is a part, too.
    const inside = shared !== undefined && (!share || share.shared);
    const base = inside ? { shared, sharedGate } : undefined;
    const mixed = whole(hot ? this.fromHost(hot, x, choice, base) : this.mixed(x, choice, base));
    return shared === undefined || inside ? mixed : mixed.add(gated(ofShared(shared, x), sharedGate));
  }

  /** The choice among this rank's experts: others become its first one, with a weight of 0. */
  private own({ weights, ids }: Choice): Choice {
    const { experts } = this.placement.share ?? {};
    if (!experts) return { weights, ids };
    // Those in front wrap around and are above the range, too.
    const local = ids.sub(experts.start);
    const isOwn = local.lt(experts.count);
    return { weights: weights.mul(isOwn.toDtype('f32')), ids: local.mul(isOwn.toDtype('u32')) };
  }

  private mixed(x: Activations, choice: Choice, base?: Base): Tensor {
    return this.fused(x, choice, base) ?? this.composed(numbersOf(x), choice, base);
  }

  /** {@link mixed} of experts in host memory: those that were chosen are brought to the device, in rounds where they are many. */
  private fromHost(hot: HotExperts, x: Activations, { weights, ids }: Choice, base?: Base): Tensor {
    const { shape, device } = ids;
    const [tokens, chosen] = shape;
    const inSlots = (slots: Tensor) => this.mixed(x, { weights, ids: slots }, base);
    if (ids.elemCount <= hot.slots || hot.slots === hot.experts) {
      const slots = Tensor.empty(shape, 'u32', device);
      hostStep([ids, slots], (ids, slots) => slots.write(hot.bring(ids.toArraySync<Uint32Array>())));
      return inSlots(slots);
    }
    const wanted = ids.toArraySync<Uint32Array>();
    const rounds = hot.rounds(wanted);
    if (rounds.length === 1) return inSlots(Tensor.from(hot.bring(wanted), { shape, device }));
    // Each pair of token and expert is a row of its own, in the round in which its expert is there.
    const all = Tensor.zeros([wanted.length, numbersOf(x).dim(1)], 'f32', device);
    const places = new Uint32Array(wanted.length);
    let done = 0;
    for (const round of rounds) {
      const brought = hot.bring(round);
      const slots = new Map(round.map((expert, i) => [expert, brought[i]]));
      const pairs = [...wanted.keys()].filter((pair) => slots.has(wanted[pair]));
      const list = (value: (pair: number) => number) => Tensor.from(Uint32Array.from(pairs, value), { device });
      scope(() => {
        const rows = numbersOf(x).indexSelect(
          list((pair) => Math.floor(pair / chosen)),
          0,
        );
        const own = list((pair) => slots.get(wanted[pair])!).unsqueeze(1);
        all.sliceSet(this.experts(rows, own).squeeze(1), 0, done);
      });
      for (const pair of pairs) places[pair] = done++;
    }
    const given = all.indexSelect(Tensor.from(places, { device }), 0);
    return this.weighed(x, given.reshape([tokens, chosen, given.dim(1)]), weights, base);
  }

  /** Whether the device has fused kernels for all that experts do. */
  private get isFused(): boolean {
    const { gate, up, down } = this.parts;
    return (
      this.activation !== undefined &&
      [gate, up, down].every(({ weight }) => weight !== undefined) &&
      fusesGate({ gate: gate.weight, up: up.weight }) &&
      fusesMix(down.weight)
    );
  }

  /** The activation, where fused kernels have it. */
  private get activation(): GateActivation | undefined {
    const { limit, activation = 'silu' } = this.options;
    return limit === undefined ? gateActivation(activation) : { clamped: limit };
  }

  /** A few kernels, two where tokens are few; undefined where {@link composed} is to do it. */
  private fused(x: Activations, { weights: mix, ids }: Choice, base?: Base): Tensor | undefined {
    const { gate, up, down } = this.parts;
    const [tokens, chosen] = ids.shape;
    const { activation } = this;
    if (!activation || !this.isFused) return undefined;
    const gates = { activation, gateBias: gate.bias, upBias: up.bias };
    const baseGate = base?.sharedGate;
    const sums = { mix, bias: down.bias, baseGate };
    if (gate.prefersGroups(tokens, chosen)) {
      const weights = { gate: gate.weight, up: up.weight, down: down.weight };
      using order = ExpertOrder.of(ids, gate.experts, [gate.weight.blockType, down.weight.blockType]);
      const rows = numbersOf(x).toDtype('f32').contiguous();
      return (
        order &&
        groupedExperts(weights, rows, ids, order, { ...gates, ...sums, base: base && ofShared(base.shared, x) })
      );
    }
    const blocks = x instanceof QuantizedActivations ? x : quantizedRows(x);
    if (!blocks || !areBlocks(blocks.blocks)) return undefined;
    const weights = { gate: gate.weight, up: up.weight };
    const shared = base && this.sharedBeside(base, tokens);
    if (!shared) {
      const always = base && ofShared(base.shared, x);
      return mixedExperts(down.weight, gatedExperts(weights, blocks, ids, gates), ids, { ...sums, base: always });
    }
    const inside = gatedExpertsBeside(weights, { both: shared.both }, blocks, ids, activation);
    const last =
      shared.down.type === down.weight.type
        ? { shared: { weight: shared.down, x: inside.shared } }
        : { base: base.shared.last(inside.shared) };
    return mixedExperts(down.weight, inside.own, ids, { ...sums, ...last });
  }

  /** The shared expert's weights, where one launch is its gate and up and those that tokens chose. */
  private sharedBeside({ shared }: Base, tokens: number): { both: QTensor; down: QTensor } | undefined {
    const { gate, up } = this.parts;
    const weights = shared.fusedWeights(tokens);
    const fits = weights && !gate.bias && !up.bias && weights.activation === this.activation;
    return fits && weights.both.type === gate.weight.type ? weights : undefined;
  }

  private composed(x: Tensor, { weights, ids }: Choice, base?: Base): Tensor {
    return this.weighed(x, this.experts(x, ids), weights, base);
  }

  /** The sum of what experts give of x, [tokens, chosen, hidden], by their weights. */
  private weighed(x: Activations, given: Tensor, weights: Tensor, base?: Base): Tensor {
    const mixed = weights.unsqueeze(1).matmul(given).squeeze(1);
    return base ? mixed.add(gated(ofShared(base.shared, x), base.sharedGate)) : mixed;
  }

  /** What an expert computes between its products. */
  private combine(gate: Tensor, up: Tensor): Tensor {
    const { limit, activation = 'silu' } = this.options;
    if (limit === undefined) return activate(gate, activation).mul(up);
    const most = gate.minimum(limit);
    return most.mul(most.mul(STEEPNESS).sigmoid()).mul(up.clamp(-limit, limit).add(1));
  }

  /** What each expert makes of its tokens: x [tokens, hidden] to [tokens, chosen, hidden]. */
  private experts(x: Tensor, ids: Tensor): Tensor {
    const { gate, up, down } = this.parts;
    const [tokens, chosen] = ids.shape;
    const order = gate.prefersGroups(tokens, chosen) ? ExpertOrder.of(ids, gate.experts) : undefined;
    if (order) {
      const rows = x.indexSelect(order.sources, 0);
      const inside = this.combine(gate.forwardGroups(rows, order), up.forwardGroups(rows, order));
      return down
        .forwardGroups(inside, order)
        .indexSelect(order.places, 0)
        .reshape([tokens, chosen, x.dim(1)]);
    }
    const rows = x.unsqueeze(1);
    return down.forward(this.combine(gate.forward(rows, ids), up.forward(rows, ids)), ids);
  }

  dispose(): void {
    for (const part of Object.values(this.parts)) part?.dispose();
  }
}

function numbersOf(x: Activations): Tensor {
  const numbers = x instanceof QuantizedActivations ? x.numbers : x;
  if (!numbers) throw new Error('internal: activations in blocks alone for a router');
  return numbers;
}

/** Rows of one weight above those of another. */
function stacked(above: Tensor, below: Tensor): Tensor {
  // Weights that are looked at and not loaded are one number for all, and stay so.
  return above.isContiguous() ? Tensor.cat([above, below], 0) : above.detach();
}

/** What a shared expert gives of x in its form. */
function ofShared(shared: GatedMlp, x: Activations): Tensor {
  const rows = x instanceof QuantizedActivations ? x.rows : x.dim(0);
  return shared.forward(shared.reads(rows) === 'blocks' ? x : numbersOf(x));
}

/** What a shared expert gives, times the sigmoid of its gate's logits [tokens, 1]. */
function gated(always: Tensor, gate: Tensor | undefined): Tensor {
  return gate ? always.mul(gate.sigmoid()) : always;
}
