/**
 * Texts of control tokens that messages hold, such as `<|im_end|>`: a character within keeps each from becoming the token. What of a
 * prompt is known already is told from its text by the same characters.
 */
import { TransformersError } from '../errors';

/** Characters that Unicode keeps for programs. */
const FIRST = 0xfdd0;
const LAST = 0xfdef;

/** One of them that no text holds. */
export function unusedCharacter(texts: readonly string[], fromEnd = false): string {
  for (let i = 0; i <= LAST - FIRST; i++) {
    const character = String.fromCharCode(fromEnd ? LAST - i : FIRST + i);
    if (!texts.some((text) => text.includes(character))) return character;
  }
  throw new TransformersError(
    'BAD_MESSAGES',
    'chat: the messages hold each of the characters U+FDD0 to U+FDEF, which are not for text; leave them out.',
  );
}

/** Puts `breaker` behind the first character of each of `controls` in a text. */
export function markerOf(controls: readonly string[], breaker: string): (text: string) => string {
  const byStart = new Map<string, string[]>();
  for (const control of controls) {
    const start = control.slice(0, 2);
    byStart.set(start, [...(byStart.get(start) ?? []), control]);
  }
  return (text) => {
    let result = '';
    let done = 0;
    for (let i = 0; i + 1 < text.length; i++) {
      const group = byStart.get(text.slice(i, i + 2));
      if (!group?.some((control) => text.startsWith(control, i))) continue;
      result += text.slice(done, i + 1) + breaker;
      done = i + 1;
    }
    return result + text.slice(done);
  };
}

/** In place of the characters that break control texts, which differ from prompt to prompt. */
export const BROKEN = '\uffff';

/** Whether `text` begins with `known`, and nothing or a control text follows. */
export function isFollowed(text: string, known: string, controls: readonly string[]): boolean {
  if (!text.startsWith(known)) return false;
  return text.length === known.length || controls.some((control) => text.startsWith(control, known.length));
}
