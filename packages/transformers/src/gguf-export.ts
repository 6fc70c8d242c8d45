/**
 * What a Hugging Face checkpoint is called and how it is described in a GGUF file: metadata, tensor names and the order of
 * rows, as llama.cpp's converter writes them. candle has no counterpart; it reads such files only. The inverse of
 * `describeGguf`, `tokenizerJsonFromGguf` and the names of `Weights`, from the same lists.
 */
import { type GgufArray, type GgufValue, gguf } from '@x/quantized';
import { type ConfigKey, GGUF_KEYS } from './config/config-source';
import type { DecoderConfig } from './config/decoder-config';
import { ropeFactors } from './config/rope';
import { textPartOf } from './config/text-part';
import { TransformersError } from './errors';
import { type Architecture, describeConfig } from './registry';
import { checkDefinition } from './tokenizer/definition';
import { PRE_TOKENIZERS } from './tokenizer/pre-tokenizers';
import type { TokenizerJson } from './tokenizer/tokenizer';
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
}

/**
 * @param configJson the parsed config.json @param tokenizerJson the parsed tokenizer.json; without it the file has no
 *   tokenizer @throws TransformersError UNSUPPORTED_MODEL, BAD_CONFIG, UNSUPPORTED_TOKENIZER, BAD_TOKENIZER
 */
export function ggufExport(configJson: unknown, tokenizerJson?: unknown, name = 'model'): GgufExport {
  const { architecture, config } = describeConfig(configJson);
  const source = textPartOf(configJson as Record<string, unknown>)?.config ?? (configJson as Record<string, unknown>);
  const metadata: Record<string, GgufValue> = {
    'general.architecture': gguf.string(architecture.gguf),
    'general.type': gguf.string('model'),
    'general.name': gguf.string(name),
    ...configMetadata(architecture, config),
  };
  if (tokenizerJson !== undefined) Object.assign(metadata, tokenizerMetadata(tokenizerJson, config, source));
  const names = new TensorNames(architecture.names);
  return {
    metadata,
    names: architecture.names,
    tensors: (checkpoint) =>
      [...new Set(checkpoint.flatMap((name) => ggufNames(name, names, architecture)))].map((name) =>
        adjusted(name, architecture, config),
      ),
    ropeFactors: config.ropeScaling?.type === 'llama3' ? ropeFactors(config) : undefined,
  };
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

/** llama.cpp's token types. */
const TYPE = { normal: 1, unknown: 2, control: 3, userDefined: 4, unused: 5, byte: 6 } as const;

function tokenizerMetadata(
  json: unknown,
  config: DecoderConfig,
  source: Record<string, unknown>,
): Record<string, GgufValue> {
  const kind = (json as { model?: { type?: unknown } | null } | null)?.model?.type;
  if (typeof kind === 'string' && kind !== 'BPE') throw notBpe(kind);
  const definition = checkDefinition(json).json;
  const { model, added_tokens: added, post_processor } = definition;
  const bpe = model as {
    type?: string;
    vocab: Record<string, number>;
    merges: (string | [string, string])[];
    byte_fallback?: boolean;
    unk_token?: string | null;
  };
  if (bpe.type !== 'BPE') throw notBpe(bpe.type ?? 'WordLevel');
  const tokens = Array.from({ length: config.vocabSize }, (_, id) => `[PAD${id}]`);
  const types = new Int32Array(config.vocabSize).fill(TYPE.unused);
  const put = (token: string, id: number, type: number) => {
    if (!Number.isInteger(id) || id < 0 || id >= config.vocabSize) {
      throw new TransformersError(
        'BAD_TOKENIZER',
        `tokenizer.json gives the token "${token}" the id ${id}, outside config.json's vocabulary of ${config.vocabSize}; they do not belong together.`,
      );
    }
    tokens[id] = token;
    types[id] = type;
  };
  for (const [token, id] of Object.entries(bpe.vocab)) {
    const byte = bpe.byte_fallback === true && /^<0x[0-9A-F]{2}>$/.test(token);
    put(token, id, byte ? TYPE.byte : token === bpe.unk_token ? TYPE.unknown : TYPE.normal);
  }
  for (const { content, id, special } of added) {
    if (types[id] !== TYPE.unknown) put(content, id, special ? TYPE.control : TYPE.userDefined);
  }
  const merges = bpe.merges.map((merge) => (typeof merge === 'string' ? merge : merge.join(' ')));
  const bos = idOf(source.bos_token_id);
  const eos = idOf(source.eos_token_id);
  const template = JSON.stringify(post_processor ?? null);
  const metadata: Record<string, GgufValue> = {
    'tokenizer.ggml.tokens': gguf.strings(tokens),
    'tokenizer.ggml.token_type': gguf.array('int32', types),
    ...(bpe.byte_fallback === true ? sentencePiece(tokens, merges) : byteLevel(definition, merges)),
    'tokenizer.ggml.add_bos_token': gguf.bool(bos !== undefined && template.includes(JSON.stringify(tokens[bos]))),
    'tokenizer.ggml.add_eos_token': gguf.bool(eos !== undefined && template.includes(JSON.stringify(tokens[eos]))),
  };
  if (bos !== undefined) metadata['tokenizer.ggml.bos_token_id'] = gguf.uint32(bos);
  if (eos !== undefined) metadata['tokenizer.ggml.eos_token_id'] = gguf.uint32(eos);
  return metadata;
}

function notBpe(kind: string): TransformersError {
  return new TransformersError(
    'UNSUPPORTED_TOKENIZER',
    `The tokenizer is of the kind "${kind.slice(0, 40)}"; BPE can be written to GGUF. Convert the model with the tool of its family.`,
  );
}

/** A token id of config.json, the first where there are several. */
function idOf(value: unknown): number | undefined {
  const id: unknown = Array.isArray(value) ? value[0] : value;
  return typeof id === 'number' && Number.isInteger(id) && id >= 0 ? id : undefined;
}

function byteLevel({ pre_tokenizer, normalizer, model }: TokenizerJson, merges: string[]): Record<string, GgufValue> {
  const patterns = splitPatterns(pre_tokenizer);
  const wanted = JSON.stringify(patterns);
  // Names of models for vectors are of no model that is written here.
  const isOfOthers = (name: string) => name.startsWith('granite-embed');
  const named = [...PRE_TOKENIZERS].filter(
    ([name, { split }]) => JSON.stringify(split) === wanted && !isOfOthers(name),
  );
  // Of names for one way of splitting the one that says the rest as the tokenizer does.
  const nfc = JSON.stringify(normalizer ?? null).includes('"NFC"');
  const whole = (model as { ignore_merges?: boolean }).ignore_merges === true;
  const [pre] =
    named.find(([, one]) => (one.nfc ?? false) === nfc && (one.ignoreMerges ?? false) === whole) ?? named[0] ?? [];
  if (pre !== undefined) {
    return {
      'tokenizer.ggml.model': gguf.string('gpt2'),
      'tokenizer.ggml.pre': gguf.string(pre),
      'tokenizer.ggml.merges': gguf.strings(merges),
    };
  }
  throw new TransformersError(
    'UNSUPPORTED_TOKENIZER',
    `The tokenizer splits text by ${wanted}, which has no name in GGUF that is known here. Convert the model with the tool of its family.`,
  );
}

/** Regular expressions by which text is split before byte-level BPE; of another step its kind, which no name in GGUF has. */
function splitPatterns(preTokenizer: unknown): string[] {
  const steps = (preTokenizer as { pretokenizers?: unknown[] } | null)?.pretokenizers ?? [preTokenizer];
  return steps.flatMap((step) => {
    const { type, pattern, individual_digits, use_regex } = (step ?? {}) as PreTokenizerStep;
    if (type === 'Split' && pattern?.Regex !== undefined) return [pattern.Regex];
    if (type === 'Digits' && individual_digits) return ['\\p{N}'];
    if (type === 'ByteLevel') return use_regex === false ? [] : [...(PRE_TOKENIZERS.get('gpt-2')?.split ?? [])];
    return [type ?? 'nothing'];
  });
}

interface PreTokenizerStep {
  type?: string;
  pattern?: { Regex?: string };
  individual_digits?: boolean;
  use_regex?: boolean;
}

/** Scores that give the merges their order: a piece's is less the later it is merged. */
function sentencePiece(tokens: readonly string[], merges: readonly string[]): Record<string, GgufValue | GgufArray> {
  const ids = new Map(tokens.map((token, id) => [token, id]));
  const scores = new Float32Array(tokens.length).fill(-merges.length);
  for (let rank = merges.length - 1; rank >= 0; rank--) {
    const id = ids.get(merges[rank].replace(' ', ''));
    if (id !== undefined) scores[id] = -rank;
  }
  return { 'tokenizer.ggml.model': gguf.string('llama'), 'tokenizer.ggml.scores': gguf.array('float32', scores) };
}
