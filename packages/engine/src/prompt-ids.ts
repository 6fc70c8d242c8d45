/** The tokens of what is to be continued. */
import { type EncodeOptions, type Tokenizer, TransformersError } from '@x/transformers';

/**
 * @param op names the caller in errors
 * @throws TransformersError INVALID_OPTION for what is neither a text nor ids, CONTEXT_EXCEEDED for more tokens than `maxContext`; as
 * `Tokenizer.encode`
 */
export function promptIdsOf(
  op: string,
  prompt: unknown,
  tokenizer: Tokenizer,
  options: EncodeOptions,
  maxContext: number,
): number[] {
  const tooLong = (tokens: string) =>
    new TransformersError(
      'CONTEXT_EXCEEDED',
      `${op}: the prompt has ${tokens} tokens and the cache ${maxContext} positions; shorten it, or load the model with a larger maxContext.`,
    );
  let ids: number[];
  if (typeof prompt === 'string') {
    // Reading millions of characters takes seconds in which no other text goes on.
    const fewest = prompt.length > maxContext ? tokenizer.fewestTokens(prompt, options) : 0;
    if (fewest > maxContext) throw tooLong(`at least ${fewest}`);
    ids = tokenizer.encode(prompt, options);
  } else if (isArrayLike(prompt)) {
    if (prompt.length > maxContext) throw tooLong(`${prompt.length}`);
    ids = Array.from(prompt);
  } else {
    throw new TransformersError(
      'INVALID_OPTION',
      `${op}: the prompt is ${prompt === null ? 'null' : `of type ${typeof prompt}`}; give a text, or an array of token ids.`,
      { option: 'prompt' },
    );
  }
  if (ids.length > maxContext) throw tooLong(`${ids.length}`);
  return ids;
}

function isArrayLike(value: unknown): value is ArrayLike<number> {
  return typeof value === 'object' && value !== null && typeof (value as ArrayLike<number>).length === 'number';
}
