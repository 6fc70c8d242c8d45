/** What the reader of weights was called when there was one for each kind of file. */
import { openSafetensors } from './weight-file';
import { type WeightOptions, Weights } from './weights';

export { Weights as GgufWeights } from './weights';
export type WeightSource = Weights;
export type SourceOptions = WeightOptions;

export const CheckpointWeights = {
  open: (files: readonly string[], options: WeightOptions) => new Weights(openSafetensors(files), options),
} as const;
