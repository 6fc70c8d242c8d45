/** LoRA adapters in files of either kind. */
import { statSync } from 'node:fs';
import { dirname } from 'node:path';
import { FileFormatError, kinds } from '@x/core';
import { PATH } from '../arguments';
import type { LoraFile } from '../weights/lora';
import type { LoraBase } from './base';
import { openGgufLora } from './gguf-lora';
import { openPeft } from './peft';

/**
 * Opens an adapter for a model: names, sizes and settings are read and checked, matrices not yet. Close it.
 * @param path a folder that PEFT saved, its adapter_model.safetensors, or a GGUF file of llama.cpp's converter
 * @throws FileFormatError for missing and damaged files; TransformersError BAD_ADAPTER for one that does not fit the model or
 *   itself, UNSUPPORTED_ADAPTER for one of another kind (DoRA, modules_to_save, experts, ...)
 */
export function openLora(path: string, base: LoraBase): LoraFile {
  kinds.check('openLora', 'path', path, PATH);
  const stats = statSync(path, { throwIfNoEntry: false });
  if (stats === undefined) {
    const message = `${path}: there is no such file or directory. Give a folder with adapter_config.json and adapter_model.safetensors, or a .gguf file.`;
    throw new FileFormatError('FILE_NOT_FOUND', message, { path });
  }
  if (stats.isDirectory()) return openPeft(path, base);
  return path.endsWith('.safetensors') ? openPeft(dirname(path), base) : openGgufLora(path, base);
}
