/**
 * What a tokenizer's model makes of a word depends on the word alone, and texts have few different ones: each is looked up once.
 * Where nothing splits texts into words, as of SentencePiece, they are cut between neighbours that no piece holds.
 */
import { BPE } from '@huggingface/tokenizers';

/** Units of UTF-16 of a word that is remembered. */
const LONGEST_KNOWN = 64;
/** And of one that is cut: to know where takes a look at all pieces first, 0.3 s of a quarter of a million. */
const SHORTEST_CUT = 1024;
/** Some 5 MB: an English text of a million words has about as many different ones. */
const MOST_KNOWN = 2 ** 14;

/** Far more than vocabularies of 260,000 pieces have; what has more was made to fill the memory, and is not cut. */
const MOST_NEIGHBOURS = 2 ** 22;

interface WordModel {
  encode(words: string[]): string[];
}

/** Lets `model.encode` remember words. @param joined all that rules of byte-pair encoding make */
export function rememberWords(model: WordModel, joined?: () => Iterable<string>): void {
  const encode = model.encode.bind(model);
  const known = new Map<string, readonly string[]>();
  const piecesOf = (word: string): readonly string[] => {
    const found = known.get(word);
    if (found) return found;
    // A part of a text keeps the whole text in memory, so a copy is kept.
    const copy = Buffer.from(word, 'utf16le').toString('utf16le');
    const pieces = encode([copy]);
    if (known.size >= MOST_KNOWN) known.clear();
    known.set(copy, pieces);
    return pieces;
  };
  let seams: Seams | undefined;
  const isCut = joined !== undefined && model instanceof BPE && joinsNeighboursOnly(model);
  model.encode = (words) => {
    const all: string[] = [];
    for (const word of words) {
      if (word.length <= LONGEST_KNOWN) {
        for (const piece of piecesOf(word)) all.push(piece);
        continue;
      }
      if (isCut && word.length >= SHORTEST_CUT) seams ??= new Seams(joined());
      for (const part of seams?.cut(word) ?? [word]) {
        for (const piece of part.length <= LONGEST_KNOWN ? piecesOf(part) : encode([part])) all.push(piece);
      }
    }
    return all;
  };
}

/** Whether a word's place among others, and where it ends, changes nothing. */
function joinsNeighboursOnly({ end_of_word_suffix, continuing_subword_suffix, ignore_merges }: BPE): boolean {
  return !end_of_word_suffix && !continuing_subword_suffix && !ignore_merges;
}

/** The places of a text over which no rule joins: what is on their two sides does not matter to each other. */
export class Seams {
  /** Units that follow a unit inside of pieces. */
  private readonly inside = new Map<number, Set<number>>();
  private count = 0;

  constructor(pieces: Iterable<string>) {
    for (const piece of pieces) {
      for (let i = 1; i < piece.length; i++) {
        const before = piece.charCodeAt(i - 1);
        const behind = this.inside.get(before) ?? new Set();
        this.count += behind.has(piece.charCodeAt(i)) ? 0 : 1;
        this.inside.set(before, behind.add(piece.charCodeAt(i)));
      }
      if (this.count > MOST_NEIGHBOURS) return;
    }
  }

  cut(text: string): string[] {
    if (this.count > MOST_NEIGHBOURS) return [text];
    const parts: string[] = [];
    let from = 0;
    for (let i = 1; i < text.length; i++) {
      const [before, behind] = [text.charCodeAt(i - 1), text.charCodeAt(i)];
      if (this.inside.get(before)?.has(behind) || areOneCharacter(before, behind)) continue;
      parts.push(text.slice(from, i));
      from = i;
    }
    parts.push(text.slice(from));
    return parts;
  }
}

function areOneCharacter(before: number, behind: number): boolean {
  return (before & 0xfc00) === 0xd800 && (behind & 0xfc00) === 0xdc00;
}
