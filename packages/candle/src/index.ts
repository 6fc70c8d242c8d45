/**
 * candle for TypeScript: every package under one name, with the devices of `@x/rocm-backend` registered.
 *
 * ```ts
 * import { Device, loadModel } from '@x/candle';
 * const model = await loadModel('model.gguf', { device: await Device.auto() });
 * for await (const piece of model.generate('Once upon a time', { maxTokens: 64 })) process.stdout.write(piece.text);
 * model.dispose();
 * ```
 */
import '@x/rocm-backend';

export * from '@x/core';
export * from '@x/core/files';
export * from '@x/engine';
export { type CompilerReport, compilers, HipError, type PlatformReport, platforms } from '@x/hip';
export * from '@x/nn';
export * from '@x/quantized';
export { RocmDevice } from '@x/rocm-backend';
export * from '@x/transformers';
