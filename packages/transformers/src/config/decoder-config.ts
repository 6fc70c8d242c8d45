/**
 * What the decoders of the Llama family have in common: candle's `LlamaConfig` (candle-transformers/src/models/llama.rs)
 * and `quantized_llama::ModelWeights::from_gguf`. Everything is checked here, so that a wrong file is an error with numbers
 * and not a shape mismatch somewhere in the forward pass.
 */
import { TransformersError } from '../errors';
import type { ConfigSource } from './config-source';
import { shown, unsupported } from './problems';
import type { RopeConfig } from './rope';

export interface DecoderConfig extends RopeConfig {
  vocabSize: number;
  /** Tokens of a GGUF file that gives another number: the vocabulary, as in llama.cpp, where there are embeddings of so many. */
  tokenCount?: number;
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
  /** Added to the variance in norms. */
  normEps: number;
  /** There is to be a head: config.json says that it is not the embeddings (`tie_word_embeddings`). */
  untied?: true;
  /** Tokens see those that follow: a model for vectors of texts, which writes none. Default false. */
  bidirectional?: boolean;
}

/** Defaults that differ between architectures, where a file leaves them out. */
export interface DecoderDefaults {
  headDim?: number;
  ropeTheta?: number;
  /** What files say in other ways, or what the model has not. Default: the usual keys. */
  sizes?: Partial<
    Pick<DecoderConfig, 'numHeads' | 'numKvHeads' | 'headDim' | 'rotaryDim' | 'intermediateSize' | 'contextLength'>
  >;
  /** Share of each head that is rotated unless config.json says it. Default: all of it, whatever config.json says, as in transformers. */
  partialRotary?: number;
  /** Values of `quant_method` under which the architecture's weights are read, but `fp8`, which all are. Default: none. */
  packings?: readonly string[];
  /** Width of the feed-forward layer in hidden sizes. Default: the file says it. */
  widening?: number;
  /** Which kind of norms the model has, whose epsilon is `normEps`. Default `rms`. */
  norm?: 'rms' | 'layer';
  /** Added to the variance in norms where config.json leaves it out. Default 1e-5 for those that take the mean away, else 1e-6. */
  normEps?: number;
  /** Values of `hidden_act` that the architecture's feed-forward layer computes. Default `silu`. */
  activations?: readonly string[];
}

/** @param vocabSize of the tokenizer, for GGUF files, which may leave it out @throws as {@link ConfigSource} */
export function decoderConfig(source: ConfigSource, vocabSize?: number, defaults: DecoderDefaults = {}): DecoderConfig {
  const packing = source.json('quantization_config') as Packing | null | undefined;
  if (packing && !isRead(packing, defaults.packings))
    throw unsupported(`has weights quantized by another library (quantization_config: ${shown(packing)})`);
  const { activations = ['silu'], sizes, norm = 'rms', partialRotary, widening } = defaults;
  const keys = ['hidden_activation', 'hidden_act', 'activation_function'];
  const named = keys.map((key) => source.json(key)).find((name) => name != null) ?? activations[0];
  const activation = named === 'swish' ? 'silu' : named;
  if (typeof activation !== 'string' || !activations.includes(activation)) {
    throw unsupported(
      `uses the activation ${shown(activation)}; its architecture uses "${activations.join('" or "')}"`,
    );
  }
  const numHeads = sizes?.numHeads ?? source.number('num_attention_heads');
  const hiddenSize = source.number('hidden_size');
  const headDim = sizes?.headDim ?? source.number('head_dim', defaults.headDim ?? hiddenSize / numHeads);
  const stated = source.number('vocab_size', vocabSize);
  const config: DecoderConfig = {
    vocabSize: stated,
    ...(vocabSize !== undefined && vocabSize !== stated && { tokenCount: vocabSize }),
    hiddenSize,
    intermediateSize: sizes?.intermediateSize ?? source.number('intermediate_size', widening && widening * hiddenSize),
    numLayers: source.number('num_hidden_layers'),
    numHeads,
    numKvHeads: sizes?.numKvHeads ?? source.number('num_key_value_heads', numHeads),
    headDim,
    rotaryDim: sizes?.rotaryDim ?? rotaryDimOf(source, headDim, partialRotary),
    contextLength:
      sizes?.contextLength ?? source.number('max_position_embeddings', source.format === 'json' ? 2048 : undefined),
    normEps:
      norm === 'layer'
        ? source.number('layer_norm_eps', source.format === 'json' ? (defaults.normEps ?? 1e-5) : undefined)
        : source.number('rms_norm_eps', source.format === 'json' ? (defaults.normEps ?? 1e-6) : undefined),
    ropeTheta: source.number('rope_theta', defaults.ropeTheta ?? 10000),
    ropeScaling: source.ropeScaling(),
    ropeSections: source.ropeSections(),
    ...(!source.jsonFlag('tie_word_embeddings', true) && { untied: true }),
  };
  const valueDim = sizes?.headDim !== undefined ? headDim : source.number('value_head_dim', headDim);
  if (valueDim !== headDim)
    throw unsupported(`has key heads of ${headDim} and value heads of ${valueDim}; they must be equal`);
  return checkConfig(config);
}

/** What config.json says of weights that are not numbers. */
interface Packing {
  quant_method?: unknown;
  fmt?: unknown;
}

/** fp8 with scales is read in the files of all architectures. */
function isRead({ quant_method: method, fmt = 'e4m3' }: Packing, others: readonly string[] = []): boolean {
  if (method === 'fp8') return fmt === 'e4m3';
  return typeof method === 'string' && others.includes(method);
}

/** How much of each head is rotated: a share in config.json, a number of elements in GGUF files. */
function rotaryDimOf(source: ConfigSource, headDim: number, share: number | undefined): number {
  if (source.format === 'gguf') return source.number('rotary_dim', headDim);
  if (share === undefined) return headDim;
  return Math.trunc(headDim * source.jsonNumber('partial_rotary_factor', source.jsonNumber('rotary_pct', share)));
}

/** Larger than in any model; what is allocated from these sizes alone stays small. */
const MOST = {
  vocabSize: 2 ** 23,
  hiddenSize: 2 ** 24,
  intermediateSize: 2 ** 26,
  numLayers: 2 ** 14,
  numHeads: 2 ** 16,
  numKvHeads: 2 ** 16,
  headDim: 2 ** 16,
  contextLength: 2 ** 32,
} as const;

function checkConfig(config: DecoderConfig): DecoderConfig {
  for (const [key, most] of Object.entries(MOST) as [keyof typeof MOST, number][]) {
    if (!Number.isSafeInteger(config[key]) || config[key] < 1 || config[key] > most)
      throw damaged(`${key} = ${config[key]}, not a whole number from 1 to ${most}`);
  }
  if (config.numHeads % config.numKvHeads !== 0)
    throw damaged(`${config.numHeads} heads for ${config.numKvHeads} key heads, which does not divide`);
  const { headDim, rotaryDim } = config;
  if (headDim % 2 !== 0) throw damaged(`heads of ${headDim} values, an odd number`);
  if (!Number.isInteger(rotaryDim) || rotaryDim < 2 || rotaryDim > headDim || rotaryDim % 2 !== 0)
    throw damaged(`heads of ${headDim} values of which ${rotaryDim} are rotated, which is no even number of them`);
  const turned = config.ropeSections?.reduce((sum, count) => sum + count, 0);
  if (turned !== undefined && 2 * turned !== rotaryDim)
    throw damaged(
      `sections of ${turned} frequencies (${config.ropeSections}) for heads of which ${rotaryDim} values are rotated`,
    );
  if (!(config.normEps > 0)) throw damaged(`normEps = ${config.normEps}, not a number above 0`);
  return checkRope(config);
}

/** @throws TransformersError BAD_CONFIG for a base that is none, and divisors that are not as many as frequencies */
export function checkRope<Config extends RopeConfig>(config: Config): Config {
  const { rotaryDim, ropeTheta, ropeScaling: scaling } = config;
  if (!(ropeTheta > 0)) throw damaged(`ropeTheta = ${ropeTheta}, not a number above 0`);
  for (const factors of scaling?.type === 'longrope' ? [scaling.shortFactors, scaling.longFactors] : [])
    if (factors && factors.length !== rotaryDim / 2)
      throw damaged(`${factors.length} divisors (short_factor, long_factor) for ${rotaryDim / 2} frequencies`);
  return config;
}

function damaged(what: string): TransformersError {
  return new TransformersError(
    'BAD_CONFIG',
    `The model's configuration gives ${what}; the file is damaged or of another architecture: download it again.`,
  );
}
