/**
 * The short convolution of LFM2 in the place of attention: out(C · conv(B · x)), where B, C and x are one product. A sequence's
 * state is what came into the convolution last.
 */
import type { Tensor } from '@x/core';
import { type ActivationForm, type Activations, causalConv1d, type Module } from '@x/nn';
import type { LinearGroup } from '../weights/linear-group';
import { project } from '../weights/q-linear';
import type { Weights } from '../weights/weights';
import type { Angles } from './attention';
import type { StateLayout } from './causal-model';
import type { LayerMemory } from './decoder';
import { owning } from './owning';
import type { TokenMixer } from './token-mixer';

export class ShortConv implements TokenMixer {
  readonly stateLayout: StateLayout;

  private constructor(
    private readonly dtype: Weights['activations'],
    private readonly inProj: LinearGroup,
    /** [channels, taps] */
    private readonly taps: Tensor,
    private readonly bias: Tensor | undefined,
    private readonly outProj: Module,
  ) {
    const [channels, count] = taps.shape;
    this.stateLayout = { conv: [count - 1, channels] };
  }

  /** @param at the name of the layer, such as `blk.0` */
  static async load(source: Weights, at: string, hiddenSize: number, taps: number): Promise<ShortConv> {
    const name = `${at}.shortconv`;
    return owning(
      async (own) =>
        new ShortConv(
          source.activations,
          own(await source.fused(`${name}.in_proj`, [hiddenSize, hiddenSize, hiddenSize], hiddenSize)),
          own(await source.numbers(`${name}.conv.weight`, [hiddenSize, taps])),
          own(await source.optional(`${name}.conv.bias`, [hiddenSize])),
          own(await source.linear(`${name}.out_proj`, hiddenSize, hiddenSize)),
        ),
    );
  }

  reads(rows: number): ActivationForm {
    return this.inProj.reads(rows);
  }

  forward(x: Activations, _angles: Angles | undefined, { states: { states, spans } }: LayerMemory): Tensor {
    const [b, c, inside] = this.inProj.forward(x);
    const gates = { inGate: b, outGate: c };
    const mixed = causalConv1d(inside, this.taps, states.conv, spans, { bias: this.bias, ...gates });
    return project(this.outProj, mixed, this.dtype);
  }

  dispose(): void {
    for (const part of [this.inProj, this.taps, this.bias, this.outProj]) part?.dispose();
  }
}
