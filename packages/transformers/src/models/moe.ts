/**
 * A mixture of experts in the place of a feed-forward layer: a router scores the experts, each token takes those with the
 * best scores, and their outputs are added by weight. The choice stays on the device. candle writes this out in every model.
 */

import { type Communicator, QuantizedActivations, type Tensor } from '@x/core';
import {
  type ActivationForm,
  type ActivationName,
  type Activations,
  activate,
  Linear,
  type Module,
  type RouteOptions,
  routeExperts,
} from '@x/nn';
import { ExpertOrder, type PartRange } from '@x/quantized';
import type { ConfigKey, ConfigSource } from '../config/config-source';
import type { DecoderConfig } from '../config/decoder-config';
import { badConfig } from '../config/problems';
import type { ExpertLinear } from '../weights/expert-linear';
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

/** The same in a GGUF file. */
export function moeMetadata({ experts, chosen, width }: MoeConfig): Partial<Record<ConfigKey, number>> {
  return { num_experts: experts, num_experts_per_tok: chosen, moe_intermediate_size: width };
}

export interface MoeOptions {
  /** What an expert computes between its products; default: the activation of the gate times `up`. */
  combine?: (gate: Tensor, up: Tensor) => Tensor;
  /** Default `silu`. */
  activation?: ActivationName;
}

interface Parts {
  router: Module;
  gate: ExpertLinear;
  up: ExpertLinear;
  down: ExpertLinear;
  /** Added to the scores for the choice, not for the weights: [experts]. */
  correction?: Tensor;
  shared?: FeedForward;
  /** Its sigmoid multiplies what the shared expert gives. */
  sharedGate?: Linear;
}

/** What a rank has of a mixture: a part of every expert, or some experts as a whole. */
interface Share {
  communicator: Communicator;
  /** Undefined where it has a part of every one. */
  experts?: PartRange;
  /** Whether what the shared expert gives is a part, too. */
  shared: boolean;
}

export class MixtureOfExperts implements FeedForward {
  private constructor(
    private readonly config: MoeConfig,
    private readonly combine: (gate: Tensor, up: Tensor) => Tensor,
    private readonly parts: Parts,
    private readonly share: Share | undefined,
  ) {}

  /** @param at the name of the layer, such as `blk.0` */
  static async load(
    source: Weights,
    at: string,
    { hiddenSize, moe }: MoeDecoderConfig,
    options: MoeOptions = {},
  ): Promise<MixtureOfExperts> {
    const { experts, width, shared } = moe;
    const { activation = 'silu', combine = (gate, up) => activate(gate, activation).mul(up) } = options;
    const made: { dispose(): void }[] = [];
    const own = <T extends { dispose(): void } | undefined>(thing: T): T => {
      if (thing) made.push(thing);
      return thing;
    };
    try {
      // The choice hangs on small differences: the router is f32 whatever the other layers are.
      const weight = await source.numbers(`${at}.ffn_gate_inp.weight`, [experts, hiddenSize]);
      const router = own(new Linear(weight, await source.optional(`${at}.ffn_gate_inp.bias`, [experts])));
      const { shard } = source;
      const inside = shareOf(shard, width, source.unitOf(`${at}.ffn_down_exps`));
      const some = inside ? undefined : shareOf(shard, experts);
      // Dimension 1 counts what `gate` and `up` give, dimension 2 what `down` takes.
      const partOf = (dim: 1 | 2) => (inside ? { dim, ranges: [inside] } : some && { dim: 0, ranges: [some] });
      const layer = async (name: string, out: number, size: number, dim: 1 | 2) =>
        own(await source.experts(`${at}.ffn_${name}_exps`, experts, out, size, partOf(dim)));
      const parts: Parts = {
        router,
        gate: await layer('gate', width, hiddenSize, 1),
        up: await layer('up', width, hiddenSize, 1),
        down: await layer('down', hiddenSize, width, 2),
        correction: own(await source.optional(`${at}.exp_probs_b.bias`, [experts])),
      };
      const isShared = inside !== undefined || some !== undefined;
      let partial = false;
      if (shared) {
        partial = isShared && shareOf(shard, shared, source.unitOf(`${at}.ffn_down_shexp`)) !== undefined;
        const sizes = { hiddenSize, intermediateSize: shared, activation, suffix: '_shexp', partial };
        parts.shared = own(await GatedMlp.load(source, at, sizes));
        const gate = await source.optional(`${at}.ffn_gate_inp_shexp.weight`, [1, hiddenSize]);
        if (gate) parts.sharedGate = own(new Linear(gate));
      }
      const share = isShared ? { communicator: shard!.communicator, experts: some, shared: partial } : undefined;
      return new MixtureOfExperts(moe, combine, parts, share);
    } catch (error) {
      for (const thing of made) thing.dispose();
      throw error;
    }
  }

  /** Numbers, of which the router makes its scores. */
  readonly reads: ActivationForm = 'f32';

  forward(x: Activations): Tensor {
    if (x instanceof QuantizedActivations) throw new Error('internal: activations in blocks for a router');
    const { router, correction, shared, sharedGate } = this.parts;
    const { chosen, scores, renormalise, scale, groups } = this.config;
    const options = { chosen, scores, renormalise, scale, groups, correction };
    const { share } = this;
    const { weights, ids } = this.own(routeExperts(router.forward(x), options));
    const outputs = this.experts(x, ids);
    const mixed = weights.unsqueeze(1).matmul(outputs).squeeze(1);
    const whole = (part: Tensor) => (share ? summed(part, share.communicator) : part);
    if (!shared) return whole(mixed);
    const always = shared.forward(x);
    const gated = sharedGate ? always.mul(sharedGate.forward(x).sigmoid()) : always;
    return share?.shared ? whole(mixed.add(gated)) : whole(mixed).add(gated);
  }

  /** The choice among this rank's experts: others become its first one, with a weight of 0. */
  private own({ weights, ids }: { weights: Tensor; ids: Tensor }): { weights: Tensor; ids: Tensor } {
    const { experts } = this.share ?? {};
    if (!experts) return { weights, ids };
    // Those in front wrap around and are above the range, too.
    const local = ids.sub(experts.start);
    const isOwn = local.lt(experts.count);
    return { weights: weights.mul(isOwn.toDtype('f32')), ids: local.mul(isOwn.toDtype('u32')) };
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
