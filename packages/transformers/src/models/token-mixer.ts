/** What the first half of a layer is: attention, or what carries a state from token to token in its place. */
import type { Tensor } from '@x/core';
import type { ActivationForm, Activations } from '@x/nn';
import type { Angles } from './attention';
import type { KvLayout, StateLayout } from './causal-model';
import type { LayerMemory } from './decoder';

export interface TokenMixer {
  /** As what it is best given so many rows. */
  reads(rows: number): ActivationForm;
  /** What attention keeps of a token. Default: the key and value heads of the configuration. */
  readonly kvLayout?: KvLayout;
  /** What it keeps of a sequence in the place of keys and values. */
  readonly stateLayout?: StateLayout;
  /** [tokens, hidden] to the same shape, f32. What it makes on the way is its caller's scope's. */
  forward(x: Activations, angles: Angles | undefined, memory: LayerMemory): Tensor;
  dispose(): void;
}
