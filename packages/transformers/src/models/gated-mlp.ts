/** The feed-forward layer of the Llama family: down(activation(gate(x)) · up(x)); gate and up are one product. */
import type { Tensor } from '@x/core';
import { type ActivationName, activate, type Module } from '@x/nn';
import type { DecoderConfig } from '../config/decoder-config';
import type { LinearGroup } from '../weights/linear-group';
import { inDtype, type WeightSource } from '../weights/source';

export class GatedMlp {
  private constructor(
    private readonly activation: ActivationName,
    private readonly dtype: WeightSource['activations'],
    private readonly gateUp: LinearGroup,
    private readonly down: Module,
  ) {}

  /** @param at such as `model.layers.0.mlp` */
  static async load(
    source: WeightSource,
    at: string,
    config: DecoderConfig,
    activation: ActivationName = 'silu',
  ): Promise<GatedMlp> {
    const { hiddenSize, intermediateSize } = config;
    const parts = [
      { name: `${at}.gate_proj`, out: intermediateSize },
      { name: `${at}.up_proj`, out: intermediateSize },
    ];
    const gateUp = await source.group(parts, hiddenSize);
    try {
      return new GatedMlp(
        activation,
        source.activations,
        gateUp,
        await source.linear(`${at}.down_proj`, hiddenSize, intermediateSize),
      );
    } catch (error) {
      gateUp.dispose();
      throw error;
    }
  }

  /** [tokens, hidden] to the same shape, f32. What it makes on the way is its caller's scope's. */
  forward(x: Tensor): Tensor {
    const [gate, up] = this.gateUp.forward(inDtype(x, this.dtype));
    return inDtype(this.down.forward(activate(gate, this.activation).mul(up)), 'f32');
  }

  dispose(): void {
    this.gateUp.dispose();
    this.down.dispose();
  }
}
