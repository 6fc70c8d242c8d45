/** The tokens that end an answer. */
import type { Tokenizer } from '../tokenizer';
import { END_OF_GENERATION_NAMES } from '../tokenizer/from-gguf';
import type { ReplyFormat } from './reply/formats';

/** In harmony `<|end|>` only ends one message of an answer. */
const HARMONY_STOPS = ['<|return|>', '<|call|>'];

/**
 * What the model's files declare, and special tokens with a well-known name, which files often leave out: base models
 * declare the end of a document, and their chat models end a turn with another token.
 */
export function stopIds(tokenizer: Tokenizer, format: ReplyFormat): number[] {
  const isHarmony = format.family === 'harmony';
  const ids = new Set(tokenizer.eosIds);
  for (const name of [...END_OF_GENERATION_NAMES, ...(isHarmony ? HARMONY_STOPS : [])]) {
    const id = tokenizer.tokenToId(name);
    if (id !== undefined && tokenizer.isSpecial(id)) ids.add(id);
  }
  const end = isHarmony ? tokenizer.tokenToId('<|end|>') : undefined;
  if (end !== undefined) ids.delete(end);
  return [...ids];
}
