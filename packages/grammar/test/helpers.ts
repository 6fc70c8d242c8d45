/** Vocabularies and random texts for tests. */
import { type Grammar, Vocabulary } from '../src';

/** Every byte as a token, then `words`, and an end token behind them. */
export function vocabularyOf(words: readonly (string | Uint8Array)[] = []): Vocabulary {
  const tokens = [
    ...Array.from({ length: 256 }, (_, byte) => Buffer.from([byte])),
    ...words.map((word) => Buffer.from(word as string)),
  ];
  return new Vocabulary({ size: tokens.length + 1, bytes: (id) => tokens[id], endIds: [tokens.length] });
}

/** Numbers of 0 to 1, the same ones for a seed. */
export function randomOf(seed: number): () => number {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let value = Math.imul(state ^ (state >>> 15), state | 1);
    value ^= value + Math.imul(value ^ (value >>> 7), value | 61);
    return ((value ^ (value >>> 14)) >>> 0) / 2 ** 32;
  };
}

export function idsOf(mask: Uint32Array): number[] {
  const ids: number[] = [];
  mask.forEach((word, i) => {
    for (let bit = 0; bit < 32; bit++) if ((word >>> bit) & 1) ids.push(i * 32 + bit);
  });
  return ids;
}

/**
 * A text that a model of no taste writes under a grammar: any allowed token, and after `most` tokens rather those that close
 * something. Undefined where it does not come to an end.
 */
export function randomText(
  grammar: Grammar,
  vocabulary: Vocabulary,
  random: () => number,
  most = 60,
): string | undefined {
  const matcher = grammar.matcher(vocabulary);
  const end = vocabulary.endIds[0];
  const bytes: Buffer[] = [];
  for (let count = 0; count < most + 3000; count++) {
    const ids = idsOf(matcher.mask());
    if (ids.length === 0) throw new Error(`nothing may come after ${Buffer.concat(bytes)}`);
    const isLate = count > most;
    if (ids.includes(end) && (isLate || ids.length === 1 || random() < 0.2)) return Buffer.concat(bytes).toString();
    const closing = isLate ? ids.filter((id) => id < 256 && '"]}0'.includes(String.fromCharCode(id))) : [];
    const from = closing.length > 0 ? closing : ids.filter((id) => id !== end);
    // Plain characters more often than control ones and bytes of long ones.
    const plain = from.filter((id) => id >= 256 || (id >= 0x20 && id < 0x7f));
    const some = plain.length > 0 && random() < 0.8 ? plain : from;
    const id = some[Math.floor(random() * some.length)];
    matcher.accept(id);
    bytes.push(Buffer.from(vocabulary.text(id)!));
  }
  return undefined;
}
