/** Values of any kind in a few words, for messages. Nothing here throws, and what is shown is short, whatever the value is. */

/** Characters of a text, and of one inside a list or an object. */
const MOST_TEXT = 120;
const MOST_INNER_TEXT = 40;
/** Items of a list or an object, of which none begins behind so many characters. */
const MOST_ITEMS = 8;
const MOST_CHARACTERS = 100;
/** Larger integers take their time to write in digits. */
const MOST_BITS = 256;

/**
 * A value as it would be written, as in `[2, "3"]` or `{ stride: 2 }`, cut where it is long. Lists and objects inside
 * others are not written out, and no getter is called.
 */
export function show(value: unknown): string {
  return written(value, false);
}

/**
 * A value of a request, of which a message says no more than what it is, since messages end in logs: "a list", "a long
 * text"; undefined is "missing".
 */
export function showField(value: unknown): string {
  if (value === undefined) return 'missing';
  if (typeof value === 'string' && value.length > 64) return 'a long text';
  if (typeof value !== 'object' || value === null) return show(value);
  return isList(value) ? 'a list' : 'an object';
}

function written(value: unknown, isInner: boolean): string {
  switch (typeof value) {
    case 'string':
      return JSON.stringify(cut(value, isInner ? MOST_INNER_TEXT : MOST_TEXT));
    case 'bigint':
      return BigInt.asIntN(MOST_BITS, value) === value ? `${value}n` : `a bigint of more than ${MOST_BITS} bits`;
    case 'symbol':
      return cut(String(value), MOST_INNER_TEXT);
    case 'function':
      return 'a function';
    case 'object':
      return value === null ? 'null' : writtenObject(value, isInner);
    default:
      return String(value);
  }
}

function writtenObject(value: object, isInner: boolean): string {
  try {
    if (Array.isArray(value)) return isInner ? '[…]' : writtenList(value);
    const prototype = Object.getPrototypeOf(value);
    if (prototype === null || prototype === Object.prototype) return isInner ? '{…}' : writtenFields(value);
    if (typeof prototype.describe === 'function') return cut(String(prototype.describe.call(value)), MOST_TEXT);
    const name = prototype.constructor?.name;
    if (typeof name !== 'string' || name === '' || name === 'Object') return 'an object';
    if (!isInner && ArrayBuffer.isView(value) && 'length' in value)
      return `${name} ${writtenList(value as unknown as ArrayLike<unknown>)}`;
    return `an object of class ${cut(name, MOST_INNER_TEXT)}`;
  } catch {
    // Proxies can refuse anything.
    return 'an object';
  }
}

function writtenList(list: ArrayLike<unknown>): string {
  const [items, isCut] = taken(list.length, (i) => member(list, i));
  return `[${[...items, ...(isCut ? ['…'] : [])].join(', ')}]`;
}

function writtenFields(value: object): string {
  const keys = Object.keys(value);
  const [items, isCut] = taken(keys.length, (i) => `${writtenKey(keys[i])}: ${member(value, keys[i])}`);
  return items.length === 0 ? '{}' : `{ ${[...items, ...(isCut ? ['…'] : [])].join(', ')} }`;
}

/** The first items, and whether there are more. */
function taken(length: number, item: (i: number) => string): [items: string[], isCut: boolean] {
  const items: string[] = [];
  for (let i = 0, characters = 0; i < length; i++) {
    if (i === MOST_ITEMS || characters > MOST_CHARACTERS) return [items, true];
    items.push(item(i));
    characters += items[i].length;
  }
  return [items, false];
}

function member(owner: object, key: PropertyKey): string {
  const property = Object.getOwnPropertyDescriptor(owner, key);
  return property?.get ? '…' : written(property?.value, true);
}

function writtenKey(key: string): string {
  return /^[\w$]{1,40}$/.test(key) ? key : written(key, true);
}

function isList(value: object): boolean {
  try {
    return Array.isArray(value);
  } catch {
    return false;
  }
}

function cut(text: string, most: number): string {
  return text.length > most ? `${text.slice(0, most)}…` : text;
}
