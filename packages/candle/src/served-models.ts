/** Models of the commands that serve: which files, under which names, with which options. */
import { existsSync, readFileSync } from 'node:fs';
import { CandleError, type Device } from '@x/core';
import { type CacheDType, type LanguageModel, type LoadModelOptions, loadModel } from '@x/engine';
import type { ModelFile } from '@x/server';
import { ChatTemplate } from '@x/transformers';
import type { Place } from './devices';
import type { DownloadOptions } from './download';
import { localModel } from './model-source';
import { UsageError } from './output';

export interface ServedModelOptions {
  /** Names of models that make texts, each a path or NAME=PATH. */
  models: readonly string[];
  /** Those that make vectors. */
  embedding?: readonly string[];
  /** NAME=PATH of adapters of the one model. */
  lora?: readonly string[];
  device: Device;
  /** Of models that make texts, in place of `device`. */
  place?: Place;
  context?: number;
  cacheDtype?: CacheDType;
  chatTemplate?: string;
}

/** @throws UsageError for names that do not fit; HubError for what cannot be downloaded */
export async function servedModels(
  { models, embedding = [], lora, device, place = { device }, context, cacheDtype, chatTemplate }: ServedModelOptions,
  download: DownloadOptions,
): Promise<Record<string, ModelFile>> {
  const template = chatTemplate === undefined ? undefined : templateOf(chatTemplate);
  // Models are loaded when they are asked for, and a broken template is known now.
  if (template !== undefined && template !== 'chatml') ChatTemplate.fromText(template).check();
  const adapters = adaptersOf(lora, models.length);
  const texts = await modelFiles(
    models,
    (path) => ({ path, options: { ...place, maxContext: context, cacheDtype, chatTemplate: template, adapters } }),
    download,
  );
  const vectors = await modelFiles(embedding, (path) => ({ path, kind: 'embedding', options: { device } }), download);
  for (const name of Object.keys(vectors)) if (name in texts) throw twice(name);
  return { ...texts, ...vectors };
}

/**
 * In processes that compute together (WORLD_SIZE): that there is one model.
 * @param does such as "serve"
 * @throws UsageError
 */
export function checkOneModel(names: readonly string[], embedding: readonly string[], does: string): void {
  if (names.length !== 1 || embedding.length > 0)
    throw new UsageError(
      `processes that compute together (WORLD_SIZE) ${does} one model. Give one, and no --embedding.`,
    );
}

/** The one model of {@link checkOneModel}, which the other processes wait for. */
export function loadWithOthers(models: Record<string, ModelFile>, signal: AbortSignal): Promise<LanguageModel> {
  const [file] = Object.values(models);
  return loadModel(file.path, { ...(file.options as LoadModelOptions), signal });
}

async function modelFiles(
  names: readonly string[],
  describe: (path: string) => ModelFile,
  download: DownloadOptions,
): Promise<Record<string, ModelFile>> {
  const { modelName } = await import('@x/server');
  const files: Record<string, ModelFile> = {};
  for (const text of names) {
    const { given, path } = placeOfName(text);
    const name = given ?? modelName(path);
    if (name in files) throw twice(name);
    files[name] = describe(await localModel(path, download));
  }
  return files;
}

/** NAME=PATH, or a path. */
export function placeOfName(text: string): { given: string | undefined; path: string } {
  const [, given, path] = /^([^=/\\]+)=(.+)$/.exec(text) ?? [undefined, undefined, text];
  return { given, path };
}

/** Adapters by name, of `--lora`. */
function adaptersOf(list: readonly string[] | undefined, models: number): Record<string, string> | undefined {
  if (list === undefined) return undefined;
  if (models !== 1)
    throw new UsageError(`--lora is of one model, and there are ${models}. Serve the others elsewhere.`);
  const adapters: Record<string, string> = {};
  for (const text of list) {
    const [, name, path] = /^([^=/\\]+)=(.+)$/.exec(text) ?? [];
    if (name === undefined) throw new UsageError(`--lora: ${text} has no name. Give NAME=PATH.`);
    if (name in adapters) throw twice(name);
    if (!existsSync(path)) throw new UsageError(`--lora: there is no ${path}. Give a folder of PEFT or a .gguf file.`);
    adapters[name] = path;
  }
  return adapters;
}

function twice(name: string): UsageError {
  return new UsageError(`two models are called ${name}. Give one of them another name: NAME=PATH.`);
}

function templateOf(option: string): string {
  return option === 'chatml' ? option : textOf(option);
}

/** @throws CandleError INVALID_OPTION */
export function textOf(path: string): string {
  try {
    return readFileSync(path, 'utf8');
  } catch (cause) {
    throw new CandleError(
      'INVALID_OPTION',
      `${path} cannot be read: ${(cause as Error).message}. Give one that can be read.`,
      { cause },
    );
  }
}
