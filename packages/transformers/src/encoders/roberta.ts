/**
 * RoBERTa: BERT whose positions begin behind the id of the padding token, with a classification head of its
 * own. GGUF files call it `bert`.
 */
import type { ConfigSource } from '../config/config-source';
import { badConfig } from '../config/problems';
import type { TensorNamePair } from '../weights/tensor-names';
import type { ActivatedConfig } from './activation';
import { bertConfig, bertNames, buildBert } from './bert';
import type { EncoderArchitecture } from './registry';

export interface RobertaConfig extends ActivatedConfig {
  /** Row of the first position in the table of positions. */
  firstPosition: number;
}

function robertaConfig(source: ConfigSource, vocabSize?: number): RobertaConfig {
  const config = bertConfig(source, vocabSize);
  const firstPosition = source.jsonWhole('pad_token_id', 1) + 1;
  const contextLength = config.contextLength - firstPosition;
  if (contextLength < 1) {
    throw badConfig(
      `gives max_position_embeddings = ${config.contextLength}, of which pad_token_id leaves ${contextLength}; download it again`,
    );
  }
  return { ...config, contextLength, firstPosition };
}

const NAMES: TensorNamePair[] = [
  ...bertNames('roberta'),
  ['classifier.dense', 'cls'],
  ['classifier.out_proj', 'cls.output'],
];

const build: EncoderArchitecture<RobertaConfig>['build'] = (source, config, length) =>
  buildBert(source, config, length, config.firstPosition);

export const roberta: EncoderArchitecture<RobertaConfig> = {
  architectures: ['roberta', 'RobertaModel', 'RobertaForMaskedLM', 'RobertaForSequenceClassification'],
  names: NAMES,
  config: robertaConfig,
  build,
};
