/** Optimisers, schedules and gradient helpers: candle-nn's `optim` (optim.rs) and what PyTorch has beside it. */
export { Adam, AdamW, type ParamsAdam, type ParamsAdamW } from './adam';
export { type DataParallelOptions, DistributedDataParallel } from './data-parallel';
export { clipGradNorm, clipGradValue, GradAccumulator, type GradAccumulatorOptions } from './gradients';
export { Lion, type LionParams } from './lion';
export { Optimizer } from './optimizer';
export { RMSProp, type RmsPropParams } from './rms-prop';
export {
  constantLr,
  cosineAnnealingLr,
  cosineAnnealingWarmRestarts,
  exponentialLr,
  linearLr,
  multiStepLr,
  polynomialLr,
  type Schedule,
  Scheduler,
  stepLr,
  warmup,
} from './schedule';
export { SGD, type SgdParams } from './sgd';
