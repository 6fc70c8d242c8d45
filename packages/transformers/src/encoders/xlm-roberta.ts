/** XLM-RoBERTa: RoBERTa with a Unigram tokenizer of many languages. candle's xlm_roberta.rs. GGUF files call it `bert`. */
import type { EncoderArchitecture } from './registry';
import { type RobertaConfig, roberta } from './roberta';

export const xlmRoberta: EncoderArchitecture<RobertaConfig> = {
  ...roberta,
  architectures: ['xlm-roberta', 'XLMRobertaModel', 'XLMRobertaForMaskedLM', 'XLMRobertaForSequenceClassification'],
};
