/** The encoders that load: one entry each, and one file behind it. */
import { kinds } from '@x/core';
import type { GgufMetadata } from '@x/quantized';
import { METADATA } from '../arguments';
import { withClassDefaults } from '../config/class-defaults';
import { type ConfigSource, ggufConfig, jsonConfig, objectOf } from '../config/config-source';
import type { DecoderConfig } from '../config/decoder-config';
import type { TensorLayout, Weights } from '../weights/weights';
import { bert } from './bert';
import type { EncoderModel } from './encoder-model';
import { jinaBert } from './jina-bert';
import { jinaV3 } from './jina-v3';
import { modernBert } from './modernbert';
import { nomicBert } from './nomic-bert';
import { roberta } from './roberta';
import { xlmRoberta } from './xlm-roberta';

export interface EncoderArchitecture<Config extends DecoderConfig = DecoderConfig> extends TensorLayout {
  /** In config.json: `model_type`, or an entry of `architectures`. */
  readonly architectures: readonly [string, ...string[]];
  /** In GGUF files: `general.architecture`. Default: there are none, or files of another name hold it. */
  readonly gguf?: string;
  /** @param vocabSize of a GGUF file's tokenizer @throws TransformersError UNSUPPORTED_MODEL, BAD_CONFIG; FileFormatError */
  config(source: ConfigSource, vocabSize?: number): Config;
  /** Reads all weights. @param length positions that a sequence may have */
  build(source: Weights, config: Config, length: number): Promise<EncoderModel>;
}

export interface EncoderDescription {
  architecture: EncoderArchitecture;
  config: DecoderConfig;
}

/** All encoders, in the order in which they are asked whether a model is theirs. */
export const ENCODERS: readonly EncoderArchitecture[] = [
  // Before BERT, whose model_type Jina's configurations have.
  jinaBert,
  bert,
  roberta,
  xlmRoberta,
  modernBert,
  nomicBert,
  jinaV3,
] as unknown as EncoderArchitecture[];

/** Encoders that load, by `model_type` of config.json. */
export const SUPPORTED_ENCODERS: readonly string[] = ENCODERS.map(({ architectures: [name] }) => name);

/** Undefined for a model that is no encoder. @throws as `describeGguf` */
export function describeEncoderGguf(metadata: GgufMetadata): EncoderDescription | undefined {
  kinds.check('describeEncoderGguf', 'metadata', metadata, METADATA);
  const name = metadata.string('general.architecture');
  const architecture = ENCODERS.find(({ gguf }) => gguf === name);
  if (!architecture) return undefined;
  const hasTokens = metadata.has('tokenizer.ggml.tokens');
  const tokens = hasTokens ? metadata.strings('tokenizer.ggml.tokens').length : undefined;
  return { architecture, config: architecture.config(ggufConfig(metadata), tokens) };
}

/** Undefined for a model that is no encoder. @param json the parsed config.json @throws as `describeConfig` */
export function describeEncoderConfig(json: unknown): EncoderDescription | undefined {
  const source = objectOf(json);
  const classes = Array.isArray(source.architectures) ? source.architectures : [];
  const names = [source.model_type, ...classes].filter((name) => typeof name === 'string');
  const architecture = ENCODERS.find(({ architectures }) => names.some((name) => architectures.includes(name)));
  if (!architecture) return undefined;
  const settings = withClassDefaults(architecture.architectures[0], source);
  return { architecture, config: architecture.config(jsonConfig(settings)) };
}
