/**
 * What a Hugging Face checkpoint is called and how it is described in a GGUF file: metadata, tensor names and the order of
 * rows, as llama.cpp's converter writes them. candle has no counterpart; it reads such files only. The inverse of
 * `describeGguf`, `tokenizerJsonFromGguf` and the names of `Weights`, from the same lists.
 */
import { existsSync } from 'node:fs';
import { basename, join, resolve } from 'node:path';
import { readJsonFile } from '@x/core/files';
import { type GgufValue, gguf } from '@x/quantized';
import { specialTokensOf, textsFromDirectory } from './chat/sources';
import { type ConfigKey, GGUF_KEYS } from './config/config-source';
import type { DecoderConfig } from './config/decoder-config';
import { ropeFactors } from './config/rope';
import { textPartOf } from './config/text-part';
import { TransformersError } from './errors';
import { type Architecture, describeConfig } from './registry';
import { type TokenizerFiles, tokenizerMetadata } from './tokenizer/gguf-export';
import { readTokenizerJson } from './tokenizer/tokenizer';
import { type TensorNamePair, TensorNames } from './weights/tensor-names';

/** A tensor that a GGUF file has, and what is done to the values that a `WeightFile` gives under its name. */
export interface GgufTensorName {
  name: string;
  /** Heads whose rows change order: checkpoints rotate the halves of a head with each other, GGUF files neighbours. */
  heads?: number;
  /** Added to its values: GGUF files hold some norms' weights plus one. */
  add?: number;
}

export interface GgufExport {
  metadata: Record<string, GgufValue>;
  /** Where a checkpoint has its tensors, for `WeightFile`. */
  names: readonly TensorNamePair[];
  /**
   * The tensors that those of a checkpoint make.
   * @throws TransformersError UNSUPPORTED_MODEL for one that the architecture has not
   */
  tensors(checkpoint: readonly string[]): GgufTensorName[];
  /** Divisors of the rotation frequencies, the tensor `rope_freqs.weight`, where the model has them. */
  ropeFactors?: Float32Array;
  /** What of the checkpoint the file does not say, a sentence each. */
  warnings: readonly string[];
}

/**
 * @param configJson the parsed config.json @param tokenizerJson the parsed tokenizer.json; without it the file has no
 *   tokenizer @param files what other files of the checkpoint say of its texts
 * @throws TransformersError UNSUPPORTED_MODEL, BAD_CONFIG, UNSUPPORTED_TOKENIZER, BAD_TOKENIZER
 */
export function ggufExport(
  configJson: unknown,
  tokenizerJson?: unknown,
  name = 'model',
  files: TokenizerFiles = {},
): GgufExport {
  const { architecture, config } = describeConfig(configJson);
  const source = textPartOf(configJson as Record<string, unknown>)?.config ?? (configJson as Record<string, unknown>);
  const metadata: Record<string, GgufValue> = {
    'general.architecture': gguf.string(architecture.gguf),
    'general.type': gguf.string('model'),
    'general.name': gguf.string(name),
    ...configMetadata(architecture, config),
  };
  const warnings: string[] = [];
  if (tokenizerJson !== undefined)
    Object.assign(metadata, tokenizerMetadata(tokenizerJson, config.vocabSize, source, files, warnings));
  const names = new TensorNames(architecture.names);
  return {
    metadata,
    names: architecture.names,
    tensors: (checkpoint) =>
      [...new Set(checkpoint.flatMap((name) => ggufNames(name, names, architecture)))].map((name) =>
        adjusted(name, architecture, config),
      ),
    ropeFactors: config.ropeScaling?.type === 'llama3' ? ropeFactors(config) : undefined,
    warnings,
  };
}

/**
 * {@link ggufExport} of a Hugging Face directory, with the tokenizer, the ends of generation and the chat templates of its files.
 * @throws FileFormatError for files that are missing or damaged; TransformersError as {@link ggufExport}, BAD_CHAT_TEMPLATE
 */
export function ggufExportOfDirectory(directory: string): GgufExport {
  const json = (name: string) => {
    const path = join(directory, name);
    return existsSync(path) ? readJsonFile(path) : undefined;
  };
  const tokenizer = join(directory, 'tokenizer.json');
  const texts = textsFromDirectory(directory);
  const written = ggufExport(
    readJsonFile(join(directory, 'config.json')),
    existsSync(tokenizer) ? readTokenizerJson(tokenizer) : undefined,
    basename(resolve(directory)),
    {
      generationConfig: json('generation_config.json'),
      specialTokens: specialTokensOf(directory),
      templates: texts?.templates,
    },
  );
  if (existsSync(tokenizer)) return written;
  const missing = `${directory} has no tokenizer.json, so the file has no tokenizer and cannot be loaded as a language model.`;
  return { ...written, warnings: [...written.warnings, missing] };
}

function configMetadata(architecture: Architecture, config: DecoderConfig): Record<string, GgufValue> {
  const name = architecture.gguf;
  const whole: Partial<Record<ConfigKey, number>> = {
    num_hidden_layers: config.numLayers,
    max_position_embeddings: config.contextLength,
    hidden_size: config.hiddenSize,
    intermediate_size: config.intermediateSize,
    num_attention_heads: config.numHeads,
    num_key_value_heads: config.numKvHeads,
    head_dim: config.headDim,
    value_head_dim: config.headDim,
    rotary_dim: config.rotaryDim,
    vocab_size: config.vocabSize,
  };
  const extras = architecture.ggufExtras?.(config);
  const scaling = config.ropeScaling?.type;
  if (!extras || (scaling !== undefined && scaling !== 'linear' && scaling !== 'llama3')) {
    const settings = architecture.ggufExtras ? ' and settings that its GGUF files do not hold' : '';
    const named = `the architecture "${architecture.architectures[0]}"${settings}`;
    const what = extras ? `positions scaled by "${scaling}"` : named;
    throw new TransformersError(
      'UNSUPPORTED_MODEL',
      `Models with ${what} are not written to GGUF here. Convert it with the tool of its own model family.`,
    );
  }
  const { whole: moreWhole = {}, real: moreReal = {} } = extras;
  const real: Partial<Record<ConfigKey, number>> = { rms_norm_eps: config.normEps, rope_theta: config.ropeTheta };
  const metadata: Record<string, GgufValue> = {};
  const put = (values: Partial<Record<ConfigKey, number>>, value: (number: number) => GgufValue) => {
    for (const [key, number] of Object.entries(values))
      metadata[`${name}.${GGUF_KEYS[key as ConfigKey]}`] = value(number);
  };
  put({ ...whole, ...moreWhole }, gguf.uint32);
  put({ ...real, ...moreReal }, gguf.float32);
  if (config.ropeSections)
    metadata[`${name}.${GGUF_KEYS.rope_sections}`] = gguf.array('int32', Int32Array.of(...config.ropeSections, 0));
  if (config.ropeScaling?.type === 'linear') {
    metadata[`${name}.rope.scaling.type`] = gguf.string('linear');
    metadata[`${name}.rope.scaling.factor`] = gguf.float32(config.ropeScaling.factor);
  }
  return metadata;
}

function ggufNames(tensor: string, names: TensorNames, { gguf: architecture }: Architecture): string[] {
  // Old checkpoints keep buffers of frequencies and masks, which follow from the configuration.
  if (/(?:rotary_emb\.inv_freq|\.attn\.(?:masked_)?bias)$/.test(tensor)) return [];
  const found = [tensor, `model.${tensor}`, `transformer.${tensor}`].map((name) => names.toGguf(name));
  const known = found.find((list) => list.length > 0);
  if (known) return known;
  throw new TransformersError(
    'UNSUPPORTED_MODEL',
    `The checkpoint has a tensor "${tensor}", which a model of the architecture "${architecture}" has not. Convert it with the tool of its own model family.`,
  );
}

function adjusted(
  name: string,
  { pairs, normOffset = 0 }: Architecture,
  { numHeads, numKvHeads }: DecoderConfig,
): GgufTensorName {
  const [, part, kind] = /^(?:blk\.\d+\.)?(.+)\.(weight|bias)$/.exec(name) ?? [];
  if (pairs === 'reordered' && part === 'attn_q') return { name, heads: numHeads };
  if (pairs === 'reordered' && part === 'attn_k') return { name, heads: numKvHeads };
  const isNorm = part?.endsWith('_norm') && kind === 'weight';
  return normOffset !== 0 && isNorm ? { name, add: normOffset } : { name };
}
