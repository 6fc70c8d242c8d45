/** What goes wrong here, told apart by `code`. */
import { CandleError } from '@x/core';

export type GrammarErrorCode =
  | 'BAD_SCHEMA'
  | 'UNSUPPORTED_KEYWORD'
  | 'UNSATISFIABLE'
  | 'BAD_GRAMMAR'
  | 'BAD_PATTERN'
  | 'BAD_VOCABULARY'
  | 'NOT_ALLOWED'
  | 'TOO_LARGE';

/** What is wrong with a schema, an expression, a grammar or a vocabulary, or with a token that came; told apart by `code`. */
export class GrammarError extends CandleError {
  override name = 'GrammarError';
  declare readonly code: GrammarErrorCode;

  constructor(code: GrammarErrorCode, message: string, options?: { cause?: unknown; option?: string }) {
    super(code, message, options);
  }
}
