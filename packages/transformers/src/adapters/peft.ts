/**
 * Adapters as PEFT saves them: a folder with adapter_config.json and adapter_model.safetensors, with the names and the order
 * of rows of the checkpoint that they were trained on. What the configuration asks for beyond plain LoRA is refused.
 */
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { Device, FileFormatError } from '@x/core';
import { readJsonFile, SafetensorsFile } from '@x/core/files';
import { shown } from '../config/problems';
import { LinearPattern } from '../tokenizer/linear-pattern';
import { badAdapter, type LoraDelta, type LoraFile, unsupportedAdapter } from '../weights/lora';
import { TensorNames } from '../weights/tensor-names';
import { textName } from '../weights/text-part';
import { type LoraBase, rowsFor, withRows } from './base';
import { pairsOf, type StoredPair } from './pairs';

/** What makes an adapter another thing than B · A beside a linear layer. */
const REFUSED: Readonly<Record<string, string>> = {
  use_dora: 'is a DoRA adapter (use_dora)',
  modules_to_save: 'has whole modules beside its matrices (modules_to_save)',
  lora_bias: 'has biases (lora_bias)',
  target_parameters: 'changes parameters that are no linear layers (target_parameters)',
  trainable_token_indices: 'changes rows of the embeddings (trainable_token_indices)',
  layer_replication: 'repeats layers of the model (layer_replication)',
  alora_invocation_tokens: 'is for the tokens behind an invocation only (alora_invocation_tokens)',
  use_qalora: 'pools its inputs (use_qalora)',
  use_bdlora: 'has block-diagonal matrices (use_bdlora)',
  arrow_config: 'is a router between adapters (arrow_config)',
  kasa_config: 'has singular values beside its matrices (kasa_config)',
};

/** These take something away from the weights that they begin with, which a model as it was published does not. */
const OTHER_BASE = /^(?:pissa|corda|olora|loftq|lora_ga|mica)/i;

interface PeftConfig {
  rankOf(module: string): number;
  scaleOf(module: string): number;
}

/** @throws FileFormatError; TransformersError BAD_ADAPTER, UNSUPPORTED_ADAPTER */
export function openPeft(folder: string, base: LoraBase): LoraFile {
  const config = readConfig(folder);
  const path = join(folder, 'adapter_model.safetensors');
  if (!existsSync(path) && existsSync(join(folder, 'adapter_model.bin'))) {
    const message = `${folder}: the adapter's weights are in adapter_model.bin. Save it once more with PEFT, which writes adapter_model.safetensors.`;
    throw new FileFormatError('FILE_NOT_FOUND', message, { path });
  }
  const file = SafetensorsFile.open(path);
  try {
    const stored = file.names.map((name) => ({
      ...placeOf(folder, name),
      matrix: { name, shape: file.info(name).shape },
    }));
    const names = new TensorNames(base.architecture.names);
    const deltas = pairsOf(folder, stored).map((pair) => deltaOf(folder, file, pair, config, names, base));
    return { path: folder, deltas, close: () => file.close() };
  } catch (error) {
    file.close();
    throw error;
  }
}

function readConfig(folder: string): PeftConfig {
  const path = join(folder, 'adapter_config.json');
  const json = readJsonFile(path);
  if (typeof json !== 'object' || json === null || Array.isArray(json)) throw badAdapter(path, 'is no JSON object');
  const config = json as Record<string, unknown>;
  const bad = (key: string, wanted: string) => badAdapter(path, `gives ${key} = ${shown(config[key])}, not ${wanted}`);
  if (config.peft_type !== 'LORA') throw unsupportedAdapter(path, `is of the type ${shown(config.peft_type)}`);
  for (const [key, what] of Object.entries(REFUSED)) {
    const value = config[key];
    if (Array.isArray(value) ? value.length > 0 : value) throw unsupportedAdapter(path, what);
  }
  if ((config.bias ?? 'none') !== 'none')
    throw unsupportedAdapter(path, `trained biases (bias = ${shown(config.bias)})`);
  const { init_lora_weights: init } = config;
  if (typeof init === 'string' && OTHER_BASE.test(init))
    throw unsupportedAdapter(
      path,
      `is for weights that its beginning has changed (init_lora_weights = ${shown(init)})`,
    );
  const { r, lora_alpha: alpha } = config;
  if (!isRank(r)) throw bad('r', 'a whole number of 1 or more');
  if (!isNumber(alpha)) throw bad('lora_alpha', 'a number');
  const ranks = patterns(path, 'rank_pattern', config.rank_pattern, isRank);
  const alphas = patterns(path, 'alpha_pattern', config.alpha_pattern, isNumber);
  const rankOf = (module: string) => ranks(module) ?? r;
  return {
    rankOf,
    scaleOf: (module) => (alphas(module) ?? alpha) / (config.use_rslora ? Math.sqrt(rankOf(module)) : rankOf(module)),
  };
}

const isNumber = (value: unknown): value is number => typeof value === 'number' && Number.isFinite(value);
const isRank = (value: unknown): value is number => isNumber(value) && Number.isInteger(value) && value >= 1;

/** Values by expressions that the ends of modules' names match, whole words of them; the first that does counts. */
function patterns(
  path: string,
  key: string,
  json: unknown,
  test: (value: unknown) => value is number,
): (module: string) => number | undefined {
  if (json === undefined || json === null) return () => undefined;
  if (typeof json !== 'object' || Array.isArray(json))
    throw badAdapter(path, `gives ${key} = ${shown(json)}, no object`);
  const list = Object.entries(json).map(([pattern, value]) => {
    if (!test(value)) throw badAdapter(path, `gives ${shown(pattern)} the value ${shown(value)} in ${key}`);
    try {
      return { pattern: new LinearPattern(`^(?:.*\\.)?(?:${pattern})$`), value };
    } catch (cause) {
      throw unsupportedAdapter(path, `has an expression in ${key} that cannot be read (${shown(pattern)})`, cause);
    }
  });
  return (module) => list.find(({ pattern }) => pattern[Symbol.match](module) !== null)?.value;
}

/** `base_model.model.model.layers.0.mlp.up_proj.lora_A.weight` to the layer's name and A or B. */
function placeOf(path: string, name: string): { module: string; part: 'a' | 'b' } {
  const [, module, part] = /^(?:base_model\.model\.)?(.+)\.lora_([AB])\.weight$/.exec(name) ?? [];
  if (module !== undefined) return { module, part: part === 'A' ? 'a' : 'b' };
  if (name.includes('lora_magnitude_vector')) throw unsupportedAdapter(path, `is a DoRA adapter (${name})`);
  if (name.includes('lora_embedding_')) throw unsupportedAdapter(path, `changes embeddings (${name})`);
  const what = name.includes('.lora_') ? 'a tensor' : 'a whole weight beside its matrices';
  throw unsupportedAdapter(path, `has ${what}, ${name}`);
}

/** What a pair adds to a layer of the model. */
function deltaOf(
  path: string,
  file: SafetensorsFile,
  { module, rank, a, b }: StoredPair,
  config: PeftConfig,
  names: TensorNames,
  base: LoraBase,
): LoraDelta {
  if (config.rankOf(module) !== rank)
    throw badAdapter(path, `has rank ${rank} in ${module}, and ${config.rankOf(module)} in adapter_config.json`);
  // Those for a model of texts and images name its text part.
  const [weight] = [module, textName(module) ?? module, `model.${module}`, `transformer.${module}`].flatMap((name) =>
    names.toGguf(`${name}.weight`),
  );
  if (weight === undefined)
    throw badAdapter(path, `changes ${module}, which a model of the architecture "${base.architecture.gguf}" has not`);
  const values = async (name: string) => {
    using matrix = await file.load(name, Device.js(), { dtype: 'f32' });
    return matrix.toArraySync<Float32Array>();
  };
  const target = weight.replace(/\.weight$/, '');
  const [out] = b.shape;
  const rows = rowsFor(target, out, 'half', base);
  return {
    target,
    source: module,
    rank,
    out,
    width: a.shape[1],
    scale: config.scaleOf(module),
    load: async () => ({ a: await values(a.name), b: withRows(await values(b.name), rank, rows) }),
  };
}
