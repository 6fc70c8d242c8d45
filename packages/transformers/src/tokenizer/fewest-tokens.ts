/**
 * How many tokens a text has at least, found without looking for them: a text that is too long by far is refused at once, where
 * reading all of it takes seconds in which nothing else is done.
 */
import type { Tokenizer as HfTokenizer } from '@huggingface/tokenizers';
import type { TokenizerJson } from './tokenizer';

type Step = { type: string } & Record<string, unknown>;

/** NFC leaves at least a quarter of a text's length (a Greek letter and three marks become one, U+1F82). */
const SHRINKS: Readonly<Record<string, number>> = { NFC: 4, Prepend: 1, Replace: 1 };

/** Steps that leave every character in some piece. */
const KEEPS: ReadonlySet<string> = new Set(['ByteLevel', 'Digits', 'Metaspace', 'Punctuation', 'Split']);

/** Gives the lower bound of a text's tokens: 0 where a tokenizer can make one of much text, for it drops or joins what it reads. */
export function fewestTokensOf(json: TokenizerJson, inner: HfTokenizer): (text: string) => number {
  const normalizers = steps(json.normalizer, 'normalizers');
  const splitters = steps(json.pre_tokenizer, 'pretokenizers');
  const { type, byte_fallback } = json.model as { type?: string; byte_fallback?: boolean };
  const isWhole =
    type === 'BPE' &&
    (byte_fallback || splitters.some((step) => step.type === 'ByteLevel')) &&
    normalizers.every((step) => step.type in SHRINKS && (step.type !== 'Replace' || isForSpace(step))) &&
    splitters.every((step) => KEEPS.has(step.type) && step.behavior !== 'Removed') &&
    !json.added_tokens.some(({ lstrip, rstrip }) => lstrip || rstrip);
  if (!isWhole) return () => 0;
  const shrinks = normalizers.reduce((all, step) => all * SHRINKS[step.type], 1);
  let longest: number | undefined;
  return (text) => {
    longest ??= longestPiece(inner);
    return Math.ceil(text.length / (longest * shrinks));
  };
}

/** Of a piece as it is written: in units of UTF-16 at least as many as of the text that it stands for. */
function longestPiece(inner: HfTokenizer): number {
  let longest = 1;
  for (const [piece] of inner.get_vocab(true)) longest = Math.max(longest, piece.length);
  return longest;
}

function isForSpace({ pattern }: Step): boolean {
  return (pattern as { String?: string } | undefined)?.String === ' ';
}

function steps(step: unknown, parts: string): Step[] {
  if (step === null || step === undefined) return [];
  const one = step as Step;
  return one.type === 'Sequence' ? (one[parts] as unknown[]).flatMap((part) => steps(part, parts)) : [one];
}
