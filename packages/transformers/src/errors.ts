/**
 * Errors of language models: one class, told apart by `code`. Missing and damaged files raise core's `FileFormatError`,
 * use after `dispose` its `DisposedError`.
 */
import { CandleError } from '@x/core';

export type TransformersErrorCode =
  | 'BAD_ADAPTER'
  | 'BAD_CHAT_TEMPLATE'
  | 'BAD_CONFIG'
  | 'BAD_GGUF_METADATA'
  | 'BAD_LOGITS'
  | 'BAD_MESSAGES'
  | 'BAD_TOKEN'
  | 'BAD_TOKENIZER'
  | 'CACHE_FULL'
  | 'CHAT_REFUSED'
  | 'CONTEXT_EXCEEDED'
  | 'EMPTY_INPUT'
  | 'INVALID_OPTION'
  | 'INVALID_VALUE'
  | 'NO_CHAT_TEMPLATE'
  | 'TEXT_INCOMPLETE'
  | 'UNSUPPORTED_ADAPTER'
  | 'UNSUPPORTED_MODEL'
  | 'UNSUPPORTED_TOKENIZER';

/** What is wrong with a model, its files, a request or an option; told apart by `code`. */
export class TransformersError extends CandleError {
  override name = 'TransformersError';
  declare readonly code: TransformersErrorCode;

  constructor(code: TransformersErrorCode, message: string, options?: { cause?: unknown; option?: string }) {
    super(code, message, options);
  }
}
