/** Loading a model for a command: the device by its name, and progress on a terminal. */
import { type CacheDType, type KernelProgress, type LanguageModel, type LoadModelOptions, loadModel } from '@x/engine';
import '@x/rocm-backend';
import { type DeviceFlags, placeOf } from './devices';
import { ADAPTER } from './generate-options';
import type { AdapterSource } from './merge-adapters';
import { localModel } from './model-source';
import { formatBytes } from './output';

export interface LoadFlags extends DeviceFlags {
  maxContext?: number;
  cacheDtype?: CacheDType;
  lora?: AdapterSource;
  json?: boolean;
}

/** @param name of a file, a directory, or a model on the hub, which is downloaded where it is not there */
export async function loadForCommand(
  name: string,
  flags: LoadFlags,
  signal: AbortSignal,
  options: LoadModelOptions = {},
): Promise<{ model: LanguageModel; path: string }> {
  const { maxContext, cacheDtype, lora, json } = flags;
  const place = await placeOf(flags);
  const path = await localModel(name, { json, signal });
  const shown = !json && process.stderr.isTTY;
  const show = (text: string) => process.stderr.write(`\r${text}\x1b[K`);
  const onProgress = shown
    ? (loaded: number, total: number) => void show(`loading ${formatBytes(loaded)} of ${formatBytes(total)}`)
    : undefined;
  // Compiling holds this thread, so that the line stays until all kernels of a pass are there.
  let isCompiling = false;
  const onKernels = shown
    ? ({ compiled, device }: KernelProgress) => {
        show(`compiling kernels for ${device}, ${compiled} so far, once for this machine`);
        if (isCompiling) return;
        isCompiling = true;
        setImmediate(() => {
          isCompiling = false;
          show('');
        });
      }
    : undefined;
  try {
    const adapters = lora && { [ADAPTER]: lora.path };
    const given = { ...options, ...place, signal, maxContext, cacheDtype, adapters, onProgress, onKernels };
    const model = await loadModel(path, given);
    return { model, path };
  } finally {
    if (shown) show('');
  }
}
