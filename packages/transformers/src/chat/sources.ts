/** Where chat templates are: in a GGUF file's metadata, or in the files of a Hugging Face directory. */
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { basename, join } from 'node:path';
import { FileFormatError } from '@x/core';
import { readJsonFile } from '@x/core/files';
import type { GgufMetadata } from '@x/quantized';
import { usualTokenId } from '../tokenizer/from-gguf';
import { templateError } from './jinja/budget';

export interface TemplateTexts {
  /** By name; the one for everything is `default`, one for tools `tool_use`. */
  templates: ReadonlyMap<string, string>;
  /** Texts of special tokens by the names that templates have for them: `bos_token`, `eos_token`, ... */
  specialTokens: Readonly<Record<string, string>>;
}

/** What templates may print although the model has no such token. */
export const NO_TOKENS = { bos_token: '', eos_token: '' };

export function textsFromGguf(metadata: GgufMetadata): TemplateTexts | undefined {
  const key = 'tokenizer.chat_template';
  const templates = new Map<string, string>();
  for (const name of metadata.has(`${key}s`) ? metadata.strings(`${key}s`) : [])
    if (metadata.has(`${key}.${name}`)) templates.set(name, metadata.string(`${key}.${name}`));
  // An empty one is none.
  const usual = metadata.string(key, '');
  if (usual !== '') templates.set('default', usual);
  if (templates.size === 0) return undefined;
  const tokens = metadata.has('tokenizer.ggml.tokens') ? metadata.strings('tokenizer.ggml.tokens') : [];
  const specialTokens: Record<string, string> = { ...NO_TOKENS };
  for (const [name, id] of [
    ['bos_token', 'bos'],
    ['eos_token', 'eos'],
    ['unk_token', 'unknown'],
    ['pad_token', 'padding'],
  ]) {
    const text = tokens[metadata.int(`tokenizer.ggml.${id}_token_id`, usualTokenId(metadata, id))];
    if (text !== undefined) specialTokens[name] = text;
  }
  return { templates, specialTokens };
}

/** Texts of special tokens by their names in tokenizer_config.json. @throws FileFormatError */
export function specialTokensOf(directory: string): Record<string, string> {
  return tokensOf(configOf(directory).config);
}

function configOf(directory: string): { path: string; config: Record<string, unknown> } {
  const path = join(directory, 'tokenizer_config.json');
  return { path, config: existsSync(path) ? readConfig(path) : {} };
}

export function textsFromDirectory(directory: string): TemplateTexts | undefined {
  const templates = new Map<string, string>();
  const { path, config } = configOf(directory);
  addConfigured(templates, config.chat_template, path);
  // Where processors of texts and images have it.
  const processors = join(directory, 'chat_template.json');
  if (existsSync(processors)) addConfigured(templates, readConfig(processors).chat_template, processors);
  const file = join(directory, 'chat_template.jinja');
  if (existsSync(file)) templates.set('default', readText(file));
  const others = join(directory, 'additional_chat_templates');
  for (const name of existsSync(others) ? readdirSync(others).sort() : [])
    if (name.endsWith('.jinja')) templates.set(basename(name, '.jinja'), readText(join(others, name)));
  return templates.size === 0 ? undefined : { templates, specialTokens: { ...NO_TOKENS, ...tokensOf(config) } };
}

function readConfig(path: string): Record<string, unknown> {
  const config = readJsonFile(path);
  if (typeof config === 'object' && config !== null && !Array.isArray(config)) return config as Record<string, unknown>;
  throw new FileFormatError('FILE_INVALID', `${path} holds no object; download it again.`, { path });
}

/** `chat_template`: a text, a list of names and texts, or texts by their names. */
function addConfigured(templates: Map<string, string>, value: unknown, path: string): void {
  if (value === undefined || value === null) return;
  const named = typeof value === 'string' ? { default: value } : value;
  const isList = typeof named !== 'object' || Array.isArray(named);
  const list = isList ? named : Object.entries(named).map(([name, template]) => ({ name, template }));
  for (const entry of Array.isArray(list) ? list : [undefined]) {
    const { name, template } = (entry ?? {}) as { name?: unknown; template?: unknown };
    if (typeof name !== 'string' || typeof template !== 'string')
      throw templateError(`chat_template of ${path} is neither a text nor a list of names and templates`);
    templates.set(name, template);
  }
}

/** `bos_token` and the like: a text, or an object with one. */
function tokensOf(config: Record<string, unknown>): Record<string, string> {
  const tokens: Record<string, string> = {};
  for (const [name, value] of Object.entries(config)) {
    if (!/^[a-z]+_token$/.test(name)) continue;
    const text = typeof value === 'object' && value !== null ? (value as { content?: unknown }).content : value;
    if (typeof text === 'string') tokens[name] = text;
  }
  return tokens;
}

/** Bytes of a template file. */
const MOST_BYTES = 2 ** 20;

function readText(path: string): string {
  const bytes = readFileSync(path);
  if (bytes.length > MOST_BYTES)
    throw templateError(`${path} has ${bytes.length} bytes, at most ${MOST_BYTES} are read`);
  return bytes.toString('utf8');
}
