/** Loading a model for a command: the device by its name, and progress on a terminal. */
import { Device } from '@x/core';
import { type LanguageModel, type LoadModelOptions, loadModel } from '@x/engine';
import '@x/rocm-backend';
import { ADAPTER } from './generate-options';
import type { AdapterSource } from './merge-adapters';
import { localModel } from './model-source';
import { formatBytes } from './output';

export interface LoadFlags {
  device: string;
  maxContext?: number;
  lora?: AdapterSource;
  json?: boolean;
}

/** @param name of a file, a directory, or a model on the hub, which is downloaded where it is not there */
export async function loadForCommand(
  name: string,
  { device: deviceName, maxContext, lora, json }: LoadFlags,
  signal: AbortSignal,
  options: LoadModelOptions = {},
): Promise<{ model: LanguageModel; path: string }> {
  const device = deviceName === 'auto' ? await Device.auto() : Device.parse(deviceName);
  const path = await localModel(name, { json, signal });
  const shown = !json && process.stderr.isTTY;
  const show = (text: string) => process.stderr.write(`\r${text}\x1b[K`);
  const onProgress = shown
    ? (loaded: number, total: number) => void show(`loading ${formatBytes(loaded)} of ${formatBytes(total)}`)
    : undefined;
  try {
    const adapters = lora && { [ADAPTER]: lora.path };
    const model = await loadModel(path, { ...options, device, signal, maxContext, adapters, onProgress });
    return { model, path };
  } finally {
    if (shown) show('');
  }
}
