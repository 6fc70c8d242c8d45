/** The feed-forward layer of the Llama family: down(activation(gate(x)) · up(x)); gate and up are one product. */
import type { Tensor } from '@x/core';
import { type ActivationForm, type ActivationName, type Activations, gatedActivation, type Module } from '@x/nn';
import type { DecoderConfig } from '../config/decoder-config';
import type { LinearGroup } from '../weights/linear-group';
import { inDtype, project, takesBlocks } from '../weights/q-linear';
import type { Weights } from '../weights/weights';

export class GatedMlp {
  private constructor(
    private readonly activation: ActivationName,
    private readonly dtype: Weights['activations'],
    private readonly gateUp: LinearGroup,
    private readonly down: Module,
  ) {}

  /** @param at the name of the layer, such as `blk.0` */
  static async load(
    source: Weights,
    at: string,
    config: DecoderConfig,
    activation: ActivationName = 'silu',
  ): Promise<GatedMlp> {
    const { hiddenSize, intermediateSize } = config;
    const parts = [
      { name: `${at}.ffn_gate`, out: intermediateSize },
      { name: `${at}.ffn_up`, out: intermediateSize },
    ];
    const gateUp = await source.group(parts, hiddenSize);
    try {
      return new GatedMlp(
        activation,
        source.activations,
        gateUp,
        await source.linear(`${at}.ffn_down`, hiddenSize, intermediateSize),
      );
    } catch (error) {
      gateUp.dispose();
      throw error;
    }
  }

  /** As what it is best given its input. */
  get reads(): ActivationForm {
    return this.gateUp.reads;
  }

  /** [tokens, hidden] to the same shape, f32. What it makes on the way is its caller's scope's. */
  forward(x: Activations): Tensor {
    const [gate, up] = this.gateUp.forward(x);
    const gated = gatedActivation(gate, up, this.activation, takesBlocks(this.down) ? 'blocks' : 'numbers');
    return inDtype(project(this.down, gated, this.dtype), 'f32');
  }

  dispose(): void {
    this.gateUp.dispose();
    this.down.dispose();
  }
}
