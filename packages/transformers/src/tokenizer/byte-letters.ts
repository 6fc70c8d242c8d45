/** The characters that stand for bytes in byte-level vocabularies: printable ones for themselves, others from U+0100 on (GPT-2). */

const LETTERS: readonly string[] = (() => {
  let next = 0x100;
  return Array.from({ length: 256 }, (_, byte) => {
    const isPrintable = (byte > 0x20 && byte < 0x7f) || (byte > 0xa0 && byte !== 0xad);
    return String.fromCharCode(isPrintable ? byte : next++);
  });
})();
const BYTES: ReadonlyMap<string, number> = new Map(LETTERS.map((letter, byte) => [letter, byte]));

/** ASCII that stands for itself. */
const PLAIN = /^[!-~]+$/;
/** By character of 16 bits, of those that were asked for. */
const OF_CHARACTERS: (string | undefined)[] = new Array(0x10000);

/** A text with a letter for each byte of its UTF-8; half a character is U+FFFD. */
export function lettersOf(text: string): string {
  if (PLAIN.test(text)) return text;
  let letters = '';
  for (const character of text) {
    if (character.length > 1) letters += encoded(character);
    else letters += OF_CHARACTERS[character.charCodeAt(0)] ??= encoded(character);
  }
  return letters;
}

function encoded(character: string): string {
  let letters = '';
  for (const byte of Buffer.from(character, 'utf8')) letters += LETTERS[byte];
  return letters;
}

/** The bytes that a token stands for; a character that stands for none is decoded as zero. */
export function bytesOf(letters: string): Uint8Array {
  return Uint8Array.from(Array.from(letters), (letter) => BYTES.get(letter) ?? 0);
}
