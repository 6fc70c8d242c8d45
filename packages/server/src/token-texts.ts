/** Texts of single tokens, as log probabilities show them. */
import type { Piece } from '@x/engine';
import type { Tokenizer } from '@x/transformers';

/** A token's text and its bytes; no bytes where it is a part of a character. */
export interface TokenText {
  text: string;
  bytes: number[] | null;
}

const known = new WeakMap<Tokenizer, TokenTexts>();

export class TokenTexts {
  private readonly texts = new Map<number, TokenText>();
  private readonly before: readonly number[];
  private readonly beforeText: string;

  static of(tokenizer: Tokenizer): TokenTexts {
    let texts = known.get(tokenizer);
    if (!texts) {
      texts = new TokenTexts(tokenizer);
      known.set(tokenizer, texts);
    }
    return texts;
  }

  private constructor(private readonly tokenizer: Tokenizer) {
    // Some tokenizers drop the space of a text's first token: none is first here.
    this.before = tokenizer.encode('a', { addSpecialTokens: false }).slice(-1);
    this.beforeText = tokenizer.decode(this.before);
  }

  get(id: number): TokenText {
    let found = this.texts.get(id);
    if (!found) {
      found = this.make(id);
      this.texts.set(id, found);
    }
    return found;
  }

  private make(id: number): TokenText {
    const { tokenizer, before, beforeText } = this;
    // An output layer may be wider than the vocabulary.
    if (tokenizer.idToToken(id) === undefined) return { text: '', bytes: null };
    const text = tokenizer.decode([...before, id], { skipSpecialTokens: false }).slice(beforeText.length);
    return { text, bytes: text.includes('\ufffd') ? null : [...Buffer.from(text)] };
  }
}

/** As `/v1/chat/completions` tells them. */
export interface ChatLogprob extends TokenLogprobText {
  top_logprobs: TokenLogprobText[];
}

interface TokenLogprobText {
  token: string;
  logprob: number;
  bytes: number[] | null;
}

export function chatLogprob(
  texts: TokenTexts,
  { id, logprob, topLogprobs = [] }: Pick<Piece, 'id' | 'logprob' | 'topLogprobs'>,
): ChatLogprob {
  const told = (token: number, value: number): TokenLogprobText => {
    const { text, bytes } = texts.get(token);
    return { token: text, logprob: finite(value), bytes };
  };
  return { ...told(id, logprob!), top_logprobs: topLogprobs.map((one) => told(one.id, one.logprob)) };
}

/** JSON has no infinity; OpenAI's servers say -9999 for what is all but impossible. */
export function finite(logprob: number): number {
  return Math.max(-9999, logprob);
}
