/** Decimal numbers as texts: ranges and multiples, exactly. */
import type { Expression, Expressions } from '../regular/expression';

/** A number without its sign: digits before the point, without leading zeros, and behind it, without trailing ones. */
export interface Decimal {
  readonly whole: string;
  readonly fraction: string;
}

/** The shortest decimal that reads as a number's absolute value, without an exponent. */
export function decimalOf(value: number): Decimal {
  const [digits, exponent = '0'] = String(Math.abs(value)).split('e');
  const [whole, fraction = ''] = digits.split('.');
  const shift = Number(exponent);
  const all = whole + fraction;
  const point = whole.length + shift;
  const before = point <= 0 ? '0' : all.slice(0, point).padEnd(point, '0');
  const behind = point <= 0 ? '0'.repeat(-point) + all : all.slice(point);
  return { whole: before.replace(/^0+(?=.)/, ''), fraction: behind.replace(/0+$/, '') };
}

/** Texts of decimals; what they are compared with, `[0-9]+(\.[0-9]+)?` without needless zeros in front, is left to others. */
export class Decimals {
  private readonly digit: Expression;
  private readonly digits: Expression;
  private readonly point: Expression;
  private readonly zeros: Expression;
  /** Nothing, or a point and digits. */
  private readonly tail: Expression;

  constructor(private readonly make: Expressions) {
    this.digit = this.between('0', '9');
    this.digits = make.repeat(this.digit, 0, Number.POSITIVE_INFINITY);
    this.point = make.literal('.');
    this.zeros = make.repeat(make.literal('0'), 0, Number.POSITIVE_INFINITY);
    this.tail = make.either(make.epsilon, make.sequence(this.point, this.digits));
  }

  /** Whole numbers without a sign. */
  get whole(): Expression {
    return this.make.either(this.make.literal('0'), this.make.sequence(this.between('1', '9'), this.digits));
  }

  /** Behind a whole number: nothing, or a fraction, with `isShortest` one that does not end in zero. */
  fraction(isShortest: boolean): Expression {
    const { make, digit, digits, point } = this;
    const last = isShortest
      ? make.sequence(digits, this.between('1', '9'))
      : make.repeat(digit, 1, Number.POSITIVE_INFINITY);
    return make.either(make.epsilon, make.sequence(point, last));
  }

  /** At most this many digits. */
  length(digits: number): Expression {
    return this.make.repeat(this.make.either(this.digit, this.point), 1, digits + 1);
  }

  /** A power of ten of up to two digits. */
  get exponent(): Expression {
    const { make } = this;
    const sign = make.either(make.epsilon, make.literal('+'), make.literal('-'));
    return make.sequence(make.either(make.literal('e'), make.literal('E')), sign, make.repeat(this.digit, 1, 2));
  }

  /** Not below a bound, or above it. */
  atLeast({ whole, fraction }: Decimal, isOpen: boolean): Expression {
    const { make, digit, digits, point, tail } = this;
    const more = Number.POSITIVE_INFINITY;
    const parts = [make.sequence(make.repeat(digit, whole.length + 1, more), tail)];
    this.differing(whole, '9', parts, (left) => make.sequence(make.repeat(digit, left, left), tail));
    const nonZero = make.sequence(digits, this.between('1', '9'), digits);
    if (fraction === '') parts.push(make.sequence(make.literal(whole), isOpen ? make.sequence(point, nonZero) : tail));
    else {
      const behind: Expression[] = [];
      this.differing(fraction, '9', behind, () => digits);
      behind.push(make.sequence(make.literal(fraction), isOpen ? nonZero : digits));
      parts.push(make.sequence(make.literal(`${whole}.`), make.either(...behind)));
    }
    return make.either(...parts);
  }

  /** Not above a bound, or below it. */
  atMost({ whole, fraction }: Decimal, isOpen: boolean): Expression {
    const { make, digit, digits, point, zeros, tail } = this;
    const parts = [make.sequence(make.repeat(digit, 1, whole.length - 1), tail)];
    if (whole.length === 1) parts.pop();
    this.differing(whole, '0', parts, (left) => make.sequence(make.repeat(digit, left, left), tail));
    if (fraction === '') {
      const same = make.either(make.epsilon, make.sequence(point, zeros));
      if (!isOpen) parts.push(make.sequence(make.literal(whole), same));
    } else {
      const behind: Expression[] = [];
      this.differing(fraction, '0', behind, () => digits);
      for (let length = 1; length < fraction.length; length++) behind.push(make.literal(fraction.slice(0, length)));
      if (!isOpen) behind.push(make.sequence(make.literal(fraction), zeros));
      const less = make.sequence(point, make.either(...behind));
      parts.push(make.sequence(make.literal(whole), make.either(make.epsilon, less)));
    }
    return make.either(...parts);
  }

  /** Texts that have the first digits of `text`, then one on the way to `end`, then `rest` of as many as are left. */
  private differing(text: string, end: '0' | '9', parts: Expression[], rest: (left: number) => Expression): void {
    for (let i = 0; i < text.length; i++) {
      if (text[i] === end) continue;
      const next = String.fromCharCode(text.charCodeAt(i) + (end === '9' ? 1 : -1));
      const other = end === '9' ? this.between(next, '9') : this.between('0', next);
      parts.push(this.make.sequence(this.make.literal(text.slice(0, i)), other, rest(text.length - i - 1)));
    }
  }

  private between(first: string, last: string): Expression {
    return this.make.range(first.charCodeAt(0), last.charCodeAt(0));
  }
}
