/** Layers, caches and weight loading: candle-nn for TypeScript. */
export { ACTIVATIONS, type ActivationName, activate, isActivation } from './activation';
export { Embedding } from './embedding';
export { Cache, KvCache } from './kv-cache';
export { Linear } from './linear';
export { type Module, OwningModule } from './module';
export { LayerNorm, RmsNorm } from './norm';
export { logSoftmax, rmsNorm, silu, softmax, softmaxLastDim, swiglu } from './ops';
export { RotaryTable, type RotaryTableOptions, rope, ropeI } from './rotary';
export { VarBuilder } from './var-builder';
