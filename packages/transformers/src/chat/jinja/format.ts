/** Python's two ways to put values into a text, as far as templates use them: `'%s' % x` and `'{}'.format(x)`; and dates. */
import type { Budget } from './budget';
import { templateError } from './budget';
import { type Arguments, numberOf, repr, str, Tuple, typeName, type Value } from './values';

/** `text % values`. */
export function formatPercent(text: string, values: Value, budget: Budget): string {
  const items = values instanceof Tuple ? values.items : [values];
  let next = 0;
  const result = text.replace(/%([-+ 0#]*)(\d*)(?:\.(\d+))?(.?)/gs, (_, flags, width, precision, kind) => {
    if (kind === '%') return '%';
    if (next >= items.length) throw templateError('a text to be formatted asks for more values than there are');
    const value = items[next++];
    const size = Math.min(Number(width), 1000);
    const formatted = converted(value, kind, precision === undefined ? undefined : Math.min(Number(precision), 100));
    budget.length(size);
    if (flags.includes('-')) return formatted.padEnd(size);
    return formatted.padStart(size, flags.includes('0') && kind !== 's' ? '0' : ' ');
  });
  if (next < items.length) throw templateError('a text to be formatted has no place for all values');
  return budget.text(result);

  function converted(value: Value, kind: string, precision: number | undefined): string {
    if (kind === 's') return str(value, budget).slice(0, precision);
    if (kind === 'r') return repr(value, budget);
    const number = numberOf(value);
    if (number === undefined) throw templateError(`%${kind} is given a ${typeName(value)}`);
    if (kind === 'd' || kind === 'i') return String(Math.trunc(number));
    if (kind === 'f') return number.toFixed(precision ?? 6);
    if (kind === 'x') return Math.trunc(number).toString(16);
    throw templateError(`%${kind} is not known here`);
  }
}

/** `text.format(...)` with `{}`, `{0}` and `{name}`. */
export function formatBraces(text: string, given: Arguments, budget: Budget): string {
  let next = 0;
  const result = text.replace(/\{\{|\}\}|\{([^{}]*)\}|[{}]/g, (match, name?: string) => {
    if (match === '{{') return '{';
    if (match === '}}') return '}';
    if (name === undefined || !/^\w*$/.test(name)) throw templateError(`format does not know ${match} here`);
    const value = /^\d*$/.test(name) ? given.args[name === '' ? next++ : Number(name)] : given.named.get(name);
    if (value === undefined) throw templateError(`format has no value for ${match}`);
    return budget.text(str(value, budget));
  });
  return budget.text(result);
}

const MONTHS = 'January February March April May June July August September October November December'.split(' ');
const DAYS = 'Sunday Monday Tuesday Wednesday Thursday Friday Saturday'.split(' ');

/** `strftime` in local time, with English names whatever the machine's language. */
export function strftime(date: Date, format: string): string {
  const two = (value: number) => String(value).padStart(2, '0');
  const hour = date.getHours() % 12 || 12;
  const fields: Readonly<Record<string, string>> = {
    Y: String(date.getFullYear()),
    y: two(date.getFullYear() % 100),
    m: two(date.getMonth() + 1),
    B: MONTHS[date.getMonth()],
    b: MONTHS[date.getMonth()].slice(0, 3),
    d: two(date.getDate()),
    e: String(date.getDate()).padStart(2),
    A: DAYS[date.getDay()],
    a: DAYS[date.getDay()].slice(0, 3),
    H: two(date.getHours()),
    I: two(hour),
    p: date.getHours() < 12 ? 'AM' : 'PM',
    M: two(date.getMinutes()),
    S: two(date.getSeconds()),
    '%': '%',
  };
  return format.replace(/%(-?)(.)/g, (match, dash, key) => {
    if (!Object.hasOwn(fields, key)) return match;
    return dash ? fields[key].replace(/^[0 ](?=.)/, '') : fields[key];
  });
}
