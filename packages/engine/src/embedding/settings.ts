/**
 * What a model's files say of embeddings: sentence-transformers' modules.json, sentence_bert_config.json and
 * config_sentence_transformers.json beside a checkpoint, `pooling_type` in GGUF files. Every field is checked.
 */
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { kinds } from '@x/core';
import { readJsonFile } from '@x/core/files';
import { type ActivationName, isActivation } from '@x/nn';
import type { GgufMetadata } from '@x/quantized';
import { type PoolingMode, TransformersError } from '@x/transformers';

/** A product behind pooling: sentence-transformers' Dense. */
export interface DenseSettings {
  /** Directory of its weights. */
  directory: string;
  inFeatures: number;
  outFeatures: number;
  bias: boolean;
  /** Undefined: none. */
  activation: ActivationName | undefined;
}

export interface EmbeddingSettings {
  /** Several: their vectors one after the other. Undefined: the files do not say it. */
  pooling?: readonly PoolingMode[];
  dense: readonly DenseSettings[];
  /** Tokens of a text at most. Undefined: what the model was made for. */
  maxTokens?: number;
  lowerCase: boolean;
  /** Texts in front of others, by name. */
  prompts: Readonly<Record<string, string>>;
  /** Of the prompt that is taken where none is named. */
  defaultPrompt?: string;
  /** Whether tokens of prompts count in pooling. */
  poolPrompt: boolean;
  /** Names of the classification head's results. */
  labels: readonly string[];
  /** What makes scores of one such result. */
  scores: 'sigmoid' | 'none';
  /** Whether pairs are put as a question that the model answers with yes or no. Default false. */
  yesNo?: boolean;
}

const NOTHING: EmbeddingSettings = {
  dense: [],
  lowerCase: false,
  prompts: {},
  poolPrompt: true,
  labels: [],
  scores: 'sigmoid',
};

/** llama.cpp's pooling types; 0 is none, 4 is a classification head. */
const GGUF_POOLING: Readonly<Record<number, PoolingMode>> = { 1: 'mean', 2: 'cls', 3: 'last' };

/** @throws FileFormatError for a mistyped key, TransformersError UNSUPPORTED_MODEL */
export function ggufSettings(metadata: GgufMetadata): EmbeddingSettings {
  const key = `${metadata.string('general.architecture')}.pooling_type`;
  const type = metadata.has(key) ? metadata.float(key) : 0;
  if (type !== 0 && type !== 4 && !(type in GGUF_POOLING)) {
    throw new TransformersError(
      'UNSUPPORTED_MODEL',
      `The GGUF file says ${key} = ${type}, which is not known here (1 mean, 2 cls, 3 last, 4 rank). Use another conversion.`,
    );
  }
  return { ...NOTHING, ...(type in GGUF_POOLING && { pooling: [GGUF_POOLING[type]] }) };
}

/** @param directory of a checkpoint @throws FileFormatError, TransformersError BAD_CONFIG, UNSUPPORTED_MODEL */
export function checkpointSettings(directory: string): EmbeddingSettings {
  const modules = modulesOf(directory);
  const { dense, pooling } = modules;
  const front = join(directory, modules.transformer);
  const bert = readOptional(join(front, 'sentence_bert_config.json'));
  const prompts = readOptional(join(directory, 'config_sentence_transformers.json'));
  const tokenizer = readOptional(join(directory, 'tokenizer_config.json'));
  const config = readOptional(join(directory, 'config.json'));
  const limits = [bert?.whole('max_seq_length'), tokenizer?.limit('model_max_length')];
  const lengths = limits.filter((limit) => limit !== undefined);
  const defaultPrompt = prompts?.text('default_prompt_name');
  return {
    ...NOTHING,
    ...(pooling && { pooling: pooling.modes, poolPrompt: pooling.prompt }),
    dense,
    ...(lengths.length > 0 && { maxTokens: Math.min(...lengths) }),
    lowerCase: bert?.flag('do_lower_case') ?? false,
    prompts: prompts?.texts('prompts') ?? {},
    ...(defaultPrompt !== undefined && { defaultPrompt }),
    labels: labelsOf(config),
    scores: scoresOf(config),
  };
}

interface Modules {
  /** Directory of the transformer in that of the model. */
  transformer: string;
  pooling?: { modes: PoolingMode[]; prompt: boolean };
  dense: DenseSettings[];
}

function modulesOf(directory: string): Modules {
  const path = join(directory, 'modules.json');
  const found: Modules = { transformer: '', dense: [] };
  if (!existsSync(path)) return found;
  const list = readJsonFile(path);
  if (!Array.isArray(list)) throw bad(path, 'holds no list of modules');
  for (const entry of list.map((value) => new Settings(path, value))) {
    const type = entry.text('type') ?? '';
    const place = entry.text('path') ?? '';
    if (place.split(/[\\/]/).includes('..') || place.startsWith('/'))
      throw bad(path, `names the path ${kinds.show(place)}, outside of the model's directory`);
    const name = type.split('.').at(-1);
    const at = join(directory, place);
    if (name === 'Transformer') found.transformer = place;
    else if (name === 'Pooling') found.pooling = poolingOf(join(at, 'config.json'));
    else if (name === 'Dense') found.dense.push(denseOf(at));
    else if (name !== 'Normalize') {
      throw new TransformersError(
        'UNSUPPORTED_MODEL',
        `${path} has a module of the type ${kinds.show(type)}; Transformer, Pooling, Dense and Normalize are supported. Use another model.`,
      );
    }
  }
  return found;
}

/** By their names in 1_Pooling/config.json, in the order of their vectors. */
const POOLING_KEYS: readonly (readonly [key: string, mode: PoolingMode])[] = [
  ['pooling_mode_cls_token', 'cls'],
  ['pooling_mode_max_tokens', 'max'],
  ['pooling_mode_mean_tokens', 'mean'],
  ['pooling_mode_mean_sqrt_len_tokens', 'mean_sqrt_len'],
  ['pooling_mode_weightedmean_tokens', 'weighted_mean'],
  ['pooling_mode_lasttoken', 'last'],
];

function poolingOf(path: string): Modules['pooling'] {
  const settings = new Settings(path, readJsonFile(path));
  const modes = POOLING_KEYS.filter(([key]) => settings.flag(key)).map(([, mode]) => mode);
  // sentence-transformers 5 names them: `pooling_mode: "mean"`, several with + between.
  const named = settings.text('pooling_mode');
  if (named !== undefined) {
    for (const name of named.split('+')) {
      const short = name === 'lasttoken' ? 'last' : name === 'weightedmean' ? 'weighted_mean' : name;
      const found = POOLING_KEYS.find(([, mode]) => mode === short.replace('mean_sqrt_len_tokens', 'mean_sqrt_len'));
      if (!found) throw bad(path, `gives pooling_mode = ${kinds.show(named)}, which is not known`);
      if (!modes.includes(found[1])) modes.push(found[1]);
    }
  }
  if (modes.length === 0) throw bad(path, 'turns every mode of pooling off');
  return { modes, prompt: settings.flag('include_prompt') ?? true };
}

function denseOf(directory: string): DenseSettings {
  const path = join(directory, 'config.json');
  const settings = new Settings(path, readJsonFile(path));
  const [inFeatures, outFeatures] = ['in_features', 'out_features'].map((key) => settings.whole(key));
  if (!inFeatures || !outFeatures) throw bad(path, 'does not say in_features and out_features');
  const named = settings.text('activation_function') ?? 'torch.nn.modules.activation.Tanh';
  const name = named.split('.').at(-1)!.toLowerCase();
  if (name !== 'identity' && !isActivation(name))
    throw bad(path, `gives activation_function = ${kinds.show(named)}, which is not known`);
  const activation = name === 'identity' ? undefined : (name as ActivationName);
  return { directory, inFeatures, outFeatures, bias: settings.flag('bias') ?? true, activation };
}

function labelsOf(config: Settings | undefined): string[] {
  const labels = config?.texts('id2label') ?? {};
  return Object.keys(labels)
    .sort((a, b) => Number(a) - Number(b))
    .map((id) => labels[id]);
}

/** CrossEncoder applies a sigmoid to one result unless the configuration names something else. */
function scoresOf(config: Settings | undefined): 'sigmoid' | 'none' {
  const own = config?.object('sentence_transformers')?.text('activation_fn');
  const named = own ?? config?.text('sbert_ce_default_activation_function');
  return named?.endsWith('Identity') ? 'none' : 'sigmoid';
}

function readOptional(path: string): Settings | undefined {
  return existsSync(path) ? new Settings(path, readJsonFile(path)) : undefined;
}

/** Fields of an object in a file; null counts as missing. */
class Settings {
  readonly #fields: Record<string, unknown>;

  constructor(
    readonly path: string,
    value: unknown,
  ) {
    if (typeof value !== 'object' || value === null || Array.isArray(value)) throw bad(path, 'holds no object');
    this.#fields = value as Record<string, unknown>;
  }

  text(key: string): string | undefined {
    return this.#of(key, 'a text', (value) => typeof value === 'string');
  }

  flag(key: string): boolean | undefined {
    return this.#of(key, 'true or false', (value) => typeof value === 'boolean');
  }

  whole(key: string): number | undefined {
    return this.#of(key, 'a whole number from 1', (value) => Number.isSafeInteger(value) && (value as number) >= 1);
  }

  /** A number of tokens; transformers writes 1e30 where there is no limit. */
  limit(key: string): number | undefined {
    const value = this.#of<number>(key, 'a number from 1', (found) => typeof found === 'number' && found >= 1);
    return value !== undefined && value < 2 ** 31 ? Math.floor(value) : undefined;
  }

  object(key: string): Settings | undefined {
    const value = this.#of(key, 'an object', (found) => typeof found === 'object' && !Array.isArray(found));
    return value === undefined ? undefined : new Settings(this.path, value);
  }

  texts(key: string): Record<string, string> | undefined {
    const isTexts = (value: unknown) =>
      typeof value === 'object' && Object.values(value as object).every((text) => typeof text === 'string');
    return this.#of(key, 'an object of texts', isTexts);
  }

  #of<T>(key: string, wanted: string, fits: (value: unknown) => boolean): T | undefined {
    const value = Object.hasOwn(this.#fields, key) ? this.#fields[key] : undefined;
    if (value === undefined || value === null) return undefined;
    if (fits(value)) return value as T;
    throw bad(this.path, `gives ${key} = ${kinds.show(value)}, but ${wanted} is needed`);
  }
}

function bad(path: string, what: string): TransformersError {
  return new TransformersError('BAD_CONFIG', `${path} ${what}; download it again.`);
}
