/**
 * The feed-forward layer of the Llama family: down(activation(gate(x)) · up(x)); gate and up are one product, in some files
 * one weight.
 */
import { type GateActivation, QuantizedActivations, type Tensor } from '@x/core';
import {
  type ActivationForm,
  type ActivationName,
  type Activations,
  gateActivation,
  gatedActivation,
  type Module,
} from '@x/nn';
import { fusesGate, type QTensor } from '@x/quantized';
import { type LinearGroup, readsOf } from '../weights/linear-group';
import { project, takesBlocks } from '../weights/q-linear';
import { shareOf } from '../weights/shard';
import type { Weights } from '../weights/weights';
import type { FeedForward } from './feed-forward';

export interface GatedMlpOptions {
  hiddenSize: number;
  intermediateSize: number;
  /** Default `silu`. */
  activation?: ActivationName;
  /** Behind the names of its weights, such as `_shexp`. Default: nothing. */
  suffix?: string;
  /** Of a layer that ranks share: whether whoever asks adds over the ranks. Default false. */
  partial?: boolean;
  /**
   * Whether gate, up and activation of few rows are one kernel where the device has it, for layers so small that launches count.
   * Default false.
   */
  small?: boolean;
}

/** Rows of which they are one kernel, which reads the weights once a row. */
const FUSED_ROWS = 2;

export class GatedMlp implements FeedForward {
  private constructor(
    private readonly activation: ActivationName,
    private readonly dtype: Weights['activations'],
    private readonly gateUp: LinearGroup,
    private readonly down: Module,
    private readonly small: boolean,
  ) {}

  /** @param at the name of the layer, such as `blk.0` */
  static async load(source: Weights, at: string, options: GatedMlpOptions): Promise<GatedMlp> {
    const { hiddenSize, intermediateSize, activation = 'silu', suffix = '', partial, small = false } = options;
    const [gate, up, down] = ['gate', 'up', 'down'].map((name) => `${at}.ffn_${name}${suffix}`);
    const own = shareOf(source.shard, intermediateSize, source.unitOf(down));
    const parts = [gate, up].map((name) => ({ name, out: intermediateSize, rows: own }));
    const gateUp = source.has(gate)
      ? await source.group(parts, hiddenSize)
      : await source.fused(up, [intermediateSize, intermediateSize], hiddenSize, own && { shares: [own, own] });
    try {
      const last = await source.linear(down, hiddenSize, intermediateSize, { columns: own, partial });
      return new GatedMlp(activation, source.activations, gateUp, last, small);
    } catch (error) {
      gateUp.dispose();
      throw error;
    }
  }

  reads(rows: number): ActivationForm {
    return this.gateUp.reads(rows);
  }

  forward(x: Activations): Tensor {
    return this.last(this.fused(x) ?? this.gated(x));
  }

  /** The last product, of what gate and up became. */
  last(inside: Activations): Tensor {
    return project(this.down, inside, this.dtype);
  }

  private gated(x: Activations): Activations {
    const [gate, up] = this.gateUp.forward(x);
    return gatedActivation(gate, up, this.activation, readsOf(this.down, this.dtype, gate.dim(0)));
  }

  private fused(x: Activations): QuantizedActivations | undefined {
    const kernel = gateActivation(this.activation);
    const fits = this.small && x instanceof QuantizedActivations && x.rows <= FUSED_ROWS && takesBlocks(this.down);
    return fits && kernel ? this.gateUp.gated?.(x, kernel) : undefined;
  }

  /** Its weights where a kernel that does more can be it for so many rows: gate above up, and down. */
  fusedWeights(rows: number): { both: QTensor; down: QTensor; activation: GateActivation } | undefined {
    const activation = gateActivation(this.activation);
    const { weight: down, bias } = (takesBlocks(this.down) && this.down.blockWeight) || {};
    const [both, ...others] = this.gateUp.blockWeights() ?? [];
    if (!this.small || rows > FUSED_ROWS || !activation || !both || others.length > 0 || !down || bias)
      return undefined;
    return fusesGate({ both }) ? { both, down, activation } : undefined;
  }

  dispose(): void {
    for (const part of [this.gateUp, this.down]) part.dispose();
  }
}
