export { choose } from './choose';
export { applyRepetitionPenalty, argmax, badLogits, logProbability } from './logits';
export type { SamplingOptions } from './options';
export { LogitsProcessor } from './processor';
export { Random } from './random';
export { type Choice, type Edit, MAX_TOP, type Sampler, type TokenLogprob } from './sampler';
