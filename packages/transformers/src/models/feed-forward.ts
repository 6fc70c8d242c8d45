/** What the second half of a layer is: a feed-forward layer of some kind. */
import type { Tensor } from '@x/core';
import { type ActivationForm, type ActivationName, type Activations, activateAs, type Module } from '@x/nn';
import type { DecoderConfig } from '../config/decoder-config';
import { readsOf } from '../weights/linear-group';
import { project, projectUnbiased, takesBlocks, type Unbiased } from '../weights/q-linear';
import { shareOf } from '../weights/shard';
import type { Weights } from '../weights/weights';

export interface FeedForward {
  /** As what it is best given its input. */
  reads(rows: number): ActivationForm;
  /** [tokens, hidden] to the same shape, f32. What it makes on the way is its caller's scope's. */
  forward(x: Activations): Tensor;
  /** The same, and a bias that is still to be added to it, [hidden], the layer's own. */
  unbiased?(x: Activations): Unbiased;
  dispose(): void;
}

/** down(activation(up(x))), without a gate. */
export class Mlp implements FeedForward {
  private constructor(
    private readonly activation: ActivationName,
    private readonly dtype: Weights['activations'],
    private readonly up: Module,
    private readonly down: Module,
  ) {}

  /** @param at the name of the layer, such as `blk.0` */
  static async load(source: Weights, at: string, config: DecoderConfig, activation: ActivationName): Promise<Mlp> {
    const { hiddenSize, intermediateSize } = config;
    const names = { up: `${at}.ffn_up`, down: `${at}.ffn_down` };
    const own = shareOf(source.shard, intermediateSize, source.unitOf(names.down));
    const up = await source.linear(names.up, intermediateSize, hiddenSize, { rows: own });
    try {
      const down = await source.linear(names.down, hiddenSize, intermediateSize, { columns: own });
      return new Mlp(activation, source.activations, up, down);
    } catch (error) {
      up.dispose();
      throw error;
    }
  }

  reads(rows: number): ActivationForm {
    return readsOf(this.up, this.dtype, rows);
  }

  forward(x: Activations): Tensor {
    return project(this.down, this.inside(x), this.dtype);
  }

  unbiased(x: Activations): Unbiased {
    return projectUnbiased(this.down, this.inside(x), this.dtype);
  }

  private inside(x: Activations): Activations {
    const form = takesBlocks(this.down) ? 'blocks' : 'numbers';
    const { product, bias } = projectUnbiased(this.up, x, this.dtype);
    return activateAs(product, this.activation, form, bias);
  }

  dispose(): void {
    for (const part of [this.up, this.down]) part.dispose();
  }
}
