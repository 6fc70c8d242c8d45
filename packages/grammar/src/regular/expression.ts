/**
 * Regular languages over bytes as expressions with intersection and complement, and the automaton that belongs to them:
 * a state is an expression, the step by a byte its derivative (J. A. Brzozowski, "Derivatives of regular expressions", 1964).
 * Equal expressions are one object, so steps are remembered where they are, and counted repetitions stay counts.
 */
import { GrammarError } from '../errors';
import { characters } from './characters';
import { escapeStep, hexStep, type JsonHex } from './json-string';
import { type Multiple, multipleAccepts, multipleStep } from './multiple';

export type Expression = Readonly<ExpressionParts> & {
  readonly id: number;
  /** Whether the empty text belongs to the language. */
  readonly nullable: boolean;
  /** Steps taken before, by byte. */
  steps: (Expression | undefined)[] | undefined;
  /** Whether any text belongs to it, once known. */
  productive: boolean | undefined;
  /** The first sequence that was made with this as its rest: nearly always the only one. */
  before: Expression | undefined;
};

type ExpressionParts =
  | { kind: 'empty' | 'epsilon' }
  /** One byte: 256 bits. */
  | { kind: 'bytes'; bytes: Uint32Array }
  | { kind: 'sequence'; first: Expression; rest: Expression }
  | { kind: 'either' | 'both'; items: readonly Expression[] }
  | { kind: 'not'; item: Expression }
  | { kind: 'repeat'; item: Expression; min: number; max: number }
  /** Digits of a multiple of a number. */
  | { kind: 'multiple'; multiple: Multiple }
  /** What follows the opening quote of a JSON string that stands for a text of `item`, with the closing quote. */
  | { kind: 'string'; item: Expression }
  /** The same, after a backslash. */
  | { kind: 'escape'; item: Expression }
  /** The same, inside of a `\u` escape. */
  | { kind: 'hex'; item: Expression; hex: JsonHex };

/** States that are looked at to learn whether an intersection is empty. */
const MOST_STATES = 200_000;
/** Expressions remembered, and those with steps, of 2 KiB; more are forgotten, which costs time only. */
const MOST_REMEMBERED = 400_000;
const MOST_STEPPED = 16_000;
/** Parts of expressions that are looked at for one mask or one check: a second or so. */
const MOST_WORK = 4_000_000;

let ids = 0;

/** Makes expressions, one object for equal ones. */
export class Expressions {
  private readonly known = new Map<string, Expression>();
  private readonly singles: Expression[] = [];
  private stepped: Expression[] = [];
  private work = 0;
  readonly empty: Expression = this.make('0', { kind: 'empty' }, false);
  readonly epsilon: Expression = this.make('1', { kind: 'epsilon' }, true);
  /** Every sequence of bytes. */
  readonly all: Expression = this.make('*', { kind: 'not', item: this.empty }, true);

  /** One character: every Unicode scalar value in UTF-8. */
  readonly character: Expression;

  constructor() {
    this.empty.productive = false;
    this.character = characters(this, [[0, 0x10ffff]]);
  }

  /** One byte out of a set of 256 bits. */
  bytes(bytes: Uint32Array): Expression {
    if (bytes.every((word) => word === 0)) return this.empty;
    const made = this.make(
      `b${Array.from(bytes, (word) => word.toString(36)).join(',')}`,
      { kind: 'bytes', bytes },
      false,
    );
    made.productive = true;
    return made;
  }

  /** Bytes from ranges, ends included. */
  range(...ends: readonly number[]): Expression {
    const bytes = new Uint32Array(8);
    for (let i = 0; i < ends.length; i += 2)
      for (let byte = ends[i]; byte <= ends[i + 1]; byte++) bytes[byte >>> 5] |= 1 << (byte & 31);
    return this.bytes(bytes);
  }

  sequence(...items: readonly Expression[]): Expression {
    let result = this.epsilon;
    for (let i = items.length - 1; i >= 0; i--) result = this.pair(items[i], result);
    return result;
  }

  private pair(first: Expression, rest: Expression): Expression {
    if (first.kind === 'empty' || rest.kind === 'empty') return this.empty;
    if (first.kind === 'epsilon') return rest;
    if (rest.kind === 'epsilon') return first;
    if (first === this.all && rest === this.all) return first;
    if (first.kind === 'sequence') return this.pair(first.first, this.pair(first.rest, rest));
    const { before } = rest;
    if (before?.kind === 'sequence' && before.first === first) return before;
    const nullable = first.nullable && rest.nullable;
    const parts: ExpressionParts = { kind: 'sequence', first, rest };
    const made = before ? this.make(`s${first.id},${rest.id}`, parts, nullable) : newExpression(parts, nullable);
    rest.before ??= made;
    // Known from the start, because texts are long and looking would go down to their ends.
    if (first.productive && rest.productive) made.productive = true;
    return made;
  }

  either(...items: readonly Expression[]): Expression {
    const parts = new Map<number, Expression>();
    /** Sets of bytes by what follows them. */
    const sets = new Map<Expression, Uint32Array>();
    const add = (item: Expression) => {
      if (item.kind === 'either') item.items.forEach(add);
      else if (item.kind === 'bytes') addSet(this.epsilon, item.bytes);
      else if (item.kind === 'sequence' && item.first.kind === 'bytes') addSet(item.rest, item.first.bytes);
      else if (item.kind !== 'empty') parts.set(item.id, item);
    };
    const addSet = (rest: Expression, bytes: Uint32Array) => {
      const set = sets.get(rest);
      if (set) for (let i = 0; i < 8; i++) set[i] |= bytes[i];
      else sets.set(rest, bytes.slice());
    };
    items.forEach(add);
    for (const [rest, bytes] of sets) {
      const item = this.pair(this.bytes(bytes), rest);
      parts.set(item.id, item);
    }
    if (parts.has(this.all.id)) return this.all;
    if (parts.size > 1 && parts.has(this.epsilon.id)) {
      for (const item of parts.values()) {
        if (item === this.epsilon || !item.nullable) continue;
        parts.delete(this.epsilon.id);
        break;
      }
    }
    return this.combined('either', [...parts.values()]);
  }

  both(...items: readonly Expression[]): Expression {
    const parts = new Map<number, Expression>();
    const add = (item: Expression) => {
      if (item.kind === 'both') item.items.forEach(add);
      else if (item !== this.all) parts.set(item.id, item);
    };
    items.forEach(add);
    if (parts.size === 0) return this.all;
    const all = [...parts.values()];
    if (all.some((item) => item.kind === 'empty' || (item.kind === 'not' && parts.has(item.item.id))))
      return this.empty;
    if (all.some((item) => item.kind === 'epsilon'))
      return all.every(({ nullable }) => nullable) ? this.epsilon : this.empty;
    return this.combined('both', all);
  }

  private combined(kind: 'either' | 'both', items: Expression[]): Expression {
    if (items.length === 0) return this.empty;
    if (items.length === 1) return items[0];
    items.sort((a, b) => a.id - b.id);
    const nullable = kind === 'both' ? items.every((item) => item.nullable) : items.some((item) => item.nullable);
    return this.make(`${kind[0]}${kind[1]}${items.map(({ id }) => id).join(',')}`, { kind, items }, nullable);
  }

  not(item: Expression): Expression {
    if (item === this.empty) return this.all;
    return item.kind === 'not' ? item.item : this.make(`n${item.id}`, { kind: 'not', item }, !item.nullable);
  }

  repeat(item: Expression, min: number, max: number): Expression {
    if (max === 0 || item.kind === 'epsilon') return this.epsilon;
    if (item.kind === 'empty') return min === 0 ? this.epsilon : item;
    if (min === 1 && max === 1) return item;
    if (item === this.all) return item;
    const least = item.nullable ? 0 : min;
    if (least === 0 && item.kind === 'repeat' && item.max === Number.POSITIVE_INFINITY && item.min <= 1)
      return this.repeat(item.item, 0, item.max);
    return this.make(`r${item.id},${least},${max}`, { kind: 'repeat', item, min: least, max }, least === 0);
  }

  multiple(multiple: Multiple): Expression {
    const { of, remainder, places, seen } = multiple;
    return this.make(
      `m${of},${remainder},${places},${seen}`,
      { kind: 'multiple', multiple },
      multipleAccepts(multiple),
    );
  }

  string(item: Expression): Expression {
    return item.kind === 'empty' ? item : this.make(`"${item.id}`, { kind: 'string', item }, false);
  }

  escape(item: Expression): Expression {
    return this.make(`\\${item.id}`, { kind: 'escape', item }, false);
  }

  hex(item: Expression, hex: JsonHex): Expression {
    return this.make(`u${item.id},${hex.digits},${hex.value},${hex.high}`, { kind: 'hex', item, hex }, false);
  }

  private one(byte: number): Expression {
    this.singles[byte] ??= this.range(byte, byte);
    return this.singles[byte];
  }

  /** A text as it is, in UTF-8. */
  literal(text: string): Expression {
    return this.literalBytes(Buffer.from(text, 'utf8'));
  }

  literalBytes(bytes: Uint8Array): Expression {
    let result = this.epsilon;
    for (let i = bytes.length - 1; i >= 0; i--) result = this.pair(this.one(bytes[i]), result);
    return result;
  }

  /** Any of these texts. */
  literals(texts: readonly string[]): Expression {
    const sorted = [...new Set(texts)].map((text) => Buffer.from(text, 'utf8')).sort(Buffer.compare);
    const build = (from: number, to: number, depth: number): Expression => {
      // In the order of a tree of their bytes, so that neighbours share what they begin with.
      const parts: Expression[] = [];
      let at = from;
      if (at < to && sorted[at].length === depth) {
        parts.push(this.epsilon);
        at++;
      }
      while (at < to) {
        const byte = sorted[at][depth];
        let end = at;
        while (end < to && sorted[end][depth] === byte) end++;
        parts.push(
          end - at === 1
            ? this.literalBytes(sorted[at].subarray(depth))
            : this.sequence(this.one(byte), build(at, end, depth + 1)),
        );
        at = end;
      }
      return this.either(...parts);
    };
    return build(0, sorted.length, 0);
  }

  /** What may follow a byte: {@link empty} where no text goes on so. */
  step(state: Expression, byte: number): Expression {
    if (state.kind === 'bytes') return has(state.bytes, byte) ? this.epsilon : this.empty;
    if (state.kind === 'sequence' && state.first.kind === 'bytes')
      return has(state.first.bytes, byte) ? state.rest : this.empty;
    const known = state.steps?.[byte];
    if (known) return known;
    const next = this.derivative(state, byte);
    const step = this.isProductive(next) ? next : this.empty;
    if (!state.steps) {
      if (this.stepped.length >= MOST_STEPPED) {
        for (const one of this.stepped) one.steps = undefined;
        this.stepped = [];
      }
      state.steps = new Array(256);
      this.stepped.push(state);
    }
    state.steps[byte] = step;
    return step;
  }

  /** Begins to count the work of {@link step} anew: it throws GrammarError TOO_LARGE where that takes seconds. */
  startWork(): void {
    this.work = 0;
  }

  private derivative(of: Expression, byte: number): Expression {
    this.work += of.kind === 'either' || of.kind === 'both' ? of.items.length : 1;
    if (this.work > MOST_WORK) {
      throw new GrammarError(
        'TOO_LARGE',
        'Texts, patterns or conditions are too long or can be met in too many ways to be followed; give shorter and simpler ones, with fewer nested repetitions.',
      );
    }
    switch (of.kind) {
      case 'empty':
      case 'epsilon':
        return this.empty;
      case 'bytes':
        return has(of.bytes, byte) ? this.epsilon : this.empty;
      case 'sequence': {
        const next = this.pair(this.part(of.first, byte), of.rest);
        return of.first.nullable ? this.either(next, this.part(of.rest, byte)) : next;
      }
      case 'either':
        return this.either(...of.items.map((item) => this.part(item, byte)));
      case 'both': {
        const parts: Expression[] = [];
        for (const item of of.items) {
          const part = this.part(item, byte);
          if (part === this.empty) return part;
          parts.push(part);
        }
        return this.both(...parts);
      }
      case 'not':
        return this.not(this.part(of.item, byte));
      case 'repeat':
        return this.pair(this.part(of.item, byte), this.repeat(of.item, Math.max(0, of.min - 1), of.max - 1));
      case 'multiple': {
        const next = multipleStep(of.multiple, byte);
        return next ? this.multiple(next) : this.empty;
      }
      case 'string':
        if (byte === 0x22) return of.item.nullable ? this.epsilon : this.empty;
        if (byte === 0x5c) return this.escape(of.item);
        return byte < 0x20 ? this.empty : this.string(this.step(of.item, byte));
      case 'escape':
        return escapeStep(this, of.item, byte);
      case 'hex':
        return hexStep(this, of.item, of.hex, byte);
    }
  }

  /** {@link derivative}, remembered. */
  private part(of: Expression, byte: number): Expression {
    if (of.kind === 'bytes') return has(of.bytes, byte) ? this.epsilon : this.empty;
    return this.step(of, byte);
  }

  /**
   * Whether any text belongs to the language.
   * @throws GrammarError TOO_LARGE for intersections with very many states
   */
  isProductive(of: Expression): boolean {
    if (of.productive !== undefined) return of.productive;
    if (of.nullable) return true;
    of.productive = this.findProductive(of);
    return of.productive;
  }

  private findProductive(of: Expression): boolean {
    switch (of.kind) {
      case 'sequence':
        return this.isProductive(of.first) && this.isProductive(of.rest);
      case 'either':
        return of.items.some((item) => this.isProductive(item));
      case 'repeat':
      case 'string':
        return this.isProductive(of.item);
      case 'both':
      case 'not':
      case 'multiple':
        return this.search(of);
      case 'escape':
      case 'hex':
        return this.anyStep(of);
      default:
        return true;
    }
  }

  private anyStep(of: Expression): boolean {
    for (let byte = 0; byte < 256; byte++) if (this.isProductive(this.derivative(of, byte))) return true;
    return false;
  }

  /** Looks for a text, depth first. What is found to lead nowhere is remembered, and so is the way to a text. */
  private search(start: Expression): boolean {
    const seen = new Set<Expression>([start]);
    const path: { state: Expression; byte: number }[] = [{ state: start, byte: 0 }];
    while (path.length > 0) {
      const top = path[path.length - 1];
      if (top.byte === 256) {
        path.pop();
        continue;
      }
      const byte = searchOrder[top.byte++];
      const next = this.derivative(top.state, byte);
      const isKnown = next.nullable || next.productive || (!isSearched(next) && this.isProductive(next));
      if (isKnown) {
        for (const { state } of path) state.productive = true;
        return true;
      }
      if (next.productive === false || seen.has(next) || !isSearched(next)) continue;
      seen.add(next);
      if (seen.size > MOST_STATES) {
        throw new GrammarError(
          'TOO_LARGE',
          `Whether any text meets several conditions at once is not known after ${MOST_STATES} states; give simpler patterns or smaller lengths and multiples.`,
        );
      }
      path.push({ state: next, byte: 0 });
    }
    for (const state of seen) state.productive = false;
    return false;
  }

  private make(key: string, parts: ExpressionParts, nullable: boolean): Expression {
    const known = this.known.get(key);
    if (known) return known;
    const made = newExpression(parts, nullable);
    if (this.known.size >= MOST_REMEMBERED) this.known.clear();
    this.known.set(key, made);
    return made;
  }
}

function newExpression(parts: ExpressionParts, nullable: boolean): Expression {
  const productive = nullable ? true : undefined;
  return { ...parts, id: ++ids, nullable, steps: undefined, productive, before: undefined };
}

/** Kinds of which only a search tells whether they are empty. */
function isSearched({ kind }: Expression): boolean {
  return kind === 'both' || kind === 'not' || kind === 'multiple' || kind === 'sequence' || kind === 'either';
}

/** Bytes in the order in which texts are looked for: digits and letters first. */
const searchOrder: readonly number[] = (() => {
  const first = [...Buffer.from('0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-_.:/@ ')];
  const rest = Array.from({ length: 256 }, (_, byte) => byte).filter((byte) => !first.includes(byte));
  return [...first, ...rest];
})();

export function has(bytes: Uint32Array, byte: number): boolean {
  return ((bytes[byte >>> 5] >>> (byte & 31)) & 1) === 1;
}
