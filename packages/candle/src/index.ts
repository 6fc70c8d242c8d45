/**
 * candle for TypeScript: what programs use every day by its name, everything else in a namespace a package, with the devices
 * of `@x/rocm-backend` registered.
 *
 * ```ts
 * import { Device, loadModel } from '@x/candle';
 * const model = await loadModel('model.gguf', { device: await Device.auto() });
 * for await (const piece of model.generate('Once upon a time', { maxTokens: 64 })) process.stdout.write(piece.text);
 * model.dispose();
 * ```
 */
import '@x/rocm-backend';

/** Everything of `@x/core`: layouts, errors by subject, custom operations, what backends implement. */
export * as core from '@x/core';
export {
  CandleError,
  Device,
  type DeviceLike,
  type DType,
  keep,
  memoryStats,
  noGrad,
  type Shape,
  type SharedTensor,
  scope,
  Tensor,
  type TensorOptions,
  Var,
} from '@x/core';
/** npy, npz, pth and safetensors files. */
export * as files from '@x/core/files';
/** Sequences, caches, sampling, generation. */
export * as engine from '@x/engine';
export { EmbeddingModel, LanguageModel, loadEmbeddingModel, loadModel } from '@x/engine';
/** JSON Schema, expressions and grammars as masks over tokens. */
export * as grammar from '@x/grammar';
/** Drivers and compilers of this machine. */
export * as hip from '@x/hip';
/** Models from the Hugging Face hub. */
export * as hub from '@x/hub';
/** Modules, losses, optimisers, `VarBuilder`. */
export * as nn from '@x/nn';
/** GGUF files, quantized tensors. */
export * as quantized from '@x/quantized';
/** The devices with compiled kernels and their options. */
export * as rocm from '@x/rocm-backend';
/** Models over HTTP in OpenAI's form. */
export * as server from '@x/server';
/** Models, their weights, tokenizers. */
export * as transformers from '@x/transformers';
