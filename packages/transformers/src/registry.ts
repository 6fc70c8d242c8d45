/** The architectures that load: one entry each, and one file behind it in models/. */
import { kinds } from '@x/core';
import type { GgufMetadata } from '@x/quantized';
import { METADATA } from './arguments';
import { withClassDefaults } from './config/class-defaults';
import { type ConfigKey, type ConfigSource, ggufConfig, jsonConfig, objectOf } from './config/config-source';
import type { DecoderConfig } from './config/decoder-config';
import { badConfig, shown } from './config/problems';
import { textPartOf, WHOLE_MODELS } from './config/text-part';
import { ENCODERS, SUPPORTED_ENCODERS } from './encoders/registry';
import { TransformersError } from './errors';
import type { CausalModel } from './models/causal-model';
import { cohere2 } from './models/cohere2';
import { deepseekV2, deepseekV3 } from './models/deepseek';
import { exaone4 } from './models/exaone4';
import { falconMamba } from './models/falcon-mamba';
import { gemma2 } from './models/gemma2';
import { gemma3, gemmaEmbedding } from './models/gemma3';
import { glm4 } from './models/glm4';
import { glm4Moe } from './models/glm4-moe';
import { gptOss } from './models/gpt-oss';
import { gpt2 } from './models/gpt2';
import { granite } from './models/granite';
import { graniteMoe } from './models/granite-moe';
import { lfm2 } from './models/lfm2';
import { llama } from './models/llama';
import { mamba2 } from './models/mamba2';
import { mistral, mistral3 } from './models/mistral';
import { mixtral } from './models/mixtral';
import { nemotron } from './models/nemotron';
import { olmo2 } from './models/olmo2';
import { olmo3 } from './models/olmo3';
import { olmoe } from './models/olmoe';
import { phi3 } from './models/phi3';
import { qwen2, qwen2Vl } from './models/qwen2';
import { qwen3, qwen3Vl } from './models/qwen3';
import { qwen3_5 } from './models/qwen3-5';
import { qwen3Moe, qwen3VlMoe } from './models/qwen3-moe';
import { qwen3Next } from './models/qwen3-next';
import { smollm3 } from './models/smollm3';
import { starcoder2 } from './models/starcoder2';
import type { TensorLayout, Weights } from './weights/weights';

export interface Architecture<Config extends DecoderConfig = DecoderConfig> extends TensorLayout {
  /** In config.json: `model_type`, or an entry of `architectures`. */
  readonly architectures: readonly [string, ...string[]];
  /** In GGUF files: `general.architecture`. */
  readonly gguf: string;
  /** Which GGUF files of that name it is, where several architectures share one. Default: all. */
  isInGguf?(source: ConfigSource): boolean;
  /** @param vocabSize of a GGUF file's tokenizer @throws TransformersError UNSUPPORTED_MODEL, BAD_CONFIG; FileFormatError */
  config(source: ConfigSource, vocabSize?: number): Config;
  /**
   * What a GGUF file holds beside the common keys; undefined where it cannot say what this configuration says. Without the
   * function none is written (`ggufExport`).
   */
  ggufExtras?(config: Config):
    | {
        whole?: Partial<Record<ConfigKey, number>>;
        real?: Partial<Record<ConfigKey, number>>;
      }
    | undefined;
  /** Reads all weights. @param length positions that a sequence may have */
  build(source: Weights, config: Config, length: number): Promise<CausalModel>;
}

/** What a file holds: its architecture, and the configuration that the architecture read from it. */
export interface ModelDescription {
  architecture: Architecture;
  config: DecoderConfig;
  /** `model_type` of the model of texts and images whose text part it is; undefined for a whole model. */
  textPartOf?: string;
}

/** In GGUF files the first of a name counts that accepts the file. */
export const ARCHITECTURES: readonly Architecture[] = [
  // Those that say which files are theirs come before the one that takes all others of a name.
  mixtral,
  mistral,
  llama,
  mistral3,
  qwen2,
  qwen2Vl,
  qwen3,
  qwen3Vl,
  qwen3Moe,
  qwen3VlMoe,
  qwen3Next,
  qwen3_5,
  gemma2,
  gemma3,
  gemmaEmbedding,
  phi3,
  smollm3,
  olmo3,
  olmo2,
  olmoe,
  granite,
  graniteMoe,
  glm4,
  glm4Moe,
  cohere2,
  exaone4,
  nemotron,
  starcoder2,
  lfm2,
  mamba2,
  falconMamba,
  gpt2,
  gptOss,
  deepseekV3,
  deepseekV2,
];

/** Known by the model that they are a part of, or by another name. */
const UNNAMED: readonly Architecture[] = [gemmaEmbedding, mistral3, qwen2Vl, qwen3Vl, qwen3VlMoe];

/** Architectures that load, by `model_type` of config.json. */
export const SUPPORTED_ARCHITECTURES: readonly string[] = ARCHITECTURES.filter((one) => !UNNAMED.includes(one)).map(
  ({ architectures: [name] }) => name,
);

/** @throws FileFormatError for a missing or mistyped key, TransformersError UNSUPPORTED_MODEL, BAD_CONFIG */
export function describeGguf(metadata: GgufMetadata): ModelDescription {
  kinds.check('describeGguf', 'metadata', metadata, METADATA);
  if (metadata.string('general.type', 'model') === 'adapter')
    throw new TransformersError(
      'UNSUPPORTED_MODEL',
      "The file holds an adapter, which changes a model and is none. Load the model, and give this file to loadModel's adapters or to loadAdapter.",
    );
  const name = metadata.string('general.architecture');
  const source = ggufConfig(metadata);
  const architecture = ARCHITECTURES.find(({ gguf, isInGguf }) => gguf === name && isInGguf?.(source) !== false);
  if (!architecture) throw unsupportedArchitecture(name);
  const hasTokens = metadata.has('tokenizer.ggml.tokens');
  const tokens = hasTokens ? metadata.strings('tokenizer.ggml.tokens').length : undefined;
  return { architecture, config: architecture.config(source, tokens) };
}

/**
 * Of a model of texts and images its text part.
 * @param json the parsed config.json @throws TransformersError UNSUPPORTED_MODEL, BAD_CONFIG
 */
export function describeConfig(json: unknown): ModelDescription {
  const source = objectOf(json);
  const architecture = architectureOf(source);
  if (architecture) return { architecture, config: configOf(architecture, source) };
  const part = textPartOf(source);
  const own = part && architectureOf(part.config);
  if (own) return { architecture: own, config: configOf(own, part.config), textPartOf: part.of };
  const [name = 'unnamed'] = namesOf(part?.config ?? source);
  throw unsupportedArchitecture(name, part && `of the text part of this "${part.of}" `);
}

function configOf(architecture: Architecture, source: Record<string, unknown>): DecoderConfig {
  return architecture.config(jsonConfig(withClassDefaults(architecture.architectures[0], source)));
}

function architectureOf(source: Record<string, unknown>): Architecture | undefined {
  const names = namesOf(source);
  return ARCHITECTURES.find(({ architectures }) => names.some((name) => architectures.includes(name)));
}

function namesOf(source: Record<string, unknown>): string[] {
  const type = source.model_type ?? undefined;
  if (type !== undefined && typeof type !== 'string')
    throw badConfig(`gives model_type = ${shown(type)}, but a string is needed; download it again`);
  const classes = Array.isArray(source.architectures) ? source.architectures : [];
  return [type, ...classes].filter((name) => typeof name === 'string');
}

function unsupportedArchitecture(name: string, of = ''): TransformersError {
  if (SUPPORTED_ENCODERS.includes(name) || ENCODERS.some(({ gguf }) => gguf === name)) {
    return new TransformersError(
      'UNSUPPORTED_MODEL',
      `The architecture "${name}" is an encoder, which makes vectors of texts and writes none; load it with loadEmbeddingModel. Models that write: ${SUPPORTED_ARCHITECTURES.join(', ')}.`,
    );
  }
  return new TransformersError(
    'UNSUPPORTED_MODEL',
    `The architecture "${name}" ${of}is not supported; supported: ${SUPPORTED_ARCHITECTURES.join(', ')}; the text part of ${WHOLE_MODELS.join(', ')}; for vectors of texts ${SUPPORTED_ENCODERS.join(', ')}. Use a model of one of these.`,
  );
}
