export { PRE_TOKENIZERS, type PreTokenizer } from './pre-tokenizers';
export { DecodeStream } from './stream';
export type { ModelInput } from './template';
export type { TiktokenOptions } from './tiktoken';
export {
  type AddedTokenJson,
  type DecodeOptions,
  type DecodeStreamOptions,
  type EncodeOptions,
  readTokenizerJson,
  Tokenizer,
  type TokenizerJson,
  type TokenizerOptions,
} from './tokenizer';
