/**
 * Regular expressions from files. JavaScript's own matching takes exponential time for some of them: `(a+)+$` on forty
 * letters never ends. Here a state of the search, a step of the program at a place of the text, that has failed once is
 * never tried again, so splitting a text takes at most its length times the expression's, whatever the file says. It is
 * slower than RegExp, which serves the expressions of well-known models; those are known to be harmless.
 */
import { TransformersError } from '../errors';
import { compile, type Program } from './pattern-program';

/** Longest expression; the longest known has 1200 characters. */
const MOST_SOURCE = 16_384;
/** Bits that remember failed states, 128 MiB. */
const MOST_STATES = 2 ** 30;
/** Steps that looking ahead may take, beside those that are never repeated. */
const FREE_STEPS = 5_000_000;
const STEPS_PER_CHARACTER = 500;
/** A state that is met while looking ahead is remembered for that one look only, at a higher price. */
const STEPS_PER_LOOK = 16;

/** Stands in for a global RegExp in the methods of strings: match, matchAll, replaceAll and split. */
export class LinearPattern {
  readonly flags = 'gu';
  readonly source: string;
  readonly #program: Program;

  /** @param source of a RegExp with the flag u @throws TransformersError UNSUPPORTED_TOKENIZER */
  constructor(source: string) {
    this.source = source;
    if (source.length > MOST_SOURCE) throw this.#unsupported(`it is longer than ${MOST_SOURCE} characters`);
    try {
      this.#program = compile(source);
    } catch (cause) {
      throw this.#unsupported((cause as Error).message, cause);
    }
  }

  [Symbol.matchAll](text: string): Iterator<{ 0: string; index: number }> & Iterable<{ 0: string; index: number }> {
    return this.#matches(text);
  }

  [Symbol.match](text: string): string[] | null {
    const all = Array.from(this.#matches(text), (match) => match[0]);
    return all.length === 0 ? null : all;
  }

  /** `$$` in `content` is a dollar sign, as for RegExp; nothing else with one has a meaning. */
  [Symbol.replace](text: string, content: string): string {
    const put = content.replaceAll('$$', '$');
    const parts: string[] = [];
    let end = 0;
    for (const { 0: match, index } of this.#matches(text)) {
      parts.push(text.slice(end, index), put);
      end = index + match.length;
    }
    return parts.join('') + text.slice(end);
  }

  [Symbol.split](text: string): string[] {
    const parts: string[] = [];
    let end = 0;
    for (const { 0: match, index } of this.#matches(text)) {
      parts.push(text.slice(end, index));
      end = index + match.length;
    }
    return [...parts, text.slice(end)];
  }

  *#matches(text: string): Generator<{ 0: string; index: number }> {
    const search = new Search(this.#program, text);
    for (let at = 0; at <= text.length; ) {
      const end = search.from(at);
      if (end === TOO_LONG) {
        throw this.#unsupported(`a text of ${text.length} characters takes too long to split; encode it in parts`);
      }
      if (end >= 0) yield { 0: text.slice(at, end), index: at };
      at = end > at ? end : at + widthAt(text, at);
    }
  }

  #unsupported(what: string, cause?: unknown): TransformersError {
    const shown = this.source.length > 80 ? `${this.source.slice(0, 80)}...` : this.source;
    return new TransformersError(
      'UNSUPPORTED_TOKENIZER',
      `The tokenizer's pattern ${JSON.stringify(shown)} cannot be used: ${what}. Use the tokenizer.json of the model's authors.`,
      { cause },
    );
  }
}

const TOO_LONG = -2;

function widthAt(text: string, at: number): number {
  return (text.codePointAt(at) ?? 0) > 0xffff ? 2 : 1;
}

/** One text, searched from its beginning to its end. */
class Search {
  readonly #failed: Uint32Array | null;
  readonly #width: number;
  #steps: number;

  constructor(
    readonly program: Program,
    readonly text: string,
  ) {
    this.#width = text.length + 1;
    const states = program.splits * this.#width;
    this.#failed = states <= MOST_STATES ? new Uint32Array((states + 31) >>> 5) : null;
    this.#steps = FREE_STEPS + STEPS_PER_CHARACTER * text.length;
  }

  /** Where the match that begins at `at` ends, -1 when there is none. */
  from(at: number): number {
    const failed = this.#failed;
    if (failed === null) return TOO_LONG;
    const end = this.#run(0, at, (split, place) => {
      const state = split * this.#width + place;
      const bit = 1 << (state & 31);
      if ((failed[state >>> 5] & bit) !== 0) return false;
      failed[state >>> 5] |= bit;
      return true;
    });
    if (end < 0) return end;
    // States on the way of a match have not failed. Of those only the ones at its end can be met again.
    for (let split = 0; split < this.program.splits; split++) {
      const state = split * this.#width + end;
      failed[state >>> 5] &= ~(1 << (state & 31));
    }
    return end;
  }

  /** @param enter whether a state is to be tried: not if it was before */
  #run(start: number, at: number, enter: (split: number, place: number) => boolean): number {
    const { steps } = this.program;
    const { text } = this;
    const later = [start, at];
    while (later.length > 0) {
      let place = later.pop()!;
      let pc = later.pop()!;
      for (;;) {
        if (--this.#steps < 0) return TOO_LONG;
        const step = steps[pc];
        if (step.op === 'match') return place;
        if (step.op === 'jump') pc = step.to;
        else if (step.op === 'split') {
          if (!enter(step.index, place)) break;
          later.push(step.second, place);
          pc = step.first;
        } else if (step.op === 'look') {
          const found = this.#look(step, place);
          if (found === TOO_LONG) return TOO_LONG;
          if (found >= 0 === step.negated) break;
          pc = step.next;
        } else if (step.op === 'start' || step.op === 'end') {
          if (place !== (step.op === 'start' ? 0 : text.length)) break;
          pc++;
        } else {
          const code = text.codePointAt(place);
          if (code === undefined || !(step.op === 'character' ? step.code === code : step.has(code))) break;
          place += code > 0xffff ? 2 : 1;
          pc++;
        }
      }
    }
    return -1;
  }

  #look({ body, behind }: { body: number; behind: boolean }, place: number): number {
    let from = place;
    if (behind) {
      if (place === 0) return -1;
      from = place >= 2 && widthAt(this.text, place - 2) === 2 ? place - 2 : place - 1;
    }
    const tried = new Set<number>();
    return this.#run(body, from, (split, at) => {
      const state = split * this.#width + at;
      if (tried.has(state)) return false;
      tried.add(state);
      this.#steps -= STEPS_PER_LOOK;
      return true;
    });
  }
}
