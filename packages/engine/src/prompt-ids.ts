/** The tokens of what is to be continued. */
import { type EncodeOptions, type Tokenizer, TransformersError } from '@x/transformers';

/**
 * @throws TransformersError INVALID_OPTION for what is neither a text nor ids, EMPTY_INPUT for a prompt without tokens,
 * CONTEXT_EXCEEDED for one of more than `maxContext`; as `Tokenizer.encode`
 */
export function promptIdsOf(
  prompt: unknown,
  tokenizer: Tokenizer,
  options: EncodeOptions,
  maxContext: number,
): number[] {
  if (typeof prompt !== 'string' && typeof (prompt as ArrayLike<number> | null | undefined)?.length !== 'number') {
    throw new TransformersError(
      'INVALID_OPTION',
      `generate: the prompt is ${prompt === null ? 'null' : `of type ${typeof prompt}`}; give a text, or an array of token ids.`,
      { option: 'prompt' },
    );
  }
  if (typeof prompt === 'string' && prompt.length > maxContext) {
    // Reading millions of characters takes seconds in which no other text goes on.
    const fewest = tokenizer.fewestTokens(prompt, options);
    if (fewest > maxContext) throw tooLong(`at least ${fewest}`, maxContext);
  }
  const ids = typeof prompt === 'string' ? tokenizer.encode(prompt, options) : Array.from(prompt as ArrayLike<number>);
  if (ids.length === 0) {
    throw new TransformersError(
      'EMPTY_INPUT',
      'generate: the prompt has no tokens; give some text, or ids such as the BOS token.',
    );
  }
  if (ids.length > maxContext) throw tooLong(`${ids.length}`, maxContext);
  return ids;
}

function tooLong(tokens: string, maxContext: number): TransformersError {
  return new TransformersError(
    'CONTEXT_EXCEEDED',
    `generate: the prompt has ${tokens} tokens and the cache ${maxContext} positions; shorten it, or load the model with a larger maxContext.`,
  );
}
