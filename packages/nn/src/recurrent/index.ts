/** Layers that carry a state of fixed size from token to token. Not in candle's crate, whose models write them out. */
export { type CausalConv1dOptions, causalConv1d } from './causal-conv1d';
export {
  type DecayedInputs,
  type DecayedOptions,
  type GatedDeltaInputs,
  type GatedDeltaOptions,
  gatedDeltaRule,
  type SsdInputs,
  type SsdOptions,
  ssd,
} from './decayed';
export { type SelectiveScanInputs, selectiveScan } from './selective-scan';
export type { SequenceSpans } from './spans';
