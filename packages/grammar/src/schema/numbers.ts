/** The texts of numbers. */
import type { Expression } from '../regular/expression';
import { MOST_DIVISOR } from '../regular/multiple';
import { decimalOf } from '../text/decimal';
import type { NumberCase } from './case';
import { unsupported } from './complaints';
import type { Interval } from './interval';
import type { Writer } from './writer';

/** Digits of which every number of JavaScript reads back as it was written. */
const EXACT_DIGITS = 15;

/**
 * Whole numbers are written as such and are at most 2^53 - 1; others have at most 15 digits, and an exponent of up to two digits
 * where there are no bounds. So `JSON.parse` gives the number that was written.
 * @param isUnique each number in one form only
 */
export function numberTexts(writer: Writer, of: NumberCase, isUnique: boolean): Expression {
  // Most numbers of a schema are of few kinds.
  const key = `${isUnique} ${JSON.stringify(of, (_, value) => (Math.abs(value) === Number.POSITIVE_INFINITY ? String(value) : value))}`;
  const known = writer.numbers.get(key);
  if (known) return known;
  const texts = writer.make.either(...of.intervals.map((interval) => intervalTexts(writer, of, interval, isUnique)));
  writer.numbers.set(key, texts);
  return texts;
}

function intervalTexts(writer: Writer, of: NumberCase, interval: Interval, isUnique: boolean): Expression {
  const { make } = writer;
  const { low, high } = interval;
  if (low === high) return meets(low, of) ? make.literal(JSON.stringify(low)) : make.empty;
  const isWhole = of.multiples.some(Number.isInteger);
  const isBounded = low > Number.NEGATIVE_INFINITY || high < Number.POSITIVE_INFINITY;
  const hasFactors = of.multiples.length + of.notMultiples.length > 0;
  const positive = magnitudes(writer, of, interval, isUnique);
  const mirrored = { low: -high, high: -low, isLowOpen: interval.isHighOpen, isHighOpen: interval.isLowOpen };
  // Zero has no sign.
  const isBelow = mirrored.low > 0 || (mirrored.low === 0 && mirrored.isLowOpen);
  const negative =
    mirrored.high > 0
      ? magnitudes(writer, of, isBelow ? mirrored : { ...mirrored, low: 0, isLowOpen: true }, isUnique)
      : make.empty;
  const signed = make.either(positive, make.sequence(make.literal('-'), negative));
  if (isWhole || isBounded || hasFactors || isUnique) return signed;
  return make.sequence(signed, make.either(make.epsilon, writer.decimals.exponent));
}

/** Numbers of an interval that are not negative, without a sign. */
function magnitudes(writer: Writer, of: NumberCase, interval: Interval, isUnique: boolean): Expression {
  const { make, decimals } = writer;
  const isWhole = of.multiples.some(Number.isInteger);
  const { high, isHighOpen } = interval;
  if (high < 0 || (high === 0 && isHighOpen)) return make.empty;
  const parts: Expression[] = [];
  if (isWhole) parts.push(decimals.whole);
  else parts.push(make.sequence(decimals.whole, decimals.fraction(isUnique)), decimals.length(EXACT_DIGITS));
  if (interval.low > 0 || (interval.low === 0 && interval.isLowOpen))
    parts.push(decimals.atLeast(decimalOf(interval.low), interval.isLowOpen));
  if (isWhole && high >= Number.MAX_SAFE_INTEGER)
    parts.push(decimals.atMost(decimalOf(Number.MAX_SAFE_INTEGER), false));
  else if (high < Number.POSITIVE_INFINITY) parts.push(decimals.atMost(decimalOf(high), isHighOpen));
  for (const multiple of of.multiples) if (multiple !== 1) parts.push(multipleTexts(writer, multiple));
  for (const multiple of of.notMultiples) parts.push(make.not(multipleTexts(writer, multiple)));
  return make.both(...parts);
}

function multipleTexts({ make }: Writer, multiple: number): Expression {
  const { whole, fraction } = decimalOf(multiple);
  const zeros = fraction === '' ? /0*$/.exec(whole)![0].length : 0;
  const digits = (whole + fraction).slice(0, whole.length + fraction.length - zeros);
  if (Number(digits) > MOST_DIVISOR || fraction.length > EXACT_DIGITS)
    unsupported(
      '',
      `multipleOf ${multiple} has too many digits; at most ${MOST_DIVISOR} times a power of ten is possible`,
    );
  const exact = make.multiple({ of: Number(digits), remainder: 0, places: fraction.length, seen: -1 });
  const behind = make.repeat(make.literal('0'), zeros, zeros);
  return zeros === 0 ? exact : make.either(make.literal('0'), make.sequence(exact, behind));
}

/** Whether a number is what its multiples say, as decimals and exactly. */
function meets(value: number, { multiples, notMultiples }: NumberCase): boolean {
  const isMultiple = (multiple: number) => {
    const [a, b] = [decimalOf(value), decimalOf(multiple)];
    const places = Math.max(a.fraction.length, b.fraction.length);
    const [x, y] = [a, b].map(({ whole, fraction }) => BigInt(whole + fraction.padEnd(places, '0')));
    return x % y === 0n;
  };
  return multiples.every(isMultiple) && !notMultiples.some(isMultiple);
}
