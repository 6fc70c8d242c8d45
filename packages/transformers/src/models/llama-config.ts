/**
 * What a Llama model is made of, read from GGUF metadata or from a Hugging Face config.json: candle's `LlamaConfig`
 * (candle-transformers/src/models/llama.rs) and `quantized_llama::ModelWeights::from_gguf`. Everything is checked here, so
 * that a wrong file is an error with numbers and not a shape mismatch somewhere in the forward pass.
 */
import type { GgufMetadata } from '@x/quantized';
import { TransformersError } from '../errors';

/** Architectures that load, by the name in GGUF (`general.architecture`) and in config.json (`model_type`). */
export const SUPPORTED_ARCHITECTURES: readonly string[] = ['llama'];

/** How positions beyond the trained length are squeezed in. */
export type RopeScaling =
  | { type: 'linear'; factor: number }
  | { type: 'llama3'; factor: number; lowFreqFactor: number; highFreqFactor: number; originalContextLength: number };

export interface LlamaConfig {
  vocabSize: number;
  hiddenSize: number;
  /** Width of the feed-forward layer. */
  intermediateSize: number;
  numLayers: number;
  numHeads: number;
  /** Key and value heads; each serves numHeads / numKvHeads query heads. */
  numKvHeads: number;
  headDim: number;
  /** Positions that the model was made for. */
  contextLength: number;
  rmsNormEps: number;
  ropeTheta: number;
  ropeScaling?: RopeScaling;
}

/** @throws FileFormatError for a missing or mistyped key, TransformersError UNSUPPORTED_MODEL, BAD_CONFIG */
export function llamaConfigFromGguf(metadata: GgufMetadata): LlamaConfig {
  const arch = metadata.string('general.architecture');
  if (!SUPPORTED_ARCHITECTURES.includes(arch)) throw unsupportedArchitecture(arch);
  const experts = metadata.uint(`${arch}.expert_count`, 0);
  if (experts > 0) throw unsupported(`is a mixture of ${experts} experts`);
  const numHeads = metadata.uint(`${arch}.attention.head_count`);
  const hiddenSize = metadata.uint(`${arch}.embedding_length`);
  const headDim = metadata.uint(`${arch}.attention.key_length`, hiddenSize / numHeads);
  const hasVocabSize = metadata.has(`${arch}.vocab_size`);
  const config: LlamaConfig = {
    vocabSize: hasVocabSize ? metadata.uint(`${arch}.vocab_size`) : metadata.strings('tokenizer.ggml.tokens').length,
    hiddenSize,
    intermediateSize: metadata.uint(`${arch}.feed_forward_length`),
    numLayers: metadata.uint(`${arch}.block_count`),
    numHeads,
    numKvHeads: metadata.uint(`${arch}.attention.head_count_kv`, numHeads),
    headDim,
    contextLength: metadata.uint(`${arch}.context_length`),
    rmsNormEps: metadata.float(`${arch}.attention.layer_norm_rms_epsilon`),
    ropeTheta: metadata.float(`${arch}.rope.freq_base`, 10000),
    ropeScaling: ggufRopeScaling(metadata, arch),
  };
  const valueDim = metadata.uint(`${arch}.attention.value_length`, headDim);
  const ropeDim = metadata.uint(`${arch}.rope.dimension_count`, headDim);
  if (valueDim !== headDim || ropeDim !== headDim) {
    throw unsupported(
      `has key heads of ${headDim}, value heads of ${valueDim} and rotates ${ropeDim} of each; they must be equal`,
    );
  }
  return check(config);
}

/** The llama3 kind is not here: such files hold its factors as the tensor `rope_freqs.weight`. */
function ggufRopeScaling(metadata: GgufMetadata, arch: string): RopeScaling | undefined {
  const type = metadata.string(`${arch}.rope.scaling.type`, 'none');
  if (type === 'none') return undefined;
  if (type === 'linear') return { type, factor: metadata.float(`${arch}.rope.scaling.factor`) };
  throw unsupported(`scales positions by "${type}"; "none", "linear" and llama3's factors work`);
}

/** @param json the parsed config.json @throws TransformersError UNSUPPORTED_MODEL, BAD_CONFIG */
export function llamaConfigFromJson(json: unknown): LlamaConfig {
  if (typeof json !== 'object' || json === null || Array.isArray(json)) {
    throw new TransformersError('BAD_CONFIG', `config.json holds no object; download the model's config.json again.`);
  }
  const source = json as Record<string, unknown>;
  const arch = String(source.model_type ?? (source.architectures as unknown[] | undefined)?.[0] ?? 'unnamed');
  if (!SUPPORTED_ARCHITECTURES.includes(arch) && arch !== 'LlamaForCausalLM') throw unsupportedArchitecture(arch);
  if (source.quantization_config) throw unsupported('has weights quantized by another library (quantization_config)');
  const activation = source.hidden_act ?? 'silu';
  if (activation !== 'silu') throw unsupported(`uses the activation "${String(activation)}"; Llama uses "silu"`);

  const number = (key: string, fallback?: number): number => {
    const value = source[key] ?? fallback;
    if (typeof value !== 'number') {
      throw new TransformersError(
        'BAD_CONFIG',
        `config.json gives ${key} = ${JSON.stringify(value)}, but a number is needed; download it again.`,
      );
    }
    return value;
  };
  const numHeads = number('num_attention_heads');
  const hiddenSize = number('hidden_size');
  // transformers 5 moved both into rope_parameters.
  const rope = (source.rope_parameters ?? source.rope_scaling ?? {}) as Record<string, unknown>;
  return check({
    vocabSize: number('vocab_size'),
    hiddenSize,
    intermediateSize: number('intermediate_size'),
    numLayers: number('num_hidden_layers'),
    numHeads,
    numKvHeads: number('num_key_value_heads', numHeads),
    headDim: number('head_dim', hiddenSize / numHeads),
    contextLength: number('max_position_embeddings', 2048),
    rmsNormEps: number('rms_norm_eps', 1e-6),
    ropeTheta: number('rope_theta', typeof rope.rope_theta === 'number' ? rope.rope_theta : 10000),
    ropeScaling: jsonRopeScaling(rope),
  });
}

function jsonRopeScaling(rope: Record<string, unknown>): RopeScaling | undefined {
  const type = rope.rope_type ?? rope.type ?? 'default';
  const number = (key: string): number => {
    const value = rope[key];
    if (typeof value !== 'number' || !(value > 0)) {
      throw new TransformersError(
        'BAD_CONFIG',
        `config.json scales positions by "${String(type)}" with ${key} = ${JSON.stringify(value)}; a number above 0 is needed.`,
      );
    }
    return value;
  };
  if (type === 'default') return undefined;
  if (type === 'linear') return { type, factor: number('factor') };
  if (type === 'llama3') {
    return {
      type,
      factor: number('factor'),
      lowFreqFactor: number('low_freq_factor'),
      highFreqFactor: number('high_freq_factor'),
      originalContextLength: number('original_max_position_embeddings'),
    };
  }
  throw unsupported(`scales positions by "${String(type)}"; "default", "linear" and "llama3" work`);
}

/**
 * The rotation of each pair of a head per position, in radians: [headDim / 2].
 * @param factors divisors of the frequencies, from a GGUF file's `rope_freqs.weight`
 */
export function ropeFrequencies(config: LlamaConfig, factors?: ArrayLike<number>): Float64Array {
  const { headDim, ropeTheta, ropeScaling: scaling } = config;
  return Float64Array.from({ length: headDim / 2 }, (_, i) => {
    const frequency = ropeTheta ** ((-2 * i) / headDim) / (factors?.[i] ?? 1);
    if (!scaling) return frequency;
    if (scaling.type === 'linear') return frequency / scaling.factor;
    // llama3: long waves are stretched by the factor, short ones kept, those between blended.
    const { factor, lowFreqFactor: low, highFreqFactor: high } = scaling;
    const turns = (scaling.originalContextLength * frequency) / (2 * Math.PI);
    const kept = Math.min(1, Math.max(0, (turns - low) / (high - low)));
    return kept * frequency + ((1 - kept) * frequency) / factor;
  });
}

function check(config: LlamaConfig): LlamaConfig {
  const fail = (what: string) =>
    new TransformersError(
      'BAD_CONFIG',
      `The model's configuration gives ${what}; the file is damaged or no Llama model: download it again.`,
    );
  const sizes = [
    'vocabSize',
    'hiddenSize',
    'intermediateSize',
    'numLayers',
    'numHeads',
    'numKvHeads',
    'headDim',
    'contextLength',
  ] as const;
  for (const key of sizes) {
    if (!Number.isSafeInteger(config[key]) || config[key] < 1)
      throw fail(`${key} = ${config[key]}, not a whole number above 0`);
  }
  if (config.numHeads % config.numKvHeads !== 0)
    throw fail(`${config.numHeads} heads for ${config.numKvHeads} key heads, which does not divide`);
  if (config.headDim % 2 !== 0) throw fail(`heads of ${config.headDim} values, an odd number`);
  for (const key of ['rmsNormEps', 'ropeTheta'] as const) {
    if (!(config[key] > 0 && Number.isFinite(config[key]))) throw fail(`${key} = ${config[key]}, not a number above 0`);
  }
  return config;
}

function unsupported(what: string): TransformersError {
  return new TransformersError(
    'UNSUPPORTED_MODEL',
    `This model ${what}; that is not supported. Use another model or conversion.`,
  );
}

function unsupportedArchitecture(arch: string): TransformersError {
  return new TransformersError(
    'UNSUPPORTED_MODEL',
    `The architecture "${arch}" is not supported; supported: ${SUPPORTED_ARCHITECTURES.join(', ')}. Use a model of one of these.`,
  );
}
